package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// books are both sides of the idem run: our journal and the provider's ledger.
type books struct {
	entries  []entry // by age
	arrivals []faultinjection.Arrival
	effects  []faultinjection.Effect
	answers  map[string]storedAnswer // the provider's, by key
}

// entry is one operation in the journal.
type entry struct {
	intent   idem.Intent
	attempts []idem.Attempt
}

// storedAnswer is what the provider keeps under a key.
type storedAnswer struct {
	replayed bool // false: it knows nothing of the key
	status   int
	body     []byte
}

// readBooks reads what a run left in its directory.
func readBooks(ctx context.Context, dir string) (b books, err error) {
	journal, err := idem.Open(filepath.Join(dir, journalFile), &idem.SQLiteOptions{MustExist: true})
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	if b.entries, err = readEntries(ctx, journal); err != nil {
		return b, err
	}
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, ledgerFile))
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	if b.arrivals, err = ledger.Arrivals(); err != nil {
		return b, err
	}
	if b.effects, err = ledger.Effects(); err != nil {
		return b, err
	}
	b.answers, err = askAgain(ctx, ledger, b.effects)
	return b, err
}

// readEntries reads the whole journal, a page at a time.
func readEntries(ctx context.Context, journal idem.Journal) ([]entry, error) {
	var all []entry
	for after := ""; ; {
		page, err := journal.List(ctx, idem.Filter{After: after})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return all, nil
		}
		for _, in := range page {
			whole, err := journal.Lookup(ctx, in.Scope, in.Operation) // with the body
			if err != nil {
				return nil, err
			}
			attempts, err := journal.Attempts(ctx, in)
			if err != nil {
				return nil, err
			}
			all = append(all, entry{whole, attempts})
		}
		after = page[len(page)-1].ID
	}
}

// askAgain sends every charge once more under its key, to a new life of the
// provider without faults: it must answer from its store. That adds arrivals to
// the ledger, so it comes after all counting.
func askAgain(ctx context.Context, ledger *faultinjection.Ledger, effects []faultinjection.Effect) (map[string]storedAnswer, error) {
	client := &http.Client{Transport: faultinjection.NewServer(api, ledger).Transport()}
	answers := map[string]storedAnswer{}
	for _, e := range effects {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider/charges", bytes.NewReader(e.Body))
		if err != nil {
			return nil, err
		}
		req.Header.Set(api.Key.Header, e.Key)
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, err
		}
		answers[e.Key] = storedAnswer{api.Replayed.Matches(resp.Header), resp.StatusCode, body}
	}
	return answers, nil
}

// check returns everything that is not as it must be.
func check(c config, r report) []string {
	var wrong complaints
	wrong.unless(r.idem.charges == c.orders && r.idem.duplicates == 0 && r.idem.lost == 0,
		"idem: %d charges for %d orders, %d duplicates, %d lost", r.idem.charges, c.orders, r.idem.duplicates, r.idem.lost)
	wrong.unless(r.naive.duplicates > 0,
		"naive: no duplicates, so the faults were too kind to prove anything")
	wrong.unless(c.kills == 0 || r.naive.kills > 0 && r.idem.kills > 0,
		"kills: %d and %d, so no restart was tested", r.naive.kills, r.idem.kills)
	wrong.unless(r.broken.Duplicates > 0,
		"check, then insert: no duplicates among %d requests", r.broken.Requests)
	wrong.unless(r.atomic.Effects == 1 && r.atomic.Answers == 1,
		"atomic claim: %d effects and %d different answers, not one", r.atomic.Effects, r.atomic.Answers)

	wrong.unless(len(r.books.entries) == c.orders, "journal: %d operations for %d orders", len(r.books.entries), c.orders)
	for _, order := range (assignment{Orders: c.orders}).orders() {
		i := slices.IndexFunc(r.books.entries, func(e entry) bool { return e.intent.Operation == order+"/charge" })
		if i < 0 {
			wrong.say("%s: not in the journal", order)
			continue
		}
		wrong.compare(order, r.books.entries[i], r.books)
	}
	return wrong
}

type complaints []string

func (w *complaints) say(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

func (w *complaints) unless(fine bool, format string, args ...any) {
	if !fine {
		w.say(format, args...)
	}
}

// compare holds one operation of the journal against the provider's ledger.
func (w *complaints) compare(order string, e entry, b books) {
	in := e.intent
	w.unless(in.State == idem.StateSucceeded && !in.Doubt, "%s: the journal says %s, doubt %t", order, in.State, in.Doubt)
	w.unless(in.Attempts == len(e.attempts), "%s: the journal counts %d attempts and lists %d", order, in.Attempts, len(e.attempts))

	arrived := 0
	for _, a := range b.arrivals {
		if a.Operation == order {
			arrived++
			w.unless(len(a.Keys) == 1 && a.Keys[0] == in.Key, "%s: arrival %d came with another key", order, a.Number)
		}
	}
	w.unless(arrived <= in.Attempts, "%s: %d arrivals, but only %d attempts in the journal", order, arrived, in.Attempts)

	var charges []faultinjection.Effect
	for _, effect := range b.effects {
		if effect.Operation == order {
			charges = append(charges, effect)
		}
	}
	if len(charges) != 1 {
		w.say("%s: the ledger has %d charges", order, len(charges))
		return
	}
	w.unless(charges[0].Key == in.Key, "%s: charged under another key than the journal's", order)
	answer := b.answers[charges[0].Key]
	switch {
	case in.Outcome == nil:
		w.say("%s: the journal has no answer", order)
	case !answer.replayed:
		w.say("%s: the provider has no answer", order)
	default:
		w.unless(in.Outcome.StatusCode == answer.status && in.Outcome.Complete && bytes.Equal(in.Outcome.Body, answer.body),
			"%s: the journal's answer (%d, %d bytes) is not the provider's (%d, %d bytes)",
			order, in.Outcome.StatusCode, len(in.Outcome.Body), answer.status, len(answer.body))
	}
}
