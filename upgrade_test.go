//go:build linux || darwin

package idem_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

var updateJournal = flag.Bool("update-journal", false, "write the newest schema's testdata/journal_schema*.sql, while it is not released")

// upgradeKinds are the operations of the stored journals, one for each state.
var upgradeKinds = []string{diskPlain, diskLost, diskReject, diskRefused, damageMoved, damageFlight, "prepared"}

// schemas are the scripts of all schemas, the first one's first.
func schemas(tb testing.TB) (scripts []string) {
	tb.Helper()
	files, err := filepath.Glob("internal/sqlite/schema/*.sql") // sorted
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(tb, err)
		scripts = append(scripts, string(text))
	}
	return scripts
}

// A journal of each schema, as it was written then, opens: all rows are as they
// were, and it goes on. The stored files are from the first instant of virtual
// time, which is when they are opened here.
func TestUpgradeFromEverySchema(t *testing.T) {
	scripts := schemas(t)
	if *updateJournal {
		synctest.Test(t, func(t *testing.T) { writeStoredJournal(t, len(scripts)) })
	}
	for n := 1; n <= len(scripts); n++ {
		t.Run(fmt.Sprint("schema ", n), func(t *testing.T) {
			dump, err := os.ReadFile(storedJournal(n))
			require.NoError(t, err, "a schema that was released has its file here for ever")
			d := newDamage(t, &damageTemplate{keys: map[string]string{}})
			require.NoError(t, os.Mkdir(d.dir, 0o700))
			d.load(scripts[:n], string(dump))
			synctest.Test(t, func(t *testing.T) {
				d.T = t
				d.upgrades(len(scripts))
			})
		})
	}
}

func storedJournal(schema int) string {
	return fmt.Sprintf("testdata/journal_schema%d.sql", schema)
}

// load makes the journal of scripts and rows, with the folder that was beside
// it.
func (d *damage) load(scripts []string, rows string) {
	d.Helper()
	d.query(func(db *sql.DB) {
		for i, s := range scripts {
			_, err := db.Exec(s + fmt.Sprintf("; PRAGMA user_version = %d; PRAGMA application_id = 0x6964656d;", i+1))
			require.NoError(d, err)
		}
		_, err := db.Exec(rows)
		require.NoError(d, err)
		var epoch string
		require.NoError(d, db.QueryRow(`SELECT value FROM meta WHERE name = 'epoch'`).Scan(&epoch))
		require.NoError(d, os.Mkdir(d.path+"-owners", 0o700))
		require.NoError(d, os.WriteFile(d.path+"-owners/epoch", []byte(epoch+"\n"), 0o600))
	})
}

// upgrades opens it, looks at every row, and goes on with it.
func (d *damage) upgrades(newest int) {
	states := map[string]idem.State{}
	answers := map[string]string{}
	d.query(func(db *sql.DB) { // as the file says
		rows, err := db.Query(`SELECT operation, key, state, coalesce(status_code || ' ' || o.body, 'none')
			FROM intent i JOIN status s ON s.id = i.id LEFT JOIN outcome o ON o.id = i.id`)
		require.NoError(d, err)
		for rows.Next() {
			var operation, key, state, answer string
			require.NoError(d, rows.Scan(&operation, &key, &state, &answer))
			d.template.keys[operation], states[operation], answers[operation] = key, idem.State(state), answer
		}
		require.NoError(d, errors.Join(rows.Err(), rows.Close()))
	})
	require.Len(d, states, len(upgradeKinds))
	d.mustOpen()
	d.keeps()
	for o, state := range states {
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		require.NoError(d, err)
		assert.Equal(d, state, in.State, o)
		assert.Equal(d, answers[o], answerText(in), o)
		attempts, err := d.journal.Attempts(d.Context(), in)
		require.NoError(d, err)
		if state != idem.StateInFlight {
			assert.Len(d, attempts, in.Attempts, o)
		}
	}
	d.base.up = true
	require.NoError(d, resumeAll(d.client))
	for _, kind := range []string{diskLost, damageFlight, "prepared"} {
		assert.Equal(d, 1, d.base.sent(kind+"-1"), kind)
		in, err := d.journal.Lookup(d.Context(), damageScope, kind+"-1")
		require.NoError(d, err)
		assert.Equal(d, idem.StateSucceeded, in.State, kind)
	}
	d.mustClose()
	d.works()
	d.oneKey()
	d.query(func(db *sql.DB) {
		var version int
		require.NoError(d, db.QueryRow(`PRAGMA user_version`).Scan(&version))
		assert.Equal(d, newest, version)
	})
	made := &damage{T: d.T, path: filepath.Join(d.dir, "made.db"), base: d.base}
	made.mustOpen()
	made.mustClose()
	assert.Equal(d, made.schema(), d.schema(), "as one that is made now")
}

