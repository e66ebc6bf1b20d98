package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// sameJSON has two bodies be the same whose members are, in whatever order.
func sameJSON(_ *http.Request, body []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

const (
	oneOrder     = `{"order":"order-1","amount":4200}`
	anotherOrder = `{ "amount": 4200, "order": "order-1" }`
)

// Bodies that mean the same may differ. What is sent is always what was journaled
// (P3), and what differs in the effect is refused as ever.
func TestFingerprint_EqualCallsWithOtherBytes(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Fingerprint, r.transport.Retry.MaxAttempts = sameJSON, 1
		_, _, err := r.do(t.Context(), "order-1", oneOrder)
		requireUnknown(t, err, StateUnknown)
		r.reopen()

		time.Sleep(time.Minute)
		status, answer, err := r.do(t.Context(), "order-1", anotherOrder)
		require.NoError(t, err)
		assert.Equal(t, 201, status)
		arrivals := r.arrivals()
		require.Len(t, arrivals, 2)
		assert.Equal(t, arrivals[0].Keys, arrivals[1].Keys)
		for _, a := range arrivals {
			assert.Equal(t, oneOrder, string(a.Body), "the first call's bytes")
		}
		assert.Equal(t, 1, r.effects())

		_, replayed, err := r.do(t.Context(), "order-1", strings.ReplaceAll(anotherOrder, " ", "\n"))
		require.NoError(t, err)
		assert.Equal(t, answer, replayed)
		in, err := r.client.Prepare("order-1", mustRequest(t, t.Context(), rigURL, anotherOrder))
		require.NoError(t, err)
		assert.Equal(t, StateSucceeded, in.State)

		for _, other := range []string{`{"order":"order-1","amount":4201}`, `{"order":"order-1","amount":"4200"}`, `{"order":"order-1"}`} {
			_, _, err = r.do(t.Context(), "order-1", other)
			require.ErrorIs(t, err, ErrMismatch, other)
			require.ErrorContains(t, err, "the body differs")
		}
		assert.Len(t, r.arrivals(), 2)

		r.transport.Fingerprint = nil // a journal whose function has gone sends nothing
		_, _, err = r.do(t.Context(), "order-1", oneOrder)
		require.ErrorIs(t, err, ErrMismatch)
		assert.Len(t, r.arrivals(), 2)
	})
}

// A function that gives the body back as it is changes nothing: it may come later
// than the journal.
func TestFingerprint_BodyAsItIs(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t)
		_, _, err := r.do(t.Context(), "order-1", oneOrder)
		require.NoError(t, err)
		r.transport.Fingerprint = func(_ *http.Request, body []byte) ([]byte, error) { return body, nil }
		_, _, err = r.do(t.Context(), "order-1", oneOrder)
		require.NoError(t, err)
		assert.Len(t, r.arrivals(), 1)
	})
}

// Callers at the same time share one send, whatever their bytes.
func TestFingerprint_CallersTogether(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.Slow(time.Second))
		r.transport.Fingerprint = sameJSON
		var calls sync.WaitGroup
		for _, body := range []string{oneOrder, anotherOrder, oneOrder, anotherOrder} {
			calls.Go(func() {
				_, _, err := r.do(t.Context(), "order-1", body)
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		calls.Wait()
		assert.Len(t, r.arrivals(), 1)
	})
}

// The function gets copies, and the key is not among what it gets.
func TestFingerprint_FunctionChangesNothing(t *testing.T) {
	inBody := rigContract()
	inBody.Key = contract.Place{Pointer: "/meta/key"}
	for name, c := range map[string]*contract.Contract{"header": rigContract(), "body": inBody} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRigFor(t, c)
				calls := 0
				r.transport.Fingerprint = func(req *http.Request, body []byte) ([]byte, error) {
					calls++
					rest, err := io.ReadAll(req.Body)
					assert.NoError(t, err)
					assert.Empty(t, rest)
					assert.Equal(t, `{"amount":4200,"meta":{}}`, string(body))
					assert.Equal(t, "eur", req.Header.Get("Currency"))
					req.Header.Set("Currency", "usd")
					req.Header.Set("Content-Type", "text/plain")
					req.URL.Path = "/refunds"
					copy(body, "########")
					return []byte("same"), nil
				}
				for _, key := range []string{"own-key", "other-key"} { // the first one is adopted, and stays
					body := `{"amount":4200,"meta":{}}`
					if name == "body" {
						body = `{"amount":4200,"meta":{"key":"` + key + `"}}`
					}
					req := mustRequest(t, t.Context(), rigURL, body)
					req.Header.Set("Currency", "eur")
					resp, _, err := r.roundTrip(t.Context(), "order-1", req)
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Equal(t, "eur", req.Header.Get("Currency"), "the caller's request")
					assert.Equal(t, rigURL, req.URL.String())
				}
				assert.Equal(t, 2, calls)
				arrivals := r.arrivals()
				require.Len(t, arrivals, 1)
				assert.Contains(t, string(arrivals[0].Body), `{"amount":4200,"meta":{`)
				assert.Equal(t, "eur", arrivals[0].Header.Get("Currency"))
			})
		})
	}
}

