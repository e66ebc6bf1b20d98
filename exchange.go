package idem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/idem-go/idem/contract"
)

// exchange is the work of one RoundTrip, Continue or resumed intent: claim the
// intent, count an attempt, send, settle, wait, and again.
type exchange struct {
	t        *Transport
	ctx      context.Context
	req      *http.Request // the caller's; nil: the stored request is all there is
	contract *contract.Contract
	call     *call
	want     Intent
	passes   func(*http.Request) (*http.Response, error) // not journaled: goes this way instead
	bodyRead bool                                        // and closed

	authorize func(*http.Request, Intent) error // credentials where req is nil
	resumed   bool                              // no caller waits: one attempt
	hop       *Intent                           // the intent as the redirect left it
	target    *url.URL                          // where the hop goes; nil: the stored URL
	hops      int                               // followed by ourselves

	in    Intent // as claimed
	fresh bool   // Begin counted the first attempt already
}

// newExchange decides what req is to the journal. An error means that it is
// refused.
func (t *Transport) newExchange(req *http.Request, c *contract.Contract) (*exchange, error) {
	ctx := req.Context()
	x := &exchange{t: t, ctx: ctx, req: req, contract: c, call: callFrom(ctx)}
	if x.call == nil {
		x.call = &call{}
	}
	name := x.call.operation
	if t.Operation != nil && !x.call.explicit {
		name = t.Operation(req, name)
	}
	x.want = Intent{Scope: t.scope(ctx), Operation: name, Name: t.Name, Method: req.Method, Generation: 1}
	if err := t.valid(c); err != nil {
		return x, err
	}
	if c != nil {
		x.want.Provider = c.Name
	}
	keys := c != nil && !c.NoKeys
	key, err := callersKey(req, c)
	if err != nil {
		return x, err
	}
	switch {
	case name != "" || key != "":
	case req.Method == http.MethodPut || req.Method == http.MethodDelete:
		x.passes = t.passRepeatable
		return x, nil
	case t.RequireOperation:
		return x, fmt.Errorf("%w: use WithOperation or Client.Do, since Transport.RequireOperation is set", ErrNoOperation)
	case !keys:
		x.passes = t.passOnce
		return x, nil
	}
	return x, x.describe(key)
}

// callersKey is the key that the caller or an SDK set; empty: none.
func callersKey(req *http.Request, c *contract.Contract) (string, error) {
	if c == nil || c.NoKeys {
		return "", nil
	}
	values := headerValues(req.Header, c.Key.Header)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("request has %d %s headers", len(values), c.Key.Header)
	}
	key, err := c.Key.Parse(values[0])
	if err == nil {
		err = c.CheckKey(key)
	}
	if err != nil {
		return "", fmt.Errorf("the key in header %s is not valid: %w", c.Key.Header, err)
	}
	return key, nil
}

func (t *Transport) scope(ctx context.Context) string {
	if scope, ok := ctx.Value(scopeKey{}).(string); ok {
		return scope
	}
	return t.Scope
}

// describe reads the request into the intent that it wants.
func (x *exchange) describe(key string) error {
	t, req, c := x.t, x.req, x.contract
	if err := checkRequest(req); err != nil {
		return err
	}
	x.bodyRead = true
	body, err := readBody(x.ctx, req, t.maxRequestBody())
	if err != nil {
		return safe(err, req, key)
	}
	if asksForToken(req, body) {
		x.passes = func(req *http.Request) (*http.Response, error) { return t.passRead(req, body) }
		return nil
	}
	if t.Journal == nil {
		return fmt.Errorf("%w: Transport.Journal is nil", ErrJournal)
	}
	want := &x.want
	want.State, want.Attempts = StateInFlight, 1
	want.Created = t.clock.now()
	want.FirstSent = want.Created
	if c != nil && !c.NoKeys {
		want.Place, want.Retention = c.Key, c.Retention
		want.Expires = lastSend(*want, c)
	}
	if key != "" {
		want.Key = key
		want.Adopted = adoptedIdentity(want.Scope, req, key, c)
		want.Credential = credentialDigest(req, nil)
	} else if want.Key, err = mintKey(); err != nil {
		return err
	}
	want.URL = shownURL(req.URL)
	want.Fingerprint = fingerprint(req, body, c)
	stored := &StoredRequest{URL: storedURL(req.URL), Host: otherHost(req), Body: body}
	stored.Header, want.Withheld = splitHeader(req, want.Place.Header, t.Secrets)
	want.Request = stored
	return nil
}

// mintKey makes a key of random bits, lower-case UUIDv4.
func mintKey() (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}
	return id.String(), nil
}

// asksForToken recognises an OAuth 2.0 token request (RFC 6749 4): it carries
// credentials in its body, and its answer is one.
func asksForToken(req *http.Request, body []byte) bool {
	if !strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") ||
		!bytes.Contains(body, []byte("grant_type")) {
		return false
	}
	form, err := url.ParseQuery(string(body))
	return err == nil && form.Has("grant_type")
}

