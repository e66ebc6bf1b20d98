package idem

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func answered200(status int, pairs ...string) ending {
	return ending{status: status, header: header(pairs...), phase: phaseAnswered}
}

// settleCases is the status table of the design, section 5, with and without
// doubt, for a server that honours keys.
var settleCases = []struct {
	name string
	c    *contract.Contract
	e    ending
	// without earlier doubt, then with it: state, and whether it is sent again
	clean, doubted State
	again          bool
	hold           HoldReason // where doubted is held
	leavesDoubt    bool       // without earlier doubt
}{
	{name: "200", e: answered200(200), clean: StateSucceeded, doubted: StateSucceeded},
	{name: "201", e: answered200(201), clean: StateSucceeded, doubted: StateSucceeded},
	{name: "202", e: answered200(202), clean: StateSucceeded, doubted: StateSucceeded},
	{name: "204", e: answered200(204), clean: StateSucceeded, doubted: StateSucceeded},
	{name: "303", e: answered200(303), clean: StateSucceeded, doubted: StateSucceeded},
	{name: "301", e: answered200(301), clean: StateHeld, doubted: StateHeld, hold: HoldRedirect, leavesDoubt: true},
	{name: "302", e: answered200(302), clean: StateHeld, doubted: StateHeld, hold: HoldRedirect, leavesDoubt: true},
	{name: "304", e: answered200(304), clean: StateHeld, doubted: StateHeld, hold: HoldRedirect, leavesDoubt: true},
	{name: "307 that a hop follows", e: ending{status: 307, header: header(), phase: phaseAnswered, hop: true}, clean: StatePending, doubted: StateUnknown},
	{name: "308 that nothing follows", e: answered200(308), clean: StateHeld, doubted: StateHeld, hold: HoldRedirect},
	{name: "400", e: answered200(400), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "401", e: answered200(401), clean: StatePending, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "403", e: answered200(403), clean: StatePending, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "404", e: answered200(404), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "407", e: answered200(407), clean: StatePending, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "408", e: answered200(408), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "409 plain", e: answered200(409), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "409 in flight", e: answered200(409, "Retry-After", "1"), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "421", e: answered200(421), clean: StatePending, doubted: StateUnknown, again: true},
	{name: "422", e: answered200(422), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "425", e: answered200(425), clean: StatePending, doubted: StateUnknown, again: true},
	{name: "429", e: answered200(429), clean: StatePending, doubted: StateUnknown, again: true},
	{name: "500", e: answered200(500), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "501", e: answered200(501), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "502", e: answered200(502), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "503", e: answered200(503), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "504", e: answered200(504), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "505", e: answered200(505), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "507", e: answered200(507), clean: StateUnknown, doubted: StateUnknown, leavesDoubt: true},
	{name: "511", e: answered200(511), clean: StateUnknown, doubted: StateUnknown, leavesDoubt: true},
	{name: "520", e: answered200(520), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "527", e: answered200(527), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "528", e: answered200(528), clean: StateUnknown, doubted: StateUnknown, leavesDoubt: true},
	{name: "530", e: answered200(530), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "200 cut", e: ending{status: 200, header: header(), cut: true, phase: phaseAnswered}, clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "402 cut", e: ending{status: 402, header: header(), cut: true, phase: phaseAnswered}, clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "429 cut", e: ending{status: 429, header: header(), cut: true, phase: phaseAnswered}, clean: StatePending, doubted: StateUnknown, again: true},
	{name: "stream", e: ending{status: 200, header: header(), stream: true, phase: phaseAnswered}, clean: StateInFlight, doubted: StateInFlight, leavesDoubt: true},
	{name: "hidden resend, then 400", e: ending{status: 400, header: header(), resent: true, phase: phaseAnswered}, clean: StateHeld, doubted: StateHeld, hold: HoldUnsettlingAnswer, leavesDoubt: true},
	{name: "hidden resend, then 429", e: ending{status: 429, header: header(), resent: true, phase: phaseAnswered}, clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "never written", e: ending{err: errors.New("refused"), phase: phaseNotSent}, clean: StatePending, doubted: StateUnknown, again: true},
	{name: "never written, permanent", e: ending{err: errors.New("certificate"), phase: phaseNotSent, final: true}, clean: StatePending, doubted: StateUnknown},
	{name: "written, no answer", e: ending{err: errors.New("reset"), phase: phaseMaybeSent}, clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "caller left after the write", e: ending{err: errors.New("cancelled"), phase: phaseMaybeSent, left: true}, clean: StateUnknown, doubted: StateUnknown, leavesDoubt: true},
	{name: "caller left before it", e: ending{err: errors.New("cancelled"), phase: phaseNotSent, left: true}, clean: StatePending, doubted: StateUnknown},
	{name: "replayed 402", e: answered200(402, "Idempotent-Replayed", "true"), clean: StateRejected, doubted: StateRejected},
	{name: "replayed 500", e: answered200(500, "Idempotent-Replayed", "true"), clean: StateHeld, doubted: StateHeld, hold: HoldStoredFailure, leavesDoubt: true},
	{name: "marker that says no", e: answered200(500, "Idempotent-Replayed", "false"), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},

	{name: "stripe: stored 500 by advice", c: contract.StripeV1, e: answered200(500, "Stripe-Should-Retry", "false"), clean: StateHeld, doubted: StateHeld, hold: HoldStoredFailure, leavesDoubt: true},
	{name: "stripe: 500 without advice", c: contract.StripeV1, e: answered200(500), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "stripe: key in use", c: contract.StripeV1, e: body(409, `{"error":{"code":"idempotency_key_in_use"}}`), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "stripe: mismatch", c: contract.StripeV1, e: body(400, `{"error":{"type":"idempotency_error"}}`), clean: StateRejected, doubted: StateHeld, hold: HoldUnsettlingAnswer},
	{name: "stripe: retry advised on a 400", c: contract.StripeV1, e: answered200(400, "Stripe-Should-Retry", "true"), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "adyen: transient 500", c: contract.Adyen, e: answered200(500, "Transient-Error", "true"), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
	{name: "adyen: 422 in flight", c: contract.Adyen, e: body(422, `{"errorCode":"704"}`), clean: StateUnknown, doubted: StateUnknown, again: true, leavesDoubt: true},
}

func TestSettle(t *testing.T) {
	keys := contract.Keyed("Idempotency-Key", 24*time.Hour)
	for _, test := range settleCases {
		t.Run(test.name, func(t *testing.T) {
			c := test.c
			if c == nil {
				c = keys
			}
			in := Intent{State: StateInFlight, Attempts: 1, Place: c.Key, Retention: c.Retention}
			v := settle(in, c, test.e)
			assert.Equal(t, test.clean, v.state, "without doubt")
			assert.Equal(t, test.again, v.again)
			assert.Equal(t, test.leavesDoubt, v.doubt, "doubt")

			in.Doubt = true
			v = settle(in, c, test.e)
			assert.Equal(t, test.doubted, v.state, "in doubt")
			assert.Equal(t, test.again, v.again)
			assert.Equal(t, test.hold, v.hold)
			if !v.state.Final() {
				assert.True(t, v.doubt, "doubt is sticky")
			}
		})
	}
}

func body(status int, text string) ending {
	return ending{status: status, header: header("Content-Type", "application/json"), body: []byte(text), phase: phaseAnswered}
}

// Without a contract nothing that may have been delivered is sent again (P8).
func TestSettleWithoutContract(t *testing.T) {
	for _, c := range []*contract.Contract{nil, contract.Unsupported} {
		in := Intent{State: StateInFlight, Attempts: 1}
		for _, e := range []ending{
			answered200(500), answered200(503), answered200(408),
			{err: errors.New("reset"), phase: phaseMaybeSent},
			{status: 200, header: header(), cut: true, phase: phaseAnswered},
		} {
			v := settle(in, c, e)
			assert.Equal(t, StateHeld, v.state, e)
			assert.Equal(t, HoldNoContract, v.hold)
			assert.False(t, v.again)
		}
		v := settle(in, c, ending{err: errors.New("refused"), phase: phaseNotSent})
		assert.True(t, v.again, "what was not sent may be sent")
		assert.Equal(t, StateSucceeded, settle(in, c, answered200(200)).state)
		assert.Equal(t, StateRejected, settle(in, c, answered200(404)).state)
	}
	// Keys are honoured today, but the stored request never carried one.
	v := settle(Intent{State: StateInFlight, Attempts: 1}, contract.Keyed("Idempotency-Key", time.Hour), answered200(503))
	assert.Equal(t, HoldNoContract, v.hold)
}

func TestAdmit(t *testing.T) {
	keys := contract.Keyed("Idempotency-Key", 24*time.Hour)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	unknown := Intent{
		Operation: "a", State: StateUnknown, Doubt: true, Attempts: 1, Place: keys.Key, Retention: keys.Retention,
		FirstSent: now.Add(-time.Hour),
	}
	change := func(in Intent, f func(*Intent)) Intent { f(&in); return in }
	cases := []struct {
		name    string
		in      Intent
		c       *contract.Contract
		resumed bool
		send    bool
		why     HoldReason
	}{
		{name: "unknown", in: unknown, c: keys, send: true},
		{name: "last moment", in: change(unknown, func(in *Intent) { in.FirstSent = now.Add(-24*time.Hour + 10*time.Minute + 1) }), c: keys, send: true},
		{name: "expired", in: change(unknown, func(in *Intent) { in.FirstSent = now.Add(-24*time.Hour + 10*time.Minute) }), c: keys, why: HoldExpired},
		{name: "stricter contract today", in: change(unknown, func(in *Intent) { in.FirstSent = now.Add(-2 * time.Hour) }), c: contract.Keyed("Idempotency-Key", time.Hour), why: HoldExpired},
		{name: "stricter contract then", in: change(unknown, func(in *Intent) { in.Retention = time.Hour }), c: keys, why: HoldExpired},
		{name: "unknown retention, within the hour", in: change(unknown, func(in *Intent) { in.Retention = 0; in.FirstSent = now.Add(-59 * time.Minute) }), c: contract.Keyed("Idempotency-Key", 0), send: true},
		{name: "unknown retention, after it", in: change(unknown, func(in *Intent) { in.Retention = 0 }), c: contract.Keyed("Idempotency-Key", 0), why: HoldExpired},
		{name: "contract gone", in: unknown, c: nil, why: HoldNoContract},
		{name: "server said to keep no keys", in: unknown, c: contract.Unsupported, why: HoldNoContract},
		{name: "pending never expires", in: change(unknown, func(in *Intent) { in.State, in.Doubt, in.FirstSent = StatePending, false, time.Time{} }), c: keys, send: true},
		{name: "held", in: change(unknown, func(in *Intent) { in.State, in.HoldReason = StateHeld, HoldCopied }), c: keys, why: HoldCopied},
		{name: "final", in: change(unknown, func(in *Intent) { in.State = StateSucceeded }), c: keys},
		{name: "poison", in: change(unknown, func(in *Intent) { in.Deaths = 3 }), c: keys, why: HoldPoison},
		{name: "unnamed, resumed", in: change(unknown, func(in *Intent) { in.Operation = "" }), c: keys, resumed: true, why: HoldUnnamed},
		{name: "adopted, resumed", in: change(unknown, func(in *Intent) { in.Operation, in.Adopted = "", []byte{1} }), c: keys, resumed: true, send: true},
		{name: "unnamed, direct", in: change(unknown, func(in *Intent) { in.Operation = "" }), c: keys, send: true},
		{name: "exhausted", in: change(unknown, func(in *Intent) { in.Resumes = 20 }), c: keys, resumed: true, why: HoldExhausted},
		{name: "exhausted does not bind a direct call", in: change(unknown, func(in *Intent) { in.Resumes = 20 }), c: keys, send: true},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			got := admit(test.in, test.c, RetryPolicy{}, test.resumed, false, now)
			assert.Equal(t, test.send, got.send)
			assert.Equal(t, test.why, got.why)
			if !test.send && !test.in.State.Final() && test.in.State != StateHeld {
				assert.Equal(t, test.resumed || test.in.Deaths > 0, got.hold != "", "only a resume holds")
			}
		})
	}
	waits := change(unknown, func(in *Intent) { in.Due, in.Wait = now.Add(time.Hour), time.Minute })
	require.Equal(t, time.Minute, admit(waits, keys, RetryPolicy{}, false, false, now).wait, "min(due - now, wait)")
}

