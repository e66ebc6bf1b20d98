package idem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/internal/clock"
)

// Transport is an [http.RoundTripper] that gives each operation one idempotency
// key. Before the first byte leaves, the key and the request are in the journal,
// synced; every attempt, after a restart too, sends the same key and the same
// bytes; how it ended is recorded.
//
// Name the operation with [WithOperation], or use [Client.Do]. A request
// without a name, whose SDK sets the contract's key, is journaled under that key. A request with neither gets a key for its own retries. Safe methods
// (GET, HEAD, OPTIONS, TRACE), unnamed PUT and DELETE, requests for a token (a
// form with grant_type), and unnamed requests to servers without a contract are
// not journaled and pass as if the transport were not there, except that they
// are sent again where that is safe.
//
// A journaled request is sent from what is stored of it: with a Content-Length,
// never chunked, and without its GetBody and Cancel; the hop of a 307 or 308 too.
// Request trailers, a change of protocol (Upgrade), an opaque URL, and a redirect
// to another origin are refused. Where an answer sends http.Client there with a
// GET, that goes without the caller's headers and without a Referer. The answer
// of a journaled request, unless it streams, is read whole first, so that its
// trailers are there before the body is.
//
// Set the fields before first use and do not change them after it. The zero
// Transport journals nothing: a request that would need the journal is refused.
// A Transport is safe for concurrent use, and must not be copied.
type Transport struct {
	// Journal keeps the intents. It is required: nil refuses requests that
	// would be journaled, and never passes them silently.
	Journal Journal
	// Base sends. An error of it that matches ErrNotSent counts as proof that
	// nothing was sent; so does one before net/http/httptrace saw a byte
	// written, so a Base that sends without tracing must not do so after one
	// that traces. Where there is no body, the key's header stands in the map in
	// lower case, and a resend after a broken connection is stopped: it is for the
	// Transport to count. nil means http.DefaultTransport.
	Base http.RoundTripper
	// Contracts says which servers honour keys, and how. nil means
	// contract.Known.
	Contracts contract.Resolver
	// Retry bounds attempts and waits. Zero means its defaults.
	Retry RetryPolicy
	// Name tells this configuration from others on the same journal: Resume
	// takes only intents of its own name. Empty is a name too. Of one name there
	// is one Transport with living Clients on a journal handle: calls of a second
	// one are refused, since each would resume what the other made.
	Name string
	// Scope is the namespace of operation names; WithScope wins. Empty is a
	// scope too.
	Scope string
	// Operation refines the name from the context ("" if none), such as by the
	// request's path. It must give the same name for the same request after a
	// restart; Lookup and the like take the refined one. nil means the name as it
	// is.
	Operation func(req *http.Request, name string) string
	// Key derives the key of a named operation's new generation from the
	// intent's Scope, Operation and Generation, such as [DeriveKeys] does. It
	// must give the same key for the same three. It wins over a key that the
	// request came with, unless the provider issues keys: an SDK's is new on every
	// replica. nil means random UUIDv4, as unnamed operations always have.
	Key func(in Intent) string
	// Fingerprint returns what two calls of an operation must have in common of
	// their bodies, where equal calls may have other bytes: the order of a map, the
	// boundary of a form, a time stamp. It is for comparing only: what is sent are
	// always the journaled bytes, those of the first call. So leave out nothing that
	// changes the effect: without the amount in it, a call with another amount would
	// get the answer of the first one. It must return the same for the same request
	// after a restart, else the call is refused ([ErrMismatch]). body is without the
	// key and may be empty; it and req, whose Body is empty, are copies. An error
	// refuses the request unsent. nil means the body, byte for byte.
	Fingerprint func(req *http.Request, body []byte) ([]byte, error)
	// RequireOperation refuses requests that would be journaled or sent blind
	// without a name and without a key of the caller.
	RequireOperation bool
	// ResumeUnnamed lets Resume send what has no name and no key of the
	// caller's. Only for applications that never issue a request anew after a
	// crash: else the effect may happen twice, under two keys.
	ResumeUnnamed bool
	// Secrets are further names of headers that are never stored, and of query
	// parameters whose values are stored only where the journal seals them
	// (SQLiteOptions.Sealer). Those whose name says that they are credentials
	// never are: with auth, token, secret, key, passw, passphrase, signature,
	// session, cookie, credential, assertion, bearer, hmac or jwt anywhere in it,
	// or pass, sign, sig, otp, pin, dpop or cert as a word of it, and without
	// idempoten. nil means no further ones.
	Secrets []string
	// MaxRequestBody is the largest body in bytes that is journaled; a larger
	// one is refused unsent. Zero means 1 MiB.
	MaxRequestBody int64
	// MaxResponseBody is the largest answer in bytes that is kept; a larger one
	// is handed over while it arrives. Zero means 1 MiB.
	MaxResponseBody int64
	// CrashPoint is called at named points of each journaled operation
	// ([CrashPoints]), by the goroutine that is there, so that a test can stop or
	// kill the process in the worst moments: package faultinjection has such
	// functions. It must not panic. nil means nobody, and costs a comparison.
	CrashPoint func(point string)
	// Observer is told what happens. nil means nobody.
	Observer *Observer
	// Logger gets what a person should see; of a journal that fails, once a
	// second. nil means silent.
	Logger *slog.Logger

	setup   sync.Once
	invalid error
	flights flights
	gates   gates
	reports reports
	woken   chan struct{} // tells a Run that something may be due

	listeners atomic.Int32 // living clients with an OnSettled

	clock   clock.Clock
	salt    []byte   // of what is compared in memory only
	told    sync.Map // hosts without a contract that were named in the log
	toldN   atomic.Int32
	checked sync.Map // *contract.Contract -> error of Validate

	checkedN atomic.Int32

	// silent is set when an attempt over HTTP/2 has timed out: net/http would go on
	// with its connection, which may be dead.
	silent atomic.Bool
}

