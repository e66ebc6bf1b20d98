package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/internal/clock"
)

// This file puts this client into a vector's situation.

// The kinds of a failure that is none: the vector is about what comes later.
const (
	vectorRestart = "(restart recovery)"
	vectorTimer   = "(retry timer fires)"
	vectorUnseen  = "(none visible)"
)

// restarts reports that the vector is about what a resume does.
func (v *vector) restarts(tb testing.TB) bool {
	tb.Helper()
	restart, sent := v.says(tb, "restart", true), v.flag(tb, "sent_before")
	failure := v.Given.TransportError
	if !restart && sent == nil && failure != vectorRestart && failure != vectorTimer {
		return false
	}
	require.Nil(tb, v.Given.Response)
	return true
}

// perform does what the vector's situation leads to. More than one deed means
// that it says too little, and that any of them fits.
func (v *vector) perform(t *testing.T) []vectorDeed {
	failure := v.Given.TransportError
	switch {
	case v.restarts(t):
		return []vectorDeed{v.resume(t)}
	case v.Given.Response == nil && failure == "":
		return v.call(t)
	}
	deeds := []vectorDeed{v.end(t, false, strings.Contains(failure, "Client.Timeout"))}
	if strings.Contains(failure, "deadline exceeded") { // whose deadline is not said
		deeds = append(deeds, v.end(t, false, true))
	}
	if wait := deeds[0].in.Wait; wait > defaultMaxBackoff { // and then the call ends, and a resume goes on
		deeds = append(deeds, v.end(t, true, false))
	}
	return deeds
}

// vectorSlate is a journal of one row, for what is written between two decisions.
type vectorSlate struct {
	Journal
	row Intent
}

func (s *vectorSlate) Update(_ context.Context, next Intent, _ *Attempt, _ bool) (Intent, error) {
	next.Version++
	s.row = next
	return next, nil
}

// vectorStage is an exchange in the vector's situation, at a fixed instant.
type vectorStage struct {
	v     *vector
	t     *testing.T
	c     *contract.Contract
	slate *vectorSlate
	x     *exchange
	key   string // the operation's
	now   time.Time
	leave context.CancelCauseFunc // the caller stops waiting
}

// stage describes the vector's request as a call does.
func (v *vector) stage(t *testing.T) *vectorStage {
	s := &vectorStage{v: v, t: t, c: v.contract(t), slate: &vectorSlate{}}
	s.now = time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	tr := &Transport{Journal: s.slate, Contracts: s.c}
	tr.Retry.MaxAttempts = max(defaultMaxAttempts, v.Given.Attempt+1) // the vectors are not about the budget
	require.NoError(t, tr.ready())
	tr.clock = clock.Clock{Wall: func() time.Time { return s.now }}
	ctx, leave := context.WithCancelCause(WithOperation(t.Context(), "vector"))
	s.leave = leave
	req := v.request(t, s.c, "").WithContext(ctx)
	x, err := tr.newExchange(req, tr.contracts().Resolve(req))
	require.NoError(t, err)
	require.Nil(t, x.passes, "it is not journaled")
	require.Equal(t, s.c, x.contract, "the contract does not take the request")
	s.x, s.key = x, x.want.Key
	return s
}

// intent is the vector's operation as it is claimed.
func (s *vectorStage) intent(state State, attempts int) Intent {
	g := s.v.Given
	in := s.x.want
	in.ID, in.Version, in.Claimed = "1", 1, true
	in.State, in.Attempts, in.Doubt = state, attempts, g.Doubt
	in.Created = s.now.Add(-time.Duration(g.Age * float64(time.Second)))
	in.FirstSent, in.Expires = in.Created, time.Time{}
	if attempts == 0 {
		in.FirstSent = time.Time{}
	}
	if !in.FirstSent.IsZero() {
		in.Expires = lastSend(in, s.c)
	}
	return in
}

// resume is what Resume and Run do, and that a direct call sends, or is
// refused, just as well.
func (v *vector) resume(t *testing.T) vectorDeed {
	s := v.stage(t)
	attempts := v.Given.Attempt - 1
	if v.Given.Doubt {
		attempts = max(attempts, 1)
	}
	state := StatePending
	if v.Given.Doubt {
		state = StateUnknown
	}
	if v.Given.Before == string(StateHeld) {
		state = StateHeld
	}
	require.Equal(t, string(state), v.Given.Before, "the state and the doubt do not fit together")
	require.False(t, v.says(t, "sent_before", attempts == 0), "sent_before does not fit to attempt and doubt")
	if clock := v.text(t, "clock"); clock != "" {
		require.Equal(t, "before the journaled first send", clock)
		require.Negative(t, v.Given.Age)
	}
	in := s.intent(state, attempts)
	if state == StateHeld {
		in.HoldReason = HoldUnsettlingAnswer
	}
	direct := s.x
	direct.in, direct.contract = in, s.c
	refused := direct.admit()
	if refused != nil {
		assert.Equal(t, state, s.slate.row.State, "a refused call changes nothing")
		assert.ErrorIs(t, refused.err, ErrUnknownOutcome)
		assert.ErrorIs(t, refused.err, ErrHeld)
	}
	s.x = &exchange{t: direct.t, ctx: direct.ctx, contract: s.c, in: in, want: in, call: &call{}, resumed: true}
	a := s.x.admit()
	require.Equal(t, refused == nil, a == nil, "a call and a resume differ")
	if a != nil {
		return s.concluded(a, verdict{})
	}
	s.x.at = s.now
	first := s.build()
	require.Nil(t, s.x.count())
	assert.Equal(t, in.Attempts+1, s.slate.row.Attempts)
	s.same(first, s.build())
	word := "RETRY_SAME_KEY"
	if attempts == 0 {
		word = "SEND"
	}
	d := vectorDeed{actions: []string{word}, after: s.state(), in: s.slate.row, key: s.keyIn(first)}
	return d.reads(s.c)
}

