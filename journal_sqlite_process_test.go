package idem

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const childPath = "IDEM_TEST_PATH"

// process is this test binary, run again as one of the children.
type process struct {
	tb  testing.TB
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser // closing it lets a child that waits go on
}

func spawn(tb testing.TB, child, path string) *process {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+child, childPath+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &process{tb: tb, cmd: cmd, out: bufio.NewReader(out), in: in}
}

func (p *process) await(line string) {
	p.tb.Helper()
	got, err := p.out.ReadString('\n')
	require.NoError(p.tb, err)
	require.Equal(p.tb, line+"\n", got)
}

// kill ends the process as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	p.tb.Helper()
	require.NoError(p.tb, p.cmd.Process.Kill())
	p.cmd.Wait()
}

// finish lets the process end by itself.
func (p *process) finish() {
	p.tb.Helper()
	require.NoError(p.tb, p.in.Close())
	require.NoError(p.tb, p.cmd.Wait())
}

func init() {
	children["journal/begin and hang"] = func() { beginAndHang(StateInFlight) }
	children["journal/claim and hang"] = claimAndHang
	children["journal/hold the lock"] = holdLock
	children["journal/record"] = func() { record(100) }
	children["journal/open"] = openOnly
	children["journal/contend"] = func() { contend(500) }
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

func say(line string)   { fmt.Println(line) }
func waitForParent()    { io.Copy(io.Discard, os.Stdin) }
func childFile() string { return os.Getenv(childPath) }

// openOnly reports how Open fails.
func openOnly() {
	j, err := Open(childFile(), nil)
	if err != nil {
		say(err.Error())
		return
	}
	say("opened")
	if err := j.Close(); err != nil {
		must(0, err)
	}
}

func beginAndHang(state State) {
	j := must(Open(childFile(), nil))
	for i := range 3 {
		in := newIntent("dead-" + strconv.Itoa(i))
		in.State = state
		_, claimed, err := j.Begin(context.Background(), in)
		must(claimed, err)
	}
	say("begun")
	waitForParent()
}

func claimAndHang() {
	j := must(Open(childFile(), nil))
	due, _, err := j.ClaimDue(context.Background(), testNow, Filter{Name: "main"})
	must(due, err)
	say("claimed " + strconv.Itoa(len(due)))
	waitForParent()
}

func holdLock() {
	db := must(openRaw(childFile()))
	must(db.Exec("BEGIN IMMEDIATE"))
	say("locked")
	waitForParent()
	must(db.Exec("ROLLBACK"))
}

func record(n int) {
	waitForParent()
	j := must(Open(childFile(), nil))
	for i := range n {
		in := newIntent(strconv.Itoa(os.Getpid()) + "/" + strconv.Itoa(i))
		in.Fingerprint = []byte("f")
		_, claimed, err := j.Begin(context.Background(), in)
		if !must(claimed, err) {
			must(0, fmt.Errorf("not claimed"))
		}
	}
	if err := j.Close(); err != nil {
		must(0, err)
	}
}

// contend reads and then writes, many times, beside other processes.
func contend(n int) {
	j := must(Open(childFile(), nil))
	waitForParent()
	for i := range n {
		begun := time.Now()
		in, claimed, err := j.Begin(context.Background(), newIntent("shared-"+strconv.Itoa(i)))
		must(claimed, err)
		if claimed {
			next, a := succeed(in)
			must(j.Update(context.Background(), next, a, i%2 == 0))
		}
		if took := time.Since(begun); took > 10*time.Second {
			must(0, fmt.Errorf("starved for %s", took))
		}
	}
	if err := j.Close(); err != nil {
		must(0, err)
	}
}

func TestJournalSeveralProcessesStartAtOnce(t *testing.T) { // O-33
	path := tempJournal(t)
	var all []*process
	for range 4 {
		all = append(all, spawn(t, "journal/record", path))
	}
	for _, p := range all {
		require.NoError(t, p.in.Close())
	}
	for _, p := range all {
		require.NoError(t, p.cmd.Wait())
	}
	assert.Equal(t, 400, count(t, path, `SELECT count(*) FROM intent`))
	assert.Equal(t, 1, count(t, path, `PRAGMA user_version`))
	assert.Equal(t, 0, count(t, path, `SELECT count(*) FROM status WHERE owner IS NULL`), "in flight: their owners are named")
	j := mustOpen(t, path, nil)
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main", Limit: 1000})
	require.NoError(t, err)
	assert.Len(t, due, 400)
}

func TestJournalOpenedByManyGoroutinesAtOnce(t *testing.T) { // O-33
	path := tempJournal(t)
	var wg sync.WaitGroup
	handles := make([]*SQLiteJournal, 10)
	errs := make([]error, 10)
	for i := range handles {
		wg.Go(func() { handles[i], errs[i] = Open(path, nil) })
	}
	wg.Wait()
	for i, j := range handles {
		require.NoError(t, errs[i])
		mustBegin(t, j, newIntent(strconv.Itoa(i)))
	}
	assert.Equal(t, 10, count(t, path, `SELECT count(*) FROM intent`))
	assert.Equal(t, 10, count(t, path, `SELECT count(*) FROM owner`))
	for _, j := range handles {
		require.NoError(t, j.Close())
	}
	checkFile(t, path)
}

func TestJournalTwoProcessesReadAndWrite(t *testing.T) { // O-06
	path := tempJournal(t)
	require.NoError(t, mustOpen(t, path, nil).Close())
	a, b := spawn(t, "journal/contend", path), spawn(t, "journal/contend", path)
	require.NoError(t, a.in.Close())
	require.NoError(t, b.in.Close())
	require.NoError(t, a.cmd.Wait())
	require.NoError(t, b.cmd.Wait())
	assert.Equal(t, 500, count(t, path, `SELECT count(*) FROM status WHERE state = 'succeeded' AND version = 2`))
	assert.Equal(t, 500, count(t, path, `SELECT count(*) FROM attempt`))
}

func TestJournalOwnerDiesInFlight(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	p := spawn(t, "journal/begin and hang", path)
	p.await("begun")

	got, claimed, err := j.Begin(t.Context(), newIntent("dead-0"))
	require.NoError(t, err)
	assert.False(t, claimed)
	assert.True(t, got.Owned)
	assert.Equal(t, StateInFlight, got.State)
	due, next, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	assert.Empty(t, due, "a living owner's")
	assert.Zero(t, next)

	p.kill()
	got = mustBegin(t, j, newIntent("dead-0"))
	assert.Equal(t, StateUnknown, got.State)
	assert.True(t, got.Doubt)
	assert.Equal(t, 1, got.Deaths)
	assert.Equal(t, 1, got.Attempts)
	assert.Equal(t, int64(2), got.Version)
	attempts, err := j.Attempts(t.Context(), got)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	assert.Equal(t, "interrupted", attempts[0].Decision)
	assert.Equal(t, phaseMaybeSent, attempts[0].Phase)
	assert.Equal(t, 1, attempts[0].Number)
	assert.True(t, attempts[0].Ended.IsZero())
	assert.False(t, attempts[0].Started.IsZero())

	due, _, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	require.Len(t, due, 2)
	assert.Equal(t, StateUnknown, due[0].State)
	assert.NotNil(t, due[0].Request)

	_, _, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	assert.Equal(t, 1, count(t, path, `SELECT count(*) FROM owner`), "the dead one is cleared")
	files, err := os.ReadDir(path + "-owners")
	require.NoError(t, err)
	assert.Len(t, files, 3, "the lock of the set-up, the epoch and one owner")
}

func TestJournalTwoProcessesClaim(t *testing.T) { // O-39
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	for i := range 50 {
		in := mustBegin(t, j, newIntent(strconv.Itoa(i)))
		in.State, in.Doubt, in.Claimed = StateUnknown, true, false
		mustUpdate(t, j, in, nil, true)
	}
	a, b := spawn(t, "journal/claim and hang", path), spawn(t, "journal/claim and hang", path)
	first, err := a.out.ReadString('\n')
	require.NoError(t, err)
	second, err := b.out.ReadString('\n')
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"claimed 50\n", "claimed 0\n"}, []string{first, second})
	a.kill()
	b.kill()
	due, _, err := j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.NoError(t, err)
	assert.Len(t, due, 50, "a claim is no attempt: nothing is lost with its owner")
	for _, in := range due {
		assert.Zero(t, in.Deaths)
	}
}

