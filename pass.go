package idem

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/idem-go/idem/contract"
)

// This file is for requests that are not journaled. They pass as if the
// transport were not there, except that they are sent again where that is safe.

// passRepeatable sends a safe or idempotent request (RFC 9110 9.2.2), and sends
// it again in memory, before any answer is handed over.
func (t *Transport) passRepeatable(req *http.Request) (*http.Response, error) {
	req = withoutCopied(req)
	return t.passAgain(req, false, func(resp *http.Response, _ *wire, err error) bool {
		if err != nil {
			return !permanent(err)
		}
		return retryable(resp.StatusCode)
	})
}

// passOnce sends a request that is not known to be repeatable: again only where
// it was provably not executed.
func (t *Transport) passOnce(req *http.Request) (*http.Response, error) {
	return t.passAgain(req, true, func(_ *http.Response, trace *wire, err error) bool {
		return err != nil && !permanent(err) && trace.phase(err) == phaseNotSent
	})
}

// passAgain sends req up to MaxAttempts times, while again says so.
func (t *Transport) passAgain(req *http.Request, traced bool, again func(*http.Response, *wire, error) bool) (*http.Response, error) {
	p, ctx := t.Retry, req.Context()
	x := exchange{t: t, ctx: ctx}
	repeatable := req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
	attempt := req
	if repeatable { // whatever the base does to it, the next one starts anew
		attempt = req.Clone(ctx)
	}
	spent := 0
	for n := 1; ; n++ {
		var trace *wire
		if traced {
			trace = &wire{}
			attempt = attempt.WithContext(httptrace.WithClientTrace(ctx, trace.hooks()))
		}
		resp, err := t.base().RoundTrip(attempt)
		if resp != nil {
			resp.Request = req
		}
		repeats := again(resp, trace, err)
		if spent > 0 && !repeats && resp != nil {
			t.gates.of(appendOrigin(nil, req.URL), t.clock.Now()).answered(true, false, spent, 0)
		}
		if !repeats || !repeatable || n >= p.maxAttempts() {
			return resp, err
		}
		wait := p.backoff(n)
		if resp != nil {
			wait = p.pause(n, askedWait(resp.Header, nil, t.clock.Now()), nil)
		}
		if !x.patient(wait) || req.URL == nil || !t.gates.of(appendOrigin(nil, req.URL), t.clock.Now()).spend(t.clock.Now()) {
			return resp, err
		}
		spent++
		next, bodyErr := rewound(req)
		if bodyErr != nil {
			return resp, err
		}
		if resp != nil {
			drain(resp.Body)
		}
		if !sleep(ctx, wait) {
			closeBody(next)
			return nil, ctx.Err()
		}
		attempt = next
	}
}

// rewound is req with its body from the start.
func rewound(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.GetBody != nil && req.Body != nil && req.Body != http.NoBody {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// maxDrain and drainPatience bound what is read of an answer that is thrown
// away, so that its connection can be used again.
const (
	maxDrain      = 64 << 10
	drainPatience = 50 * time.Millisecond
)

func drain(body io.ReadCloser) {
	over := time.AfterFunc(drainPatience, func() { _ = body.Close() }) // ends a read that would wait
	defer over.Stop()
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	_ = body.Close()
}

// tellMisfit says that the policy leaves no time for a resend before the key is
// forgotten.
func (t *Transport) tellMisfit(c *contract.Contract) {
	p, kept := t.Retry, retention(c)
	first := p.attemptTimeout(c) + max(p.minBackoff(), c.MinDelay)
	if c.NoKeys || kept <= 0 || first < kept-margin(kept) {
		return
	}
	t.log().LogAttrs(context.Background(), slog.LevelWarn,
		"an attempt that times out and the shortest wait after it outlive the key: such an operation is held, and never sent again by itself",
		slog.String("contract", c.Name), slog.Duration("retention", kept), slog.Duration("attempt and wait", first))
}

// tellOnce says once per host that no contract is known for it.
func (t *Transport) tellOnce(req *http.Request) {
	if t.Logger == nil || req.URL == nil || t.toldN.Load() >= maxTold {
		return
	}
	if _, told := t.told.LoadOrStore(req.URL.Host, true); told {
		return
	}
	t.toldN.Add(1)
	t.log().LogAttrs(req.Context(), slog.LevelWarn,
		"no contract for this host: no key is sent, and nothing is sent again once it may have been delivered",
		slog.String("host", req.URL.Host))
}
