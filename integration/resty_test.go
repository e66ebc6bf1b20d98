package integration

import (
	"context"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
)

func init() {
	subjects["resty"] = &subject{
		server: keyed(), client: at(keyed()), effect: says(201, charge), open: openResty, want: "201 Created ch_1",
	}
	withoutKeys("resty")
}

type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// The client makes three retries of its own.
func openResty(s site) (func(context.Context) (string, error), error) {
	api := resty.NewWithClient(s.http).SetBaseURL(s.url).SetRetryCount(3).SetRetryWaitTime(10 * time.Millisecond).SetLogger(silent{})
	return func(ctx context.Context) (string, error) {
		var made struct{ ID string }
		resp, err := api.R().SetContext(ctx).SetHeader("Content-Type", "application/json").
			SetBody(order).SetResult(&made).Post("/charges")
		if err != nil {
			return "", err
		}
		return resp.Status() + " " + made.ID, nil
	}, nil
}

func TestRestyWithoutKeys(t *testing.T) { testSentOnce(t, "resty without keys") }

func TestResty(t *testing.T) { testOneEffect(t, "resty") }