const (
	defaultMaxBody = 1 << 20
	maxTold        = 1024
)

// RoundTrip sends req as one attempt of an operation, or gives the answer that
// is recorded. The response and the error are never both set; what the server
// answered is always returned as a response, whatever its status, and
// [Result.Err] says what the journal makes of it. An error about an operation
// is an [*OperationError]. The body of req is closed on every path.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if c, ok := ctx.Value(claimKey{}).(claim); ok && c.of(req) {
		return t.base().RoundTrip(req)
	}
	if err := t.ready(); err != nil {
		closeBody(req)
		return nil, t.unusable(ctx, "", err)
	}
	if hop := answeredFrom(req.Response); hop != nil && !safeMethod(req.Method) && hop.unfinished() {
		closeBody(req)
		x := t.hopExchange(req, hop)
		return x.join().give(req, x)
	}
	if safeMethod(req.Method) {
		return t.passRepeatable(req)
	}
	x, err := t.newExchange(req, t.contracts().Resolve(req))
	if err != nil {
		if !x.bodyRead { // reading it closes it
			closeBody(req)
		}
		return t.refuse(req, x, err)
	}
	if x.passes != nil {
		return x.passes(req)
	}
	return x.join().give(req, x)
}

// unusable refuses a call before it is known what it is about, except for the
// operation's name.
func (t *Transport) unusable(ctx context.Context, operation string, err error) *OperationError {
	if c := callFrom(ctx); operation == "" && c != nil {
		operation = c.operation
	}
	in, class := t.standing(ctx, Intent{Scope: t.scope(ctx), Operation: operation})
	return refusal(in, class, err)
}

// CloseIdleConnections closes Base's idle connections, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// refuse ends a RoundTrip whose request never became an intent.
func (t *Transport) refuse(req *http.Request, x *exchange, err error) (*http.Response, error) {
	in, class := t.standing(x.ctx, x.want)
	failure := refusal(in, class, err)
	return (&answer{err: failure, result: Result{Intent: in, err: failure}}).give(req, x)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) contracts() contract.Resolver {
	if t.Contracts != nil {
		return t.Contracts
	}
	return contract.Known
}

func (t *Transport) maxRequestBody() int64  { return bodyLimit(t.MaxRequestBody) }
func (t *Transport) maxResponseBody() int64 { return bodyLimit(t.MaxResponseBody) }

func bodyLimit(n int64) int64 { return min(orDefault(n, defaultMaxBody), math.MaxInt64/2) }

// ready checks the fields once.
func (t *Transport) ready() error {
	t.setup.Do(func() {
		t.clock.Start()
		t.woken = make(chan struct{}, 1)
		t.gates.burst = float64(orDefault(t.Retry.Budget, defaultBudget))
		t.salt = make([]byte, saltSize)
		rand.Read(t.salt) // never fails
		t.invalid = t.Retry.validate()
		if c, ok := t.Contracts.(*contract.Contract); ok && c != nil {
			t.invalid = errors.Join(t.invalid, t.valid(c))
		}
		for _, f := range []struct {
			name  string
			value int64
		}{{"MaxRequestBody", t.MaxRequestBody}, {"MaxResponseBody", t.MaxResponseBody}} {
			if f.value < 0 {
				t.invalid = errors.Join(t.invalid, fmt.Errorf("field Transport.%s is %d, which is negative", f.name, f.value))
			}
		}
	})
	return t.invalid
}

// valid checks a contract once.
func (t *Transport) valid(c *contract.Contract) error {
	if c == nil {
		return nil
	}
	if err, seen := t.checked.Load(c); seen {
		err, _ := err.(error)
		return err
	}
	err := c.Validate()
	if t.checkedN.Load() < maxTold { // a resolver may make a new one each time
		t.checkedN.Add(1)
		if _, seen := t.checked.Swap(c, err); !seen && err == nil {
			t.tellMisfit(c)
		}
	}
	return err
}

