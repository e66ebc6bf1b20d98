package idem

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGroupCommitKeepsEveryRow(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 8 {
				in, claimed, err := j.Begin(t.Context(), newIntent(strconv.Itoa(g)+"/"+strconv.Itoa(i)))
				if !assert.NoError(t, err) || !assert.True(t, claimed) {
					return
				}
				next, a := succeed(in)
				_, err = j.Update(t.Context(), next, a, i%4 == 0)
				assert.NoError(t, err)
				got, err := j.Lookup(t.Context(), in.Scope, in.Operation)
				assert.NoError(t, err)
				assert.Equal(t, StateSucceeded, got.State, "what was posted is seen at once")
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 512, count(t, path, `SELECT count(*) FROM status WHERE state = 'succeeded' AND owner IS NULL`))
	assert.Equal(t, 512, count(t, path, `SELECT count(*) FROM outcome`))
}

func TestBeginOnceForManyCallers(t *testing.T) { // O-11
	path := tempJournal(t)
	handles := []*SQLiteJournal{mustOpen(t, path, nil), mustOpen(t, path, nil)}
	var claims atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			in := newIntent("one")
			in.Key = strconv.Itoa(i)
			got, claimed, err := handles[i%2].Begin(t.Context(), in)
			assert.NoError(t, err)
			assert.NotEqual(t, claimed, got.Owned)
			if claimed {
				claims.Add(1)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, int32(1), claims.Load())
}

func TestCancelledCallsLeaveNothingOpen(t *testing.T) { // O-41
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	var refused, made atomic.Int32
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 41))
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(2000))*time.Microsecond)
				in, claimed, err := j.Begin(ctx, newIntent(strconv.Itoa(g)+"/"+strconv.Itoa(i)))
				cancel()
				if err != nil {
					refused.Add(1)
					assert.ErrorIs(t, err, ErrJournal)
					assert.ErrorIs(t, err, ErrNotSent)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					_, err := j.Lookup(t.Context(), "acct", newIntent(strconv.Itoa(g)+"/"+strconv.Itoa(i)).Operation)
					assert.ErrorIs(t, err, ErrNotFound, "nothing was written")
					continue
				}
				made.Add(1)
				assert.True(t, claimed)
				assert.NotEmpty(t, in.ID)
			}
		})
	}
	wg.Wait()
	begun := time.Now()
	mustBegin(t, j, newIntent("clean"))
	assert.Less(t, time.Since(begun), time.Second)
	assert.Equal(t, int(made.Load())+1, count(t, path, `SELECT count(*) FROM intent`))
	t.Logf("%d made, %d refused", made.Load(), refused.Load())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := j.Begin(ctx, newIntent("late"))
	assert.ErrorIs(t, err, context.Canceled)
}

func TestJournalDeletedOrReplaced(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"deleted": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			b, err := os.ReadFile(path + ".copy")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path+".new", b, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempJournal(t)
			j, err := Open(path, nil)
			require.NoError(t, err)
			in := mustBegin(t, j, newIntent("a"))
			require.NoError(t, os.WriteFile(path+".copy", []byte("another file"), 0o600))
			harm(t, path)
			_, _, err = j.Begin(t.Context(), newIntent("b"))
			require.ErrorIs(t, err, ErrJournal)
			require.ErrorIs(t, err, ErrNotSent)
			assert.ErrorContains(t, err, "deleted or replaced")
			next, a := succeed(in)
			_, err = j.Update(t.Context(), next, a, true)
			assert.ErrorIs(t, err, ErrJournal)
			assert.ErrorIs(t, j.Close(), ErrJournal, "what was posted may be lost")
		})
	}
}

func TestGhostLeavesTheNewFileAlone(t *testing.T) {
	path := tempJournal(t)
	ghost, err := Open(path, nil)
	require.NoError(t, err)
	mustBegin(t, ghost, newIntent("lost"))
	for _, side := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Remove(path+side))
	}
	j := mustOpen(t, path, nil)
	mustBegin(t, j, newIntent("a"))
	require.ErrorIs(t, ghost.Close(), ErrJournal)
	assert.FileExists(t, path+"-wal")
	assert.Equal(t, 1, count(t, path, `SELECT count(*) FROM intent`))
	mustBegin(t, j, newIntent("b"))
}

func TestOwnerFileRemoved(t *testing.T) {
	path := tempJournal(t)
	j := mustOpen(t, path, nil)
	in := mustBegin(t, j, newIntent("a"))
	require.NoError(t, os.RemoveAll(path+"-owners"))

	_, _, err := j.Begin(t.Context(), newIntent("b"))
	require.ErrorIs(t, err, ErrJournal)
	require.ErrorIs(t, err, ErrNotSent)
	in.Attempts = 2
	_, err = j.Update(t.Context(), in, nil, true)
	require.ErrorIs(t, err, ErrJournal, "no attempt is counted by whom others see dead")
	_, _, err = j.ClaimDue(t.Context(), testNow, Filter{Name: "main"})
	require.ErrorIs(t, err, ErrJournal)
	in.Attempts = 1
	next, a := succeed(in)
	mustUpdate(t, j, next, a, true) // an answer is never thrown away

	second := mustOpen(t, path, nil)
	mustBegin(t, second, newIntent("c"))
}
