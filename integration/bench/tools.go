package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// kind is one of the things that are compared.
type kind struct {
	name   string
	module string // its own; empty: the standard library
	open   func(site) (*tool, error)
	speed  bool // in the table of speed
	kills  bool // in the table of kills
}

// kinds are in the order of the tables. The first one is what the others are
// compared with.
var kinds = []kind{
	{"http.Client", "", openBare, true, true},
	{"go-retryablehttp", "github.com/hashicorp/go-retryablehttp", openRetryable(mint), true, true},
	{"go-retryablehttp, key of the order", "github.com/hashicorp/go-retryablehttp", openRetryable(ofOrder), false, true},
	{"failsafehttp", "github.com/failsafe-go/failsafe-go", openFailsafe, true, true},
	{"stripe-go", "github.com/stripe/stripe-go/v85", openStripe, true, true},
	{"DBOS, key minted in the step", "github.com/dbos-inc/dbos-transact-golang", openDBOS(false, false), false, true},
	{"DBOS, key is the workflow's id", "github.com/dbos-inc/dbos-transact-golang", openDBOS(true, false), true, true},
	{"DBOS, commits synced", "", openDBOS(true, true), true, false},
	{"River, key minted in the worker", "github.com/riverqueue/river", openRiver(false), false, true},
	{"River, key in the job's args", "github.com/riverqueue/river", openRiver(true), true, true},
	{"idem", "", openIdem, true, true},
}

func kindNamed(name string) (kind, error) {
	for _, k := range kinds {
		if k.name == name {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("nothing is named %q", name)
}

// site is where a tool works.
type site struct {
	dir string // for what it keeps on the disk
	url string // of the provider
	// told is called when the answer of an order that was accepted is known,
	// perhaps more than once.
	told func(order string)
}

// tool is one of the kinds, open. All but close may be called at the same time.
type tool struct {
	// ask has an order charged, and waits for the answer. nil means that the
	// charge is known to have been made.
	ask func(order string) error
	// accept returns when the order is kept where a crash does not reach it. nil
	// means that there is no such place.
	accept func(order string) error
	// audit waits until nothing is open, and tells the orders whose charge is
	// recorded as made. nil means that nothing is recorded.
	audit func(ctx context.Context, made func(order string)) error
	close func() error
}

// All have the same patience, where they let it be chosen.
const (
	retries        = 4 // after the first attempt
	minWait        = 10 * time.Millisecond
	maxWait        = 100 * time.Millisecond
	attemptTimeout = 3 * time.Second
)

// filler makes bodies of about 512 bytes.
var filler = strings.Repeat("x", 440)

func body(order string) string {
	return fmt.Sprintf(`{"order":%q,"amount":4200,"filler":%q}`, order, filler)
}

const keyHeader = "Idempotency-Key"

// base is a transport of its own for each tool, wide enough for all callers.
func base() *http.Transport {
	return &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512}
}

func newRequest(ctx context.Context, url, order, key string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(body(order)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	return req, nil
}

// charged reads an answer to its end.
func charged(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return errors.New(resp.Status)
	}
	return nil
}

// version is that of a module in this build.
func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
