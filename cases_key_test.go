package idem

import (
	"context"
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
	"github.com/idem-go/idem/faultinjection"
)

// sameBody is a base transport that notes whether it was handed the caller's
// own body, and answers with one that it knows again.
type sameBody struct {
	want, gave io.ReadCloser
	same       bool
	keys       int
}

func (b *sameBody) RoundTrip(req *http.Request) (*http.Response, error) {
	b.same = req.Body == b.want
	b.keys += len(headerValues(req.Header, "Idempotency-Key"))
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: b.gave, ContentLength: -1, Request: req}, nil
}

func TestO36_SafeMethodsAreNotJournaled(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		t.Run(method, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t)
				ctx := WithOperation(t.Context(), "order-1") // a name does not change it
				for _, do := range []func(*http.Request) (*http.Response, error){r.transport.RoundTrip, r.client.HTTPClient().Do} {
					req := mustRequest(t, ctx, rigURL, "")
					req.Method, req.Body, req.GetBody = method, nil, nil
					resp, err := do(req)
					require.NoError(t, err)
					readAndClose(t, resp)
					_, journaled := ResultFrom(resp)
					assert.False(t, journaled)
				}
				require.Len(t, r.arrivals(), 2)
				for _, a := range r.arrivals() {
					assert.Empty(t, a.Keys)
					assert.Equal(t, method, a.Method)
				}
				base := &sameBody{want: io.NopCloser(strings.NewReader("asked")), gave: io.NopCloser(strings.NewReader("answered"))}
				r.transport.Base = base
				req := mustRequest(t, ctx, rigURL, "")
				req.Method, req.Body, req.GetBody, req.ContentLength = method, base.want, nil, 5
				resp, err := r.transport.RoundTrip(req)
				require.NoError(t, err)
				assert.True(t, base.same, "the request's body is not buffered")
				assert.True(t, resp.Body == base.gave, "nor is the answer's")
				assert.Zero(t, base.keys)
				requireNoIntent(t, r)
			})
		})
	}
}

func requireNoIntent(t *testing.T, r *rig) {
	t.Helper()
	all, err := r.journal.List(t.Context(), Filter{})
	require.NoError(t, err)
	require.Empty(t, all)
}

// PUT and DELETE are journaled when they have a name or a key of the caller's.
func TestO36_PutAndDelete(t *testing.T) {
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		request := func(t *testing.T, ctx context.Context) *http.Request {
			req := mustRequest(t, ctx, rigURL, orderBody(1))
			req.Method = method
			return req
		}
		t.Run(method+" unnamed", func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.Status(503))
				resp, err := r.transport.RoundTrip(request(t, t.Context()))
				require.NoError(t, err)
				readAndClose(t, resp)
				require.Len(t, r.arrivals(), 2, "sent again in memory: such a method may be (RFC 9110 9.2.2)")
				for _, a := range r.arrivals() {
					assert.Empty(t, a.Keys)
					assert.Equal(t, orderBody(1), string(a.Body))
				}
				requireNoIntent(t, r)
			})
		})
		for name, call := range map[string]func(*testing.T, *rig) error{
			"named": func(t *testing.T, r *rig) error {
				_, err := r.client.Do("order-1", request(t, t.Context()))
				return err
			},
			"named by the context": func(t *testing.T, r *rig) error {
				_, err := r.transport.RoundTrip(request(t, WithOperation(t.Context(), "order-1")))
				return err
			},
			"with a key of the caller's": func(t *testing.T, r *rig) error {
				req := request(t, t.Context())
				req.Header.Set("Idempotency-Key", "own-key")
				_, err := r.transport.RoundTrip(req)
				return err
			},
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := newRig(t, faultinjection.DieAfterEffect)
					r.transport.Retry.MaxAttempts = 1
					requireUnknown(t, call(t, r), StateUnknown)
					r.reopen()
					time.Sleep(time.Minute)
					report, err := r.client.Resume(t.Context())
					require.NoError(t, err)
					assert.Equal(t, 1, report.Settled)
					r.sameKeyAndBytes(2)
					assert.Equal(t, method, r.arrivals()[1].Method)
					assert.Equal(t, 1, r.effects())
				})
			})
		}
		t.Run(method+" no longer in the contract", func(t *testing.T) { // between first send and resume
			virtually(t, func(t *testing.T) {
				r := newRig(t, faultinjection.DieAfterEffect)
				r.transport.Retry.MaxAttempts = 1
				_, err := r.client.Do("order-1", request(t, t.Context()))
				requireUnknown(t, err, StateUnknown)
				posts := rigContract()
				posts.Methods = []string{http.MethodPost}
				r.transport.Contracts = posts
				r.reopen()
				time.Sleep(time.Minute)
				report, err := r.client.Resume(t.Context())
				require.NoError(t, err)
				require.Len(t, report.Held, 1)
				assert.Equal(t, HoldNoContract, report.Held[0].HoldReason)
				assert.Len(t, r.arrivals(), 1, "never sent bare")
			})
		})
	}
}

