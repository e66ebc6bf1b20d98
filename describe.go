package idem

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	if keys && c.Key.Header == "" { // then the key is looked for in the body too
		if err := x.takeBody(); err != nil {
			return x, err
		}
		if asksForToken(req, x.body) {
			x.passes = x.whole(t.base().RoundTrip)
			return x, nil
		}
	}
	key, err := x.callersKey()
	if err != nil {
		return x, err
	}
	if key != "" && name != "" && t.Key != nil && c.Form != contract.Issued && signedBy(req.Header) == "" {
		if err := x.unusedKey(key); err != nil {
			return x, err
		}
		key = "" // an SDK mints one for each call: on another replica it would be another one
	}
	switch {
	case name != "" || key != "":
	case req.Method == http.MethodPut || req.Method == http.MethodDelete:
		x.passes = x.whole(t.passRepeatable)
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

// unusedKey refuses a key that another operation has already been sent under, and
// may have been executed: the request is that one's, under another name.
func (x *exchange) unusedKey(key string) error {
	if x.t.Journal == nil || x.req.URL == nil {
		return nil // refused for it below
	}
	want := Intent{Scope: x.want.Scope, Adopted: adoptedIdentity(x.want.Scope, x.req, key, x.contract)}
	found, class := x.t.standing(x.ctx, want)
	switch {
	case found.State == "" && class == ErrNotSent, found.Operation == x.want.Operation && found.Scope == x.want.Scope,
		found.State == StateRejected, found.State == StateWithdrawn:
		return nil
	case found.State == "":
		return fmt.Errorf("%w: whether another operation has the request's key could not be read", ErrJournal)
	}
	x.want.Adopted = want.Adopted
	return fmt.Errorf("%w: the key that came with the request belongs to operation %q, which is %s", ErrMismatch, found.Operation, found.State)
}

// callersKey is the key that the caller or an SDK set; empty: none.
func (x *exchange) callersKey() (string, error) {
	c := x.contract
	if c == nil || c.NoKeys {
		return "", nil
	}
	key, found, err := c.Key.Find(x.req.Header, x.req.URL, x.body)
	if err != nil || !found {
		return "", err
	}
	if err := c.CheckKey(key); err != nil {
		return "", fmt.Errorf("the key in %s is not valid: %w", c.Key, err)
	}
	return key, nil
}

// takeBody reads the request's body, once, after a look at the rest.
func (x *exchange) takeBody() (err error) {
	if x.bodyRead {
		return nil
	}
	if err := checkRequest(x.req); err != nil {
		return err
	}
	x.bodyRead = true
	if x.body, err = readBody(x.ctx, x.req, &x.closing, x.t.maxRequestBody()); err != nil {
		return safe(err, hidden{req: x.req, key: x.want.Key, secrets: x.t.Secrets})
	}
	return nil
}

// whole gives the request back the body that was read, if it was, for a way
// around the journal.
func (x *exchange) whole(pass func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	if !x.bodyRead {
		return pass
	}
	return func(req *http.Request) (*http.Response, error) {
		again := req.Clone(req.Context())
		again.Body, again.GetBody = http.NoBody, nil
		if len(x.body) > 0 {
			again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
			again.Body, _ = again.GetBody()
		}
		resp, err := pass(again)
		if resp != nil {
			resp.Request = req
		}
		return resp, err
	}
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
	if key != "" {
		x.want.Key = key
		x.want.Adopted = adoptedIdentity(x.want.Scope, req, key, c)
	}
	if err := x.takeBody(); err != nil {
		return err
	}
	if asksForToken(req, x.body) {
		x.passes = x.whole(t.base().RoundTrip)
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
		want.Place, want.Retention = c.Key, retention(c)
		want.Expires = lastSend(*want, c)
	}
	if want.Operation != "" {
		want.Renews, _ = x.ctx.Value(renewKey{}).(string)
	}
	target, body := req.URL, x.body
	if key != "" || c != nil && !c.NoKeys && c.CredentialPinned {
		want.Credential = credentialDigest(req, want.Place.Header, t.Secrets, nil)
	}
	if key == "" {
		if err := x.giveKey(&target, &body); err != nil {
			return err
		}
	}
	var err error
	if want.Fingerprint, err = t.fingerprint(x.print[:0], req, x.body, c); err != nil {
		return err
	}
	want.Request = &x.stored
	x.stored = StoredRequest{Host: otherHost(req), Body: body}
	x.stored.Header, want.Withheld = splitHeader(req, want.Place.Header, t.Secrets)
	if plain, ok := plainURL(req.URL); ok && target == req.URL {
		x.plain, want.URL, x.stored.URL = plain, plain, plain
		return nil
	}
	if target.RawQuery != "" && !t.seals() {
		var names []string
		target, names = withhold(target, want.Place.Param, t.Secrets)
		want.Withheld = append(want.Withheld, names...)
	}
	want.URL, x.stored.URL = shownURL(req.URL), storedURL(target)
	return nil
}

// seals reports that what the journal stores of a request is sealed.
func (t *Transport) seals() bool {
	j, ok := t.Journal.(interface{ seals() bool })
	return ok && j.seals()
}

// giveKey gives a request that came without one its key, and puts it into the
// URL or the body where its place is there.
func (x *exchange) giveKey(target **url.URL, body *[]byte) (err error) {
	place := x.want.Place
	if place != (contract.Place{}) && x.contract.Form == contract.Issued {
		return fmt.Errorf("contract %q takes only a key that the provider has issued: the request must have it in %s", x.contract.Name, place)
	}
	if x.want.Key, err = x.newKey(); err != nil || place.Pointer == "" && place.Param == "" {
		return err
	}
	if name := signedBy(x.req.Header); name != "" {
		return fmt.Errorf("the key belongs into %s, but the header %s signs the request as it is: set the key before signing", place, name)
	}
	*target, *body, err = place.Put(*target, firstValue(x.req.Header, "Content-Type"), *body, x.want.Key)
	return err
}

// rekeyed is the request with another key in its URL or body.
func (q *StoredRequest) rekeyed(place contract.Place, key string) (*StoredRequest, error) {
	target, err := parseStored(q.URL)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	next := *q
	target, next.Body, err = place.Put(target, firstValue(q.Header, "Content-Type"), q.Body, key)
	if err != nil {
		return nil, err
	}
	next.URL = storedURL(target)
	return &next, nil
}

// newKey is the key of a new generation: random, or what Transport.Key derives
// for a named operation.
func (x *exchange) newKey() (string, error) {
	if x.t.Key == nil || x.want.Operation == "" {
		return mintKey(), nil
	}
	in := x.want
	if in.Renews != "" {
		newest, err := x.t.Journal.Lookup(x.ctx, in.Scope, in.Operation)
		switch {
		case err == nil:
			in.Generation = newest.Generation + 1
		case errors.Is(err, ErrNotFound): // this would be the first generation's key once more, for another request
			return "", errors.New("this journal does not know the operation that WithRenewal renews, so Transport.Key cannot derive the next key: renew it where it was made")
		default:
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
		d := digest{hash: hmac.New(sha256.New, secret)}
		d.field("idem derived key 1")
		d.field(in.Scope)
		d.field(in.Operation)
		d.field(strconv.Itoa(in.Generation))
		d.flush()
		return keyOf([16]byte(d.hash.Sum(nil)))
	}
}

// mintKey makes a key of random bits.
func mintKey() string {
	var bits [16]byte
	rand.Read(bits[:]) // never fails
	return keyOf(bits)
}

// keyOf makes bits a lower-case UUIDv4.
func keyOf(bits [16]byte) string {
	bits[6] = bits[6]&0x0f | 0x40 // version 4
	bits[8] = bits[8]&0x3f | 0x80 // RFC 9562's variant
	return uuid.UUID(bits).String()
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
