package idem

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite"

	"github.com/idem-go/idem/faultinjection"
)

func init() {
	children["cases/contend"] = childContends
	children["cases/start at once"] = childStartsAtOnce
	children["cases/settings"] = childTellsSettings
}

const contentions = 500 // of each process

// childContends goes over the paths that read and then write: 500 operations of
// its own (claim, attempt count, outcome), and as often a counter that every
// process shares.
func childContends() {
	j := must(Open(childFile(), nil))
	say("ready")
	waitForParent()
	fast := func(begun time.Time, err error) {
		if err != nil {
			must(0, fmt.Errorf("after %s: %w", time.Since(begun), err))
		}
	}
	begin := func(operation string) (Intent, bool) {
		want := newIntent(operation)
		want.State, want.Attempts, want.FirstSent = StatePending, 0, time.Time{}
		begun := time.Now()
		in, claimed, err := j.Begin(context.Background(), want)
		fast(begun, err)
		return in, claimed
	}
	update := func(next Intent, a *Attempt, durable bool) Intent {
		begun := time.Now()
		next, err := j.Update(context.Background(), next, a, durable)
		fast(begun, err)
		return next
	}
	for i := range contentions {
		in, claimed := begin(fmt.Sprintf("%d/%d", os.Getpid(), i))
		if !claimed {
			must(0, errors.New("an operation of its own was not claimed"))
		}
		in.State, in.Attempts = StateInFlight, 1
		next, a := succeed(update(in, nil, true))
		update(next, a, i%2 == 0)
		for claimed = false; !claimed; { // another process counts
			in, claimed = begin("counter")
		}
		in.Attempts++
		in.Claimed = false
		update(in, &Attempt{Number: in.Attempts, Started: testNow, Ended: testNow, Phase: phaseNotSent, Decision: "not_sent"}, true)
	}
	must(0, j.Close())
}

func TestO06_TwoProcessesReadAndThenWrite(t *testing.T) {
	t.Parallel()
	path := tempJournal(t)
	require.NoError(t, mustOpen(t, path, nil).Close())
	a, b := spawn(t, "cases/contend", path), spawn(t, "cases/contend", path)
	a.await("ready")
	b.await("ready")
	require.NoError(t, a.in.Close()) // now both
	require.NoError(t, b.in.Close())
	require.NoError(t, a.cmd.Wait(), "no lock error reached a caller")
	require.NoError(t, b.cmd.Wait(), "no lock error reached a caller")
	assert.Equal(t, 2*contentions, count(t, path, `SELECT attempts FROM status s JOIN intent i ON i.id = s.id WHERE operation = 'counter'`))
	assert.Equal(t, 4*contentions, count(t, path, `SELECT count(*) FROM attempt`))
	assert.Equal(t, 2*contentions, count(t, path, `SELECT count(*) FROM status WHERE state = 'succeeded' AND attempts = 1 AND version = 3`))
	assert.Equal(t, 2*contentions, count(t, path, `SELECT count(*) FROM outcome`))
}

