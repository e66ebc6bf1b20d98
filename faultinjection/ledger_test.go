package faultinjection_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// childLedger makes the test binary a server on this ledger, to be killed.
const childLedger = "FAULTINJECTION_TEST_LEDGER"

func TestMain(m *testing.M) {
	if path := os.Getenv(childLedger); path != "" {
		serveUntilKilled(path)
	}
	os.Exit(m.Run())
}

// serveUntilKilled holds the second arrival of its life.
func serveUntilKilled(path string) {
	ledger, err := faultinjection.OpenLedger(path)
	if err != nil {
		panic(err)
	}
	server := faultinjection.NewServer(keyed, ledger)
	server.Plan(faultinjection.Run, faultinjection.Hold)
	running, err := server.Listen()
	if err != nil {
		panic(err)
	}
	fmt.Println(running.URL)
	time.Sleep(time.Minute) // killed long before
	os.Exit(1)
}

func mustServe(t *testing.T, path string) (url string, kill func()) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childLedger+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	_, err = fmt.Fscan(out, &url)
	require.NoError(t, err)
	return url, kill
}

// The server is killed with one key done and one in flight. The ledger shows
// both, while it lives and afterwards; the next life replays the first and runs
// the second.
func TestLedgerOutlivesAKilledServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "what? 100% a#1.db")
	url, kill := mustServe(t, path)
	b := newBench(t, keyed)
	b.client.Transport, b.url = nil, url
	first := b.post("k1")
	require.Equal(t, 201, first.status)
	second := b.later(b.request("POST", "/charges", order, "k2"))

	b.ledger = mustOpen(t, path) // beside the living server
	require.Eventually(t, func() bool { return len(b.outcomes()) == 2 }, 10*time.Second, 5*time.Millisecond)
	assert.Equal(t, 1, b.effects())
	assert.Equal(t, 409, b.post("k2").status)
	kill()
	require.Error(t, (<-second).err)
	assert.Equal(t, []faultinjection.Outcome{"executed", "", "in_flight"}, b.outcomes())

	b.url, _ = mustServe(t, path)
	again := b.post("k1")
	assert.Equal(t, first.body, again.body)
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	assert.Equal(t, 1, b.effects())
	held := b.later(b.request("POST", "/charges", order, "k2")) // runs again: it is held, not refused
	require.Eventually(t, func() bool { return len(b.outcomes()) == 5 }, 10*time.Second, 5*time.Millisecond)
	assert.Equal(t, faultinjection.OutcomeUnfinished, b.outcomes()[4])
	_ = held // ends when the child is killed
}

func TestLedgerSurvivesAReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	b := bench{t: t, ledger: mustOpen(t, path), url: "http://api.test"}
	open := func() {
		b.server = faultinjection.NewServer(keyed, b.ledger)
		b.client = newBench(t, nil).client
		b.client.Transport = b.server.Transport()
	}
	open()
	b.server.Plan(faultinjection.SlowAnswer(time.Millisecond))
	first := b.post("k1")
	before, err := b.ledger.Arrivals()
	require.NoError(t, err)
	require.NoError(t, b.ledger.Close())
	require.NoError(t, b.ledger.Close(), "twice is fine")
	_, err = b.ledger.Effects()
	require.ErrorContains(t, err, "faultinjection: read ledger: ledger is closed")
	assert.Equal(t, 500, b.post("k1").status)

	b.ledger = mustOpen(t, path)
	open()
	after, err := b.ledger.Arrivals()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, first.body, b.post("k1").body)
	assert.Equal(t, []faultinjection.Outcome{"executed", "replayed"}, b.outcomes())
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
}

// mustSpoil runs SQL on the ledger's file behind its back.
func mustSpoil(t *testing.T, path string) *sql.Conn {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()); assert.NoError(t, db.Close()) })
	return conn
}

// Effect, stored answer and outcome are one transaction: when the disk refuses
// any of them, nothing of it happened, and the key runs again.
func TestEffectAndAnswerAreStoredTogether(t *testing.T) {
	for name, at := range map[string]string{
		"effect": "INSERT ON effect", "answer": "UPDATE ON claim", "outcome": "UPDATE OF outcome ON arrival WHEN new.outcome = 'executed'",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			b := inMemory(t, keyed)
			b.ledger = mustOpen(t, path)
			b.server = faultinjection.NewServer(keyed, b.ledger)
			b.client.Transport = b.server.Transport()
			disk := mustSpoil(t, path)
			_, err := disk.ExecContext(t.Context(), `CREATE TRIGGER full BEFORE `+at+` BEGIN SELECT RAISE(ABORT, 'disk full'); END`)
			require.NoError(t, err)
			require.ErrorIs(t, b.post("k1").err, syscall.ECONNRESET)
			assert.Zero(t, b.effects())
			assert.Equal(t, []faultinjection.Outcome{"died"}, b.outcomes())
			_, err = disk.ExecContext(t.Context(), `DROP TRIGGER full`)
			require.NoError(t, err)
			answer := b.post("k1")
			assert.Equal(t, 201, answer.status)
			assert.Empty(t, answer.header.Get("Idempotent-Replayed"))
			assert.Equal(t, 1, b.effects())
		})
	}
}

// A client never hears that the database is locked: the request waits.
func TestAnotherWriterIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	b := inMemory(t, keyed)
	b.ledger = mustOpen(t, path)
	b.server = faultinjection.NewServer(keyed, b.ledger)
	b.client.Transport = b.server.Transport()
	other := mustSpoil(t, path)
	_, err := other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	answer := b.later(b.request("POST", "/charges", order, "k1"))
	select {
	case early := <-answer:
		require.Fail(t, "answered while the file was locked", early)
	case <-time.After(100 * time.Millisecond):
	}
	_, err = other.ExecContext(t.Context(), `COMMIT`)
	require.NoError(t, err)
	assert.Equal(t, 201, (<-answer).status)
}

func TestLedgerWithoutAPathLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR")) // Windows
	ledger, err := faultinjection.OpenLedger("")
	require.NoError(t, err)
	files, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, ledger.Close())
	files, err = os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, files)
}

func TestOpenLedgerRefusesAStrangersFile(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	other := filepath.Join(dir, "other.db")
	db, err := sql.Open("sqlite", "file:"+other)
	require.NoError(t, err)
	_, err = db.Exec(`CREATE TABLE account (id)`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, path := range []string{text, other, filepath.Join(dir, "missing", "ledger.db")} {
		before, _ := os.ReadFile(path)
		_, err := faultinjection.OpenLedger(path)
		require.ErrorContains(t, err, "faultinjection: open ledger")
		require.ErrorContains(t, err, filepath.Base(path))
		after, _ := os.ReadFile(path)
		if path == text {
			assert.Equal(t, before, after)
		}
	}
}
