package sqlite

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// renewed is a row that takes the place of another.
func renewed(operation, renews string) *Row {
	r := newRow(operation)
	r.Key, r.Renews = "k2-"+operation, renews
	return r
}

// withdrawnRow makes a row that is withdrawn, and nobody's.
func (s *Store) withdrawnRow(t *testing.T, operation string) *Row {
	got, claimed, err := s.Begin(t.Context(), newRow(operation))
	require.NoError(t, err)
	require.True(t, claimed)
	c := &Change{ID: got.ID, Key: got.Key, Status: got.Status}
	c.State, c.Settled = withdrawn, 2
	_, err = s.Update(t.Context(), c, true)
	require.NoError(t, err)
	return got
}

// loses takes the status of a row away, as a damaged row id does.
func (s *Store) loses(t *testing.T, id int64) {
	_, err := s.writer.exec(deleteStatus, id)
	require.NoError(t, err)
}

// An intent whose status is lost is neither new nor unknown: nobody is told that
// it is not there, no older generation passes for it, and the others of its
// batch are written.
func TestIntentWithoutStatusIsDamaged(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	refused := func(what string, err error) {
		t.Helper()
		require.ErrorIs(t, err, ErrDamaged, what)
		require.NotErrorIs(t, err, ErrNotFound, what)
		var at *FileError
		require.ErrorAs(t, err, &at, what)
		require.Equal(t, s.path, at.Path, what)
	}
	row, _, err := s.Begin(t.Context(), newRow("a"))
	require.NoError(t, err)
	s.loses(t, row.ID)
	_, _, err = s.Begin(t.Context(), newRow("a"))
	refused("by its name", err)
	require.ErrorIs(t, err, ErrNothingWritten)
	_, _, err = s.Begin(t.Context(), &Row{ID: row.ID})
	refused("by its id", err)
	_, _, err = s.Begin(t.Context(), renewed("a", row.Key))
	refused("renewed", err)
	_, err = s.Known(t.Context(), "s", "a", nil)
	refused("known by its name", err)
	_, err = s.Known(t.Context(), "s", "b", nil)
	require.ErrorIs(t, err, ErrNotFound)
	require.NotErrorIs(t, err, ErrDamaged)
	_, _, err = s.Begin(t.Context(), &Row{ID: row.ID + 100})
	require.ErrorIs(t, err, ErrNotFound)

	adopted := func(operation string) *Row {
		r := newRow(operation)
		r.Adopted = []byte("adopted")
		return r
	}
	row, _, err = s.Begin(t.Context(), adopted(""))
	require.NoError(t, err)
	s.loses(t, row.ID)
	for _, operation := range []string{"", "another"} {
		_, _, err = s.Begin(t.Context(), adopted(operation))
		refused("by its key", err)
	}
	_, err = s.Known(t.Context(), "s", "", []byte("adopted"))
	refused("known by its key", err)

	var calls sync.WaitGroup
	for _, operation := range []string{"a", "x", "a", "y", "z"} {
		calls.Go(func() {
			_, claimed, err := s.Begin(t.Context(), newRow(operation))
			if operation == "a" {
				assert.True(t, errors.Is(err, ErrDamaged) && !claimed, "%v", err)
			} else {
				assert.True(t, err == nil && claimed, "%v", err)
			}
		})
	}
	calls.Wait()
}

// The first generation may have been closed; its renewal, of which nothing is
// known, may be executed yet.
func TestRenewalWithoutStatusIsDamaged(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	first := s.withdrawnRow(t, "a")
	second, claimed, err := s.Begin(t.Context(), renewed("a", first.Key))
	require.NoError(t, err)
	require.True(t, claimed)
	require.EqualValues(t, 2, second.Generation)
	got, err := s.Known(t.Context(), "s", "a", nil)
	require.NoError(t, err)
	require.Equal(t, second.Key, got.Key)

	s.loses(t, second.ID)
	for _, want := range []*Row{newRow("a"), renewed("a", first.Key), renewed("a", second.Key)} {
		_, claimed, err = s.Begin(t.Context(), want)
		require.ErrorIs(t, err, ErrDamaged)
		require.False(t, claimed)
	}
	_, err = s.Known(t.Context(), "s", "a", nil)
	require.ErrorIs(t, err, ErrDamaged)
}

// The empty shell of a row that was removed is no damage.
func TestShellIsNoDamage(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "x.db"))
	row := s.withdrawnRow(t, "a")
	removed, err := s.Forget(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	_, _, err = s.Begin(t.Context(), &Row{ID: row.ID})
	require.ErrorIs(t, err, ErrNotFound)
	require.NotErrorIs(t, err, ErrDamaged)
}
