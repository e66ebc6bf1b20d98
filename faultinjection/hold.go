package faultinjection

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// gate is where held executions wait. Its zero value is shut.
type gate struct {
	mu      sync.Mutex
	open    chan struct{} // closed by release; nil: nobody waited yet
	changed chan struct{} // closed when held changes; nil: nobody watches
	held    int
}

// hold waits for the next release. It is false when the life ended first.
func (g *gate) hold(life context.Context) bool {
	g.mu.Lock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	open := g.open
	g.count(1)
	g.mu.Unlock()

	defer func() {
		g.mu.Lock()
		g.count(-1)
		g.mu.Unlock()
	}()
	select {
	case <-open:
		return true
	case <-life.Done():
		return false
	}
}

// count tells the watchers; the caller holds mu.
func (g *gate) count(by int) {
	g.held += by
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// await returns once at least n executions are held.
func (g *gate) await(ctx context.Context, n int) error {
	for {
		g.mu.Lock()
		held := g.held
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		if held >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("faultinjection: %d of %d requests held: %w", held, n, context.Cause(ctx))
		}
	}
}

// pause waits for d. It is false when the life ended first.
func pause(life context.Context, d time.Duration) bool {
	if d <= 0 {
		return life.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-life.Done():
		return false
	}
}
