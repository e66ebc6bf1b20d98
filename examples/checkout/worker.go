package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// Both workers have the same patience.
const (
	maxAttempts    = 4 // of one order in one pass
	minBackoff     = 5 * time.Millisecond
	maxBackoff     = 100 * time.Millisecond
	attemptTimeout = 300 * time.Millisecond
	passPause      = 50 * time.Millisecond // between two passes over the orders
)

const journalFile = "payments.db"

// chargeWithIdem charges every order once. It is the program of the README in a
// loop, and the same after a crash as before it: nothing is read back by hand,
// and no key is seen.
func chargeWithIdem(a assignment) (err error) {
	journal, err := idem.Open(filepath.Join(a.Dir, journalFile), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	client, err := newClient(journal, a.URL)
	if err != nil {
		return err
	}
	for {
		// What an earlier process left in doubt goes first, under its old key.
		if _, err := client.Resume(context.Background()); err != nil {
			return err
		}
		open := 0
		for _, order := range a.orders() {
			settled, err := chargeOrder(client, a.URL, order)
			if err != nil {
				return err
			}
			if settled {
				sayFinished(order)
			} else {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		time.Sleep(passPause)
	}
}

func newClient(journal idem.Journal, provider string) (*idem.Client, error) {
	u, err := url.Parse(provider)
	if err != nil {
		return nil, err
	}
	return idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: api.At(u.Host),
		// Short waits, since this provider is on loopback and fails on purpose.
		// MaxDeaths is far above its default of 3 for the same reason: here a
		// death in the middle of an attempt says nothing about the request, as
		// somebody kills us all the time. Leave all of them out elsewhere.
		Retry: idem.RetryPolicy{
			MaxAttempts:    maxAttempts,
			MaxDeaths:      1000,
			MinBackoff:     minBackoff,
			MaxBackoff:     maxBackoff,
			AttemptTimeout: attemptTimeout,
		},
	}), nil
}

// chargeOrder reports whether the order is charged. An order that was charged
// before, by an earlier process too, is answered from the journal.
func chargeOrder(client *idem.Client, provider, order string) (bool, error) {
	req, err := newCharge(provider, order)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(order+"/charge", req)
	switch {
	case errors.Is(err, idem.ErrHeld), errors.Is(err, idem.ErrJournal):
		return false, err // a person must look at it
	case errors.Is(err, idem.ErrUnknownOutcome), errors.Is(err, idem.ErrNotSent):
		return false, nil // not settled yet: the next pass goes on, under the same key
	case err != nil:
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return false, fmt.Errorf("%s: the provider said %s", order, resp.Status)
	}
	return true, nil
}

// newCharge is the request of an order, the same bytes in every attempt.
func newCharge(provider, order string) (*http.Request, error) {
	body := fmt.Sprintf(`{"order":%q,"amount":4200}`, order)
	req, err := http.NewRequest(http.MethodPost, provider+"/charges", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// The rest has to do with this example only: how a worker is told what to do,
// and how it says what it did.

const (
	workerEnv = "CHECKOUT_WORKER" // its value is the assignment

	modeNaive = "naive"
	modeIdem  = "idem"

	wordUp       = "up"       // the process runs
	wordFinished = "finished" // and the order

	exitFailed = 3 // unlike what a killed process exits with
)

// assignment is what a worker is told by its parent.
type assignment struct {
	Mode, Dir, URL string
	Orders         int
}

// orders names the orders, from "order-1".
func (a assignment) orders() []string {
	names := make([]string, a.Orders)
	for i := range names {
		names[i] = fmt.Sprintf("order-%d", i+1)
	}
	return names
}

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// workerMain is main of a worker process. It returns the exit status: 0 once
// every order is settled.
func workerMain() int {
	go endWithParent()
	fmt.Println(wordUp)
	var a assignment
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &a)
	switch {
	case err != nil:
	case a.Mode == modeNaive:
		err = chargeNaively(a)
	default:
		err = chargeWithIdem(a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}

// endWithParent ends the process when its parent is gone, however that went: the
// parent holds the other end of stdin.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
	os.Exit(exitFailed)
}

func sayFinished(order string) { fmt.Println(wordFinished, order) }