func TestO37_ContentNeverMakesTheKey(t *testing.T) {
	volatile := func(n int) string {
		return fmt.Sprintf(`{"order":"order-1","amount":4200,"created_at":"2026-11-29T12:00:%02dZ","nonce":"%08x"}`, n, n*40503)
	}
	for name, derive := range map[string]func(Intent) string{"random keys": nil, "derived keys": DeriveKeys([]byte("secret"))} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, restart), func(t *testing.T) {
				virtually(t, func(t *testing.T) {
					r := newRig(t, faultinjection.DieAfterEffect)
					r.transport.Retry.MaxAttempts = 1
					r.transport.Key = derive
					_, _, err := r.do(t.Context(), "order-1", volatile(1))
					requireUnknown(t, err, StateUnknown)
					first := r.lookup("order-1")
					if restart {
						r.reopen()
						r.transport.Key = derive
					}
					for n := 2; n <= 4; n++ {
						_, _, err = r.do(t.Context(), "order-1", volatile(n))
						require.ErrorIs(t, err, ErrMismatch)
						assert.NotContains(t, err.Error(), "nonce")
					}
					assert.Len(t, r.arrivals(), 1, "refused before a send")
					time.Sleep(time.Minute)
					resp, err := r.client.Continue(t.Context(), "order-1")
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Equal(t, first.Key, r.sameKeyAndBytes(2), "the stored bytes under the same key")
					assert.Equal(t, volatile(1), string(r.arrivals()[1].Body))
					assert.Equal(t, 1, r.effects())
					_, _, err = r.do(t.Context(), "order-1", volatile(5))
					require.ErrorIs(t, err, ErrMismatch, "final: not the answer to another question either")
					assert.Len(t, r.arrivals(), 2)
				})
			})
		}
	}
}