// The margin before the end of a key's life is min(10 min, 10 %), at least 30 s.
func TestExpiry(t *testing.T) {
	first := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for kept, last := range map[time.Duration]time.Duration{
		24 * time.Hour:   24*time.Hour - 10*time.Minute,
		time.Hour:        54 * time.Minute,
		5 * time.Minute:  4*time.Minute + 30*time.Second,
		time.Minute:      30 * time.Second,
		10 * time.Second: -20 * time.Second,
		0:                time.Hour,
	} {
		assert.Equal(t, first.Add(last), expiry(first, kept), kept)
	}
	assert.True(t, expiry(time.Time{}, time.Hour).IsZero())
}

func TestConclude(t *testing.T) {
	keys := contract.Keyed("Idempotency-Key", 24*time.Hour)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	in := Intent{Operation: "a", State: StateInFlight, Attempts: 4, Place: keys.Key, Retention: keys.Retention, FirstSent: now, Claimed: true}
	p := RetryPolicy{}

	got := conclude(in, keys, open("try_later", false, true), p, false, now)
	assert.Equal(t, StateWithdrawn, got.State, "nothing executed, and the caller is told so")
	assert.True(t, got.FirstSent.IsZero(), "a key that cannot have executed does not age")
	assert.False(t, got.Claimed)
	assert.True(t, got.Due.IsZero())

	prepared := in
	prepared.Prepared = true
	assert.Equal(t, StatePending, conclude(prepared, keys, open("try_later", false, true), p, false, now).State)
	assert.Equal(t, HoldCredentials, conclude(prepared, keys, open("credentials_refused", false, false), p, false, now).HoldReason)

	assert.Equal(t, StatePending, conclude(in, keys, open("try_later", false, true), p, true, now).State, "no caller was told anything")
	got = conclude(in, keys, lost("no_answer", true), p, false, now)
	assert.Equal(t, StateUnknown, got.State)
	assert.True(t, got.Doubt)
	assert.Equal(t, now, got.FirstSent)

	got = conclude(in, keys, lost("no_answer", true), p, false, now.Add(25*time.Hour))
	assert.Equal(t, HoldExpired, got.HoldReason)
	assert.Equal(t, HoldNoContract, conclude(in, nil, lost("no_answer", true), p, false, now).HoldReason)
	in.Resumes = 20
	assert.Equal(t, HoldExhausted, conclude(in, keys, lost("no_answer", true), p, true, now).HoldReason)

	in.Doubt = true
	assert.False(t, conclude(in, keys, verdict{state: StateSucceeded, proven: true}, p, false, now).Doubt, "an answer settles doubt")
}

