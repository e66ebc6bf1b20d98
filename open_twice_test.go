package idem_test

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// Two processes in a row die in Open, at different moments of it: the journal
// is no copy for that, and nothing is held.
func TestOpenDiesTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	open := func() *idem.SQLiteJournal {
		journal, err := idem.Open(path, nil)
		require.NoError(t, err)
		return journal
	}
	onFile := func(do func(db *sql.DB) error) {
		db, err := sql.Open("sqlite", "file:"+path)
		require.NoError(t, err)
		require.NoError(t, do(db))
		require.NoError(t, db.Close())
	}
	journal := open()
	client := idem.NewClient(&idem.Transport{Journal: journal, Contracts: contract.Keyed("Idempotency-Key", time.Hour)})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider.example/charges", strings.NewReader("order-1"))
	require.NoError(t, err)
	_, err = client.Prepare("order-1", req)
	require.NoError(t, err)
	require.NoError(t, journal.Close())

	// The first one dies when the new epoch is in the folder, and not yet the
	// database's own.
	var before string
	onFile(func(db *sql.DB) error {
		return db.QueryRow(`SELECT value FROM meta WHERE name = 'epoch'`).Scan(&before)
	})
	require.NoError(t, open().Close())
	onFile(func(db *sql.DB) error {
		_, err := db.Exec(`UPDATE meta SET value = ? WHERE name = 'epoch'`, before)
		return err
	})
	// The second one when the next epoch is in the database, and not yet in the
	// folder.
	inTheWay := filepath.Join(path+"-owners", "epoch.new")
	require.NoError(t, os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700))
	_, err = idem.Open(path, nil)
	require.ErrorContains(t, err, "renew the epoch")
	require.NoError(t, os.RemoveAll(inTheWay))

	journal = open()
	in, err := journal.Lookup(context.Background(), "", "order-1")
	require.NoError(t, err)
	assert.Equal(t, idem.StatePending, in.State, "held: %s", in.HoldReason)
	require.NoError(t, journal.Close())
}