// Whoever meets a lock waits for it, up to its own deadline.
func TestO06_ABusyFailureIsNeverImmediate(t *testing.T) {
	virtually(t, func(t *testing.T) {
		path := tempJournal(t)
		j := mustOpen(t, path, nil)
		in := mustBegin(t, j, newIntent("before"))
		unlock := lockFile(t, path)
		for _, limit := range []time.Duration{10 * time.Millisecond, time.Second, 5 * time.Second} {
			for name, write := range map[string]func(context.Context) error{
				"begin": func(ctx context.Context) error {
					_, _, err := j.Begin(ctx, newIntent("locked out"))
					return err
				},
				"update": func(ctx context.Context) error {
					_, err := j.Update(ctx, in, nil, true)
					return err
				},
				"claim": func(ctx context.Context) error {
					_, _, err := j.ClaimDue(ctx, testNow, Filter{Name: "main"})
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				begun := time.Now()
				err := write(ctx)
				cancel()
				require.ErrorIs(t, err, ErrJournal, name)
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				assert.Equal(t, limit, time.Since(begun), name)
			}
		}
		unlock()
		mustBegin(t, j, newIntent("after"))
	})
}

// lockFile takes the database's write lock, as another process would.
func lockFile(tb testing.TB, path string) (unlock func()) {
	tb.Helper()
	db, err := openRaw(path)
	require.NoError(tb, err)
	_, err = db.Exec("BEGIN IMMEDIATE")
	require.NoError(tb, err)
	return func() {
		tb.Helper()
		_, err := db.Exec("ROLLBACK")
		require.NoError(tb, errors.Join(err, db.Close()))
	}
}

// childTellsSettings opens three handles, writes with each, and tells what their
// connections, all held at once, are set to.
func childTellsSettings() {
	var connections []sqlite3.ExecQuerierContext
	sqlite3.RegisterConnectionHook(func(c sqlite3.ExecQuerierContext, dsn string) error {
		if strings.Contains(dsn, "/journal.db?") { // not the draft that becomes one
			connections = append(connections, c)
		}
		return nil
	})
	for i := range 3 {
		j := must(Open(childFile(), nil))
		in, _, err := j.Begin(context.Background(), newIntent(strconv.Itoa(i)))
		must(in, err)
		next, a := succeed(in)
		must(j.Update(context.Background(), next, a, true))
		must(j.Lookup(context.Background(), next.Scope, next.Operation))
	}
	for _, c := range connections {
		var told []string
		for _, name := range []string{"busy_timeout", "synchronous", "journal_mode"} {
			rows := must(c.QueryContext(context.Background(), "PRAGMA "+name, nil))
			value := make([]driver.Value, len(rows.Columns()))
			must(0, rows.Next(value))
			must(0, rows.Close())
			told = append(told, fmt.Sprintf("%s=%v", name, value[0]))
		}
		say(strings.Join(told, " "))
	}
}

func TestO07_EveryConnectionHasTheSameSettings(t *testing.T) {
	p := spawn(t, "cases/settings", filepath.Join(t.TempDir(), "journal.db"))
	text, err := io.ReadAll(p.out)
	require.NoError(t, err)
	require.NoError(t, p.cmd.Wait())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	assert.GreaterOrEqual(t, len(lines), 8, "connections held at once")
	for _, line := range lines { // SQLite's own wait is off: ours is fair, and keeps to the caller's deadline
		assert.Equal(t, "busy_timeout=0 synchronous=3 journal_mode=wal", line)
	}
}

func TestO07_ALockedFileIsWaitedFor(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		unlock := lockFile(t, r.path)
		begun := time.Now()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				_, _, err := r.do(t.Context(), "order-"+strconv.Itoa(i), orderBody(i))
				assert.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(begun), time.Second)
			})
		}
		time.Sleep(time.Second)
		assert.Empty(t, r.arrivals(), "nothing is sent before it is recorded")
		unlock()
		calls.Wait()
		assert.Less(t, time.Since(begun), 1100*time.Millisecond, "goes on at once")
		assert.Len(t, r.arrivals(), 20)
	})
}

func TestO23_NothingIsHeldWhileTheServerThinks(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		r.server.Each(func(faultinjection.Arrival) faultinjection.Step { return faultinjection.Slow(500 * time.Millisecond) })
		begun := time.Now()
		var calls sync.WaitGroup
		var open atomic.Int32
		open.Store(50)
		for i := range 50 {
			calls.Go(func() {
				defer open.Add(-1)
				_, _, err := r.do(t.Context(), "order-"+strconv.Itoa(i), orderBody(i))
				assert.NoError(t, err)
			})
		}
		most := 0
		for open.Load() > 0 {
			time.Sleep(50 * time.Millisecond)
			listed := time.Now()
			all, err := r.journal.List(t.Context(), Filter{States: []State{StateInFlight}})
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(listed), 100*time.Millisecond)
			most = max(most, len(all))
		}
		calls.Wait()
		assert.Less(t, time.Since(begun), 3*time.Second)
		assert.Equal(t, 50, most, "all of them are with the server at once")
		assert.Equal(t, 50, r.effects())
	})
}

// childStartsAtOnce opens a journal that may not be there yet, and records 100
// intents.
func childStartsAtOnce() {
	say("ready")
	record(100)
}

