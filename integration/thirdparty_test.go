package integration

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// thirdParty is a server that others wrote, and that keeps idempotency keys. It
// answers a POST to /charges with a charge.
type thirdParty struct {
	address  string
	effects  atomic.Int32
	keys     sync.Map      // that have arrived
	arrivals chan struct{} // told of each
	working  chan struct{} // told of each effect that begins
	// hold lets effects that begin wait until release is called.
	hold func() (release func())
	// told returns once effects counts all that were made. nil means that it
	// always does.
	told func()
}

func newThirdParty() *thirdParty {
	return &thirdParty{arrivals: make(chan struct{}, 1000), working: make(chan struct{}, 1000)}
}

// once checks that there was one effect.
func (s *thirdParty) once(t *testing.T) {
	t.Helper()
	if s.told != nil {
		s.told()
	}
	assert.EqualValues(t, 1, s.effects.Load(), "effects")
}

func (s *thirdParty) arrived(key string) {
	s.keys.Store(key, true)
	s.arrivals <- struct{}{}
}

// world puts the server behind a proxy, for a subject of that name.
func (s *thirdParty) world(t *testing.T, name string) (*world, *faultinjection.Proxy) {
	t.Helper()
	proxy, err := faultinjection.StartProxy(s.address)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	return &world{
		t: t, name: name, s: subjects[name], url: "http://" + proxy.Addr(), journal: filepath.Join(t.TempDir(), "journal.db"),
	}, proxy
}

// charged makes the call and sees that there was one effect under one key.
func (s *thirdParty) charged(w *world) {
	w.t.Helper()
	l := w.live()
	for range 2 {
		got, err := l.do(w.t.Context())
		require.NoError(w.t, err)
		assert.Equal(w.t, w.s.want, got)
	}
	assert.True(w.t, l.result.FromJournal)
	assert.GreaterOrEqual(w.t, l.result.Intent.Attempts, 2)
	s.once(w.t)
	s.keys.Range(func(key, _ any) bool { return assert.Equal(w.t, l.result.Intent.Key, key) })
}

func within(t *testing.T, told <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(patience):
		require.Fail(t, "it did not happen", what)
	}
}

// testThirdParty is what holds at every server that keeps keys.
func testThirdParty(t *testing.T, name string, start func(t *testing.T) *thirdParty) {
	t.Parallel()
	t.Run("lost answer", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		w, proxy := s.world(t, name)
		proxy.Next(faultinjection.ConnFault{Down: faultinjection.Flow{End: faultinjection.Reset}})
		s.charged(w)
	})
	t.Run("killed while the server works", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		w, _ := s.world(t, name)
		s.killed(w)()
		s.charged(w)
	})
	t.Run("killed while the server works, which it still does", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		w, _ := s.world(t, name)
		release := s.killed(w)
		within(t, s.arrivals, "the first attempt")
		go func() {
			<-s.arrivals // the second one
			release()
		}()
		s.charged(w)
	})
	t.Run("killed once the request has left", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		w, _ := s.world(t, name)
		w.dead(w.child("written:1"))
		s.charged(w)
	})
	// The server claims a key before it works, so that processes that share
	// nothing but the key have one effect too.
	t.Run("calls together", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		w, _ := s.world(t, name)
		var calls sync.WaitGroup
		var charges atomic.Int32
		for range 32 {
			calls.Go(func() {
				req, err := http.NewRequest(http.MethodPost, w.url+"/charges", strings.NewReader(order))
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set(w.s.server.Key.Header, "8e03978e-40d5-43e8-bc93-6894a57f9324")
				resp, err := http.DefaultClient.Do(req)
				if !assert.NoError(t, err) {
					return
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusCreated {
					charges.Add(1)
				} else {
					assert.Equal(t, http.StatusConflict, resp.StatusCode)
				}
			})
		}
		calls.Wait()
		assert.Positive(t, charges.Load())
		s.once(t)
	})
}

// killed is a life that is killed while the server works, until release.
func (s *thirdParty) killed(w *world) (release func()) {
	w.t.Helper()
	release = s.hold()
	cmd := w.child("")
	began := false
	select {
	case <-s.working:
		began = true
	case <-time.After(patience):
	}
	require.NoError(w.t, cmd.Process.Kill())
	w.dead(cmd)
	require.True(w.t, began, "nothing arrived: %s", cmd.Stderr)
	return release
}
