package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// This is the retry wrapper that many programs have. It looks careful: it sends
// a key, it retries with back-off, it keeps a list of what is done and goes on
// from there after a crash. It charges customers twice all the same. See the
// lines marked WRONG.

const finishedFile = "finished.txt"

// chargeNaively charges every order that is not on the list yet.
func chargeNaively(a assignment) error {
	path := filepath.Join(a.Dir, finishedFile)
	finished, err := readFinished(path)
	if err != nil {
		return err
	}
	for order := range finished { // who was killed before saying so
		sayFinished(order)
	}
	client := &http.Client{Timeout: attemptTimeout}
	for {
		open := 0
		for _, order := range a.orders() {
			if finished[order] {
				continue
			}
			if err := sendWithRetries(client, a.URL, order); err != nil {
				// WRONG: "gave up" is read as "did not happen". The next pass,
				// or the next process, charges the order anew.
				open++
				continue
			}
			// WRONG: the list is written after the answer. Whoever is killed
			// between the charge and this line charges again after the restart,
			// and nothing on the disk says that there is anything in doubt.
			if err := appendFinished(path, order); err != nil {
				return err
			}
			finished[order] = true
			sayFinished(order)
		}
		if open == 0 {
			return nil
		}
		time.Sleep(passPause)
	}
}

// sendWithRetries sends one order until it has an answer.
func sendWithRetries(client *http.Client, provider, order string) error {
	var last error
	for attempt, wait := 0, minBackoff; attempt < maxAttempts; attempt++ {
		if attempt > 0 {
			time.Sleep(wait)
			wait = min(2*wait, maxBackoff)
		}
		req, err := newCharge(provider, order)
		if err != nil {
			return err
		}
		// WRONG: a new key for each attempt. To the provider these are
		// different charges, so that a lost answer becomes a second one. One
		// line higher up, outside of the loop, it would survive a retry; but
		// WRONG again: only in memory, so not a restart.
		req.Header.Set("Idempotency-Key", uuid.NewString())
		if last = send(client, req); last == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: gave up after %d attempts: %w", order, maxAttempts, last)
}

// send is one attempt. (Since the header is there, net/http itself sends a
// request again when a kept-alive connection breaks, with the same key. That
// saves this wrapper a few duplicates.)
func send(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
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

func readFinished(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	finished := map[string]bool{}
	for _, order := range strings.Fields(string(text)) {
		finished[order] = true
	}
	return finished, nil
}

func appendFinished(path, order string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, order)
	return errors.Join(err, f.Close())
}