// end is what the end of an attempt leads to. resumed: it is a resume's; left:
// the caller stops waiting.
func (v *vector) end(t *testing.T, resumed, left bool) vectorDeed {
	s := v.stage(t)
	x := s.x
	x.in, x.resumed = s.intent(StateInFlight, v.Given.Attempt), resumed
	for range v.Given.Attempt {
		x.call.count(x.budget())
	}
	x.at = x.in.FirstSent
	first := s.build()
	x.t.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		leave := func() { s.leave(errVectorLeft) }
		if left {
			leave()
		}
		return v.answer(t, s.c, s.now, leave, req)
	})
	sent := x.t.send(x.ctx, s.build(), x)
	sent.hop = x.followed(sent.resp)
	verdict := settle(x.in, s.c, sent.ending)
	verdict.wait = askedWait(sent.header, s.c, sent.at)
	v.asks, v.decided = verdict.wait > 0 || s.c.MinDelay > 0, verdict.decision
	done := Attempt{Number: x.in.Attempts, Phase: sent.phase, StatusCode: sent.status, Decision: verdict.decision}
	if a := x.next(sent, verdict, &done); a != nil {
		if verdict.decision == "redirect" && !s.slate.row.State.Final() && s.slate.row.State != StateHeld {
			return s.hopped(a, first)
		}
		d := s.concluded(a, verdict)
		if resumed && verdict.again && s.slate.row.State != StateHeld { // it is sent when it is due
			d.actions = []string{"RETRY_SAME_KEY"}
			d.wait = s.leastWait(verdict)
		}
		if verdict.decision == "see_other" {
			s.seeOther(a)
			d.actions = append(d.actions, "SEND_WITHOUT_KEY")
			if v.Expect.Action == "SEND_WITHOUT_KEY" {
				d.key = "none" // of the GET that follows
			}
		}
		return d
	}
	s.now = s.slate.row.Due
	x.at = s.now
	d := vectorDeed{actions: []string{"RETRY_SAME_KEY"}, after: s.state(), in: s.slate.row, key: s.keyIn(first), wait: s.leastWait(verdict)}
	s.same(first, s.build())
	if s.replays(sent, first) {
		d.actions = append(d.actions, "TRANSPORT_REPLAYS")
	}
	return d.reads(s.c)
}

// concluded is the deed of an exchange that ended.
func (s *vectorStage) concluded(a *answer, v verdict) vectorDeed {
	resp, err := a.give(s.request(), s.x)
	if resp != nil {
		err = a.result.Err()
	}
	d := vectorDeed{
		after: s.state(), in: s.slate.row, response: resp != nil, err: err, decision: v.decision, result: a.result,
		key: s.keyIn(s.build()), silent: s.c.NoKeys,
	}
	d.actions = []string{map[State]string{
		StateSucceeded: "RETURN_FINAL", StateRejected: "RETURN_FINAL_FAILED", StateHeld: "HOLD",
		StateUnknown: "RETURN_IN_DOUBT", StateWithdrawn: "RETURN_NOT_SENT", StatePending: "RETRY_SAME_KEY",
	}[d.in.State]}
	if d.in.State == StateHeld {
		d.actions = append(d.actions, "RETURN_IN_DOUBT")
	}
	if !d.in.State.Final() {
		assert.NotEqual(s.t, errors.Is(d.err, ErrNotSent), errors.Is(d.err, ErrUnknownOutcome), "exactly one class: %v", d.err)
	}
	return d.reads(s.c)
}

// reads adds that a verifier is asked first, where it would be. A key that is
// not forgotten is no reason to hold.
func (d vectorDeed) reads(c *contract.Contract) vectorDeed {
	early := c.AfterExpiry == contract.NeverExpires && d.in.HoldReason == HoldExpired && d.in.Settled.Sub(d.in.FirstSent) < 29*24*time.Hour
	if d.in.Doubt && !early && (d.after == "unknown" || d.after == "held") {
		d.actions = append(d.actions, "RECONCILE")
	}
	return d
}

