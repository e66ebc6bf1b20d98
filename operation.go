package idem

import (
	"context"
	"net/http"
	"sync"

	"github.com/idem-go/idem/contract"
)

type (
	callKey   struct{} // *call: made by WithOperation
	scopeKey  struct{} // string
	resultKey struct{} // *Result of the caller
	answerKey struct{} // *answered: on the Request of a response we gave
	claimKey  struct{} // an attempt's context: a layer below passes it through
)

// WithOperation names the operation of the requests made under the returned
// context: the caller's own name for one effect in the world, such as
// "order-42/charge". The name reaches the transport through any SDK that passes
// its context on.
//
// Requests under one such context value are one call: they share its attempts.
// Make a new one for a new call. An empty name means no operation.
func WithOperation(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callKey{}, &call{operation: name})
}

// WithScope sets the namespace of the operation's name: an account, a tenant.
// It wins over Transport.Scope.
func WithScope(ctx context.Context, scope string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

// WithResult asks for the journal's side of the story: *r is set before
// RoundTrip returns, with an error or without, whatever SDK is in between. It
// is set by journaled requests and by refusals only, so a GET that follows does
// not overwrite it. Use one Result per goroutine.
func WithResult(ctx context.Context, r *Result) context.Context {
	return context.WithValue(ctx, resultKey{}, r)
}

// Result is what the journal knows at the end of a call.
type Result struct {
	Intent       Intent // as recorded, or as last seen where nothing was recorded
	Recorded     bool   // the end is in the journal; false: it could not be stored, or the call was refused
	FromJournal  bool   // the answer was given before and comes from our journal
	FromProvider bool   // the provider answered from its store

	err *OperationError
}

// Err is nil when the intent is final or its answer is still streaming, and
// for the zero Result; else it is an [*OperationError].
func (r Result) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// ResultFrom returns the Result of a response that came through a Transport,
// and false for one whose request was not journaled. It works as long as the
// layers in between leave resp.Request as it is.
func ResultFrom(resp *http.Response) (Result, bool) {
	if a := answeredFrom(resp); a != nil {
		return a.result, true
	}
	return Result{}, false
}

// answered rides on the Request of a response, so that a redirect's next hop
// finds its intent and its call again.
type answered struct {
	result   Result
	call     *call
	contract *contract.Contract
}

func answeredFrom(resp *http.Response) *answered {
	if resp == nil || resp.Request == nil {
		return nil
	}
	a, _ := resp.Request.Context().Value(answerKey{}).(*answered)
	return a
}

// call is what shares one attempt budget.
type call struct {
	operation string
	explicit  bool // named by Do: Transport.Operation was already asked, or is not to be

	mu       sync.Mutex
	key      string // of the generation whose attempts are counted
	attempts int
	last     *answer // how the last RoundTrip of this call ended
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// count notes an attempt under key.
func (c *call) count(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key != key {
		c.key, c.attempts, c.last = key, 0, nil
	}
	c.attempts++
}

// made is the number of attempts under key so far.
func (c *call) made(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key != key {
		return 0
	}
	return c.attempts
}

func (c *call) keep(key string, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == key {
		c.last = a
	}
}

// lastAnswer is how the last RoundTrip under key ended, where it can be given
// again.
func (c *call) lastAnswer(key string) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key != key || c.last == nil || !c.last.shareable() {
		return nil
	}
	return c.last
}

// usedUp returns the last answer where the call has no attempt left.
func (c *call) usedUp(limit int) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || !c.last.shareable() || c.attempts < limit {
		return nil
	}
	return c.last
}
