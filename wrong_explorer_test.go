package idem_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// The promises, as findings name them.
const (
	promiseKeyFirst  = "P1: key before wire"
	promiseOneKey    = "P2: one key"
	promiseSameBytes = "P3: same bytes"
	promiseOneEffect = "P4: one effect"
	promiseForgotten = "P5: never forgotten"
	promiseAnswer    = "P6: only a true and whole answer settles"
	promiseLate      = "P7: no late duplicate"
	promiseTold      = "P9: what the caller was told stays true"
	promiseOneSender = "P10: one sender"
)

// promiseOf is what each rule of a ledger's check is about.
var promiseOf = map[faultinjection.Rule]string{
	faultinjection.OneEffect: promiseOneEffect, faultinjection.OneRequest: promiseSameBytes,
	faultinjection.JournaledFirst: promiseKeyFirst, faultinjection.TrueSuccess: promiseAnswer,
	faultinjection.TrueFailure: promiseAnswer,
}

// wrongMargin is what is left of the life of explorerContract's keys when the
// last send may begin.
const wrongMargin = 10 * time.Minute

// wrong is one mistake, put into the true SDK from outside, and the world in
// which the explorer looks for it.
type wrong struct {
	name   string
	breaks []string // promises; one run must break all of them
	says   string   // and how it is said

	// The world.
	answers  []faultinjection.Fault
	attempts int                                       // of the longest script; zero: 1
	age      time.Duration                             // of the first send when a later life wakes up; zero: at once
	onItsWay bool                                      // what is first sent then arrives late
	provider func(http.RoundTripper) http.RoundTripper // nil: the reference server alone
	held     bool                                      // a right client may leave it to a person

	// The mistake.
	puts   func(dir string, t *idem.Transport)
	gaveUp func(dir string, c *idem.Client, req *http.Request, err error) error // a call has ended in err
	server faultinjection.Broken

	// covered puts the mistake into the right world in a form that something else
	// in the SDK makes harmless; how the operation ends then. nil: there is none.
	covered   func(w *wrong)
	coveredBy string // empty: as if there were no mistake
}

// right is the world without the mistake.
func (w wrong) right() wrong {
	w.puts, w.gaveUp, w.server = nil, nil, 0
	return w
}

func (w wrong) explorer() faultinjection.Explorer {
	return faultinjection.Explorer{
		Answers: w.answers, Attempts: max(w.attempts, 1), Dir: ramDisk(), Broken: w.server, Life: w.live, Check: w.check,
	}
}

// live resumes what the life before has left, and calls the operation until it
// is final or held. What it was told is in its folder: a life that is dead has
// been told nothing more.
func (w wrong) live(l *faultinjection.Life) (err error) {
	journal, err := idem.Open(filepath.Join(l.Dir, "journal.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	t := &idem.Transport{
		Journal: journal, Base: l.Transport, Contracts: explorerContract, CrashPoint: l.CrashPoint,
		Retry: idem.RetryPolicy{
			MaxAttempts: 2, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxDeaths: 100, Budget: 1000,
		},
	}
	if w.provider != nil {
		t.Base = w.provider(t.Base)
	}
	if w.puts != nil {
		w.puts(l.Dir, t)
	}
	client := idem.NewClient(t)
	if l.Number > 1 {
		w.wakeUp(l)
		if _, err := client.Resume(context.Background()); err != nil {
			return err
		}
	}
	for range 5 {
		resp, failure := client.Do("order-1", explorerRequest(l))
		if errors.Is(failure, syscall.ECONNREFUSED) {
			return failure // only the dead are told that
		}
		if err := tellLife(l, resp, failure); err != nil || failure == nil {
			return err
		}
		if w.gaveUp != nil {
			if err := w.gaveUp(l.Dir, client, explorerRequest(l), failure); err != nil {
				return err
			}
		}
		if errors.Is(failure, idem.ErrHeld) {
			return nil
		}
		time.Sleep(time.Second)
	}
	return nil // whether it may end so, the check says
}

// wakeUp lets the operation grow as old as it is to be.
func (w wrong) wakeUp(l *faultinjection.Life) {
	if w.age == 0 {
		return
	}
	first := time.Now()
	if sent := l.Script.Attempts(); len(sent) > 0 {
		first = sent[0].At
	}
	time.Sleep(time.Until(first.Add(w.age)))
	lost := !w.onItsWay
	l.Script.On(func(a faultinjection.Attempt, _ *http.Request) faultinjection.Fault {
		if lost {
			return a.Fault
		}
		lost = true
		return faultinjection.Abandon
	})
}

const toldName = "told"

// tellLife notes how a call has ended for its caller.
func tellLife(l *faultinjection.Life, resp *http.Response, failure error) error {
	text := "unknown"
	switch {
	case failure == nil:
		text = fmt.Sprint("answered ", resp.StatusCode)
		_ = resp.Body.Close()
	case errors.Is(failure, idem.ErrNotSent):
		text = "not sent"
	}
	return os.WriteFile(filepath.Join(l.Dir, toldName), []byte(text), 0o600)
}

// check looks for broken promises when all is over, requests that were late on
// their way included.
func (w wrong) check(l *faultinjection.Life) (err error) {
	time.Sleep(5 * time.Second)
	if err := l.Script.Release(context.Background()); err != nil {
		return err
	}
	journal, err := idem.Open(filepath.Join(l.Dir, "journal.db"), nil)
	if err != nil {
		return err
	}
	defer func() {
		if closed := journal.Close(); closed != nil {
			err = errors.Join(err, closed)
		}
	}()
	var found []error
	add := func(promise, format string, args ...any) {
		found = append(found, violation{promise, "order-1", fmt.Sprintf(format, args...)})
	}
	w.checkSends(l, add)
	all, err := l.Ledger.Check(journal)
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Operation == "order-1" || v.Operation == l.Operation { // the ledger has those of other runs too
			add(promiseOf[v.Rule], "%s", v.Detail)
		}
	}
	if err := w.checkEnd(l, journal, add); err != nil {
		return err
	}
	return errors.Join(found...)
}

