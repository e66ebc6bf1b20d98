package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// books are the three sides: the shop's database, the journal and the
// provider's ledger.
type books struct {
	rows     map[string]row // the shop's orders, by id
	intents  map[string]idem.Intent
	arrivals []faultinjection.Arrival
	effects  []faultinjection.Effect
}

// row is an order in the shop's database.
type row struct {
	cents         int
	state, answer string
}

const sqlRows = `SELECT id, cents, state, answer FROM orders`

// readBooks reads what the processes left in the directory.
func readBooks(ctx context.Context, dir string, ledger *faultinjection.Ledger) (b books, err error) {
	if b.rows, err = readRows(ctx, dir); err != nil {
		return b, err
	}
	if b.intents, err = readIntents(ctx, dir); err != nil {
		return b, err
	}
	if b.arrivals, err = ledger.Arrivals(); err != nil {
		return b, err
	}
	b.effects, err = ledger.Effects()
	return b, err
}

func readRows(ctx context.Context, dir string) (all map[string]row, err error) {
	db, err := openDatabase(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, sqlRows)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = map[string]row{}
	for rows.Next() {
		var id string
		var r row
		if err := rows.Scan(&id, &r.cents, &r.state, &r.answer); err != nil {
			return nil, err
		}
		all[id] = r
	}
	return all, rows.Err()
}

func readIntents(ctx context.Context, dir string) (all map[string]idem.Intent, err error) {
	journal, err := idem.Open(filepath.Join(dir, journalFile), &idem.SQLiteOptions{MustExist: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	all = map[string]idem.Intent{}
	for f := (idem.Filter{}); ; {
		page, err := journal.List(ctx, f)
		if err != nil || len(page) == 0 {
			return all, err
		}
		for _, in := range page {
			whole, err := journal.Lookup(ctx, in.Scope, in.Operation) // with the answer
			if err != nil {
				return nil, err
			}
			all[in.Operation] = whole
		}
		f.After = page[len(page)-1].ID
	}
}

type complaints []string

func (w *complaints) unless(fine bool, format string, args ...any) {
	if !fine {
		*w = append(*w, fmt.Sprintf(format, args...))
	}
}

// check returns everything that is not as it must be.
func check(c config, r report) []string {
	var wrong complaints
	b := r.books
	wrong.unless(len(b.rows) == c.orders, "shop: %d orders, not %d", len(b.rows), c.orders)
	wrong.unless(len(b.intents) == c.orders, "journal: %d operations for %d orders", len(b.intents), c.orders)
	for _, moment := range []string{stopPlacing, stopSettling, stopNowhere} {
		wrong.unless(c.kills == 0 || r.kills[moment] > 0, "no kill of the kind %q, so it was not tested", moment)
	}
	for n := 1; n <= c.orders; n++ {
		wrong.order(newOrder(n), b, r.told)
	}
	known := 0
	for n := 1; n <= c.orders; n++ {
		known += len(b.charges(newOrder(n).id))
	}
	wrong.unless(known == len(b.effects), "provider: %d charges that no order asked for", len(b.effects)-known)
	return wrong
}

// order holds the three books against each other.
func (w *complaints) order(o order, b books, told map[string]int) {
	mine, known := b.rows[o.id]
	in, journaled := b.intents[o.id+chargeSuffix]
	w.unless(known, "%s: not in the shop's database", o.id)
	w.unless(journaled, "%s: not in the journal", o.id)
	if !known || !journaled {
		return
	}
	state, end, charges := statePaid, idem.StateSucceeded, 1
	if o.cents > maxCents {
		state, end, charges = stateRefused, idem.StateRejected, 0
	}
	w.unless(mine.cents == o.cents, "%s: %d cents in the shop's database, not %d", o.id, mine.cents, o.cents)
	w.unless(mine.state == state, "%s: the shop has it as %s, not %s", o.id, mine.state, state)
	w.unless(in.State == end && !in.Doubt, "%s: the journal says %s, doubt %t", o.id, in.State, in.Doubt)
	w.unless(told[o.id] > 0 && !in.Notify, "%s: the shop was told %d times, and is still to be told: %t", o.id, told[o.id], in.Notify)
	w.unless(in.Outcome != nil && string(in.Outcome.Body) == mine.answer && mine.answer != "",
		"%s: the shop's answer is not that of the journal", o.id)

	made := b.charges(o.id)
	w.unless(len(made) == charges, "%s: charged %d times, not %d", o.id, len(made), charges)
	for _, e := range made {
		w.unless(e.Key == in.Key, "%s: charged under another key than the journal's", o.id)
	}
	arrived := 0
	for _, a := range b.arrivals {
		if a.Operation == o.id {
			arrived++
			w.unless(len(a.Keys) == 1 && a.Keys[0] == in.Key, "%s: arrival %d came with another key", o.id, a.Number)
		}
	}
	w.unless(arrived <= in.Attempts, "%s: %d arrivals, but only %d attempts in the journal", o.id, arrived, in.Attempts)
}

func (b books) charges(id string) (made []faultinjection.Effect) {
	for _, e := range b.effects {
		if e.Operation == id {
			made = append(made, e)
		}
	}
	return made
}
