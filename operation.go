package idem

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/idem-go/idem/contract"
)

type (
	callKey   struct{} // *call: made by WithOperation
	scopeKey  struct{} // string
	renewKey  struct{} // string: the key of the generation to supersede
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

// WithRenewal starts the operation anew after the generation with this key was
// rejected or withdrawn: the customer's second card. The call takes the new
// request's bytes and a new key. Where a later generation exists already, the
// call continues or replays that one, so that a repeated call makes one new
// generation and not two. While it is not certain that nothing was executed
// under the key, the renewal is refused. The key is that of Result.Intent or
// [OperationError]; an empty one means no renewal.
//
// The first request, called once more, is not the newest generation's: it is
// refused with ErrMismatch. After a restart look the operation up and go on from
// its newest generation, whose Renews is the key for this call again.
func WithRenewal(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, renewKey{}, key)
}

// WithResult asks for the journal's side of the story: *r is set before
// RoundTrip returns, with an error or without, whatever SDK is in between. It
// is set by journaled requests and by refusals only, so a GET that follows does
// not overwrite it; of several journaled requests the last one does. Use one Result
// per goroutine.
func WithResult(ctx context.Context, r *Result) context.Context {
	return context.WithValue(ctx, resultKey{}, r)
}

// Result is what the journal knows at the end of a call. Callers that waited for
// one answer share what it points to: do not change it.
type Result struct {
	Intent       Intent // as recorded, or as last seen where nothing was recorded
	Recorded     bool   // the end is in the journal; false: it could not be stored, or the call was refused
	FromJournal  bool   // the answer was given before and comes from our journal
	FromProvider bool   // the provider answered from its store

	err *OperationError
}

// Err is nil when the call has the final answer or one that is still streaming,
// and for the zero Result; else it is an [*OperationError]. A final intent does
// not make it nil: with ErrNotKept the answer is not there to be given again, and
// with ErrMismatch the intent is what the name stands for, not this call's.
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
	request  *StoredRequest // of a redirect that the next hop may follow; its journal may not have the body
	same     identity       // of its operation
}

func answeredFrom(resp *http.Response) *answered {
	if resp == nil || resp.Request == nil {
		return nil
	}
	a, _ := resp.Request.Context().Value(answerKey{}).(*answered)
	return a
}

// call is what shares one attempt budget: for each operation and generation,
// the attempts made and how the last RoundTrip ended.
type call struct {
	operation string
	explicit  bool // named by Do: Transport.Operation is not asked

	mu      sync.Mutex
	budgets []budget // mostly one, which is in room
	room    [1]budget
}

// budgetID names what attempts are counted for. Two transports under one
// context value are two calls.
type budgetID struct {
	transport *Transport
	identity
}

type budget struct {
	id          budgetID
	attempts    int
	fingerprint []byte
	last        *answer
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// count notes an attempt of id.
func (c *call) count(id budgetID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.of(id)
	if b == nil {
		if c.budgets == nil {
			c.budgets = c.room[:0]
		}
		c.budgets = append(c.budgets, budget{id: id})
		b = &c.budgets[len(c.budgets)-1]
	}
	b.attempts++
}

// of finds the budget of id, or nil. The caller holds mu.
func (c *call) of(id budgetID) *budget {
	for i := range c.budgets {
		if c.budgets[i].id == id {
			return &c.budgets[i]
		}
	}
	return nil
}

// made is the number of attempts of id so far.
func (c *call) made(id budgetID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.of(id); b != nil {
		return b.attempts
	}
	return 0
}

// keep keeps how a RoundTrip of id ended.
func (c *call) keep(id budgetID, fingerprint []byte, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.of(id); b != nil {
		b.fingerprint, b.last = fingerprint, a
	}
}

// last is how the last RoundTrip of the same request ended, where it can be
// given again; nil otherwise.
func (c *call) last(id budgetID, fingerprint []byte) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.of(id)
	if b == nil || b.last == nil || !bytes.Equal(b.fingerprint, fingerprint) || !b.last.shareable() {
		return nil
	}
	return b.last
}