// hopExchange continues the intent whose attempt was answered by a redirect.
func (t *Transport) hopExchange(req *http.Request, hop *answered) *exchange {
	in := hop.result.Intent
	return &exchange{
		t: t, ctx: req.Context(), req: req, contract: hop.contract, call: hop.call,
		want:   Intent{ID: in.ID, Scope: in.Scope, Operation: in.Operation, Fingerprint: in.Fingerprint},
		hop:    &in,
		target: req.URL,
	}
}

// unfinished reports whether a redirect left the intent to the next hop.
func (a *answered) unfinished() bool {
	return a.result.Intent.ID != "" && (a.result.Intent.State == StatePending || a.result.Intent.State == StateUnknown)
}

// run is the exchange itself.
func (x *exchange) run() *answer {
	if last := x.call.usedUp(x.t.Retry.maxAttempts()); last != nil && x.hop == nil {
		return last
	}
	if a := x.claim(); a != nil {
		return a
	}
	return x.pursue()
}

// pursue sends the claimed intent until it is settled or the call ends.
func (x *exchange) pursue() *answer {
	settled := false
	defer func() {
		if !settled { // a panic below us: it may have executed, and goes on up
			next := x.in
			next.Claimed, next.State, next.Doubt = false, StateUnknown, true
			_, _ = x.record(next, nil, true)
		}
	}()
	a := x.attempts()
	settled = true
	x.call.keep(x.in.Key, a)
	return a
}

// attempts sends until the intent is settled or this call ends.
func (x *exchange) attempts() *answer {
	for {
		if a := x.admit(); a != nil {
			return a
		}
		req, err := x.build()
		if err != nil {
			return x.lacksCredentials(err)
		}
		if a := x.count(); a != nil {
			return a
		}
		started := x.t.clock.now()
		s := x.t.send(x.ctx, req, x)
		s.hop = x.followed(s.resp)
		v := settle(x.in, x.contract, s.ending)
		v.wait = askedWait(s.header, x.contract, s.at)
		done := Attempt{
			Number: x.in.Attempts, Started: started, Ended: x.t.clock.now(), Phase: s.phase,
			StatusCode: s.status, Decision: v.decision,
		}
		if err := cmp.Or(s.err, s.broken); err != nil {
			done.Error = safe(err, req, x.in.Key).Error()
		}
		if a := x.next(s, v, done); a != nil {
			return a
		}
	}
}

// next ends the call after an attempt, or waits for another one and returns
// nil.
func (x *exchange) next(s sent, v verdict, done Attempt) *answer {
	p, now := x.t.Retry, x.t.clock.now()
	made := x.call.made(x.in.Key)
	if x.resumed {
		made = x.in.Resumes
	}
	wait := p.pause(made, v.wait, x.contract)
	next := x.in
	next.Due, next.Wait = now.Add(wait), wait
	if x.req == nil && v.decision == "redirect" && x.hops < maxHops {
		return x.follow(next, s, v, done)
	}
	if !v.again || x.resumed || made >= p.maxAttempts() || !x.patient(wait) || !x.lasts(next, v) {
		return x.conclude(next, v, done, s)
	}
	next, err := x.record(afterAttempt(next, v), &done, true)
	if err != nil {
		return x.unrecorded(s, err)
	}
	x.in = next
	x.t.Observer.attempted(x.ctx, shown(next), done)
	x.t.Observer.waiting(x.ctx, shown(next), wait)
	x.t.log().LogAttrs(x.ctx, slog.LevelInfo, "attempt did not settle the operation, sending again",
		slog.String("operation", next.Operation), slog.String("provider", next.Provider), slog.Int("attempt", done.Number),
		slog.Int("status", s.status), slog.String("state", string(next.State)), slog.Duration("wait", wait))
	if s.open {
		s.resp.Body.Close()
	}
	return nil
}

// patient reports whether the caller sits out the wait: not past its deadline,
// and not longer than MaxBackoff.
func (x *exchange) patient(wait time.Duration) bool {
	if wait > x.t.Retry.maxBackoff() {
		return false
	}
	deadline, ok := x.ctx.Deadline()
	return x.ctx.Err() == nil && (!ok || time.Until(deadline) > wait)
}

// lasts reports whether the key will still be good when next is due.
func (x *exchange) lasts(next Intent, v verdict) bool {
	return !v.doubt || next.Due.Before(lastSend(next, x.contract))
}

// sleep waits, and reports false when ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit asks whether the claimed intent may be sent now, and sits out what is
// left of a wait.
func (x *exchange) admit() *answer {
	if x.fresh {
		return x.stay()
	}
	may := admit(x.in, x.contract, x.t.Retry, x.resumed, x.t.ResumeUnnamed, x.t.clock.now())
	if x.hop != nil && x.in.Version <= x.hop.Version+1 || x.hops > 0 {
		may.wait = 0 // the due time was set to leave room for this very hop
	}
	switch {
	case !may.send:
		return x.refused(may)
	case x.hop != nil && origin(x.target) != origin(x.req.Response.Request.URL):
		return x.end("redirect_refused", fmt.Errorf("redirect to another origin, %s: the key, the headers and the body stay home", origin(x.target)))
	case !x.resumed && x.call.made(x.in.Key) >= x.t.Retry.maxAttempts():
		return x.end("attempts_used_up", errors.New("this call has used up its attempts (RetryPolicy.MaxAttempts)"))
	case !x.patient(may.wait):
		return x.end("parked", x.leftOr(fmt.Errorf("not before %s, which is longer than this call waits", x.in.Due.Format(time.RFC3339))))
	case !sleep(x.ctx, may.wait):
		return x.stay()
	}
	return nil
}