// One key never carries two byte strings: resume sends the stored bytes, and a
// re-issue with other bytes is another request, as documented.
func TestO43_OneKeyOneByteString(t *testing.T) {
	const (
		first     = `{"order":"order-77","amount":10.10,"currency":"EUR","lines":[{"sku":"b","n":2},{"sku":"a","n":1}], "note": "caf\u00e9"}`
		reordered = `{"currency":"EUR","order":"order-77","amount":10.10,"note":"café","lines":[{"n":2,"sku":"b"},{"n":1,"sku":"a"}]}`
		numbers   = `{"order":"order-77","amount":10.1,"currency":"EUR","lines":[{"sku":"b","n":2},{"sku":"a","n":1}], "note": "caf\u00e9"}`
	)
	require.JSONEq(t, first, reordered)
	require.JSONEq(t, first, numbers)
	killed := func(t *testing.T) *realRig {
		r := newRealRig(t, faultinjection.Hold)
		p := startChild(t, "call", r.path, r.url, "order-77/charge", first, "1", "")
		r.awaitHeld(1)
		p.kill()
		r.server.Release()
		return r
	}
	resumed := func(t *testing.T, r *realRig) {
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, report.Settled)
		r.settledOnce()
		require.Len(t, r.arrivals(), 2)
		assert.Equal(t, first, string(r.arrivals()[1].Body), "byte for byte")
	}
	t.Run("resume", func(t *testing.T) { resumed(t, killed(t)) })
	t.Run("re-issue", func(t *testing.T) {
		r := killed(t)
		for _, body := range []string{reordered, numbers, first + " "} {
			_, err := r.client.Do("order-77/charge", mustRequest(t, t.Context(), r.url+"/charges", body))
			require.ErrorIs(t, err, ErrMismatch)
		}
		assert.Len(t, r.arrivals(), 1)
		resumed(t, r)
	})
	t.Run("re-issue with the same bytes", func(t *testing.T) {
		r := killed(t)
		resp, err := r.client.Do("order-77/charge", mustRequest(t, t.Context(), r.url+"/charges", first))
		require.NoError(t, err)
		readAndClose(t, resp)
		r.settledOnce()
		assert.Equal(t, first, string(r.arrivals()[1].Body))
	})
}

// badKeys are refused wherever they come from.
var badKeys = map[string]string{
	"empty": "", "blank": " ", "blanks": "   ", "blank inside": "a b", "300 characters": strings.Repeat("k", 300),
	"line break": "key\r\nX-Injected: 1", "newline": "key\n", "non-ASCII": "schlüssel", "control": "key\x00",
}

func TestO51_BadKeysAreRefusedHere(t *testing.T) {
	for name, key := range badKeys {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			refused := func(err error) {
				t.Helper()
				require.ErrorIs(t, err, ErrNotSent)
				require.NotErrorIs(t, err, ErrUnknownOutcome)
				if strings.TrimSpace(key) != "" {
					assert.NotContains(t, err.Error(), key)
				}
				requireNoIntent(t, r)
				assert.Empty(t, r.arrivals())
			}
			for _, operation := range []string{"", "order-1"} {
				req := mustRequest(t, WithOperation(t.Context(), operation), rigURL, orderBody(1))
				req.Header["Idempotency-Key"] = []string{key}
				_, err := r.transport.RoundTrip(req)
				refused(err)
			}
			r.transport.Key = func(Intent) string { return key }
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			refused(err)
		})
	}
}

func TestO51_KeyLimitsAreSetPerHost(t *testing.T) {
	virtually(t, func(t *testing.T) {
		long, uuid := rigContract(), rigContract()
		long.MaxLength = 400
		uuid.Form = contract.UUID
		short := rigContract()
		short.MaxLength = 40
		r := newRigFor(t, long)
		r.transport.Contracts = contract.First(long.At("long.example"), short.At("short.example"), uuid.At("uuid.example"))
		keys := map[string]string{
			"300": strings.Repeat("k", 300), "401": strings.Repeat("k", 401), "41": strings.Repeat("k", 41),
			"40": strings.Repeat("k", 40), "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e",
		}
		taken := map[string][]string{
			"long.example": {"300", "41", "40", "uuid"}, "short.example": {"40", "uuid"}, "uuid.example": {"uuid"},
		}
		want := 0
		for host, good := range taken {
			for name, key := range keys {
				req := mustRequest(t, t.Context(), "http://"+host+"/"+name, orderBody(1))
				req.Header.Set("Idempotency-Key", key)
				resp, err := r.transport.RoundTrip(req)
				if !assert.Equal(t, slices.Contains(good, name), err == nil, "%s at %s: %v", name, host, err) {
					continue
				}
				if err == nil {
					readAndClose(t, resp)
					want++
				} else {
					require.ErrorIs(t, err, ErrNotSent)
				}
			}
		}
		assert.Len(t, r.arrivals(), want)
		all, err := r.journal.List(t.Context(), Filter{})
		require.NoError(t, err)
		assert.Len(t, all, want)
	})
}

