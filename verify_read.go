package idem

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/idem-go/idem/contract"
)

// VerifyByRead returns a [Client.Verify] that asks the provider by the read
// which the intent's contract names, such as a list filtered by the key
// ([contract.Read]). An intent whose contract names none is left as it is, and so
// is one that the read does not find. An answer other than 2xx, 404 or 410, or
// one from another origin, is an error.
//
// client sends the reads and adds the credentials; an [http.Client] is one, the
// one of an SDK too. nil contracts means [contract.Known].
func VerifyByRead(client interface {
	Do(req *http.Request) (*http.Response, error)
}, contracts contract.Resolver) func(context.Context, Intent) (State, error) {
	if contracts == nil {
		contracts = contract.Known
	}
	return func(ctx context.Context, in Intent) (State, error) {
		u, err := url.Parse(in.URL)
		if err != nil {
			return StateUnknown, fmt.Errorf("idem: read the effect of %q: its URL cannot be read", in.Operation)
		}
		c := contracts.Resolve(&http.Request{Method: in.Method, URL: u})
		if c == nil || in.Place == (contract.Place{}) {
			return StateUnknown, nil
		}
		target := c.Read.Target(u, in.Key)
		if target == nil {
			return StateUnknown, nil
		}
		found, err := readBack(ctx, client.Do, target, c.Read, in.Key)
		switch {
		case err != nil:
			return StateUnknown, fmt.Errorf("idem: read the effect of %q: %w", in.Operation, err)
		case found:
			return StateSucceeded, nil
		}
		return StateUnknown, nil
	}
}

func readBack(ctx context.Context, do func(*http.Request) (*http.Response, error), target *url.URL, r contract.Read, key string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return false, err
	}
	resp, err := do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.Request != nil && resp.Request.URL != nil && origin(resp.Request.URL) != origin(target) {
		return false, fmt.Errorf("the answer came from %s", origin(resp.Request.URL))
	}
	body, err := readAll(resp.Body, resp.ContentLength, defaultMaxBody+1)
	switch {
	case err != nil:
		return false, err
	case len(body) > defaultMaxBody:
		return false, fmt.Errorf("the answer is larger than %d bytes", defaultMaxBody)
	case r.Shows(key, resp.StatusCode, resp.Header, body):
		return true, nil
	case resp.StatusCode/100 == 2, resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone:
		return false, nil
	}
	return false, fmt.Errorf("the answer has status %d", resp.StatusCode)
}
