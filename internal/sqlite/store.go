// Package sqlite keeps intents in one SQLite file. It holds all SQL, the
// connections, the commit loop and the owners; what an intent means is not
// known here.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/internal/clock"
	"github.com/idem-go/idem/internal/owner"
)

// Errors that callers tell apart.
var (
	ErrBusy     = errors.New("the row moved, or another owner has it")
	ErrNotFound = errors.New("no such row")
	ErrClosed   = errors.New("the journal is closed")
	// ErrNothingWritten means that the transaction did not get to its COMMIT.
	ErrNothingWritten = errors.New("nothing was written")
	// ErrMayBeWritten means that COMMIT failed: what recovery finds is not known.
	ErrMayBeWritten = errors.New("the commit failed and may be durable all the same")
	// ErrReplaced means that the path no longer names the file that is open.
	ErrReplaced = errors.New("the file was deleted or replaced while it was open")
	// ErrDamaged means that there is an intent, and nothing tells how it stands.
	ErrDamaged = errors.New("the file is damaged: the intent is there, its status is not")
)

const (
	readers       = 2
	setupPatience = 30 * time.Second
	closePatience = 5 * time.Second
)

// Options of Open.
type Options struct {
	MustExist    bool
	SyncOutcomes bool          // posted updates are synced before Update returns
	PruneAfter   time.Duration // of settled rows
	Sealer       Sealer        // nil: nothing is sealed

	NoRequestBodies, NoResponseBodies bool // they are not written

	statfs func(dir string) (uint32, error)        // nil: the system's
	owner  func(fs.FileInfo) (uid int, known bool) // nil: the system's
}

