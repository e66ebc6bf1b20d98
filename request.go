package idem

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/idem-go/idem/contract"
)

// onceBody closes a request's body exactly once, from whichever path comes
// first: the reader, an early return, or the caller's context.
type onceBody struct {
	io.ReadCloser
	once sync.Once
	err  error
}

func (b *onceBody) Close() error {
	b.once.Do(func() { b.err = b.ReadCloser.Close() })
	return b.err
}

// readBody reads the request's body whole and closes it. A read that blocks
// ends with ctx.
func readBody(ctx context.Context, req *http.Request, body *onceBody, limit int64) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	body.ReadCloser = req.Body
	defer body.Close()
	if req.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { body.Close() })
		defer stop()
	}
	data, err := readAll(body, req.ContentLength, limit+1)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("read request body: %w", err)
	case int64(len(data)) > limit:
		return nil, bodyTooLarge(limit)
	case req.ContentLength > 0 && int64(len(data)) != req.ContentLength:
		return nil, fmt.Errorf("request body has %d bytes, ContentLength says %d", len(data), req.ContentLength)
	}
	return data, nil
}

func bodyTooLarge(limit int64) error {
	return fmt.Errorf("request body is larger than Transport.MaxRequestBody, %d bytes: raise it to journal this request", limit)
}

// readAll reads at most limit bytes, into one allocation where the size is
// known.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	const first = 512
	room := int64(first)
	if size >= 0 && size < limit {
		room = size + 1 // one more, so that EOF is seen without growing
	}
	buf := make([]byte, 0, min(room, limit))
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) >= limit {
				return buf, nil
			}
			buf = slices.Grow(buf, min(len(buf)+first, int(limit)-len(buf)))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), int(limit))])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil || int64(len(buf)) >= limit {
			return buf, err
		}
	}
}

// checkRequest refuses what could not be sent, or not sent again as it was.
func checkRequest(req *http.Request) error {
	switch {
	case req.URL == nil || req.URL.Host == "" || req.URL.Opaque != "":
		return errors.New("request URL has no host, or is opaque")
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("request URL has scheme %q, not http or https", req.URL.Scheme)
	case strings.ContainsFunc(req.URL.RawQuery, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("request URL has a control character in its query")
	case len(req.Trailer) > 0:
		return errors.New("request has trailers, which cannot be journaled")
	case len(headerValues(req.Header, "Upgrade")) > 0:
		return errors.New("request asks for an upgrade of the connection, which cannot be journaled")
	case !validToken(req.Method):
		return fmt.Errorf("request method %q is not valid", req.Method)
	}
	for name, values := range req.Header {
		if !validToken(name) {
			return fmt.Errorf("request header name %q is not valid", name)
		}
		if slices.ContainsFunc(values, invalidValue) {
			return fmt.Errorf("request header %q has a value that is not valid", name)
		}
	}
	return nil
}

// notToken are the bytes that are in no token (RFC 9110 5.6.2).
var notToken = func() (not [256]bool) {
	for c := range not {
		not[c] = c <= ' ' || c >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, rune(c))
	}
	return not
}()

func validToken(s string) bool {
	for i := range len(s) {
		if notToken[s[i]] {
			return false
		}
	}
	return s != ""
}

// invalidValue reports control characters other than a tab (RFC 9110 5.5).
func invalidValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}

// origin is scheme, host and port, in one spelling.
func origin(u *url.URL) string { return string(appendOrigin(nil, u)) }

