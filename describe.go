package idem

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/idem-go/idem/contract"
)

// newExchange decides what req is to the journal. An error means that it is
// refused.
func (t *Transport) newExchange(req *http.Request, c *contract.Contract) (*exchange, error) {
	ctx := req.Context()
	x := &exchange{t: t, ctx: ctx, req: req, contract: c, call: callFrom(ctx)}
	name := ""
	if x.call != nil {
		name = x.call.operation
	}
	if t.Operation != nil && (x.call == nil || !x.call.explicit) {
		name = t.Operation(req, name)
	}
	if x.call == nil || name == "" { // then a RoundTrip is a call of its own
		x.call = &call{}
	}
	x.want = Intent{Scope: t.scope(ctx), Operation: name, Name: t.Name, Method: req.Method, Generation: 1}
	if err := t.valid(c); err != nil {
		return x, err
	}
	if c != nil {
		x.want.Provider = c.Name
	}
	keys := c != nil && !c.NoKeys
	key, err := callersKey(req, c)
	if err != nil {
		return x, err
	}
	switch {
	case name != "" || key != "":
	case req.Method == http.MethodPut || req.Method == http.MethodDelete:
		x.passes = t.passRepeatable
		return x, nil
	case t.RequireOperation:
		return x, fmt.Errorf("%w: use WithOperation or Client.Do, since Transport.RequireOperation is set", ErrNoOperation)
	case !keys:
		t.tellOnce(req)
		x.passes = t.passOnce
		return x, nil
	}
	if !keys {
		t.tellOnce(req)
	}
	return x, x.describe(key)
}

// callersKey is the key that the caller or an SDK set; empty: none.
func callersKey(req *http.Request, c *contract.Contract) (string, error) {
	if c == nil || c.NoKeys {
		return "", nil
	}
	values := headerValues(req.Header, c.Key.Header)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", fmt.Errorf("request has %d %s headers", len(values), c.Key.Header)
	}
	key, err := c.Key.Parse(values[0])
	if err == nil {
		err = c.CheckKey(key)
	}
	if err != nil {
		return "", fmt.Errorf("the key in header %s is not valid: %w", c.Key.Header, err)
	}
	return key, nil
}

func (t *Transport) scope(ctx context.Context) string {
	if scope, ok := ctx.Value(scopeKey{}).(string); ok {
		return scope
	}
	return t.Scope
}

// describe reads the request into the intent that it wants.
func (x *exchange) describe(key string) error {
	t, req, c := x.t, x.req, x.contract
	if err := checkRequest(req); err != nil {
		return err
	}
	if key != "" {
		x.want.Key = key
		x.want.Adopted = adoptedIdentity(x.want.Scope, req, key, c)
	}
	x.bodyRead = true
	body, err := readBody(x.ctx, req, t.maxRequestBody())
	if err != nil {
		return safe(err, req, key, t.Secrets...)
	}
	if asksForToken(req, body) {
		x.passes = func(req *http.Request) (*http.Response, error) { return t.passRead(req, body) }
		return nil
	}
	if t.Journal == nil {
		return fmt.Errorf("%w: Transport.Journal is nil", ErrJournal)
	}
	want := &x.want
	want.State, want.Attempts = StateInFlight, 1
	want.Created = t.clock.Now()
	want.FirstSent = want.Created
	if c != nil && !c.NoKeys {
		want.Place, want.Retention = c.Key, c.Retention
		want.Expires = lastSend(*want, c)
	}
	if want.Operation != "" {
		want.Renews, _ = x.ctx.Value(renewKey{}).(string)
	}
	if key != "" {
		want.Credential = credentialDigest(req, want.Place.Header, t.Secrets, nil)
	} else if want.Key, err = x.newKey(); err != nil {
		return err
	}
	want.URL = shownURL(req.URL)
	want.Fingerprint = fingerprint(req, body, c)
	stored := &StoredRequest{URL: storedURL(req.URL), Host: otherHost(req), Body: body}
	stored.Header, want.Withheld = splitHeader(req, want.Place.Header, t.Secrets)
	want.Request = stored
	return nil
}

// newKey is the key of a new generation: random, or what Transport.Key derives
// for a named operation.
func (x *exchange) newKey() (string, error) {
	if x.t.Key == nil || x.want.Operation == "" {
		return mintKey()
	}
	in := x.want
	if in.Renews != "" {
		newest, err := x.t.Journal.Lookup(x.ctx, in.Scope, in.Operation)
		switch {
		case err == nil:
			in.Generation = newest.Generation + 1
		case !errors.Is(err, ErrNotFound):
			return "", err
		}
	}
	key := x.t.Key(in)
	var err error
	switch {
	case x.contract != nil && !x.contract.NoKeys:
		err = x.contract.CheckKey(key)
	case key == "":
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("the key from Transport.Key is not valid: %w", err)
	}
	return key, nil
}

// DeriveKeys makes keys from a secret for Transport.Key: the same operation and
// generation has the same key wherever the secret is the same, on every replica
// and on one that lost its journal. The secret must not be empty, and must stay
// what it is for as long as providers remember keys. Keys have the form of a
// UUIDv4. The returned function is safe for concurrent use.
func DeriveKeys(secret []byte) func(Intent) string {
	secret = bytes.Clone(secret)
	return func(in Intent) string {
		if len(secret) == 0 {
			return "" // refused by the transport
		}
		d := digest{hmac.New(sha256.New, secret)}
		d.field("idem derived key 1")
		d.field(in.Scope)
		d.field(in.Operation)
		d.field(strconv.Itoa(in.Generation))
		id := uuid.UUID(d.Sum(nil)[:16])
		id[6] = id[6]&0x0f | 0x40 // version 4
		id[8] = id[8]&0x3f | 0x80 // RFC 9562's variant
		return id.String()
	}
}

// mintKey makes a key of random bits, lower-case UUIDv4.
func mintKey() (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}
	return id.String(), nil
}

// asksForToken recognises an OAuth 2.0 token request (RFC 6749 4): it carries
// credentials in its body, and its answer is one.
func asksForToken(req *http.Request, body []byte) bool {
	if !strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") ||
		!bytes.Contains(body, []byte("grant_type")) {
		return false
	}
	form, err := url.ParseQuery(string(body))
	return err == nil && form.Has("grant_type")
}
