package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// Client runs operations over a [Transport] and looks after what earlier calls
// left: it looks up, continues and resumes. Its fields are set before first
// use. A Client is safe for concurrent use, and must not be copied.
type Client struct {
	// Transport sends. It is required.
	Transport *Transport
	// Authorize puts fresh credentials into a request that is sent from the
	// journal, by Resume and Continue, since credentials are never stored. Only
	// headers that it adds, the URL's user info, and the values of query
	// parameters that were withheld, are taken; without those the request is not
	// sent. The request's
	// context ends after RetryPolicy.AttemptTimeout (zero: 30 s). When it fails,
	// Resume tries again later, as one of its ResumeAttempts. nil means that
	// Resume holds requests whose credentials were withheld (held:
	// credentials), and Continue refuses them.
	Authorize func(req *http.Request, in Intent) error
	// OnSettled is told, by Resume and Run, of every final state that a resume,
	// Verify or Resolve came to, and of that of a prepared intent, whoever
	// settled it. (What a direct call settled, its next call is told.) nil acknowledges it; after an error,
	// a panic or a crash it is told again, with back-off (so at least once), by
	// one process at a time for each operation, older generations first. The
	// intent comes with its Outcome. ctx is that of Resume or Run. nil means
	// that nothing more is owed: what a client with an OnSettled prepared stays
	// owed, whoever settles it, until one takes it.
	OnSettled func(ctx context.Context, in Intent) error
	// Verify looks at the provider's side, with a read, whether the effect of an
	// intent is there: StateSucceeded with proof, StateUnknown without. Resume
	// and Run ask it before they send again what may have executed, and for what
	// is held in doubt, at growing intervals from a minute to six hours. "Not
	// there" settles nothing: it only lets a resend go on that is allowed anyway.
	// After an error the resend waits, as one of the ResumeAttempts. ctx ends
	// after RetryPolicy.AttemptTimeout (zero: 30 s). [VerifyByRead] makes one
	// from what contracts know. nil means no look.
	Verify func(ctx context.Context, in Intent) (State, error)

	mu       sync.Mutex
	closed   bool
	open     sync.WaitGroup
	stopping context.Context // ends at Shutdown; nil: nobody asked for it yet
	stop     context.CancelFunc
	known    *tenant // this client among the living; nil: not used yet, or shut down
	listens  bool    // counted in Transport.listeners
}

// NewClient returns a client over t.
func NewClient(t *Transport) *Client { return &Client{Transport: t} }

// HTTPClient returns a new [http.Client] over the client's transport, for any
// SDK that takes one. It follows redirects as net/http does, and gives whatever
// the server answered as a response: ask [WithResult] or [ResultFrom] what the
// journal makes of it. Limit calls by their context rather than by the Timeout
// field, under which net/http returns errors of its own that match none of ours
// (the Result is right all the same).
func (c *Client) HTTPClient() *http.Client { return &http.Client{Transport: callDoor{c}} }

// callDoor counts the calls that go through, so that Shutdown can wait.
type callDoor struct{ c *Client }

func (d callDoor) RoundTrip(req *http.Request) (*http.Response, error) {
	leave, err := d.c.enter(req.Context(), "")
	if err != nil {
		closeBody(req)
		return nil, err
	}
	defer leave()
	return d.c.Transport.RoundTrip(req)
}

func (d callDoor) CloseIdleConnections() { d.c.Transport.CloseIdleConnections() }

// enter counts a call, or refuses it.
func (c *Client) enter(ctx context.Context, operation string) (leave func(), err error) {
	if c.Transport == nil {
		return nil, refusal(Intent{Operation: operation}, ErrNotSent, errors.New("Client.Transport is nil"))
	}
	c.mu.Lock()
	if err = c.alive(); err == nil && c.closed {
		err = fmt.Errorf("the client was shut down: %w", ErrClosed)
	}
	if err != nil {
		c.mu.Unlock()
		return nil, c.Transport.unusable(ctx, operation, err)
	}
	c.open.Add(1)
	c.mu.Unlock()
	return c.open.Done, nil
}

// Do sends req as the named operation, whatever its context says, and follows
// redirects. It returns a response only when the operation is final, when a
// successful answer is streaming, or when the request is not journaled (such
// as a GET); the caller closes its body. Everything else is an
// [*OperationError], with the last answer in its Response.
//
// Called again with the same request, it continues the operation under the
// same key, or gives the recorded answer without sending.
func (c *Client) Do(operation string, req *http.Request) (*http.Response, error) {
	if operation == "" {
		closeBody(req)
		return nil, refusal(Intent{}, ErrNotSent, ErrNoOperation)
	}
	if req.URL == nil || req.RequestURI != "" {
		closeBody(req)
		return nil, c.refuse(req.Context(), operation, errors.New("request has no URL, or has RequestURI set, which is a server's"))
	}
	ctx := context.WithValue(req.Context(), callKey{}, &call{operation: operation, explicit: true})
	outer, _ := ctx.Value(resultKey{}).(*Result)
	var result Result
	req = req.WithContext(WithResult(ctx, &result))
	if req.Body != nil && req.GetBody == nil { // http.Client wants one to follow a redirect; a hop sends the stored bytes
		req.GetBody = func() (io.ReadCloser, error) {
			if result.Intent.ID == "" {
				return nil, errors.New("request was not journaled, and its body cannot be read twice")
			}
			return http.NoBody, nil
		}
	}
	resp, err := c.HTTPClient().Do(req)
	if outer != nil && result.Intent.ID+result.Intent.Operation != "" {
		*outer = result
	}
	return c.outcome(operation, resp, err, result)
}

