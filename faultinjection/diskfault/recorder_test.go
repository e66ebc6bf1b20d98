package diskfault_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection/diskfault"
)

// fastDir is on a RAM disk where there is one.
func fastDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "diskfault")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { assert.NoError(tb, os.RemoveAll(dir)) })
	return dir
}

// toy is a journal in little: a row for each send, and what became of it.
type toy struct{ db *sql.DB }

func openToy(path, mode, synchronous string) (*toy, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode("+mode+")&_pragma=synchronous("+synchronous+")")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS sent (key TEXT PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL)`)
	return &toy{db: db}, err
}

func (j *toy) begin(key string) error {
	_, err := j.db.Exec(`INSERT INTO sent VALUES (?, 'pending', ?)`, key, strings.Repeat(key, 60))
	return err
}

func (j *toy) end(key string) error {
	_, err := j.db.Exec(`UPDATE sent SET state = 'done' WHERE key = ?`, key)
	return err
}

// check reports which mark a state breaks.
func (j *toy) check(marks []string) error {
	var sound string
	if err := j.db.QueryRow(`PRAGMA quick_check`).Scan(&sound); err != nil || sound != "ok" {
		return fmt.Errorf("quick_check: %s %w", sound, err)
	}
	for _, m := range marks {
		word, key, _ := strings.Cut(m, " ")
		var state, body string
		err := j.db.QueryRow(`SELECT state, body FROM sent WHERE key = ?`, key).Scan(&state, &body)
		if err != nil || body != strings.Repeat(key, 60) || word == "acknowledged" && state != "done" {
			return fmt.Errorf("%s: %s %w", m, state, err)
		}
	}
	return nil
}

// record runs the toy for a while, once closed and opened again in between.
func record(t *testing.T, mode, synchronous string) *diskfault.Recorder {
	_, err := diskfault.Register()
	require.NoError(t, err)
	dir := fastDir(t)
	path := filepath.Join(dir, "toy.db")
	r, err := diskfault.NewRecorder(dir)
	require.NoError(t, err)
	require.NoError(t, diskfault.SetHook(path, r.Hook))
	defer func() { require.NoError(t, diskfault.SetHook(path, nil)) }()
	for life := range 2 {
		j, err := openToy(path, mode, synchronous)
		require.NoError(t, err)
		for i := range 8 {
			key := fmt.Sprintf("%d-%d", life, i)
			require.NoError(t, j.begin(key))
			r.Mark("sent " + key)
			require.NoError(t, j.end(key))
			r.Mark("acknowledged " + key)
			if i == 4 && mode == "WAL" { // the log starts again from its beginning
				_, err := j.db.Exec(`PRAGMA wal_checkpoint`)
				require.NoError(t, err)
			}
		}
		require.NoError(t, j.db.Close())
	}
	return r
}

// The states tell which settings of SQLite keep what was promised through a
// power cut and which do not, as SQLite's documentation has it.
func TestPowerCutsTellTheSettingsApart(t *testing.T) {
	for _, c := range []struct {
		mode, synchronous string
		keeps             bool
	}{
		{"WAL", "EXTRA", true},
		{"WAL", "FULL", true},
		{"WAL", "NORMAL", false},
		{"WAL", "OFF", false},
		{"DELETE", "EXTRA", true},
		{"DELETE", "FULL", false}, // the deletion of the journal is not synced
		{"TRUNCATE", "FULL", true},
	} {
		t.Run(c.mode+" "+c.synchronous, func(t *testing.T) {
			r, dir := record(t, c.mode, c.synchronous), fastDir(t)
			states, bad, first := 0, 0, error(nil)
			for s := range r.States(1, 6) {
				states++
				if err := checkToy(t, filepath.Join(dir, fmt.Sprint(states)), s); err != nil {
					bad++
					if first == nil {
						first = fmt.Errorf("point %d, %s: %w", s.Point, s.Kind, err)
					}
				}
			}
			t.Logf("%d points, %d states, %d bad; the first: %v", r.Points(), states, bad, first)
			assert.GreaterOrEqual(t, states, 150)
			assert.Equal(t, c.keeps, bad == 0)
		})
	}
}

func checkToy(t *testing.T, dir string, s diskfault.State) error {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o700))
	defer os.RemoveAll(dir)
	require.NoError(t, s.WriteTo(dir))
	if len(s.Marks) == 0 {
		return nil
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "toy.db"))
	require.NoError(t, err)
	defer db.Close()
	return (&toy{db: db}).check(s.Marks)
}
