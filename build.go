package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// roomForHeaders is how many headers an attempt has besides the stored ones, mostly:
// the key, a credential, and one more.
const roomForHeaders = 3

// build makes the attempt's request: the stored bytes, the credentials of this
// call, the key.
func (x *exchange) build() (*http.Request, error) {
	t, stored := x.another(), x.in.Request
	target := &t.url
	if x.plain != "" && x.plain == stored.URL {
		*target = url.URL{Scheme: x.req.URL.Scheme, Host: x.req.URL.Host, Path: x.req.URL.Path}
	} else if parsed, err := parseStored(stored.URL); err == nil {
		target = parsed
	} else {
		return nil, errors.New("the stored URL cannot be read")
	}
	host := stored.Host
	if x.target != nil {
		target, host = x.target, x.targetHost
	}
	req := &t.request
	*req = http.Request{ // the attempt's context comes with the send
		Method: x.in.Method, URL: target, Host: host, Header: make(http.Header, len(stored.Header)+roomForHeaders),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, ContentLength: int64(len(stored.Body)),
	}
	maps.Copy(req.Header, stored.Header)
	ownValues(req.Header)
	req.Close = x.req != nil && x.req.Close
	if len(stored.Body) > 0 {
		t.body.Reset(stored.Body)
		req.Body = io.NopCloser(&t.body) // of a type in which net/http sees that it is in memory
	}
	if err := x.addCredentials(req); err != nil {
		return nil, err
	}
	if leaves(req.URL.RawQuery) { // no way leads on from here
		return nil, errors.New("the stored URL lacks what was withheld of its query")
	}
	x.setKey(req)
	x.setCompanions(req.Header)
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
		return x.addToURL(req, x.req.URL)
	case x.authorize != nil:
		ctx, cancel := context.WithTimeout(x.ctx, orDefault(x.t.Retry.AttemptTimeout, defaultAttemptTimeout))
		defer cancel()
		asked := req.Clone(ctx) // whatever it does, the request stays what it is
		asked.Body = http.NoBody
		asked.URL.RawQuery = withoutLeft(asked.URL.RawQuery)
		if err := x.authorize(asked, shown(x.in)); err != nil {
			return fmt.Errorf("authorize: %w", safe(err, x.hidden(asked)))
		}
		for name, values := range asked.Header {
			if _, stored := req.Header[name]; !stored {
				req.Header[name] = values
			}
		}
		if err := x.addToURL(req, asked.URL); err != nil {
			return fmt.Errorf("authorize: %w", err)
		}
	case len(x.in.Withheld) > 0:
		return fmt.Errorf("credentials are needed anew (%s): set Client.Authorize", strings.Join(x.in.Withheld, ", "))
	}
	return nil
}

// addToURL takes the user info from another URL, and the values that were left
// out of the stored query.
func (x *exchange) addToURL(req *http.Request, from *url.URL) error {
	if from == nil {
		from = &url.URL{}
	}
	query, missing := req.URL.RawQuery, ""
	if leaves(query) {
		if query, missing = fill(query, from.RawQuery); missing != "" {
			return fmt.Errorf("the query parameter %q is not stored and was not supplied: Client.Authorize sets it in the request's URL", missing)
		}
	}
	if from.User == nil && query == req.URL.RawQuery {
		return nil
	}
	own := *req.URL
	own.RawQuery = query
	if from.User != nil {
		own.User = from.User
	}
	req.URL = &own
	return nil
}

// setKey writes the key into its place.
func (x *exchange) setKey(req *http.Request) {
	if header := x.in.Place.Header; header != "" {
		x.now.key[0] = x.in.Place.Format(x.in.Key)
		setHeader(req.Header, header, x.now.key[:])
	}
	if req.Body == http.NoBody {
		hideFromReplay(req.Header)
	}
}

// setCompanions writes the headers that go with the key.
func (x *exchange) setCompanions(h http.Header) {
	if !keyed(x.in, x.contract) {
		return
	}
	first := x.in.FirstSent
	if first.IsZero() {
		first = x.at
	}
	for _, c := range x.contract.Companions {
		setHeader(h, c.Header, []string{c.Text(first, x.at)})
	}
}

// setHeader replaces a header in whatever spelling it is there.
func setHeader(h http.Header, name string, values []string) {
	for have := range h {
		if strings.EqualFold(have, name) {
			delete(h, have)
		}
	}
	h[http.CanonicalHeaderKey(name)] = values
}

// hideFromReplay spells the headers in lower case by which net/http knows a
// request without a body that it may send again by itself; it looks for the
// canonical spelling only (net/http Request.isReplayable, Go 1.26.8).
func hideFromReplay(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}