func (t *Transport) log() *slog.Logger {
	if t.Logger != nil {
		return t.Logger
	}
	return unheard
}

var unheard = slog.New(slog.DiscardHandler)

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

func safeMethod(m string) bool {
	switch m {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// claim rides in an attempt's context: an idem layer below passes the attempt
// through, and nothing else.
type claim struct {
	header, key string   // the attempt's key; no header: it is elsewhere, or nowhere
	method      string   // of the attempt
	url         *url.URL // of the attempt
}

func (c claim) of(req *http.Request) bool {
	if c.header != "" {
		return slices.Contains(headerValues(req.Header, c.header), c.key)
	}
	return req.Method == c.method && req.URL != nil && origin(req.URL) == origin(c.url) && req.URL.Path == c.url.Path
}

// attemptContext is an attempt's context. What the caller said of its own
// request is not said of others that the base transport may make.
type attemptContext struct {
	context.Context
	claim claim
}

func (c *attemptContext) Value(key any) any {
	switch key.(type) {
	case claimKey:
		return c.claim
	case callKey, resultKey, renewKey, answerKey:
		return nil
	}
	return c.Context.Value(key)
}

// sent is one attempt as the base transport left it.
type sent struct {
	ending
	req    *http.Request
	resp   *http.Response
	body   []byte
	broken error
	open   bool
	cancel context.CancelCauseFunc // ends the attempt's context; the one who reads the body last calls it
	at     time.Time               // when the answer came
	unpaid error                   // why no other attempt follows, where it is not the policy's limits
}

// send is one attempt: one call of Base.
func (t *Transport) send(ctx context.Context, req *http.Request, x *exchange) sent {
	own, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	if limit := t.Retry.attemptTimeout(x.contract); limit > 0 {
		timer = time.AfterFunc(limit, func() { cancel(errAttemptTimeout) })
		defer timer.Stop()
	}
	trace, marked := &x.now.wire, &x.now.marked
	trace.sent, trace.pass = x.sent, t.CrashPoint
	if req.Body == http.NoBody {
		trace.unseen = func() { cancel(errSentAgain) }
	}
	marked.Context = own
	marked.claim = claim{header: x.in.Place.Header, key: x.in.Place.Format(x.in.Key), method: req.Method, url: req.URL}
	if t.silent.Load() && t.silent.Swap(false) {
		t.CloseIdleConnections()
	}
	resp, err := t.base().RoundTrip(req.WithContext(httptrace.WithClientTrace(marked, trace.hooks())))
	if err == nil && resp == nil {
		err = errors.New("the base transport returned neither a response nor an error")
	}
	s := sent{req: req, resp: resp, cancel: cancel, at: t.clock.Now()}
	if err != nil {
		s.resp = nil
		s.err = err
		switch cause := context.Cause(own); {
		case cause == errSentAgain:
			s.err = errSentAgain
		case cause == errAttemptTimeout && errors.Is(err, context.Canceled): // HTTP/2's word for it; nobody has cancelled
			s.err = errAttemptTimeout
		case cause == errAttemptTimeout && !errors.Is(err, errAttemptTimeout):
			s.err = fmt.Errorf("%w: %w", errAttemptTimeout, err)
		}
		s.phase, s.final = trace.phase(err), permanent(err)
		if own.Err() != nil && trace.got.Load() && !errors.Is(err, ErrNotSent) {
			s.phase = phaseMaybeSent // net/http's HTTP/2 returns while its writer may go on
		}
		cancel(nil)
	} else {
		if resp.Request == nil {
			resp.Request = req
		}
		s.status, s.header, s.phase = resp.StatusCode, resp.Header, phaseAnswered
		mayStream := x.contract == nil || !x.contract.ErrorsInside200
		var rest io.ReadCloser
		s.body, rest, s.broken = readAnswer(resp, t.maxResponseBody(), mayStream)
		if s.broken != nil && context.Cause(own) == errAttemptTimeout {
			s.broken = errAttemptTimeout
		}
		s.ending.body, s.cut = s.body, s.broken != nil
		switch {
		case rest == nil:
			cancel(nil)
		case !mayStream && s.status/100 == 2:
			rest.Close()
			cancel(nil)
			s.cut, s.broken = true, errors.New("answer is larger than Transport.MaxResponseBody and may hold an error")
		default:
			s.open, s.stream = true, s.status/100 == 2
			resp.Body = newOpenBody(s.body, rest, resp.ContentLength, func(bool) { cancel(nil) })
		}
	}
	if context.Cause(own) == errAttemptTimeout && trace.shared.Load() {
		t.silent.Store(true)
	}
	s.resent = trace.requests.Load() > 1
	s.left = ctx.Err() != nil && (s.status == 0 || s.cut)
	return s
}