// Store is one handle on a journal file, and one owner.
type Store struct {
	path   string
	opts   Options
	files  [3]openFile // the file itself, its -wal and its -shm
	folder owner.Folder
	owner  *self
	id     int64 // of the owner row
	seal   *sealing

	// Clock is what this handle goes by.
	Clock clock.Clock

	// The writer's token and what waits for it. The token is held while busy is
	// set; its holder alone uses the fields after it.
	mu        sync.Mutex
	queue     []*item // wait for their commit
	posted    []*item // nobody waits for them
	postedLen int     // bytes
	batch     []*item // the transaction that runs
	flying    int     // posted ones in it
	busy      bool
	closing   bool
	retrying  bool          // a goroutine will lead once a pause is over
	idle      chan struct{} // closed when the token is given back while closing

	writer *conn // nil: reopen before use
	shared int   // waiting items in the last batch
	chores chores
	pause  time.Duration // after a failure

	running runningCalls
	began   atomic.Int64 // when the last attempt of this handle began
	books   books        // for Stats

	readers chan *conn
	done    chan struct{} // closed by Close
	helpers sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

// Open opens the journal at path, or makes it. It fails now rather than at the
// first request.
func Open(path string, opts Options) (_ *Store, err error) {
	if opts.statfs == nil {
		opts.statfs = statfs
	}
	real, exists, err := locate(path)
	if err != nil {
		return nil, err
	}
	if err := checkFilesystem(filepath.Dir(real), opts.statfs); err != nil {
		return nil, err
	}
	if err := opts.place().check(real, real+"-owners", false); err != nil {
		return nil, err
	}
	if exists {
		_, err = inspect(real)
	} else if opts.MustExist {
		err = fmt.Errorf("it must exist: %w", os.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{path: real, opts: opts, folder: owner.Folder(real + "-owners"), done: make(chan struct{})}
	if err := checkLength(real, string(s.folder), exists); err != nil {
		return nil, err
	}
	s.Clock.Start()
	s.running.rows = map[int64]int64{}
	if err := s.enterFolder(); err != nil {
		return nil, err
	}
	unlock, err := s.folder.Setup(setupPatience)
	if err != nil {
		return nil, err
	}
	err = explained(s.setUp())
	if err = errors.Join(err, unlock()); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

// enterFolder makes the owner folder, the only directory we make.
func (s *Store) enterFolder() error {
	made, err := s.folder.Create()
	if err != nil {
		return fmt.Errorf("make the owner folder beside it: %w", bare(err))
	}
	if !made {
		return nil
	}
	return syncDir(filepath.Dir(s.path))
}

// setUp does what one process at a time may do.
func (s *Store) setUp() error {
	exists, err := inspect(s.path) // again: another process may have made it
	if err != nil {
		return err
	}
	if !exists {
		if err := create(s.path, string(s.folder)); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	if err := s.files[0].note(s.path); err != nil {
		return bare(err)
	}
	if err := patiently(func() error { return s.openWriter() }); err != nil {
		return err
	}
	if err := checkVersion(s.writer); err != nil {
		return err
	}
	if err := patiently(s.writer.migrate); err != nil {
		return err
	}
	facts, err := s.facts()
	if err != nil {
		return err
	}
	if err := s.checkSealing(facts); err != nil {
		return err
	}
	if err := s.checkOriginal(facts); err != nil {
		return err
	}
	s.readers = make(chan *conn, readers)
	for range readers {
		r, err := s.openReader()
		if err != nil {
			return fmt.Errorf("open for reading: %w", err)
		}
		s.readers <- r
	}
	for i, side := range []string{"-wal", "-shm"} { // checkOriginal has written
		if err := s.files[1+i].note(s.path + side); err != nil {
			return err
		}
	}
	if err := s.checkPath(); err != nil {
		return err
	}
	if err := s.checkMade(); err != nil {
		return err
	}
	return s.enter()
}

// enter makes this handle an owner, and clears dead ones that nothing names.
func (s *Store) enter() (err error) {
	registered, err := s.folder.Register()
	if err != nil {
		return err
	}
	s.owner = &self{registered, s.path}
	var buried []string
	err = patiently(func() error {
		return s.writer.atomically(func() error {
			t := s.transaction()
			if buried, err = t.clearOwners(clearAtOpen); err != nil {
				return err
			}
			r, err := s.writer.run(insertOwner, []any{s.owner.Token})
			if err == nil {
				s.id, err = r.LastInsertId()
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("enter as owner: %w", err)
	}
	s.bury(buried)
	return s.clearStrays()
}

func (s *Store) openWriter() (err error) {
	if s.writer, err = openWriter(s.path); err == nil {
		s.writer.seal = s.seal
	}
	return err
}

func (s *Store) openReader() (*conn, error) {
	c, err := openReader(s.path)
	if err == nil {
		c.seal = s.seal
	}
	return c, err
}

// patiently repeats do while another process has the write lock.
func patiently(do func() error) error {
	for end := time.Now().Add(setupPatience); ; time.Sleep(time.Millisecond) {
		err := do()
		if !isBusy(err) || time.Now().After(end) {
			return err
		}
	}
}

// checkVersion refuses engines with the WAL-reset corruption, which needs just
// what we do: several processes that write and checkpoint (sqlite.org/wal.html,
// fixed in 3.51.3, read 2026-11-29).
func checkVersion(c *conn) error {
	v, err := c.value("SELECT sqlite_version()")
	if err != nil {
		return err
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(fmt.Sprint(v), "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("read the version of SQLite: %w", err)
	}
	if major*1_000_000+minor*1_000+patch < 3_051_003 {
		return fmt.Errorf("SQLite %v is older than 3.51.3, which can damage a journal", v)
	}
	return nil
}

// self is this handle as an owner. Its errors say of which journal.
type self struct {
	*owner.Owner
	path string
}

func (o *self) Check() error { return of(o.path, o.Owner.Check()) }

// openFile is one of the files that are open, as its path named it then.
type openFile struct {
	path string
	info os.FileInfo
}

// note looks at the path, and never opens it: see inspect.
func (f *openFile) note(path string) (err error) {
	f.path = path
	f.info, err = os.Stat(path)
	return err
}

// check reports that the path names another file by now, or none.
func (f *openFile) check() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReplaced, bare(err))
	}
	if !os.SameFile(info, f.info) {
		return ErrReplaced
	}
	return nil
}

// inPlace reports a ghost: in write-ahead mode writing to a deleted file
// succeeds, and what is in a deleted log is gone with the process. SQLite keeps
// -wal and -shm as they are for as long as anybody has the journal open.
func (s *Store) inPlace() error {
	if err := s.files[0].check(); err != nil {
		return of(s.path, err)
	}
	for _, side := range s.files[1:] {
		if err := side.check(); err != nil {
			return of(s.path, fmt.Errorf("%q: %w; nothing more is written: close the journal and open it again", side.path, err))
		}
	}
	return nil
}

// checkPath is inPlace for the holder of the token, who saves what a deleted
// log holds.
func (s *Store) checkPath() error {
	err := s.inPlace()
	if err == nil {
		return nil
	}
	return errors.Join(err, s.salvage())
}

// salvage copies a deleted log into the file while the writer still has it. It
// leaves alone what was replaced: somebody else may use that.
func (s *Store) salvage() error {
	if s.writer == nil || s.files[0].check() != nil {
		return nil
	}
	if _, err := os.Stat(s.path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for end := time.Now().Add(closePatience); ; s.nap() {
		left, err := s.writer.number("PRAGMA wal_checkpoint(FULL)")
		if err == nil && left != 0 && time.Now().After(end) {
			err = of(s.path, errors.New("others are at it"))
		}
		if err != nil {
			return fmt.Errorf("copy the deleted log into the file: %w", err)
		}
		if left == 0 {
			return nil
		}
	}
}

// abandon gives back what a failed Open has taken.
func (s *Store) abandon() {
	s.closeConns()
	if s.owner != nil {
		s.owner.Release(false)
	}
}

func (s *Store) closeConns() error {
	var errs []error
	for range len(s.readers) {
		errs = append(errs, (<-s.readers).close())
	}
	if s.writer != nil { // last: it checkpoints
		errs = append(errs, s.writer.close())
		s.writer = nil
	}
	return errors.Join(errs...)
}

// Close writes what was posted, gives up what is owned and closes the file.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.mu.Lock()
	s.closing = true
	s.idle = make(chan struct{})
	if !s.busy {
		close(s.idle)
	}
	idle := s.idle
	s.mu.Unlock()
	close(s.done)
	<-idle // every queued item was answered, and the token is ours
	s.helpers.Wait()
	unnamed, err := s.leave()
	for range readers { // wait for readers to come back
		r := <-s.readers
		err = errors.Join(err, r.close())
	}
	if s.writer != nil {
		// Checkpoints, and removes the -wal; SQLite itself leaves both alone
		// where the file was replaced.
		err = errors.Join(err, s.writer.close())
		s.writer = nil
	}
	return errors.Join(err, s.owner.Release(unnamed))
}

// leave writes the last transaction: what is still posted, and the rows given
// up. It reports whether nothing names this owner any more. The token is held.
func (s *Store) leave() (unnamed bool, err error) {
	last := &leaveOp{}
	last.item = item{op: last}
	s.queue = append(s.queue, &last.item)
	end := time.Now().Add(closePatience)
	for last.state != finished {
		locked, err := s.round()
		if locked && time.Now().After(end) {
			return false, errors.New("give up what is owned: another process holds the lock")
		}
		if err != nil {
			return false, fmt.Errorf("give up what is owned: %w", err)
		}
		if locked {
			s.nap()
		}
	}
	if last.err != nil {
		return false, fmt.Errorf("give up what is owned: %w", last.err)
	}
	err = s.checkPath()
	if s.chores.lostError != nil {
		err = errors.Join(err, fmt.Errorf("an outcome could not be written: %w", s.chores.lostError))
	}
	return last.unnamed, err
}

// read lends a connection of the read pool.
func (s *Store) read(ctx context.Context, do func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.done:
		return ErrClosed
	default:
	}
	var c *conn
	select {
	case c = <-s.readers:
	case <-s.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.readers <- c }()
	for {
		err := do(c)
		if err == nil {
			return nil
		}
		if !isBusy(err) { // a new connection for those who come later
			if s.inPlace() == nil {
				if sound, e := s.openReader(); e == nil {
					c.close()
					c = sound
				}
			}
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		s.nap()
	}
}
