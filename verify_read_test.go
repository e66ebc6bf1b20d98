package idem

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// The answer is lost and the process dies; Run finds the effect by the list's
// filter, settles the operation, and sends nothing again.
func TestVerifyByRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known *contract.Contract
		path  string
		serve func(key string, r *http.Request) (string, any) // where the read must go, and its answer
	}{
		{"increase", contract.Increase, "/ach_transfers", func(key string, _ *http.Request) (string, any) {
			return "/ach_transfers?idempotency_key=" + key, map[string]any{"data": []any{
				map[string]any{"id": "ach_0", "idempotency_key": "another"}, map[string]any{"id": "ach_1", "idempotency_key": key},
			}}
		}},
		{"lithic", contract.LithicPayments, "/v1/payments", func(key string, _ *http.Request) (string, any) {
			return "/v1/payments/" + key, map[string]any{"token": key, "status": "PENDING"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var posts, reads []string
			var key string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					posts = append(posts, r.RequestURI)
					panic(http.ErrAbortHandler)
				}
				reads = append(reads, r.RequestURI)
				_, answer := tt.serve(key, r)
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer server.Close()
			journal, err := Open(filepath.Join(t.TempDir(), "journal.db"), nil)
			require.NoError(t, err)
			defer journal.Close()
			c := tt.known.At(strings.TrimPrefix(server.URL, "http://"))
			client := NewClient(&Transport{
				Journal: journal, Contracts: c,
				Retry: RetryPolicy{MaxAttempts: 1, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond},
			})
			client.Verify = VerifyByRead(server.Client(), c)
			_, err = client.Do("payout-1", placed(t, server.URL, tt.path, "application/json", `{"amount":1}`))
			require.ErrorIs(t, err, ErrUnknownOutcome)
			in, err := client.Lookup(context.Background(), "payout-1")
			require.NoError(t, err)
			key = in.Key

			report, err := client.Resume(context.Background())
			require.NoError(t, err)
			require.Equal(t, 1, report.Settled)
			in, err = client.Lookup(context.Background(), "payout-1")
			require.NoError(t, err)
			require.Equal(t, StateSucceeded, in.State)
			require.Len(t, posts, 1)
			want, _ := tt.serve(key, nil)
			require.Equal(t, []string{want}, reads)
		})
	}
}

// What the read does not show proves nothing, and what it could not show is an
// error.
func TestVerifyByRead_ProvesNothing(t *testing.T) {
	const key = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	in := Intent{
		Operation: "payout-1", Key: key, Method: http.MethodPost, URL: "https://api.increase.com/ach_transfers",
		Place: contract.Increase.Key,
	}
	for _, tt := range []struct {
		name   string
		status int
		body   string
		in     func(*Intent)
		from   string // the answer's URL, after redirects
		err    string
	}{
		{name: "an empty list", status: 200, body: `{"data":[]}`},
		{name: "a server that ignores the filter", status: 200, body: `{"data":[{"idempotency_key":"other"}]}`},
		{name: "not found", status: 404, body: `{}`},
		{name: "refused", status: 401, body: `{}`, err: "status 401"},
		{name: "down", status: 503, body: `{"data":[{"idempotency_key":"` + key + `"}]}`, err: "status 503"},
		{name: "too large", status: 200, body: strings.Repeat(" ", defaultMaxBody+1), err: "larger"},
		{name: "another server", status: 200, body: `{"data":[{"idempotency_key":"` + key + `"}]}`, from: "https://evil.example/", err: "came from https://evil.example:443"},
		{name: "no contract", in: func(in *Intent) { in.URL = "https://api.example.com/" }},
		{name: "no read", in: func(in *Intent) { in.URL = "https://api.stripe.com/v1/charges" }},
		{name: "no key was sent", in: func(in *Intent) { in.Place = contract.Place{} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := in
			if tt.in != nil {
				tt.in(&in)
			}
			client := doer(func(req *http.Request) (*http.Response, error) {
				if tt.status == 0 {
					return nil, errors.New("nothing is to be read")
				}
				rec := httptest.NewRecorder()
				rec.WriteHeader(tt.status)
				rec.WriteString(tt.body)
				resp := rec.Result()
				resp.Request = req
				if tt.from != "" {
					resp.Request = mustRequest(t, req.Context(), tt.from, "")
				}
				return resp, nil
			})
			state, err := VerifyByRead(client, nil)(context.Background(), in)
			require.Equal(t, StateUnknown, state)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
				require.NotContains(t, err.Error(), key)
			}
		})
	}
}

// doer is a client made of a function.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(req *http.Request) (*http.Response, error) { return d(req) }
