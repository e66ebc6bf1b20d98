package idem

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// held is the intent that is held, whatever its name.
func (l *life) held() Intent {
	l.t.Helper()
	list, err := l.journal.List(l.t.Context(), Filter{States: []State{StateHeld}})
	require.NoError(l.t, err)
	require.Len(l.t, list, 1)
	return list[0]
}

// closed changes the file between two lives.
func (l *life) closed(statement string, args ...any) {
	l.t.Helper()
	require.NoError(l.t, l.journal.Close())
	db := inspect(l.t, l.path)
	_, err := db.Exec(statement, args...)
	require.NoError(l.t, err)
	require.NoError(l.t, db.Close())
	l.open()
}

// copied goes on with a copy of the journal.
func (l *life) copied() {
	l.t.Helper()
	require.NoError(l.t, l.journal.Close())
	file, err := os.ReadFile(l.path)
	require.NoError(l.t, err)
	l.path = filepath.Join(l.t.TempDir(), "copy.db")
	require.NoError(l.t, os.WriteFile(l.path, file, 0o600))
	l.open()
}

// lost leaves order-1 in doubt, and due.
func (l *life) lost() {
	l.t.Helper()
	l.acts = append([]act{actLost}, l.acts...)
	requireUnknown(l.t, l.call(), StateUnknown)
	time.Sleep(time.Minute)
}

const damage = `UPDATE intent SET body = CAST(replace(CAST(body AS TEXT), '42', '43') AS BLOB)`

// holding is a way to become held.
type holding struct {
	reason HoldReason
	doubt  bool
	helps  string // part of what the error of a call says would help
	acts   []act
	reach  func(l *life)
}

var holdings = []holding{
	{HoldExpired, true, "look at the provider's side", nil, func(l *life) { l.lost(); time.Sleep(24 * time.Hour); l.resume() }},
	{HoldStoredFailure, true, "look at the provider's side", []act{actAnswer(500, "Idempotent-Replayed", "true")}, func(l *life) { _ = l.call() }},
	{HoldExhausted, true, "release it", []act{actAnswer(503)}, func(l *life) { l.lost(); l.resume() }},
	{HoldExhausted, false, "release it", []act{actAnswer(429)}, func(l *life) { l.prepares(); l.resume() }},
	{HoldPoison, true, "find out why", nil, func(l *life) { l.acts = []act{l.dies}; _ = l.call(); l.open(); l.resume() }},
	{HoldCredentials, true, "Client.Authorize", []act{actLost}, func(l *life) {
		req := l.request()
		req.Header.Set("Authorization", "Bearer x")
		_, err := l.client.Do("order-1", req)
		requireUnknown(l.t, err, StateUnknown)
		time.Sleep(time.Minute)
		l.resume()
	}},
	{HoldCredentials, false, "Client.Authorize", []act{actAnswer(401)}, func(l *life) { l.prepares(); l.resume() }},
	{HoldUnnamed, true, "", []act{actLost}, func(l *life) {
		_, err := l.transport.RoundTrip(l.request())
		requireUnknown(l.t, err, StateUnknown)
		time.Sleep(time.Minute)
		l.resume()
	}},
	{HoldUnnamed, false, "", []act{actAnswer(429)}, func(l *life) {
		l.transport.Retry.MaxAttempts = 2
		l.transport.Observer = &Observer{Waiting: func(context.Context, Intent, time.Duration) { l.journal.store.Die() }}
		_, _ = l.transport.RoundTrip(l.request())
		l.open()
		time.Sleep(time.Minute)
		l.resume()
	}},
	{HoldNoContract, true, "contract.Keyed", []act{actLost}, func(l *life) {
		l.transport.Contracts = contract.First()
		_ = l.call()
	}},
	{HoldNotKept, true, "look at the provider's side", []act{actBroken}, func(l *life) {
		resp, err := l.client.Do("order-1", l.request())
		require.NoError(l.t, err)
		resp.Body.Close()
	}},
	{HoldRedirect, true, "look at the provider's side", []act{actAnswer(300)}, func(l *life) { _ = l.call() }},
	{HoldRedirect, false, "look at the provider's side", []act{actAnswer(307, "Location", "http://other.example/")}, func(l *life) { l.prepares(); l.resume() }},
	{HoldUnsettlingAnswer, true, "look at the provider's side", []act{actAnswer(400)}, func(l *life) { l.lost(); _ = l.call() }},
	{HoldCopied, true, "make sure that only one is in use", nil, func(l *life) { l.lost(); l.copied() }},
	{HoldCopied, false, "make sure that only one is in use", nil, func(l *life) { l.prepares(); l.copied() }},
	{HoldClock, true, "set the clock", nil, func(l *life) {
		l.lost()
		l.closed(`UPDATE meta SET value = ? WHERE name = 'clock'`, time.Now().Add(time.Hour).UnixNano())
	}},
	{HoldChecksum, true, "look at the provider's side", nil, func(l *life) { l.lost(); l.closed(damage); l.resume() }},
	{HoldChecksum, false, "look at the provider's side", nil, func(l *life) { l.prepares(); l.closed(damage); l.resume() }},
}