// stay ends the exchange if its caller has left.
func (x *exchange) stay() *answer {
	if x.ctx.Err() == nil {
		return nil
	}
	return x.end("cancelled", context.Cause(x.ctx))
}

// leftOr is the caller's own reason to stop where there is one.
func (x *exchange) leftOr(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}

// count notes the attempt durably before it starts.
func (x *exchange) count() *answer {
	x.call.count(x.in.Key)
	if x.fresh { // Begin did it
		x.fresh = false
		return nil
	}
	next := x.in
	next.State, next.HoldReason = StateInFlight, ""
	next.Attempts++
	next.Resumes++
	if !x.resumed {
		next.Resumes = 0
	}
	if next.FirstSent.IsZero() {
		next.FirstSent = x.t.clock.now()
		next.Expires = lastSend(next, x.contract)
	}
	next.Settled, next.Due, next.Wait = time.Time{}, time.Time{}, 0
	next, err := x.record(next, nil, true)
	if err != nil {
		return x.end("not_sent", fmt.Errorf("the attempt could not be counted: %w", err))
	}
	x.in = next
	return nil
}

// build makes the attempt's request: the stored bytes, the credentials of this
// call, the key.
func (x *exchange) build() (*http.Request, error) {
	stored := x.in.Request
	target, err := url.Parse(stored.URL)
	if err != nil {
		return nil, fmt.Errorf("stored URL: %w", err)
	}
	if x.target != nil {
		target = x.target
	}
	req := (&http.Request{
		Method: x.in.Method, URL: target, Host: stored.Host, Header: stored.Header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, ContentLength: int64(len(stored.Body)),
	}).WithContext(x.ctx)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if x.target != nil {
		req.Host = ""
	}
	if len(stored.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(stored.Body))
	}
	if err := x.addCredentials(req); err != nil {
		return nil, err
	}
	x.setKey(req)
	return req, nil
}

// addCredentials puts in what is never stored, from the caller's own request
// or from Authorize.
func (x *exchange) addCredentials(req *http.Request) error {
	switch {
	case x.req != nil:
		for name, values := range x.req.Header {
			if isSecret(name, x.t.Secrets) && !strings.EqualFold(name, x.in.Place.Header) {
				req.Header[name] = slices.Clone(values)
			}
		}
		if x.req.URL.User != nil {
			own := *req.URL
			own.User = x.req.URL.User
			req.URL = &own
		}
	case x.authorize != nil:
		if err := x.authorize(req, shown(x.in)); err != nil {
			return fmt.Errorf("authorize: %w", err)
		}
	case len(x.in.Withheld) > 0:
		return fmt.Errorf("credentials are needed anew (%s): set Client.Authorize", strings.Join(x.in.Withheld, ", "))
	}
	return nil
}

// setKey writes the key into its place. Without a body, net/http would send a
// request whose key header it recognises again by itself; it looks for the
// canonical spelling only (net/http Request.isReplayable, Go 1.26.8).
func (x *exchange) setKey(req *http.Request) {
	header := x.in.Place.Header
	if header == "" {
		return
	}
	for name := range req.Header {
		if strings.EqualFold(name, header) {
			delete(req.Header, name)
		}
	}
	name := http.CanonicalHeaderKey(header)
	if req.Body == http.NoBody {
		name = strings.ToLower(name)
	}
	req.Header[name] = []string{x.in.Place.Format(x.in.Key)}
}

// followed reports whether the answer redirects to where the key may go: the
// same origin, with the same method and body.
func (x *exchange) followed(resp *http.Response) bool {
	if resp == nil || resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return false
	}
	_, err := hopTarget(resp)
	return err == nil || x.req != nil
}

// hopTarget is the redirect's target; an error where it leaves the origin.
func hopTarget(resp *http.Response) (*url.URL, error) {
	target, err := resp.Location()
	switch {
	case err != nil:
		return nil, errors.New("redirect without a usable Location")
	case resp.Request == nil || origin(target) != origin(resp.Request.URL):
		return nil, fmt.Errorf("redirect to another origin, %s", origin(target))
	}
	return target, nil
}

const maxHops = 10

// follow goes on to a redirect's target where no http.Client does.
func (x *exchange) follow(next Intent, s sent, v verdict, done Attempt) *answer {
	target, err := hopTarget(s.resp)
	if err != nil {
		return x.conclude(next, v, done, s)
	}
	if s.open {
		s.resp.Body.Close()
	}
	next = afterAttempt(next, v)
	next.Due, next.Wait = time.Time{}, 0
	if next, err = x.record(next, &done, true); err != nil {
		return x.unrecorded(s, err)
	}
	x.in, x.target = next, target
	x.hops++
	return nil
}