func appendOrigin(to []byte, u *url.URL) []byte {
	scheme := strings.ToLower(u.Scheme)
	host, port := strings.ToLower(u.Hostname()), u.Port()
	switch {
	case port != "":
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	to = append(append(to, scheme...), "://"...)
	return append(append(append(to, host...), ':'), port...)
}

// plainURL is u as it is both shown and stored, where it has only what is read
// again as it was: most have.
func plainURL(u *url.URL) (plain string, ok bool) {
	if u.Path == "" || u.Path[0] != '/' || *u != (url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}) {
		return "", false
	}
	name, port, has := strings.Cut(u.Host, ":")
	if name == "" || has && port == "" || strings.Trim(port, "0123456789") != "" {
		return "", false
	}
	for i := range len(name) {
		if c := name[i]; !isPlain(c) {
			return "", false
		}
	}
	for i := range len(u.Path) {
		if c := u.Path[i]; !isPlain(c) && c != '/' && c != '_' {
			return "", false
		}
	}
	return u.Scheme + "://" + u.Host + u.Path, true
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.'
}

// ownValues gives h values of its own, in one piece of memory.
func ownValues(h http.Header) {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	all := make([]string, 0, n)
	for name, values := range h {
		from := len(all)
		all = append(all, values...)
		h[name] = all[from:len(all):len(all)]
	}
}

// headerValues finds a header whatever its letter case in the map.
func headerValues(h http.Header, name string) []string {
	if values, ok := h[http.CanonicalHeaderKey(name)]; ok && len(h) == 1 {
		return values
	}
	var all []string
	for k, values := range h {
		if strings.EqualFold(k, name) {
			all = append(all, values...)
		}
	}
	return all
}

func firstValue(h http.Header, name string) string {
	if values := headerValues(h, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// signedBy names a header that a change of the URL or the body would make
// wrong: a digest of the body (RFC 9530, RFC 1864) or a signature over both
// (RFC 9421, AWS Signature Version 4, and what calls itself one).
func signedBy(h http.Header) string {
	for name, values := range h {
		lower := strings.ToLower(name)
		switch {
		case lower == "content-md5", lower == "digest", lower == "content-digest", lower == "repr-digest",
			lower == "x-amz-content-sha256", strings.Contains(lower, "signature"), strings.Contains(lower, "hmac"):
			return name
		case lower == "authorization" && len(values) > 0 &&
			(strings.HasPrefix(values[0], "AWS4-") || strings.HasPrefix(values[0], "Signature ")):
			return name
		}
	}
	return ""
}

// digest takes length-prefixed fields, so that no two lists of fields give the
// same bytes.
type digest struct {
	hash hash.Hash
	buf  []byte // fields that the hash has not seen yet
}

var digests = sync.Pool{New: func() any { return &digest{hash: sha256.New()} }}

// newDigest begins a SHA-256 over fields, the first of which says what it is of.
func newDigest(what string) *digest {
	d := digests.Get().(*digest)
	d.hash.Reset()
	d.buf = d.buf[:0]
	d.field(what)
	return d
}

// sum ends it, and appends to room; d is not used after it.
func (d *digest) sum(room []byte) []byte {
	d.flush()
	sum := d.hash.Sum(room)
	digests.Put(d)
	return sum
}

func (d *digest) flush() {
	d.hash.Write(d.buf) // never fails
	d.buf = d.buf[:0]
}

func (d *digest) field(s string) {
	d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(len(s)))
	d.buf = append(d.buf, s...)
}

func (d *digest) bytes(b []byte) {
	d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(len(b)))
	d.flush()
	d.hash.Write(b) // never fails
}

func (d *digest) headers(h http.Header, names []string) {
	for _, name := range names {
		values := headerValues(h, name)
		d.field(strings.ToLower(name))
		d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(len(values)))
		for _, value := range values {
			d.field(value)
		}
	}
}

// fingerprint is what makes a request the same request: method, URL, Host, the
// contract's scope headers, and the body, or what Transport.Fingerprint makes of it.
// It is appended to sum.
func (t *Transport) fingerprint(sum []byte, req *http.Request, body []byte, c *contract.Contract) ([]byte, error) {
	if t.Fingerprint == nil {
		return fingerprint(sum, req, body, c), nil
	}
	u, body := blanked(req.URL, req.Header, body, c)
	body, err := t.compared(req, body)
	return digestRequest(sum, req, u.RawQuery, body, c), err
}