// hopped is the deed of a redirect that http.Client follows.
func (s *vectorStage) hopped(a *answer, first *http.Request) vectorDeed {
	resp, err := a.give(s.x.req, s.x)
	require.NoError(s.t, err)
	next := s.request()
	next.URL, err = first.URL.Parse(resp.Header.Get("Location"))
	require.NoError(s.t, err)
	next.Response = resp
	s.x = s.x.t.hopExchange(next, answeredFrom(resp))
	s.x.in = s.slate.row
	s.x.in.Claimed = true
	if refused := s.x.admit(); refused != nil {
		return s.concluded(refused, verdict{decision: "redirect_refused"})
	}
	d := vectorDeed{actions: []string{"RETRY_SAME_KEY"}, after: s.state(), in: s.slate.row, key: s.keyIn(s.build()), decision: "redirect"}
	return d.reads(s.c)
}

// seeOther makes the GET that http.Client makes of a 303.
func (s *vectorStage) seeOther(a *answer) {
	resp, err := a.give(s.x.req, s.x)
	require.NoError(s.t, err)
	next := s.request()
	next.Method, next.Body, next.GetBody, next.Response = http.MethodGet, nil, nil, resp
	got := 0
	s.x.t.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		got++
		_, found, err := s.c.Key.Find(req.Header, req.URL, nil)
		assert.NoError(s.t, err)
		assert.False(s.t, found, "the read has a key")
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	})
	s.x.t.Journal = nil // and is not journaled
	resp, err = s.x.t.RoundTrip(next)
	require.NoError(s.t, err)
	assert.Equal(s.t, []int{1, 200}, []int{got, resp.StatusCode})
}

// state is the recorded state in the vectors' words.
func (s *vectorStage) state() string { return vectorState(s.slate.row.State) }

func vectorState(state State) string {
	switch state {
	case "":
		return "none"
	case StateInFlight: // unknown as soon as its owner is dead
		return "unknown"
	}
	return string(state)
}

// request is the caller's, anew.
func (s *vectorStage) request() *http.Request {
	return s.v.request(s.t, s.c, "").WithContext(s.x.ctx)
}

// build is the next attempt's request.
func (s *vectorStage) build() *http.Request {
	s.t.Helper()
	req, err := s.x.build()
	require.NoError(s.t, err)
	return req
}

// keyIn looks for the operation's key where the contract wants it.
func (s *vectorStage) keyIn(req *http.Request) string {
	s.t.Helper()
	if s.c.NoKeys {
		assert.NotContains(s.t, fmt.Sprint(req.URL, req.Header), s.key)
		return "none"
	}
	key, found, err := s.c.Key.Find(req.Header, req.URL, vectorBytes(s.t, req))
	require.NoError(s.t, err)
	require.True(s.t, found, "no key in %s", s.c.Key)
	require.Equal(s.t, s.key, key)
	return "same"
}

// same checks that a resend is the first send again, except for what the
// contract says is new each time.
func (s *vectorStage) same(first, again *http.Request) {
	s.t.Helper()
	for _, c := range s.c.Companions {
		assert.Equal(s.t, c.Text(s.slate.row.FirstSent, s.x.at), again.Header.Get(c.Header), c.Header)
		if c.PerAttempt {
			first.Header.Del(c.Header)
			again.Header.Del(c.Header)
		}
	}
	assert.Equal(s.t, first.Method, again.Method)
	assert.Equal(s.t, first.URL.String(), again.URL.String())
	assert.Equal(s.t, first.Header, again.Header)
	assert.Equal(s.t, string(vectorBytes(s.t, first)), string(vectorBytes(s.t, again)))
}

func vectorBytes(tb testing.TB, req *http.Request) []byte {
	tb.Helper()
	body, err := io.ReadAll(req.Body)
	require.NoError(tb, err)
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// leastWait is the shortest wait that may come before the next attempt.
func (s *vectorStage) leastWait(v verdict) time.Duration {
	least := time.Duration(1<<63 - 1)
	for range 1000 {
		least = min(least, s.x.t.Retry.pause(s.v.Given.Attempt, v.wait, s.c))
	}
	return least.Truncate(10 * time.Millisecond) // none of the thousand is right at the end
}

// replays reports a failure after which net/http sends a request again by
// itself, and checks that it does not do so with this one, or that it counts.
func (s *vectorStage) replays(end sent, req *http.Request) bool {
	tb := s.t
	reused, rewinds, header := s.v.says(tb, "conn_reused", true), s.v.says(tb, "get_body", true), s.v.text(tb, "header")
	proto, above := s.v.text(tb, "proto"), s.v.says(tb, "stream_gt_last_id", true)
	require.Contains(tb, []string{"", "h1", "h2"}, proto)
	idle := reused && rewinds && errors.Is(end.err, io.EOF) &&
		slices.Contains([]string{"Idempotency-Key", "X-Idempotency-Key"}, http.CanonicalHeaderKey(header))
	if !idle && (proto != "h2" || !above) {
		return false
	}
	assert.Nil(tb, req.GetBody, "net/http could rewind it")
	s.x.in.Request.Body = nil
	empty := s.build()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		assert.NotContains(tb, empty.Header, name, "net/http could send it again")
	}
	refusal := ending{status: 400, header: http.Header{}, phase: phaseAnswered, resent: true}
	assert.True(tb, settle(s.x.in, s.c, refusal).doubt, "a hidden resend is doubt")
	return true
}
