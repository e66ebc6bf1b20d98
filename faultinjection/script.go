package faultinjection

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idem-go/idem/contract"
)

// Fault is what one attempt suffers on its way through a [Script]. The zero Fault
// is [Pass]. Faults are values: compare them, keep them in tables, print them.
type Fault struct {
	kind   faultKind
	after  int64         // of CutBody
	answer *answer       // of Answer
	delay  time.Duration // before the client hears of it
	err    error         // that the client gets; nil: the usual one
}

type faultKind string

const (
	pass         faultKind = ""
	dropRequest  faultKind = "drop_request"
	dropResponse faultKind = "drop_response"
	abandon      faultKind = "abandon"
	cutHeader    faultKind = "cut_header"
	cutBody      faultKind = "cut_body"
	ownAnswer    faultKind = "answer"
)

// The faults without a parameter. Read-only.
var (
	// Pass sends the request on and hands its answer over.
	Pass = Fault{}
	// DropRequest fails as a refused connection does: nothing is sent, and the
	// client can know it.
	DropRequest = Fault{kind: dropRequest}
	// DropResponse lets the server run to its end, then resets the connection.
	DropResponse = Fault{kind: dropResponse}
	// Abandon resets the connection while the request is on its way: it arrives
	// late, when [Script.Release] is called, or never. The client cannot tell it
	// from DropResponse.
	Abandon = Fault{kind: abandon}
	// CutHeader lets the server run to its end, then ends the connection inside
	// the header of the answer: the error matches [io.ErrUnexpectedEOF].
	CutHeader = Fault{kind: cutHeader}
)

// CutBody ends the connection after n bytes of the answer's body, which then
// reads as [io.ErrUnexpectedEOF]: before its last byte, or before it is said that
// it ends, if it is not longer than n. An answer without a body is cut in its
// header instead.
func CutBody(n int64) Fault { return Fault{kind: cutBody, after: max(n, 0)} }

// Answer is an answer of your own, as a gateway gives it: the server is not
// asked.
func Answer(status int, header http.Header, body []byte) Fault {
	return Fault{kind: ownAnswer, answer: &answer{status, header.Clone(), bytes.Clone(body)}}
}

// Delayed is the fault with a pause of d before the client hears of its end: of
// the error, or of the answer, which the server gave at once. A context that ends
// in the pause ends the attempt.
func (f Fault) Delayed(d time.Duration) Fault {
	f.delay = d
	return f
}

// WithError is the fault with an error of your own instead of the usual one.
// What is known of the request stays as it is: nothing is sent by DropRequest,
// whatever its error. It does nothing for Pass and Answer.
func (f Fault) WithError(err error) Fault {
	f.err = err
	return f
}

// String names the fault and its parameters, such as "cut_body 10".
func (f Fault) String() string {
	t := string(f.kind)
	switch f.kind {
	case pass:
		t = "pass"
	case cutBody:
		t += fmt.Sprintf(" %d", f.after)
	case ownAnswer:
		t += fmt.Sprintf(" %d", f.answer.status)
	}
	if f.delay > 0 {
		t += " " + f.delay.String()
	}
	return t
}

// or is the error that the client gets.
func (f Fault) or(usual error) error {
	if f.err != nil {
		return f.err
	}
	return usual
}

// end waits, and returns err, or why the client waits no longer.
func (f Fault) end(ctx context.Context, err error) error {
	if f.delay > 0 && !pause(ctx, f.delay) {
		return context.Cause(ctx)
	}
	return err
}

// Script stands between a client and the next RoundTripper, such as that of
// [Server.Transport], and lets each attempt suffer its [Fault]. An attempt is
// one call of RoundTrip.
//
//	script := faultinjection.NewScript(api, faultinjection.DropResponse) // the first answer is lost
//	client := &http.Client{Transport: script.Wrap(server.Transport())}
//
// Hooks of [httptrace] are called as net/http would call them, so that a client
// that looks at them tells "not sent" from "perhaps executed". Waits use package
// time and are virtual in a [testing/synctest] bubble. A Script starts no
// goroutine and is safe for concurrent use.
type Script struct {
	place contract.Place // of the key
	unfit error          // every attempt is told

	mu       sync.Mutex
	next     func(number int) Fault // of attempt 1, 2, ...
	on       func(Attempt, *http.Request) Fault
	attempts []Attempt
	perKey   map[string]int
	late     []lateRequest
}

