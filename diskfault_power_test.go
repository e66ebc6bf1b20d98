package idem_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

const (
	powerEnv      = "IDEM_POWER_STATES" // how many distinct states; its soak form is 20000 or more
	powerStates   = 8000
	powerPerPoint = 11
)

// power is one recording: a journal that is opened, used and closed, twice.
type power struct {
	*testing.T
	provider *diskProvider
	recorder *diskfault.Recorder
	path     string
	seed     uint64
	random   *rand.Rand
	next     int // operation

	mu   sync.Mutex
	keys map[string]string

	resuming sync.Mutex // two at once would meet in flight at the provider
}

// powerDisk is how a recording is made.
type powerDisk struct {
	lives  int
	synced func(name string) bool     // of files that our own code makes
	hides  func(op diskfault.Op) bool // syncs that the disk lies about
}

// ourSyncs are the names that our own code syncs before it goes on: the owner
// folder, the epoch in it, and the journal when it is moved into place. Owner
// files are not among them, and may be missing after a power cut.
func ourSyncs(name string) bool {
	return name == "journal.db" || name == "journal.db-owners" || name == "journal.db-owners/epoch"
}

// recordPower runs the workload.
func recordPower(t *testing.T, seed uint64, disk powerDisk) *power {
	t.Helper()
	dir := diskDir(t)
	p := &power{
		T: t, provider: newDiskProvider(t), path: filepath.Join(dir, "journal.db"), seed: seed,
		random: rand.New(rand.NewPCG(seed, 0)), keys: map[string]string{},
	}
	var err error
	p.recorder, err = diskfault.NewRecorder(dir)
	require.NoError(t, err)
	p.recorder.Synced = disk.synced
	mustHook(t, dir, func(op diskfault.Op) diskfault.Verdict {
		if op.Kind == diskfault.Sync && disk.hides != nil && disk.hides(op) {
			return diskfault.Verdict{}
		}
		return p.recorder.Hook(op)
	})
	p.provider.onSend = func(operation, key string) { p.mark("sent", operation, key) }
	for life := range disk.lives {
		p.live(life)
	}
	p.provider.onSend = nil
	require.NoError(t, diskfault.SetHook(dir, nil))
	return p
}

// mark notes what was promised of an operation.
func (p *power) mark(words ...string) { p.recorder.Mark(strings.Join(words, "\t")) }

// live is one life of the program.
func (p *power) live(life int) {
	journal, err := idem.Open(p.path, nil)
	require.NoError(p, err)
	p.mark("opened")
	client := p.provider.client(journal)
	client.Transport.Observer = &idem.Observer{Recorded: func(_ context.Context, in idem.Intent) { p.begun(in) }}
	for _, kind := range []string{diskPlain, diskReject, diskLost, diskRefused, diskBusy} {
		p.call(client, p.name(kind))
	}
	if life == 0 {
		p.checkpoint() // so that the log starts again from its beginning
	}
	p.together(client)
	require.NoError(p, journal.Flush(p.Context()))
	p.mark("flushed")
	p.call(client, "refused-4") // again, and in the next life
	p.prepare(client)
	p.call(client, p.name(diskPlain))
	require.NoError(p, journal.Close())
	p.mark("flushed")
}

func (p *power) name(kind string) string {
	p.next++
	return kind + "-" + strconv.Itoa(p.next)
}

func (p *power) begun(in idem.Intent) {
	p.mu.Lock()
	p.keys[in.Operation] = in.Key
	p.mu.Unlock()
	p.mark("begun", in.Operation, in.Key)
}

func (p *power) call(client *idem.Client, operation string) {
	p.mark("called", operation, "")
	end, err := diskDo(client, "http://provider.example", operation)
	if assert.NoError(p, err) {
		p.told(operation, end)
	}
}

func (p *power) told(operation string, end diskEnd) { p.mark(tellMark(operation, end)...) }

// tellMark is what a caller was told, as a mark. What a resend only replays need
// not be synced before.
func tellMark(operation string, end diskEnd) []string {
	posted := ""
	if end.word == endSucceeded || end.proven {
		posted = "posted"
	}
	return []string{"told", operation, end.word, posted, end.answer}
}

// together makes calls that share commits.
func (p *power) together(client *idem.Client) {
	var calls sync.WaitGroup
	for range 3 {
		names := []string{p.name(diskPlain), p.name(diskLost), p.name(diskReject)}
		p.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		calls.Go(func() {
			for _, n := range names {
				p.call(client, n)
			}
		})
	}
	calls.Wait()
}

// prepare makes an intent that a resume sends.
func (p *power) prepare(client *idem.Client) {
	name := p.name(diskPlain)
	req, err := diskRequest(p.Context(), "http://provider.example", name)
	require.NoError(p, err)
	in, err := client.Prepare(name, req)
	require.NoError(p, err)
	p.begun(in)
	for end := time.Now().Add(10 * time.Second); ; {
		_, err = client.Resume(p.Context())
		require.NoError(p, err)
		if in, err = client.Lookup(p.Context(), name); err == nil && in.State.Final() {
			return
		}
		require.True(p, time.Now().Before(end), "not delivered: %s %v", in.State, err)
	}
}