func TestO33_TenProcessesStartOnAnAbsentJournal(t *testing.T) {
	const processes = 10
	alone := tempJournal(t)
	require.NoError(t, mustOpen(t, alone, nil).Close())
	path := tempJournal(t)
	var all []*process
	for range processes {
		all = append(all, spawn(t, "cases/start at once", path))
	}
	for _, p := range all {
		p.await("ready")
	}
	require.NoFileExists(t, path)
	for _, p := range all {
		require.NoError(t, p.in.Close())
	}
	for _, p := range all {
		require.NoError(t, p.cmd.Wait())
	}
	assert.Equal(t, processes*100, count(t, path, `SELECT count(*) FROM intent`))
	assert.Equal(t, processes*100, count(t, path, `SELECT count(DISTINCT operation) FROM intent`))
	for _, what := range []string{"user_version", "schema_version", "application_id"} { // as one process alone sets it up
		assert.Equal(t, count(t, alone, "PRAGMA "+what), count(t, path, "PRAGMA "+what), what)
	}
	checkFile(t, path)
}

func TestO41_CancelledWritesLeaveNothingOpen(t *testing.T) {
	r := newRig(t)
	var arrived sync.Map // operation -> the key that came
	r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		closeBody(req)
		operation := req.Header.Get("X-Operation")
		in, err := r.journal.Lookup(context.Background(), "", operation)
		assert.NoError(t, err, "an arrival without a stored intent")
		assert.Equal(t, in.Key, req.Header.Get("Idempotency-Key"))
		arrived.Store(operation, true)
		return answerWith(201)(nil), nil
	})
	call := func(ctx context.Context, operation string) error {
		req := mustRequest(t, ctx, rigURL, orderBody(1))
		req.Header.Set("X-Operation", operation)
		resp, err := r.client.Do(operation, req)
		if err == nil {
			readAndClose(t, resp)
		}
		return err
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var ends [3]atomic.Int32 // done, not sent, unknown
	var calls sync.WaitGroup
	for g := range 8 {
		calls.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 500 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				operation := fmt.Sprintf("order-%d-%d", g, i)
				err := call(ctx, operation)
				cancel()
				if err == nil {
					ends[0].Add(1)
					continue
				}
				assert.NotContains(t, err.Error(), "within a transaction")
				assert.NotContains(t, err.Error(), "locked")
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				if errors.Is(err, ErrNotSent) {
					ends[1].Add(1)
					_, sent := arrived.Load(operation)
					assert.False(t, sent, "told that nothing was sent")
					in, err := r.client.Lookup(context.Background(), operation)
					assert.True(t, errors.Is(err, ErrNotFound) || err == nil && in.State == StateWithdrawn, "%s: %s, %v", operation, in.State, err)
				} else {
					ends[2].Add(1)
					assert.ErrorIs(t, err, ErrUnknownOutcome)
				}
			}
		})
	}
	calls.Wait()
	t.Logf("%d done, %d not sent, %d unknown", ends[0].Load(), ends[1].Load(), ends[2].Load())
	assert.NotZero(t, ends[1].Load(), "some were cancelled in time")
	begun := time.Now()
	require.NoError(t, call(t.Context(), "clean"))
	assert.Less(t, time.Since(begun), time.Second)
	require.NoError(t, r.journal.Close())
	checkFile(t, r.path)
}

// The driver is not older than the one that these promises were checked with.
func TestO41_DriverHasAFloor(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "modernc.org/sqlite v")
	require.True(t, ok)
	var major, minor, patch int
	_, err = fmt.Sscanf(rest, "%d.%d.%d", &major, &minor, &patch)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, major*1_000_000+minor*1_000+patch, 1_062_000, "v%d.%d.%d", major, minor, patch)
}

