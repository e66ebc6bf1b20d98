package idem

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

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
	req.Close = x.req != nil && x.req.Close
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