func TestJournalLockedByAnotherProcess(t *testing.T) { // O-16
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	in := mustBegin(t, j, newIntent("before"))
	p := spawn(t, "journal/hold the lock", path)
	p.await("locked")

	var wg sync.WaitGroup
	for i := range 5 { // one of them leads
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, _, err := j.Begin(ctx, newIntent(strconv.Itoa(i)))
			took := time.Since(begun)
			assert.ErrorIs(t, err, ErrJournal)
			assert.ErrorIs(t, err, ErrNotSent)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, took, 700*time.Millisecond)
		})
	}
	wg.Wait()

	// What is posted meanwhile is seen by reads all the same.
	next, a := succeed(in)
	mustUpdate(t, j, next, a, false)
	got, err := j.Lookup(t.Context(), "acct", "before")
	require.NoError(t, err)
	assert.Equal(t, StateSucceeded, got.State)
	assert.Equal(t, next.Outcome, got.Outcome)
	attempts, err := j.Attempts(t.Context(), in)
	require.NoError(t, err)
	assert.Len(t, attempts, 1)

	p.finish()
	mustBegin(t, j, newIntent("after"))
	assert.Equal(t, 2, count(t, path, `SELECT count(*) FROM intent`), "nothing was written by those who left")
	assert.Equal(t, 1, count(t, path, `SELECT count(*) FROM status WHERE state = 'succeeded'`))
}
