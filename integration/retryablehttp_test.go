package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	order  = `{"order":"order-42","amount":4200}`
	charge = `{"id":"ch_1","amount":4200}`
)

func init() {
	subjects["go-retryablehttp"] = &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), open: openRetryable, want: "201 Created ch_1",
	}
	withoutKeys("go-retryablehttp")
}

// The client keeps its own four retries.
func openRetryable(s site) (func(context.Context) (string, error), error) {
	api := retryablehttp.NewClient()
	api.HTTPClient, api.Logger = s.http, nil
	api.RetryWaitMin, api.RetryWaitMax = 10*time.Millisecond, 20*time.Millisecond
	return func(ctx context.Context) (string, error) {
		req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url+"/charges", strings.NewReader(order))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		return decoded(api.Do(req))
	}, nil
}

// decoded is the status and the id of an answer.
func decoded(resp *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var made struct{ ID string }
	err = json.NewDecoder(resp.Body).Decode(&made)
	return resp.Status + " " + made.ID, err
}

func TestRetryableHTTPWithoutKeys(t *testing.T) { testSentOnce(t, "go-retryablehttp without keys") }

func TestRetryableHTTP(t *testing.T) { testOneEffect(t, "go-retryablehttp") }