// actBroken begins a stream that breaks.
func actBroken(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
	closeBody(req)
	return eventStream(io.NopCloser(io.MultiReader(strings.NewReader("data: x\n\n"), iotest.ErrReader(errReset)))), nil
}

func (h holding) String() string { return fmt.Sprintf("%s, doubt=%v", h.reason, h.doubt) }

// held runs f on an intent that is held so.
func (h holding) held(t *testing.T, f func(t *testing.T, l *life, seen Intent)) {
	live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1, MaxDeaths: 1}, h.acts, func(t *testing.T, l *life) {
		h.reach(l)
		seen := l.held()
		require.Equal(t, h.reason, seen.HoldReason)
		require.Equal(t, h.doubt, seen.Doubt)
		f(t, l, seen)
	})
}

// decisions are what a person can do, and where it is refused.
var decisions = []struct {
	name    string
	decide  func(c *Client, ctx context.Context, seen Intent) (Intent, error)
	allowed func(h holding) bool
	becomes func(doubt bool) State
}{
	{"Release", func(c *Client, ctx context.Context, seen Intent) (Intent, error) {
		return c.Release(ctx, seen, "ann", "why")
	},
		func(h holding) bool { return h.reason != HoldExpired && h.reason != HoldNoContract },
		func(doubt bool) State { return map[bool]State{true: StateUnknown, false: StatePending}[doubt] }},
	{"ReleaseExpired", func(c *Client, ctx context.Context, seen Intent) (Intent, error) {
		return c.ReleaseExpired(ctx, seen, "ann", "why")
	},
		func(h holding) bool { return h.reason == HoldExpired },
		func(bool) State { return StateUnknown }},
	{"Resolve", func(c *Client, ctx context.Context, seen Intent) (Intent, error) {
		return c.Resolve(ctx, seen, StateSucceeded, "ann", "why")
	}, func(holding) bool { return true }, func(bool) State { return StateSucceeded }},
	{"Withdraw", func(c *Client, ctx context.Context, seen Intent) (Intent, error) {
		return c.Withdraw(ctx, seen, "ann", "why")
	},
		func(h holding) bool { return !h.doubt },
		func(bool) State { return StateWithdrawn }},
}

// Held is never sent, by no resume and no call; the error of a call says the
// reason, and what would help.
func TestLife_EveryHoldReasonIsReachable(t *testing.T) {
	reached := map[HoldReason]bool{}
	for _, h := range holdings {
		reached[h.reason] = true
		t.Run(h.String(), func(t *testing.T) {
			h.held(t, func(t *testing.T, l *life, seen Intent) {
				if h.reason == HoldUnnamed { // nobody can call it again
					l.unsent()
				} else {
					for _, err := range []error{l.call(), l.continues()} {
						requireUnknown(t, err, StateHeld)
						require.ErrorIs(t, err, ErrHeld)
						assert.ErrorContains(t, err, "held ("+string(h.reason)+")")
						assert.ErrorContains(t, err, h.helps)
						var failure *OperationError
						require.ErrorAs(t, err, &failure)
						assert.Equal(t, h.reason, failure.HoldReason)
					}
					l.still()
				}
				after := l.held()
				assert.Equal(t, [2]any{seen.Version, seen.HoldReason}, [2]any{after.Version, after.HoldReason}, "nothing changed")
			})
		})
	}
	assert.Len(t, reached, len(holdText))
}

// Held is left by a decision only: which are allowed, and which are refused and
// change nothing.
func TestLife_HeldIsLeftByADecision(t *testing.T) {
	for _, h := range holdings {
		for _, allowed := range decisions {
			if !allowed.allowed(h) {
				continue
			}
			t.Run(h.String()+"/"+allowed.name, func(t *testing.T) {
				h.held(t, func(t *testing.T, l *life, seen Intent) {
					for _, refused := range decisions {
						if refused.allowed(h) {
							continue
						}
						_, err := refused.decide(l.client, t.Context(), seen)
						requireUnknown(t, err, StateHeld)
						require.ErrorContains(t, err, "nothing was changed", refused.name)
						require.Equal(t, seen.Version, l.held().Version)
					}
					got, err := allowed.decide(l.client, t.Context(), seen)
					require.NoError(t, err)
					assert.Equal(t, allowed.becomes(h.doubt), got.State)
					assert.Equal(t, [2]string{"ann", "why"}, [2]string{got.By, got.Note})
					h.left(t, l, seen, got)
				})
			})
		}
	}
}

// left checks what a decision brought: what is released is sent, once, under
// its key, unless its row is damaged or its credentials are missing.
func (h holding) left(t *testing.T, l *life, seen, got Intent) {
	sends := l.sends()
	l.acts = nil
	released := got.State == StatePending || got.State == StateUnknown
	assert.Equal(t, h.doubt && released, got.Doubt)
	if released {
		assert.Equal(t, [3]any{0, 0, true}, [3]any{got.Resumes, got.Deaths, got.Due.IsZero()})
	}
	if !released || h.reason == HoldChecksum || h.reason == HoldCredentials && h.doubt {
		l.unsent()
		return
	}
	l.resume()
	require.Equal(t, sends+1, l.sends())
	assert.Equal(t, seen.Key, l.keys[sends])
}