// What a lost record would turn into a lie, or a send that is not safe, is
// synced before the caller hears of it.
func TestMustSync(t *testing.T) {
	keys := contract.Keyed("Idempotency-Key", 24*time.Hour)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	in := Intent{State: StateSucceeded, Place: keys.Key, Retention: keys.Retention, FirstSent: now}
	proven := verdict{proven: true}
	assert.False(t, mustSync(in, keys, proven, now))
	assert.True(t, mustSync(in, keys, proven, now.Add(23*time.Hour)), "retention nearly over")
	assert.True(t, mustSync(in, keys, verdict{}, now), "not from the store")
	assert.True(t, mustSync(in, nil, proven, now), "no contract")
	unknown := in
	unknown.Retention = 0
	assert.True(t, mustSync(unknown, contract.Keyed("Idempotency-Key", 0), proven, now))
	for _, state := range []State{StateWithdrawn, StateHeld, StateUnknown, StatePending} {
		in.State = state
		assert.True(t, mustSync(in, keys, proven, now), state)
	}
}

// Every hold reason says what would help.
func TestHoldTexts(t *testing.T) {
	for _, name := range exportedNames(t) {
		if !strings.HasPrefix(name, "Hold") || name == "HoldReason" {
			continue
		}
		reason := HoldReason(snake(strings.TrimPrefix(name, "Hold")))
		assert.NotEmpty(t, holdText[reason], name)
	}
}

func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}

// A first attempt that is dated ahead of now by more than the key's own margin
// was timed by a clock that cannot be trusted.
func TestAdmitFirstSentAhead(t *testing.T) {
	now := time.Now()
	c := contract.Keyed("Idempotency-Key", 5*time.Minute)
	in := Intent{State: StateUnknown, Doubt: true, Place: c.Key, Retention: c.Retention}
	for ahead, want := range map[time.Duration]HoldReason{20 * time.Second: "", 40 * time.Second: HoldClock} {
		in.FirstSent = now.Add(ahead)
		assert.Equal(t, want, admit(in, c, RetryPolicy{}, false, false, now).why, "%s ahead", ahead)
	}
}