// A function that fails refuses the call, and says no more than is known.
func TestFingerprint_FunctionFails(t *testing.T) {
	virtually(t, func(t *testing.T) {
		r := newRig(t, faultinjection.DieAfterEffect)
		r.transport.Fingerprint, r.transport.Retry.MaxAttempts = sameJSON, 1
		var broken *json.SyntaxError
		_, _, err := r.do(t.Context(), "order-1", "{")
		requireNotSent(t, err)
		require.ErrorContains(t, err, "Transport.Fingerprint")
		require.True(t, errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken), err)
		_, err = r.journal.Lookup(t.Context(), "", "order-1")
		require.ErrorIs(t, err, ErrNotFound)

		_, _, err = r.do(t.Context(), "order-1", oneOrder)
		requireUnknown(t, err, StateUnknown)
		closed := 0
		req := mustRequest(t, t.Context(), rigURL, "{")
		req.Body = &countedBody{Reader: strings.NewReader("{"), closed: &closed}
		_, err = r.client.Do("order-1", req)
		requireUnknown(t, err, StateUnknown)
		assert.Equal(t, 1, closed)
		assert.Len(t, r.arrivals(), 1)
	})
}

type countedBody struct {
	io.Reader
	closed *int
}

func (b *countedBody) Close() error { *b.closed++; return nil }

// The error of a mismatch says what differs, and what would help.
func TestMismatch_SaysWhatDiffers(t *testing.T) {
	const hint, own = "Transport.Fingerprint", "another name"
	for name, test := range map[string]struct {
		change func(req *http.Request)
		says   string
		hints  bool
	}{
		"method": {func(req *http.Request) { req.Method = http.MethodPut }, "the method differs", false},
		"URL":    {func(req *http.Request) { req.URL.Path = "/refunds" }, "the URL differs", false},
		"query":  {func(req *http.Request) { req.URL.RawQuery = "token=hidden" }, "the query differs", false},
		"host":   {func(req *http.Request) { req.Host = "other.example" }, "a header that counts differs", false},
		"scope":  {func(req *http.Request) { req.Header.Set("Account", "b") }, "a header that counts differs", false},
		"body": {func(req *http.Request) {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(`{"hidden":1}`)), -1
		}, "the body differs", true},
	} {
		for how, compare := range map[string]func(*http.Request, []byte) ([]byte, error){"bytes": nil, "function": sameJSON} {
			t.Run(name+", "+how, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					c := rigContract()
					c.ScopeHeaders = []string{"Account"}
					r := newRigFor(t, c)
					r.transport.Fingerprint = compare
					request := func() *http.Request {
						req := mustRequest(t, t.Context(), rigURL+"?a=1", oneOrder)
						req.Header.Set("Account", "a")
						return req
					}
					resp, err := r.client.Do("order-1", request())
					require.NoError(t, err)
					readAndClose(t, resp)
					r.reopen()
					other := request()
					test.change(other)
					_, err = r.client.Do("order-1", other)
					require.ErrorIs(t, err, ErrMismatch)
					require.ErrorContains(t, err, test.says)
					require.ErrorContains(t, err, own)
					assert.Equal(t, test.hints, strings.Contains(err.Error(), hint), err)
					assert.NotContains(t, err.Error(), "hidden")
					assert.Len(t, r.arrivals(), 1)
				})
			})
		}
	}
}