// Attempt is one call of RoundTrip.
type Attempt struct {
	N      int      // 1, 2, ... among those with this key
	Key    string   // empty: there was none
	Sum    [32]byte // SHA-256 of method, URL and body
	At     time.Time
	Fault  Fault
	Status int // that the client was told; zero: it got an error, or waits
}

// NewScript is a script of the given faults, one for each attempt in turn,
// whatever its key; after the last one all pass. c says where keys are looked
// for; nil means that there are none. A contract that is not valid is told to
// every attempt.
func NewScript(c *contract.Contract, faults ...Fault) *Script {
	faults = append([]Fault(nil), faults...) // they are the caller's to change
	return newScript(c, func(number int) Fault {
		if number > len(faults) {
			return Pass
		}
		return faults[number-1]
	})
}

func newScript(c *contract.Contract, next func(number int) Fault) *Script {
	s := &Script{next: next, perKey: map[string]int{}}
	if c != nil {
		s.place, s.unfit = c.Key, wrap("script", c.Validate())
	}
	return s
}

// On sets what has the last word on each attempt, and returns the script. It is
// given the attempt with the script's own fault, which it may return, and a copy
// of the request, whose body it may read. It is called in order, one call at a
// time, with the script locked: it must not use the script. nil means that the
// script's own fault stands.
func (s *Script) On(fault func(Attempt, *http.Request) Fault) *Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = fault
	return s
}

// Wrap returns a RoundTripper that sends by next what is not to fail. nil means
// [http.DefaultTransport]. Of several ones the attempts are counted together.
func (s *Script) Wrap(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return scripted{s, next}
}

// Attempts returns all attempts so far, in order.
func (s *Script) Attempts() []Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Attempt(nil), s.attempts...)
}

// Release lets the requests arrive that were abandoned so far, one after the
// other, and waits for their answers, which nobody gets. It returns what went
// wrong on the way. When ctx ends, those that are left stay abandoned.
func (s *Script) Release(ctx context.Context) error {
	var errs []error
	for {
		r, ok := s.oneLate(ctx)
		if !ok {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		resp, err := r.next.RoundTrip(r.req.WithContext(ctx))
		if err == nil {
			err = drain(resp)
		}
		errs = append(errs, err)
	}
}

// lateRequest is on its way to a server, and its client is gone.
type lateRequest struct {
	next http.RoundTripper
	req  *http.Request
}

func (s *Script) oneLate(ctx context.Context) (first lateRequest, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.late) == 0 || ctx.Err() != nil {
		return lateRequest{}, false
	}
	first, s.late = s.late[0], s.late[1:]
	return first, true
}

// attempt notes an attempt and says what it is to suffer.
func (s *Script) attempt(req *http.Request, body []byte) (number int, f Fault, err error) {
	if s.unfit != nil {
		return 0, Pass, s.unfit
	}
	key, _, _ := s.place.Find(req.Header, req.URL, body) // a key that cannot be read is none
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	a := Attempt{Key: key, Sum: sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", method, req.URL, body)), At: time.Now().UTC()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perKey[key]++
	a.N, a.Fault = s.perKey[key], s.next(len(s.attempts)+1)
	if s.on != nil {
		seen := req.Clone(req.Context())
		seen.Body = io.NopCloser(bytes.NewReader(body))
		a.Fault = s.on(a, seen)
	}
	s.attempts = append(s.attempts, a)
	return len(s.attempts), a.Fault, nil
}

func (s *Script) answered(number, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[number-1].Status = status
}

type scripted struct {
	script *Script
	next   http.RoundTripper
}

// RoundTrip is one attempt.
func (w scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	if req.URL == nil {
		return nil, errors.New("faultinjection: request without a URL")
	}
	if ctx := req.Context(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	number, f, err := w.script.attempt(req, body)
	if err != nil {
		return nil, err
	}
	resp, err := w.suffer(f, req, body)
	if err != nil {
		return nil, err
	}
	w.script.answered(number, resp.StatusCode)
	return resp, nil
}

// CloseIdleConnections closes those of the next RoundTripper, if it can.
func (w scripted) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (w scripted) suffer(f Fault, req *http.Request, body []byte) (*http.Response, error) {
	ctx, trace := req.Context(), traceOf(req.Context())
	switch f.kind {
	case dropRequest:
		return nil, refuse(ctx, trace, address(req.URL), f)
	case dropResponse, cutHeader:
		return nil, w.lose(f, req, body)
	case abandon:
		w.script.abandon(w.next, req, body)
		trace.written(req)
		return nil, f.end(ctx, f.or(errReset()))
	case ownAnswer:
		trace.written(req)
		if err := f.end(ctx, nil); err != nil {
			return nil, err
		}
		return memory{}.response(req, reply{answer: *f.answer}.settle(req.Method), trace)
	}
	resp, err := w.forward(ctx, req, body)
	if wait := f.end(ctx, err); err != nil || wait != nil {
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close() // the client left: nobody is told
		}
		return nil, wait
	}
	if f.kind == cutBody {
		return cutShort(resp, req.Method, f)
	}
	return resp, nil
}

// forward sends the request on: with its own body, which was read already.
func (w scripted) forward(ctx context.Context, req *http.Request, body []byte) (*http.Response, error) {
	out := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = again()
		if req.GetBody != nil { // else the next one must not send it twice
			out.GetBody = again
		}
	}
	resp, err := w.next.RoundTrip(out)
	if resp == nil && err == nil {
		err = errors.New("faultinjection: the next RoundTripper returned neither a response nor an error")
	}
	if resp != nil && (resp.Request == out || resp.Request == nil) {
		resp.Request = req
	}
	return resp, err
}