// schema is what the tables and indexes of a file are.
func (d *damage) schema() (all []string) {
	d.Helper()
	d.query(func(db *sql.DB) {
		rows, err := db.Query(`SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name`)
		require.NoError(d, err)
		for rows.Next() {
			var text string
			require.NoError(d, rows.Scan(&text))
			all = append(all, text)
		}
		require.NoError(d, errors.Join(rows.Err(), rows.Close()))
	})
	return all
}

// writeStoredJournal makes a journal with a row in each state, as a process left
// it that was killed, and writes its rows as SQL.
func writeStoredJournal(t *testing.T, schema int) {
	d := newDamage(t, &damageTemplate{keys: map[string]string{}})
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	d.mustOpen()
	d.base.onSend = func(operation string) {
		if strings.HasPrefix(operation, damageFlight) {
			require.NoError(t, copyJournal(d.dir, d.dir+"-killed"))
		}
	}
	req, err := damageRequest(t.Context(), "prepared-1")
	require.NoError(t, err)
	_, err = d.client.Prepare("prepared-1", req)
	require.NoError(t, err)
	for _, kind := range upgradeKinds[:len(upgradeKinds)-1] {
		_, _ = damageCall(t.Context(), d.client, kind+"-1")
	}
	d.mustClose()
	d.dir, d.path = d.dir+"-killed", filepath.Join(d.dir+"-killed", damageFile)
	text := fmt.Sprintf("-- A journal of schema %d whose process was killed: one operation in each state.\n\n", schema)
	d.query(func(db *sql.DB) {
		for _, table := range []string{"meta", "owner", "intent", "status", "outcome", "attempt"} {
			text += inserts(t, db, table)
		}
	})
	require.NoError(t, os.WriteFile(storedJournal(schema), []byte(text), 0o644))
}

// inserts are the rows of a table as SQL.
func inserts(t *testing.T, db *sql.DB, table string) string {
	var columns, quoted []string
	rows, err := db.Query(`SELECT name FROM pragma_table_info(?)`, table)
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		columns, quoted = append(columns, name), append(quoted, "quote("+name+")")
	}
	require.NoError(t, errors.Join(rows.Err(), rows.Close()))
	values, err := db.Query(`SELECT ` + strings.Join(quoted, " || ', ' || ") + ` FROM ` + table)
	require.NoError(t, err)
	var text strings.Builder
	for values.Next() {
		var row string
		require.NoError(t, values.Scan(&row))
		fmt.Fprintf(&text, "INSERT INTO %s (%s)\nVALUES (%s);\n\n", table, strings.Join(columns, ", "), row)
	}
	require.NoError(t, errors.Join(values.Err(), values.Close()))
	return text.String()
}

// A journal of a later version is refused, and nothing in it is changed.
func TestNewerSchemaIsLeftAlone(t *testing.T) {
	m := newDamageTemplate(t)
	newest := len(schemas(t))
	for name, from := range map[string]string{"closed": m.closed, "its process was killed": m.crashed} {
		t.Run(name, func(t *testing.T) {
			d := newDamage(t, m)
			require.NoError(t, copyJournal(from, d.dir))
			version := func(n int) {
				d.query(func(db *sql.DB) {
					_, err := db.Exec(fmt.Sprintf("PRAGMA user_version = %d", n))
					require.NoError(t, err)
				})
			}
			version(newest + 1)
			before := d.sums()
			for range 2 {
				err := d.open()
				require.ErrorIs(t, err, idem.ErrJournal)
				assert.ErrorContains(t, err, fmt.Sprintf("%q: schema %d is newer than %d", d.path, newest+1, newest))
				assert.Equal(t, before, d.sums())
			}
			version(newest)
			d.works()
			d.oneKey()
		})
	}
}

// sums are the files of the journal, with what is in each.
func (d *damage) sums() (files []string) {
	d.Helper()
	require.NoError(d, filepath.WalkDir(d.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if len(data) > 0 { // an empty log is none
			sum := sha256.Sum256(data)
			files = append(files, path+" "+hex.EncodeToString(sum[:8]))
		}
		return err
	}))
	return slices.Sorted(slices.Values(files))
}
