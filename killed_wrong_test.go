package idem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/journaltest"
)

// mistake is what a process does wrong on purpose: the kill loops must see it.
type mistake string

const (
	mints   mistake = "mints a key per attempt"   // in its retry loop, as the usual wrapper does
	late    mistake = "journals after the answer" // and keeps in memory what it prepares
	edits   mistake = "sends other bytes again"
	doubles mistake = "sends twice per attempt"
	invents mistake = "invents answers"
	leaves  mistake = "resumes nothing"
	mute    mistake = "tells nobody"
)

// make puts the mistake into a transport.
func (m mistake) make(t *idem.Transport) *idem.Transport {
	switch m {
	case late:
		t.Journal = &lateJournal{Journal: t.Journal, memory: journaltest.New()}
	case mints, edits, doubles, invents:
		t.Base = &wrongBase{RoundTripper: t.Base, mistake: m, seen: map[string]bool{}}
	}
	return t
}

func (m mistake) resumes() bool { return m != late && m != leaves }

// lateJournal knows an operation when it is over.
type lateJournal struct {
	idem.Journal
	memory idem.Journal
}

func (j *lateJournal) Begin(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
	return j.memory.Begin(ctx, want)
}

func (j *lateJournal) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	got, err := j.memory.Update(ctx, next, a, durable)
	if err != nil || !next.State.Final() {
		return got, err
	}
	row, outcome := next, next.Outcome
	row.ID, row.Version, row.State, row.Outcome, row.Settled, row.Attempts = "", 0, idem.StateInFlight, nil, time.Time{}, 1
	row, claimed, err := j.Journal.Begin(ctx, row)
	if err != nil || !claimed {
		return got, err
	}
	row.State, row.Outcome, row.Settled, row.Claimed, row.Attempts = next.State, outcome, next.Settled, false, next.Attempts
	_, err = j.Journal.Update(ctx, row, a, true)
	return got, err
}

// wrongBase is a base transport that does not send what it is given.
type wrongBase struct {
	http.RoundTripper
	mistake mistake
	mu      sync.Mutex
	seen    map[string]bool // keys
}

func (b *wrongBase) RoundTrip(req *http.Request) (*http.Response, error) {
	key := req.Header.Get("Idempotency-Key")
	b.mu.Lock()
	again := b.seen[key]
	b.seen[key] = true
	b.mu.Unlock()
	body := orDie(io.ReadAll(req.Body))
	req.Body.Close()
	send := func() (*http.Response, error) {
		sent := req.Clone(req.Context())
		sent.Body, sent.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if again && b.mistake == mints {
			sent.Header.Set("Idempotency-Key", strings.ToLower(rand.Text()))
		}
		return b.RoundTripper.RoundTrip(sent)
	}
	switch {
	case again && b.mistake == edits:
		body = append(body, ' ')
	case b.mistake == doubles:
		if resp, err := send(); err == nil {
			resp.Body.Close()
		}
	case b.mistake == invents:
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("invented"))}, nil
	}
	return send()
}

// Each mistake is seen by each rule that it breaks, though the others are not
// looked at, before many processes have died.
func TestKillsSeeMistakes(t *testing.T) {
	const lives = 60
	maxLife := idleLife(t)*3/2 + 20*time.Millisecond
	for _, test := range []struct {
		mistake mistake
		rules   []string
		atEnd   bool // only then
	}{
		{mints, []string{oneKey, oneEffect}, false},
		{late, []string{keyFirst, notForgot, oneKey, oneEffect}, false},
		{edits, []string{sameBytes}, false},
		{doubles, []string{counted}, false},
		{invents, []string{booksAgree, oneAnswer}, true},
		{leaves, []string{settledAll}, true},
		{mute, []string{toldOfAll}, true},
	} {
		for _, rule := range test.rules {
			for _, random := range []bool{true, false} {
				if random && test.mistake != mints && test.mistake != late {
					continue
				}
				t.Run(fmt.Sprint(test.mistake, ", ", rule, ", at random ", random), func(t *testing.T) {
					k := &killing{killedWorld: newKilledWorld(t, 1), processes: 2, lives: lives, calls: 9, wrong: test.mistake}
					k.judged = []string{rule}
					if test.atEnd {
						k.lives = 4
					}
					if random {
						k.maxLife, k.calls = maxLife, 0
					} else {
						k.point = lateIn
					}
					report, err := k.run(t.Context())
					var found violation
					require.True(t, errors.As(err, &found), "not seen in %d lives: %v", report.Lives, err)
					require.Equal(t, rule, found.rule)
					require.Positive(t, report.Killed)
					t.Logf("seen after %d of %d kills: %v", report.Killed, k.processes*k.lives, found)
				})
			}
		}
	}
}

// lateIn is the points about which an attempt is at its end, in turn.
func lateIn(life int) string {
	return fmt.Sprint([]string{"written", "answered", "record", "wait"}[life%4], ":", 1+life%7)
}

// The same processes without a mistake break no rule, though all are looked at.
func TestKillsSeeNoMistakeWhereThereIsNone(t *testing.T) {
	k := &killing{killedWorld: newKilledWorld(t, 1), processes: 2, lives: 10, calls: 9, point: lateIn}
	report := k.mustRun(t.Context())
	require.Positive(t, report.Killed)
	require.Positive(t, k.seen.Answered)
	require.Positive(t, k.seen.Told)
	require.Nil(t, k.judged)
}