func TestO51_GeneratedKeysSuitEveryProvider(t *testing.T) {
	const n = 100_000
	seen := make(map[string]bool, 2*n)
	derive := DeriveKeys([]byte("secret"))
	check := func(key string) {
		seen[key] = true
		if len(key) > 64 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			require.FailNow(t, "not portable", key)
		}
		require.NoError(t, (&contract.Contract{Key: contract.Place{Header: "K"}, MaxLength: 36, Form: contract.UUID}).CheckKey(key))
	}
	for i := range n {
		key := mintKey()
		check(key)
		check(derive(Intent{Operation: fmt.Sprintf("order-%d", i), Generation: 1}))
	}
	assert.Equal(t, 2*n, len(seen), "no two alike")

	virtually(t, func(t *testing.T) { // and they are what goes out
		r := newRig(t)
		for i := range 20 {
			resp, err := r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(i)))
			require.NoError(t, err)
			readAndClose(t, resp)
		}
		sent := map[string]bool{}
		for _, a := range r.arrivals() {
			require.Len(t, a.Keys, 1)
			assert.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, a.Keys[0])
			sent[a.Keys[0]] = true
		}
		assert.Len(t, sent, 20)
	})
}

func TestO58_ConfiguredHeaderIsOnTheWire(t *testing.T) {
	const place = "X-Request-Idem"
	named := contract.Keyed(place, 24*time.Hour)
	bare := func(t *testing.T, arrivals []faultinjection.Arrival) {
		t.Helper()
		for _, a := range arrivals {
			assert.Empty(t, a.Header.Values("Idempotency-Key"), "not under another name")
			assert.Len(t, a.Header.Values(place), 1)
		}
	}
	t.Run("503, then 200", func(t *testing.T) {
		virtually(t, func(t *testing.T) {
			r := newRigFor(t, named, faultinjection.Status(503))
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.NoError(t, err)
			r.sameKeyAndBytes(2)
			bare(t, r.arrivals())
		})
	})
	t.Run("kill, and resume under another default", func(t *testing.T) {
		r := newRigFor(t, named, faultinjection.Hold)
		running, err := r.server.Listen()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, running.Close()) })
		held := &realRig{rig: r, url: running.URL}
		p := startChild(t, "cases/send", r.path, running.URL, place, "")
		held.awaitHeld(1)
		p.kill()
		r.server.Release()

		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		r.transport.Base, r.transport.Contracts = base, rigContract() // Idempotency-Key now
		r.client.Authorize = func(*http.Request, Intent) error { return nil }
		report, err := r.client.Resume(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, report.Settled)
		r.sameKeyAndBytes(2)
		bare(t, r.arrivals())
		assert.Equal(t, 1, r.effects())
		assert.Equal(t, place, r.lookup("order-1").Place.Header)
	})
	t.Run("empty name", func(t *testing.T) {
		empty := contract.Keyed("", 24*time.Hour)
		require.ErrorContains(t, empty.Validate(), "Key.Header")
		for name, contracts := range map[string]contract.Resolver{
			"alone": empty, "bound to a host": empty.At("provider.example"), "one of several": contract.First(contract.Known, empty),
		} {
			r := newRig(t)
			r.transport.Contracts = contracts
			_, _, err := r.do(t.Context(), "order-1", orderBody(1))
			require.ErrorIs(t, err, ErrNotSent, name)
			assert.ErrorContains(t, err, "Key.Header", name)
			_, err = r.transport.RoundTrip(mustRequest(t, t.Context(), rigURL, orderBody(1)))
			require.ErrorIs(t, err, ErrNotSent, name)
			requireNoIntent(t, r)
			assert.Empty(t, r.arrivals())
		}
	})
}
