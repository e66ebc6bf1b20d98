package idem

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// reportEvery is how often a failing journal is told of in the log. Each caller
// has the error, so nothing is lost by it.
const reportEvery = time.Second

// reports keep a journal that fails from filling the log.
type reports struct {
	mu   sync.Mutex
	last time.Time
	more int // that were kept back since
}

// journalFailed tells that the journal failed, and how often it was not told of
// since the last time.
func (t *Transport) journalFailed(ctx context.Context, message string, attrs ...slog.Attr) {
	r := &t.reports
	now := time.Now() // the pace: not the clock, which may step
	r.mu.Lock()
	if !r.last.IsZero() && now.Sub(r.last) < reportEvery {
		r.more++
		r.mu.Unlock()
		return
	}
	more := r.more
	r.last, r.more = now, 0
	r.mu.Unlock()
	if more > 0 {
		attrs = append(attrs, slog.Int("more", more))
	}
	t.log().LogAttrs(ctx, slog.LevelError, message, attrs...)
}