// checkSends looks at what went out.
func (w wrong) checkSends(l *faultinjection.Life, add func(promise, format string, args ...any)) {
	sent := l.Script.Attempts()
	for i, a := range sent {
		if a.Key != sent[0].Key {
			add(promiseOneKey, "attempt %d has another key than the first", i+1)
		}
		if age := a.At.Sub(sent[0].At); age > explorerContract.Retention-wrongMargin {
			add(promiseLate, "attempt %d went out %s after the first, under a key that lives %s", i+1, age, explorerContract.Retention)
		}
	}
}

// checkEnd looks at what the journal says in the end, and the caller was told.
func (w wrong) checkEnd(l *faultinjection.Life, journal idem.Journal, add func(promise, format string, args ...any)) error {
	effects, err := l.Ledger.EffectsOf(l.Operation)
	if err != nil {
		return err
	}
	if effects > 1 {
		add(promiseOneEffect, "%d effects", effects)
	}
	told, err := os.ReadFile(filepath.Join(l.Dir, toldName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	failed := string(told) == "not sent" || strings.HasPrefix(string(told), "answered ") && string(told) != "answered 201"
	if failed && effects > 0 {
		add(promiseTold, "the caller was told %q, and it took effect", told)
	}
	switch in, err := journal.Lookup(context.Background(), "", "order-1"); {
	case errors.Is(err, idem.ErrNotFound):
		if len(l.Script.Attempts()) > 0 {
			add(promiseForgotten, "it was sent, and the journal does not know it")
		}
	case err != nil:
		return err
	case in.State == idem.StateHeld && w.held:
	case !in.State.Final():
		add(promiseForgotten, "it is %s %s in the end, and nobody settles it", in.State, in.HoldReason)
	}
	return nil
}

// seen tells whether a finding is the one that the mistake must lead to.
func (w wrong) seen(found error) bool {
	if found == nil || !strings.Contains(found.Error(), w.says) {
		return false
	}
	for _, promise := range w.breaks {
		if !strings.Contains(found.Error(), promise) {
			return false
		}
	}
	return true
}

// caught explores until the mistake is seen; the same run without the mistake
// must then be a good one.
func (w wrong) caught(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		e := w.explorer()
		var found error
		e.Check = func(l *faultinjection.Life) error {
			err := w.check(l)
			if w.seen(err) {
				found = err
				stop()
			}
			return err
		}
		done, err := e.Run(ctx)
		require.True(t, found != nil, "not caught in %d runs: %v, %v", done.Runs, done.Failures, err)
		w.tell(t, done.Runs, found)
		token := done.Failures[len(done.Failures)-1].Token
		require.True(t, w.seen(w.explorer().Replay(t.Context(), token)))
		require.NoError(t, w.right().explorer().Replay(t.Context(), token), "without the mistake")
		w.isCovered(t, token)
	})
}

// isCovered explores the mistake in its harmless form: all of it, or the run in
// which the other form was caught.
func (w wrong) isCovered(t *testing.T, token string) {
	if w.covered == nil {
		return
	}
	other := w.right()
	w.covered(&other)
	if len(other.answers) > 1 { // else it takes too long
		require.NoError(t, other.explorer().Replay(t.Context(), token), "in a form that is covered")
	} else {
		done, err := other.explorer().Run(t.Context())
		require.NoError(t, err)
		require.Empty(t, done.Failures, "in a form that is covered")
	}
	if w.coveredBy != "" {
		other.held = false
		require.ErrorContains(t, other.explorer().Replay(t.Context(), token), "it is "+w.coveredBy+" in the end")
	}
	t.Logf("%s: harmless in another form: %s", w.name, cmp.Or(w.coveredBy, "settled as without it"))
}

// tell writes a row of the table: what the mistake leads to, and what else it
// breaks.
func (w wrong) tell(t *testing.T, runs int, found error) {
	who, main, also := "client", "", []string{}
	if w.server != 0 {
		who = "server"
	}
	for _, err := range found.(interface{ Unwrap() []error }).Unwrap() {
		v, _ := err.(violation)
		promise, _, _ := strings.Cut(v.rule, ":")
		if main == "" && strings.Contains(v.detail, w.says) {
			main = v.rule + ": " + v.detail
		}
		if !slices.Contains(also, promise) {
			also = append(also, promise)
		}
	}
	slices.Sort(also)
	t.Logf("wrong %s: %s: caught by explorer after %d runs: %s (breaks %s)", who, w.name, runs, main, strings.Join(also, ", "))
}
