package idem

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// hopExchange continues the intent whose attempt was answered by a redirect.
func (t *Transport) hopExchange(req *http.Request, hop *answered) *exchange {
	in := hop.result.Intent
	return &exchange{
		t: t, ctx: req.Context(), req: req, contract: hop.contract, call: hop.call,
		want:   Intent{ID: in.ID, Scope: in.Scope, Operation: in.Operation, Fingerprint: in.Fingerprint, Request: hop.request},
		hop:    &in,
		same:   hop.same,
		target: req.URL, targetHost: otherHost(req),
	}
}

// unfinished reports whether a redirect left the intent to the next hop.
func (a *answered) unfinished() bool {
	return a.result.Intent.ID != "" && !a.result.Intent.State.Final()
}

// followed reports whether the answer redirects to where the key may go: the
// same origin, with the same method and body.
func (x *exchange) followed(resp *http.Response) bool {
	if resp == nil || resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return false
	}
	_, err := hopTarget(resp)
	return err == nil || x.req != nil
}

// hopTarget is the redirect's target; an error where it leaves the origin.
func hopTarget(resp *http.Response) (*url.URL, error) {
	target, err := resp.Location()
	switch {
	case err != nil:
		return nil, errors.New("redirect without a usable Location")
	case resp.Request == nil || origin(target) != origin(resp.Request.URL):
		return nil, fmt.Errorf("redirect to another origin, %s", origin(target))
	}
	return target, nil
}

// keyedTarget is the redirect's target with the key, where it goes into the
// query. A key in the body is in the stored one.
func (x *exchange) keyedTarget(target *url.URL) (*url.URL, error) {
	if x.in.Place.Param == "" {
		return target, nil
	}
	stored := x.in.Request
	target, _, err := x.in.Place.Put(target, firstValue(stored.Header, "Content-Type"), stored.Body, x.in.Key)
	return target, err
}

// aim gives a hop's target the key; false where that cannot be.
func (x *exchange) aim() bool {
	target, err := x.keyedTarget(x.target)
	if err == nil {
		x.target = target
	}
	return err == nil
}

const maxHops = 10

// follow goes on to a redirect's target where no http.Client does.
func (x *exchange) follow(next Intent, s sent, v verdict, done *Attempt) *answer {
	target, err := hopTarget(s.resp)
	if err == nil {
		target, err = x.keyedTarget(target)
	}
	if err != nil {
		return x.conclude(next, v, done, s)
	}
	if s.open {
		drain(s.resp.Body)
	}
	next = afterAttempt(next, v)
	next.Due, next.Wait = time.Time{}, 0
	if next, err = x.record(next, done, true); err != nil {
		return x.unrecorded(s, err)
	}
	if location, err := url.Parse(s.resp.Header.Get("Location")); err == nil && location.Host != "" {
		x.targetHost = ""
	} else if x.target == nil {
		x.targetHost = x.in.Request.Host
	}
	x.in, x.target = next, target
	x.hops++
	return nil
}

// withoutCopied drops from a request that follows an answered one what
// http.Client copies to it: the key, and on another origin every header of the
// caller's, of which net/http takes Authorization and Cookie away only, and
// those not on the way to http or another port. The Referer, which it adds,
// shows the query.
func withoutCopied(req *http.Request) *http.Request {
	prior := req.Response
	for answeredFrom(prior) == nil {
		if prior == nil || prior.Request == nil {
			return req
		}
		prior = prior.Request.Response
	}
	key, first := answeredFrom(prior).result.Intent.Place.Header, prior.Request
	away := req.URL == nil || origin(req.URL) != origin(first.URL)
	if !away && (key == "" || len(headerValues(req.Header, key)) == 0) {
		return req
	}
	clean := req.Clone(req.Context())
	for name := range clean.Header {
		_, copied := first.Header[name]
		isKey := key != "" && strings.EqualFold(name, key)
		if isKey || away && (name == "Referer" || copied && !slices.Contains(tellNothing, name)) {
			delete(clean.Header, name)
		}
	}
	return clean
}

// tellNothing are the headers that may go to another origin.
var tellNothing = []string{"Accept", "Accept-Language", "User-Agent"}