// A decision names the intent as it was seen: if it moved, or a call is at it,
// nothing is done.
func TestLife_DecisionOnWhatMovedDoesNothing(t *testing.T) {
	for _, d := range decisions {
		live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 1}, []act{actAnswer(429)}, func(t *testing.T, l *life) {
			l.prepares()
			l.resume()
			l.closed(`UPDATE status SET hold_reason = 'expired'`)
			old := l.held()
			moved, err := l.client.Release(t.Context(), old, "bob", "first")
			require.NoError(t, err)
			refused := func(seen Intent) {
				_, err := d.decide(l.client, context.Background(), seen)
				assert.ErrorIs(t, err, ErrUnknownOutcome, d.name)
				assert.ErrorIs(t, err, ErrBusy, d.name)
				assert.ErrorContains(t, err, "nothing was changed")
			}
			if d.name == "Resolve" { // see TestResolveIsFinal
				return
			}
			refused(old)
			after := l.in()
			assert.Equal(t, [3]any{moved.Version, moved.State, "bob"}, [3]any{after.Version, after.State, after.By})
			l.acts = append(l.acts, func(req *http.Request, server http.RoundTripper) (*http.Response, error) {
				refused(old)
				return server.RoundTrip(req)
			})
			require.NoError(t, l.call())
			assert.Equal(t, "bob", l.in().By)
		})
	}
}

// Release gives fresh ResumeAttempts; the intent goes on under its key.
func TestLife_ReleaseGivesResumeAttemptsAnew(t *testing.T) {
	fail := actAnswer(503)
	live(t, RetryPolicy{MaxAttempts: 1, ResumeAttempts: 2}, []act{fail, fail, fail, fail, fail}, func(t *testing.T, l *life) {
		l.lost()
		for _, sends := range []int{3, 5} {
			l.run(time.Hour)
			require.Equal(t, HoldExhausted, l.held().HoldReason)
			require.Equal(t, sends, l.sends())
			in, err := l.client.Release(t.Context(), l.held(), "ann", "")
			require.NoError(t, err)
			assert.Equal(t, StateUnknown, in.State)
		}
	})
}

// ReleaseExpired restarts the key's life, and may execute a second time.
func TestLife_ReleaseExpiredMayExecuteTwice(t *testing.T) {
	live(t, RetryPolicy{MaxAttempts: 1}, []act{actLost, actAnswer(503)}, func(t *testing.T, l *life) {
		require.Error(t, l.call())
		time.Sleep(24 * time.Hour)
		l.resume()
		in, err := l.client.ReleaseExpired(t.Context(), l.held(), "ann", "looked")
		require.NoError(t, err)
		assert.Equal(t, [2]time.Time{time.Now().UTC(), time.Now().UTC().Add(24*time.Hour - 10*time.Minute)}, [2]time.Time{in.FirstSent, in.Expires})
		l.resume()
		time.Sleep(23 * time.Hour)
		l.resume()
		assert.Equal(t, StateSucceeded, l.in().State)
		assert.Equal(t, 2, l.effects(), "the server forgot the key")
		assert.Equal(t, l.keys[0], l.keys[2])
	})
	virtually(t, func(t *testing.T) { // where the server honours no keys, even that is refused
		l := newLife(t, rigContract(), RetryPolicy{MaxAttempts: 1}, actLost)
		require.Error(t, l.call())
		time.Sleep(24 * time.Hour)
		l.resume()
		l.transport.Contracts = contract.Unsupported
		_, err := l.client.ReleaseExpired(t.Context(), l.held(), "ann", "")
		requireUnknown(t, err, StateHeld)
		l.still()
	})
}

// Resolve is a person's word, with who and why; it is final.
func TestLife_ResolveIsAPersonsWord(t *testing.T) {
	for _, to := range []State{StateSucceeded, StateRejected} {
		live(t, RetryPolicy{MaxAttempts: 1}, nil, func(t *testing.T, l *life) {
			l.lost()
			seen := l.in()
			for _, wrong := range []State{StateUnknown, StateWithdrawn, StateHeld, StatePending, ""} {
				_, err := l.client.Resolve(t.Context(), seen, wrong, "ann", "")
				require.ErrorContains(t, err, "succeeded or rejected")
			}
			_, err := l.client.Resolve(t.Context(), seen, to, "", "nobody")
			require.ErrorContains(t, err, "who decides")
			_, err = l.client.Resolve(t.Context(), seen, to, "ann", "asked them")
			require.NoError(t, err)
			l.restart(true)
			in := l.in()
			assert.Equal(t, [4]any{to, "ann", "asked them", false}, [4]any{in.State, in.By, in.Note, in.Doubt})
			for _, err := range []error{l.call(), l.continues()} {
				require.ErrorIs(t, err, ErrNotKept)
				require.NotErrorIs(t, err, ErrUnknownOutcome)
			}
			l.unsent()
		})
	}
}
