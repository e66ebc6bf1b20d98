package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/oauth2"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// withTokens puts oauth2 on top of idem: a token that is not to be had stops a call
// before it is an operation. What is resumed has no caller who brings a token, so
// Authorize does.
func withTokens(client *idem.Client, source oauth2.TokenSource) *http.Client {
	source = oauth2.ReuseTokenSource(nil, source) // one token for both
	client.Authorize = func(req *http.Request, _ idem.Intent) error {
		token, err := source.Token()
		if err == nil {
			token.SetAuthHeader(req)
		}
		return err
	}
	sdk := client.HTTPClient()
	sdk.Transport = &oauth2.Transport{Source: source, Base: sdk.Transport}
	return sdk
}

// login is a login server that may be down.
type login struct{ up atomic.Bool }

func (l *login) Token() (*oauth2.Token, error) {
	if !l.up.Load() {
		return nil, errors.New("the login server is down")
	}
	return &oauth2.Token{AccessToken: "token-1"}, nil
}

func Example_oauth2() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()
	source := &login{}
	sdk := withTokens(client, source)

	var result idem.Result
	ctx := idem.WithResult(idem.WithOperation(context.Background(), "order-42/charge"), &result)
	call := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/charges", strings.NewReader(order))
		must(err)
		return sdk.Do(req)
	}
	_, err := call()
	_, unknown := client.Lookup(context.Background(), "order-42/charge")
	fmt.Println(err != nil, errors.Is(unknown, idem.ErrNotFound)) // nothing has begun

	source.up.Store(true)
	resp, err := call()
	must(err)
	resp.Body.Close()
	fmt.Println(resp.Status, result.Intent.State, result.Intent.Withheld)
	s.tell()
	// Output:
	// true true
	// 201 Created succeeded [Authorization]
	// 2 arrivals, 1 effects
}
