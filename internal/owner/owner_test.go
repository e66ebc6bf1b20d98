package owner

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func folder(t *testing.T) Folder {
	f := Folder(filepath.Join(t.TempDir(), "owners"))
	made, err := f.Create()
	require.NoError(t, err)
	require.True(t, made)
	made, err = f.Create()
	require.NoError(t, err)
	require.False(t, made)
	return f
}

func (f Folder) mustBeDead(t *testing.T, token string, want bool) {
	t.Helper()
	dead, err := f.Dead(token)
	require.NoError(t, err)
	assert.Equal(t, want, dead)
}

func TestOwnerLivesAndDies(t *testing.T) {
	f := folder(t)
	a, err := f.Register()
	require.NoError(t, err)
	b, err := f.Register()
	require.NoError(t, err)
	assert.Len(t, a.Token, 32)
	assert.NotEqual(t, a.Token, b.Token)
	f.mustBeDead(t, a.Token, false)
	require.NoError(t, f.Bury(a.Token))
	require.NoError(t, a.Check(), "the living are not buried")

	require.NoError(t, a.Release(false))
	f.mustBeDead(t, a.Token, true)
	f.mustBeDead(t, a.Token, true)
	assert.FileExists(t, f.path(a.Token))
	require.NoError(t, f.Bury(a.Token))
	assert.NoFileExists(t, f.path(a.Token))
	f.mustBeDead(t, a.Token, true)

	require.NoError(t, b.Release(true))
	assert.NoFileExists(t, f.path(b.Token))
	f.mustBeDead(t, "0123456789abcdef0123456789abcdef", true)
}

func TestOwnerWhoseFileIsGone(t *testing.T) {
	f := folder(t)
	o, err := f.Register()
	require.NoError(t, err)
	require.NoError(t, o.Check())
	require.NoError(t, os.Rename(f.path(o.Token), f.path("moved")))
	require.ErrorIs(t, o.Check(), ErrGone)
	require.NoError(t, os.WriteFile(f.path(o.Token), nil, 0o600)) // another file of that name
	require.ErrorIs(t, o.Check(), ErrGone)
	require.NoError(t, o.Release(true))
	assert.FileExists(t, f.path(o.Token), "not ours to remove")
}

func TestSetupIsForOneAtATime(t *testing.T) {
	f := folder(t)
	unlock, err := f.Setup(time.Second)
	require.NoError(t, err)
	_, err = f.Setup(10 * time.Millisecond)
	require.ErrorContains(t, err, "another process")
	require.NoError(t, unlock())
	unlock, err = f.Setup(time.Second)
	require.NoError(t, err)
	require.NoError(t, unlock())
}

// Probes and clearing while owners start: each start ends with a file that is
// its own and that everybody sees locked.
func TestOwnersStartWhileOthersProbe(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "owners"))
	_, err := f.Create()
	require.NoError(t, err)
	done := make(chan struct{})
	var probers sync.WaitGroup
	for range 4 {
		probers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				tokens, err := f.Tokens(100)
				assert.NoError(t, err)
				for _, token := range tokens {
					dead, err := f.Dead(token)
					assert.NoError(t, err)
					if dead {
						assert.NoError(t, f.Bury(token))
					}
				}
			}
		})
	}
	for range 200 {
		o, err := f.Register()
		require.NoError(t, err)
		require.NoError(t, o.Check())
		dead, err := f.Dead(o.Token)
		require.NoError(t, err)
		require.False(t, dead)
		require.NoError(t, o.Check(), "nobody buries the living")
		require.NoError(t, o.Release(true))
	}
	close(done)
	probers.Wait()
}
