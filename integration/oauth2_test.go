package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

func init() {
	subjects["oauth2 on top"] = &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), front: issuesTokens, want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) {
			return posts(oauth2.NewClient(through(s.http), tokens(s.url, s.http)), s.url), nil
		},
	}
	subjects["oauth2 below"] = &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), front: issuesTokens, want: "201 Created ch_1",
		setup: func(t *idem.Transport, url string) {
			t.Base = &oauth2.Transport{Source: tokens(url, http.DefaultClient)}
		},
		open: func(s site) (func(context.Context) (string, error), error) { return posts(s.http, s.url), nil },
	}
	withoutKeys("oauth2 on top")
}

// through has oauth2 use this client, for tokens and for all else.
func through(client *http.Client) context.Context {
	return context.WithValue(context.Background(), oauth2.HTTPClient, client)
}

func tokens(url string, client *http.Client) oauth2.TokenSource {
	config := clientcredentials.Config{ClientID: "shop", ClientSecret: "s3cret", TokenURL: url + "/token"}
	return config.TokenSource(through(client))
}

// issuesTokens gives every process a token of its own.
func issuesTokens(server http.Handler) http.Handler {
	var issued atomic.Int32
	mux := http.NewServeMux()
	mux.Handle("/", server)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, issued.Add(1))
	})
	return mux
}

func TestOAuth2WithoutKeys(t *testing.T) { testSentOnce(t, "oauth2 on top without keys") }

func TestOAuth2OnTop(t *testing.T) { testOneEffect(t, "oauth2 on top") }
func TestOAuth2Below(t *testing.T) { testOneEffect(t, "oauth2 below") }

// A resume needs a token of its own. Below there is one; on top, only the
// client's Authorize has one.
func TestOAuth2Resume(t *testing.T) {
	t.Parallel()
	for name, authorize := range map[string]bool{"oauth2 on top": true, "oauth2 below": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, name, faultinjection.Hold)
			w.killedWhileHeld()
			l := w.live()
			if authorize {
				source := tokens(w.url, l.client.HTTPClient())
				l.client.Authorize = func(req *http.Request, _ idem.Intent) error {
					token, err := source.Token()
					if err == nil {
						token.SetAuthHeader(req)
					}
					return err
				}
			}
			report, err := l.client.Resume(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, report.Settled, "%+v", report)
			arrivals, err := w.ledger.Arrivals()
			require.NoError(t, err)
			require.Len(t, arrivals, 2)
			assert.Equal(t, "Bearer token-1", arrivals[0].Header.Get("Authorization"))
			assert.Equal(t, "Bearer token-2", arrivals[1].Header.Get("Authorization"))
			w.repeats(l)
			w.once(l)
		})
	}
}

type noToken struct{}

var errNoToken = errors.New("the login server is down")

func (noToken) Token() (*oauth2.Token, error) { return nil, errNoToken }

// unsent says of a token that is not to be had that nothing was sent.
type unsent struct{ oauth2.TokenSource }

func (u unsent) Token() (*oauth2.Token, error) {
	token, err := u.TokenSource.Token()
	if err != nil {
		err = fmt.Errorf("%w: %w", idem.ErrNotSent, err)
	}
	return token, err
}

// Below, a token that is not to be had looks like an attempt that nobody has
// seen, which is doubt, unless its source says that nothing was sent.
func TestOAuth2BelowWithoutAToken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source oauth2.TokenSource
		want   error
	}{
		"plain":  {noToken{}, idem.ErrUnknownOutcome},
		"unsent": {unsent{noToken{}}, idem.ErrNotSent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "oauth2 below")
			l := w.live()
			l.client.Transport.Base.(*oauth2.Transport).Source = test.source
			_, err := l.do(t.Context())
			require.ErrorIs(t, err, test.want)
			require.ErrorIs(t, err, errNoToken)
			assert.Zero(t, w.counts().Arrivals)
		})
	}
}