// outcome makes what a RoundTrip left into what Do and Continue promise.
func (c *Client) outcome(operation string, resp *http.Response, err error, result Result) (*http.Response, error) {
	if err != nil {
		var failure *OperationError
		if errors.As(err, &failure) {
			return nil, failure
		}
		err = withoutURL(err, result.Intent.Key)
		if in := result.Intent; in.ID != "" && in.State.Final() {
			return nil, failed(in, nil, err, "the operation is "+string(in.State)+", but what followed it failed")
		}
		if result.err != nil {
			return nil, failed(result.Intent, result.err.class, err, result.err.text, result.err.also...)
		}
		return nil, &OperationError{Operation: operation, class: ErrUnknownOutcome, Err: err, text: "the request was not journaled, and its outcome is unknown"}
	}
	if result.Err() == nil {
		return resp, nil
	}
	failure := *result.err
	failure.Response = c.Transport.buffered(resp)
	return nil, &failure
}

// refuse refuses a call that did not come to its operation.
func (c *Client) refuse(ctx context.Context, operation string, err error) *OperationError {
	if c.Transport == nil {
		return refusal(Intent{Operation: operation}, ErrNotSent, err)
	}
	return c.Transport.unusable(ctx, operation, err)
}

// withoutURL is an error of http.Client without the URLs that it shows.
func withoutURL(err error, key string) error {
	var shows *url.Error
	if errors.As(err, &shows) {
		err = shows.Err
	}
	if strings.Contains(err.Error(), "Location") {
		return &cause{err: err, text: "a redirect could not be followed"}
	}
	return safe(err, hidden{key: key})
}

// Lookup returns the newest generation of the operation, in the scope of the
// context or the transport, or [ErrNotFound]. It never sends.
func (c *Client) Lookup(ctx context.Context, operation string) (Intent, error) {
	if operation == "" {
		return Intent{}, fmt.Errorf("idem: %w", ErrNoOperation)
	}
	if err := c.usable(); err != nil {
		return Intent{}, err
	}
	in, err := c.Transport.Journal.Lookup(ctx, c.Transport.scope(ctx), operation)
	if errors.Is(err, ErrNotFound) {
		return Intent{}, fmt.Errorf("idem: operation %q: %w", operation, ErrNotFound)
	}
	return in, err
}

// usable checks what every call on the journal needs.
func (c *Client) usable() error {
	if c.Transport == nil || c.Transport.Journal == nil {
		return fmt.Errorf("idem: %w: the client has no Transport with a Journal", ErrJournal)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.alive(); err != nil {
		return fmt.Errorf("idem: %w", err)
	}
	return nil
}

// stopped is a context that ends at Shutdown.
func (c *Client) stopped() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping == nil {
		c.stopping, c.stop = context.WithCancel(context.Background())
		if c.closed {
			c.stop()
		}
	}
	return c.stopping
}

// Continue goes on with an operation from the journal alone: it gives the
// recorded answer, or sends the stored request under its key, with credentials
// from Authorize. It is a direct call, with its own attempts. An operation that
// the journal does not know is [ErrNotFound].
func (c *Client) Continue(ctx context.Context, operation string) (*http.Response, error) {
	leave, err := c.enter(ctx, operation)
	if err != nil {
		return nil, err
	}
	defer leave()
	in, err := c.Lookup(ctx, operation)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNoOperation):
		return nil, err
	case err != nil:
		return nil, c.refuse(ctx, operation, err)
	}
	t := c.Transport
	if err := t.ready(); err != nil {
		return nil, t.unusable(ctx, operation, err)
	}
	x := &exchange{
		t: t, ctx: ctx, call: &call{operation: operation, explicit: true},
		authorize: c.Authorize,
		want:      Intent{ID: in.ID, Scope: in.Scope, Operation: operation, Fingerprint: in.Fingerprint},
	}
	req, err := t.asRequest(ctx, in)
	if err != nil {
		return nil, failed(in, ErrUnknownOutcome, err, "the stored request cannot be sent")
	}
	x.contract = t.contracts().Resolve(req)
	a := x.join()
	resp, failure := a.give(req, x)
	return c.outcome(operation, resp, failure, a.result)
}

// Shutdown refuses new calls, ends Run, waits for the open calls, makes what they recorded
// durable if the journal can, and leaves it open for its owner to close. A
// stream that was handed over is no open call any more. It returns the context's
// error if that ends first; calls go on then.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	if c.stop != nil {
		c.stop()
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("idem: shutdown: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	c.leave()
	c.mu.Unlock()
	if c.Transport == nil {
		return nil
	}
	if journal, ok := c.Transport.Journal.(interface{ Flush(context.Context) error }); ok {
		return journal.Flush(ctx)
	}
	return nil
}