// lose lets the server run to its end, and the client hear nothing of it.
func (w scripted) lose(f Fault, req *http.Request, body []byte) error {
	ctx, trace := req.Context(), traceOf(req.Context())
	deaf, sent := deafened(ctx, f.kind == dropResponse)
	resp, err := w.forward(deaf, req, body)
	if err != nil { // it is lost already
		return f.end(ctx, err)
	}
	_ = drain(resp) // the client hears nothing of that either
	if !sent() {    // the next one does not trace
		trace.written(req)
		if f.kind == cutHeader {
			trace.answered()
		}
	}
	if f.kind == cutHeader {
		return f.end(ctx, f.or(errCut))
	}
	return f.end(ctx, f.or(errReset()))
}

// abandon keeps a request that the client will not hear of again.
func (s *Script) abandon(next http.RoundTripper, req *http.Request, body []byte) {
	late := req.Clone(context.Background()) // neither values nor an end of the client's
	late.GetBody = nil
	if req.Body != nil && req.Body != http.NoBody {
		late.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, lateRequest{next, late})
}

// refuse fails as a dial does: nothing was written.
func refuse(ctx context.Context, trace trace, address string, f Fault) error {
	if trace.GetConn != nil {
		trace.GetConn(address)
	}
	if trace.ConnectStart != nil {
		trace.ConnectStart("tcp", address)
	}
	err := f.end(ctx, f.or(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}))
	if trace.ConnectDone != nil {
		trace.ConnectDone("tcp", address, err)
	}
	return err
}

// deafened is ctx for a send of whose answer the client's hooks hear nothing;
// unless all is muted, they hear that one begins. sent reports whether the
// hooks were told that the request was written.
func deafened(ctx context.Context, all bool) (deaf context.Context, sent func() bool) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		return ctx, func() bool { return true } // nobody listens
	}
	quiet := *trace
	if all {
		quiet.GotFirstResponseByte = nil
	}
	quiet.Got100Continue, quiet.Got1xxResponse = nil, nil
	var written atomic.Bool
	quiet.WroteHeaders = func() {
		written.Store(true)
		if trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
	}
	return deafContext{ctx, &quiet}, written.Load
}

// deafContext has another trace than the context it wraps.
type deafContext struct {
	context.Context
	trace *httptrace.ClientTrace
}

func (c deafContext) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok { // its key is httptrace's own
		return c.trace
	}
	return v
}

// errCut is what a client reads from a connection that ended too soon.
var errCut = fmt.Errorf("faultinjection: connection broken: %w", io.ErrUnexpectedEOF)

// cutShort breaks an answer in its body.
func cutShort(resp *http.Response, method string, f Fault) (*http.Response, error) {
	if method == http.MethodHead || resp.ContentLength == 0 || resp.Body == nil || resp.Body == http.NoBody {
		_ = drain(resp) // it is lost
		return nil, f.or(errCut)
	}
	left := f.after
	if resp.ContentLength > 0 {
		left = min(left, resp.ContentLength-1)
	}
	resp.Body = &shortBody{ReadCloser: resp.Body, left: left, err: f.or(io.ErrUnexpectedEOF)}
	return resp, nil
}

// shortBody ends too soon.
type shortBody struct {
	io.ReadCloser
	left int64
	err  error
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		_ = b.ReadCloser.Close() // the connection is gone; Close may come again
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); err == io.EOF {
		b.left, err = 0, b.err
	}
	return n, err
}

// drain reads an answer out that nobody wants.
func drain(resp *http.Response) error {
	if resp.Body == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// address is where a request goes, with its port.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