// Open fails where it could not write later. Most of these ways bind root too.
func TestO54_UnwritablePlaceIsFoundAtOpen(t *testing.T) {
	type place struct {
		path, want string
		free       func() error // takes away what is in the way of a sound journal; nil: there is none
	}
	inTheWay := func(t *testing.T, side string) place { // the file can be written, what goes beside it cannot
		path := closedJournal(t)
		require.NoError(t, os.Mkdir(path+side, 0o700))
		return place{path, "must be writable, since -wal and -shm are made beside it", func() error { return os.Remove(path + side) }}
	}
	ways := map[string]func(t *testing.T) place{
		"missing directory": func(t *testing.T) place {
			return place{filepath.Join(t.TempDir(), "none", "journal.db"), "the directory must exist", nil}
		},
		"path under a file": func(t *testing.T) place {
			return place{filepath.Join(closedJournal(t), "journal.db"), "directory", nil}
		},
		"a file where the owner folder goes": func(t *testing.T) place {
			path := tempJournal(t)
			require.NoError(t, os.WriteFile(path+"-owners", []byte("in the way"), 0o600))
			return place{path, "make the owner folder beside it", nil}
		},
		"no room for the log":           func(t *testing.T) place { return inTheWay(t, "-wal") },
		"no room for the shared memory": func(t *testing.T) place { return inTheWay(t, "-shm") },
	}
	if os.Geteuid() > 0 { // modes do not bind root: there TestOpenWhereNothingCanBeWritten has another user try
		ways["read-only directory"] = func(t *testing.T) place {
			path := closedJournal(t)
			require.NoError(t, os.Chmod(filepath.Dir(path), 0o500))
			free := func() error { return os.Chmod(filepath.Dir(path), 0o700) }
			t.Cleanup(func() { free() })
			return place{path, "permission denied", free}
		}
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			p := way(t)
			before := below(t, filepath.Dir(filepath.Dir(p.path)))
			j, err := Open(p.path, nil)
			require.Nil(t, j)
			require.ErrorIs(t, err, ErrJournal)
			assert.ErrorContains(t, err, strconv.Quote(p.path), "it names the place")
			assert.ErrorContains(t, err, p.want, "and the cause")
			assert.Equal(t, before, below(t, filepath.Dir(filepath.Dir(p.path))), "nothing half created")
			if p.free != nil {
				require.NoError(t, p.free())
				mustBegin(t, mustOpen(t, p.path, nil), newIntent("a"))
			}
		})
	}
}

// closedJournal is a sound journal that nobody has open.
func closedJournal(tb testing.TB) (path string) {
	tb.Helper()
	path = tempJournal(tb)
	j, err := Open(path, nil)
	require.NoError(tb, err)
	require.NoError(tb, j.Close())
	return path
}

// below are all files and folders under dir, except for an empty log, which is
// no part of a journal.
func below(tb testing.TB, dir string) (names []string) {
	tb.Helper()
	require.NoError(tb, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !(strings.HasSuffix(path, "-wal") && info.Mode().IsRegular() && info.Size() == 0) {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// A filesystem that is read-only, for root too: /sys where there is one, and a
// read-only mount in a namespace of its own where this process may make one.
func TestO54_ReadOnlyFilesystem(t *testing.T) {
	if runtime.GOOS == "linux" {
		const path = "/sys/idem-journal.db"
		_, err := Open(path, nil)
		require.ErrorIs(t, err, ErrJournal)
		assert.ErrorContains(t, err, strconv.Quote(path))
		assert.NoDirExists(t, path+"-owners")
	}
	used := closedJournal(t)
	for path, want := range map[string]string{
		used: "must be writable", filepath.Join(filepath.Dir(used), "new.db"): "read-only file system",
	} {
		before := below(t, filepath.Dir(used))
		const mount = `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 99; exec "$1"`
		cmd := exec.Command("unshare", "--mount", "sh", "-c", mount, filepath.Dir(used), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=journal/open", childPath+"="+path)
		out, err := cmd.Output() // the mount ends with the process
		var exit *exec.ExitError
		if errors.Is(err, exec.ErrNotFound) || len(out) == 0 && errors.As(err, &exit) && slices.Contains([]int{1, 99}, exit.ExitCode()) {
			t.Log("this process may not mount: only the ways above were tested")
			return
		}
		require.NoError(t, err)
		assert.Contains(t, string(out), want)
		assert.Contains(t, string(out), strconv.Quote(path))
		assert.Equal(t, before, below(t, filepath.Dir(used)))
	}
}