// fingerprint is that of a request whose body counts byte for byte.
func fingerprint(sum []byte, req *http.Request, body []byte, c *contract.Contract) []byte {
	u, body := blanked(req.URL, req.Header, body, c)
	return digestRequest(sum, req, u.RawQuery, body, c)
}

func digestRequest(sum []byte, req *http.Request, query string, body []byte, c *contract.Contract) []byte {
	d := newDigest("idem fingerprint 1")
	d.field(req.Method)
	var room [128]byte
	place := appendOrigin(room[:0], req.URL)
	d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(len(place)))
	d.buf = append(d.buf, place...)
	d.field(req.URL.EscapedPath())
	d.field(query)
	if host := otherHost(req); strings.EqualFold(host, req.URL.Host) {
		d.field("")
	} else {
		d.field(host)
	}
	d.bytes(body)
	if c != nil && c.Form == contract.Issued && c.Key.Header != "" { // it says what the request is about
		d.headers(req.Header, []string{c.Key.Header})
	}
	if c != nil {
		d.headers(req.Header, c.ScopeHeaders)
	}
	return d.sum(sum)
}

// blanked is the URL and the body without the key, which is not part of what is
// the same request, unless it is one that the provider issued: that says what the
// request is about.
func blanked(u *url.URL, h http.Header, body []byte, c *contract.Contract) (*url.URL, []byte) {
	if c == nil || c.NoKeys || c.Form == contract.Issued {
		return u, body
	}
	return c.Key.Blank(u, firstValue(h, "Content-Type"), body)
}

// compared is what counts of a body that is without the key. The function gets
// copies: what is sent is not for it to change.
func (t *Transport) compared(req *http.Request, body []byte) ([]byte, error) {
	if t.Fingerprint == nil {
		return body, nil
	}
	shown := req.Clone(req.Context())
	shown.Body, shown.GetBody = http.NoBody, nil
	same, err := t.Fingerprint(shown, bytes.Clone(body))
	if err != nil {
		return nil, fmt.Errorf("what counts of the body is not known (Transport.Fingerprint): %w", safe(err, hidden{req: req, body: body, secrets: t.Secrets}))
	}
	return same, nil
}

// otherHost is the Host header where it is not the URL's.
func otherHost(req *http.Request) string {
	if req.Host == req.URL.Host {
		return ""
	}
	return req.Host
}

// adoptedIdentity identifies a key that the caller set.
func adoptedIdentity(scope string, req *http.Request, key string, c *contract.Contract) []byte {
	d := newDigest("idem adopted key 1")
	d.field(scope)
	d.field(origin(req.URL))
	d.field(key)
	d.headers(req.Header, c.ScopeHeaders)
	return d.sum(nil)
}

const saltSize = 16

// credentialDigest is a salted digest of who is calling: the credentials that
// came with the request, apart from the key; nil where it came with none.
func credentialDigest(req *http.Request, keyHeader string, secrets []string, salt []byte) []byte {
	var names []string
	for name := range req.Header {
		if !strings.EqualFold(name, keyHeader) && identifies(name, secrets) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && req.URL.User == nil {
		return nil
	}
	slices.Sort(names)
	if salt == nil {
		salt = make([]byte, saltSize)
		rand.Read(salt) // never fails
	}
	d := digest{hash: hmac.New(sha256.New, salt)}
	d.headers(req.Header, names)
	d.field(req.URL.User.String())
	d.flush()
	return append(salt[:saltSize:saltSize], d.hash.Sum(nil)...)
}

// sameCredential compares the request's credential with a stored digest.
func sameCredential(req *http.Request, keyHeader string, secrets []string, stored []byte) bool {
	if len(stored) < saltSize {
		return credentialDigest(req, keyHeader, secrets, nil) == nil
	}
	return hmac.Equal(credentialDigest(req, keyHeader, secrets, stored[:saltSize]), stored)
}
