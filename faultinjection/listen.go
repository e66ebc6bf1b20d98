package faultinjection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Running is a server on a loopback port. It is safe for concurrent use.
type Running struct {
	// URL is where it listens, such as "http://127.0.0.1:34567".
	URL string

	http   *http.Server
	end    context.CancelFunc // ends the server's life
	served chan error         // what Serve returned
	once   sync.Once
	result error // of Close

	mu     sync.Mutex
	closed bool           // no request may enter
	open   sync.WaitGroup // requests being handled
}

// closeWait is how long Close waits for requests that are being handled.
const closeWait = 5 * time.Second

// lifeKey finds the context that ends with the server's life.
type lifeKey struct{}

// Listen serves on a free loopback port until Close.
func (s *Server) Listen() (*Running, error) { return s.ListenAt("127.0.0.1:0") }

// ListenAt is Listen at an address of your choice, such as that of an earlier
// life. Addresses that other machines can reach are refused.
func (s *Server) ListenAt(address string) (*Running, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("faultinjection: %w", err)
	}
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		err := fmt.Errorf("faultinjection: listen at %q: not a loopback address", address)
		return nil, errors.Join(err, listener.Close())
	}
	life, end := context.WithCancel(context.Background())
	running := &Running{URL: "http://" + listener.Addr().String(), end: end, served: make(chan error, 1)}
	running.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.enter()
			defer running.open.Done()
			s.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(life, lifeKey{}, life) },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are the point
	}
	go func() { running.served <- running.http.Serve(listener) }()
	return running, nil
}

// Close ends the server's life as a kill would: connections break, and what is
// held or being worked on is rolled back. It waits at most five seconds, for an
// Effect that does not return; the ledger must stay open until then. Calling it
// again gives the first result.
func (r *Running) Close() error {
	r.once.Do(func() { r.result = r.close() })
	return r.result
}

// enter counts a request in, unless it came too late.
func (r *Running) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		panic(http.ErrAbortHandler)
	}
	r.open.Add(1)
}

func (r *Running) close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	err := r.http.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	idle := make(chan struct{})
	go func() {
		r.open.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeWait):
		err = errors.Join(err, errors.New("requests are still being handled"))
	}
	return wrap("close server", err)
}
