package integration

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	// The header and the lifetime are the middleware's defaults.
	api := contract.Keyed(idempotency.ConfigDefault.KeyHeader, idempotency.ConfigDefault.Lifetime)
	subjects["fiber"] = &subject{
		server: api, client: at(api), want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) { return posts(s.http, s.url), nil },
	}
}

// fiberServer is a server with fiber's idempotency middleware.
type fiberServer struct {
	effects atomic.Int32
	keys    sync.Map
	working chan struct{}                 // told of each effect
	work    atomic.Pointer[chan struct{}] // an effect waits until it is closed
}

func startFiber(t *testing.T) (*fiberServer, *faultinjection.Proxy, *world) {
	s := &fiberServer{working: make(chan struct{}, 1000)}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		s.keys.Store(string(append([]byte(nil), c.Get(idempotency.ConfigDefault.KeyHeader)...)), true)
		return c.Next()
	})
	app.Use(idempotency.New())
	app.Post("/charges", func(c fiber.Ctx) error {
		s.working <- struct{}{}
		if wait := s.work.Load(); wait != nil {
			<-*wait
		}
		s.effects.Add(1)
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).SendString(charge)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	proxy, err := faultinjection.StartProxy(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, proxy.Close())
		assert.NoError(t, app.Shutdown())
		assert.NoError(t, <-served)
	})
	w := &world{t: t, name: "fiber", s: subjects["fiber"], url: "http://" + proxy.Addr(), journal: filepath.Join(t.TempDir(), "journal.db")}
	return s, proxy, w
}

// charged makes the call and sees that there was one effect under one key.
func (s *fiberServer) charged(w *world) {
	w.t.Helper()
	l := w.live()
	for range 2 {
		got, err := l.do(w.t.Context())
		require.NoError(w.t, err)
		assert.Equal(w.t, w.s.want, got)
	}
	assert.Equal(w.t, 2, l.result.Intent.Attempts)
	assert.EqualValues(w.t, 1, s.effects.Load())
	s.keys.Range(func(key, _ any) bool { return assert.Equal(w.t, l.result.Intent.Key, key) })
}

func TestFiber(t *testing.T) {
	t.Parallel()
	t.Run("lost answer", func(t *testing.T) {
		t.Parallel()
		s, proxy, w := startFiber(t)
		proxy.Next(faultinjection.ConnFault{Down: faultinjection.Flow{End: faultinjection.Reset}})
		s.charged(w)
	})
	t.Run("killed while the server works", func(t *testing.T) {
		t.Parallel()
		s, _, w := startFiber(t)
		finish := make(chan struct{})
		s.work.Store(&finish)
		cmd := w.child("")
		began := false
		select {
		case <-s.working:
			began = true
		case <-time.After(patience):
		}
		require.NoError(t, cmd.Process.Kill())
		w.dead(cmd)
		close(finish)
		require.True(t, began, "nothing arrived: %s", cmd.Stderr)
		s.charged(w)
	})
	t.Run("killed once the request has left", func(t *testing.T) {
		t.Parallel()
		s, _, w := startFiber(t)
		w.dead(w.child("written:1"))
		s.charged(w)
	})
	// The server claims a key before it works, so that processes that share
	// nothing but the key have one effect too.
	t.Run("calls together", func(t *testing.T) {
		t.Parallel()
		s, _, w := startFiber(t)
		var calls sync.WaitGroup
		for range 32 {
			calls.Go(func() {
				req, err := http.NewRequest(http.MethodPost, w.url+"/charges", nil)
				if !assert.NoError(t, err) {
					return
				}
				req.Header.Set(idempotency.ConfigDefault.KeyHeader, "8e03978e-40d5-43e8-bc93-6894a57f9324")
				got, err := decoded(http.DefaultClient.Do(req))
				assert.NoError(t, err)
				assert.Equal(t, w.s.want, got)
			})
		}
		calls.Wait()
		assert.EqualValues(t, 1, s.effects.Load())
	})
}
