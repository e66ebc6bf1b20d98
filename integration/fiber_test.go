package integration

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

func init() {
	// The header and the lifetime are the middleware's defaults.
	api := contract.Keyed(idempotency.ConfigDefault.KeyHeader, idempotency.ConfigDefault.Lifetime)
	subjects["fiber"] = &subject{
		server: api, client: at(api), want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) { return posts(s.http, s.url), nil },
	}
}

// startFiber starts a server with fiber's idempotency middleware.
func startFiber(t *testing.T) *thirdParty {
	s := newThirdParty()
	var work sync.RWMutex
	s.hold = func() func() {
		work.Lock()
		return work.Unlock
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		s.arrived(string(append([]byte(nil), c.Get(idempotency.ConfigDefault.KeyHeader)...)))
		return c.Next()
	})
	app.Use(idempotency.New())
	app.Post("/charges", func(c fiber.Ctx) error {
		s.working <- struct{}{}
		work.RLock()
		defer work.RUnlock()
		s.effects.Add(1)
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).SendString(charge)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		assert.NoError(t, app.Shutdown())
		assert.NoError(t, <-served)
	})
	return s
}

func TestFiber(t *testing.T) { testThirdParty(t, "fiber", startFiber) }