// checkpoint is what another process may do at any time.
func (p *power) checkpoint() {
	db, err := sql.Open("sqlite", "file:"+p.path+"?_pragma=busy_timeout(5000)")
	require.NoError(p, err)
	_, err = db.Exec("PRAGMA wal_checkpoint(PASSIVE)")
	require.NoError(p, err)
	require.NoError(p, db.Close())
}

// powerFigures is what a check of states found.
type powerFigures struct {
	points, states, distinct, resumed int
	bad                               []error
}

// checkAll checks the states of a recording on all cores.
func (p *power) checkAll(perPoint int, check func(dir string, n int, s diskfault.State) error) (f powerFigures) {
	type numbered struct {
		n int
		s diskfault.State
	}
	states := make(chan numbered)
	var workers sync.WaitGroup
	var mu sync.Mutex
	root := diskDir(p)
	for w := range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range states {
				dir := filepath.Join(root, fmt.Sprint(w))
				err := s.s.WriteTo(mustMkdir(dir))
				if err == nil {
					err = check(dir, s.n, s.s)
				}
				if err != nil {
					mu.Lock()
					f.bad = append(f.bad, fmt.Errorf("seed %d, point %d, %s: %w", p.seed, s.s.Point, s.s.Kind, err))
					mu.Unlock()
				}
				_ = os.RemoveAll(dir)
			}
		})
	}
	sums := map[uint64]bool{}
	for s := range p.recorder.States(p.seed, perPoint) {
		sums[s.Sum] = true
		states <- numbered{f.states, s}
		f.states++
	}
	close(states)
	workers.Wait()
	f.points, f.distinct = p.recorder.Points(), len(sums)
	return f
}

// Whatever a power cut leaves of the disk, the journal opens; every key that was
// sent is in it, and every outcome that was promised.
func TestPowerCuts(t *testing.T) {
	want := powerStates / diskShare
	if text := os.Getenv(powerEnv); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, powerEnv)
		want = n
	}
	seed := rand.Uint64() >> 1
	start, all := time.Now(), powerFigures{}
	rounds := 0
	for ; all.distinct < want && rounds < 10+want/100; rounds++ {
		p := recordPower(t, seed+uint64(rounds), powerDisk{lives: 2, synced: ourSyncs})
		f := p.checkAll(max(powerPerPoint/diskShare, 4), p.check)
		p.provider.books(p.keys)
		all.points, all.states, all.distinct = all.points+f.points, all.states+f.states, all.distinct+f.distinct
		all.resumed += f.states / powerResumeEvery
		for _, err := range f.bad[:min(len(f.bad), 5)] {
			t.Error(err)
		}
		require.Empty(t, len(f.bad), "bad states of %d", f.states)
	}
	t.Logf("seed %d: %d recordings, %d points, %d states, %d of them distinct, %d resumed to the end; 0 bad; %s",
		seed, rounds, all.points, all.states, all.distinct, all.resumed, time.Since(start).Round(100*time.Millisecond))
	assert.GreaterOrEqual(t, all.distinct, want)
}

// few is a share of a check, where the whole would take too long for what it
// adds.
func few(check func(dir string, n int, s diskfault.State) error) func(string, int, diskfault.State) error {
	return func(dir string, n int, s diskfault.State) error {
		if n%2 > 0 {
			return nil
		}
		return check(dir, n, s)
	}
}

// What our own code makes beside the database may be lost or old too: then what
// is unfinished is held, and nothing else is broken.
func TestPowerCutsWithoutOurFiles(t *testing.T) {
	p := recordPower(t, 1, powerDisk{lives: 1})
	held := 0
	var mu sync.Mutex
	f := p.checkAll(4, few(func(dir string, _ int, s diskfault.State) error {
		n, err := p.promises(dir, s, true)
		mu.Lock()
		defer mu.Unlock()
		held += n
		return err
	}))
	for _, err := range f.bad[:min(len(f.bad), 5)] {
		t.Error(err)
	}
	t.Logf("%d points, %d states, %d bad; %d intents held as copied", f.points, f.states, len(f.bad), held)
	assert.GreaterOrEqual(t, f.distinct, 300)
	assert.Positive(t, held)
}

// On a disk that lies about its syncs the promises break, and these tests see
// it: with the log's syncs alone, which is what synchronous=NORMAL leaves out,
// and with all.
func TestPowerCutsOnALyingDisk(t *testing.T) {
	for name, hides := range map[string]func(diskfault.Op) bool{
		"about the log": func(op diskfault.Op) bool { return strings.HasSuffix(op.File, "-wal") },
		"about all":     func(diskfault.Op) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			p := recordPower(t, 2, powerDisk{lives: 1, synced: ourSyncs, hides: hides})
			f := p.checkAll(4, few(func(dir string, _ int, s diskfault.State) error {
				_, err := p.promises(dir, s, false)
				return err
			}))
			lost := 0
			for _, err := range f.bad {
				if strings.Contains(err.Error(), "sent, and not in the journal") {
					lost++
				}
			}
			t.Logf("%d points, %d states, %d bad, %d of them without a key that was sent", f.points, f.states, len(f.bad), lost)
			assert.Greater(t, len(f.bad), f.states/20)
			assert.Positive(t, lost)
		})
	}
}
