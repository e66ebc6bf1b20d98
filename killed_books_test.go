package idem_test

import (
	"io"
	"os"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// compare holds the whole journal against the provider's ledger, row by row.
func (w *killedWorld) compare(f *findings, journal idem.Journal) error {
	effects := map[string][]faultinjection.Effect{}
	all, err := w.ledger.Effects()
	if err != nil {
		return err
	}
	for _, e := range all {
		effects[e.Operation] = append(effects[e.Operation], e)
	}
	listed := map[string]bool{}
	succeeded := 0
	for page := (idem.Filter{}); ; {
		rows, err := journal.List(w.Context(), page)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			if listed[row.Operation] {
				f.add(oneKey, row.Operation, "listed twice")
			}
			listed[row.Operation] = true
			if row.State == idem.StateSucceeded {
				succeeded++
			}
			if err := w.row(f, journal, row, effects[row.Operation]); err != nil {
				return err
			}
		}
		page.After = rows[len(rows)-1].ID
	}
	if succeeded != len(all) {
		f.add(booksAgree, "all", "%d effects, and %d operations that succeeded", len(all), succeeded)
	}
	for name, o := range w.operations {
		if !listed[name] {
			w.missing(f, o)
		}
	}
	w.seen.Operations = len(listed)
	return nil
}

// row is one operation when all is over.
func (w *killedWorld) row(f *findings, journal idem.Journal, listed idem.Intent, effects []faultinjection.Effect) error {
	in, err := journal.Lookup(w.Context(), "", listed.Operation)
	if err != nil {
		return err
	}
	attempts, err := journal.Attempts(w.Context(), in)
	if err != nil {
		return err
	}
	o := w.operation(in.Operation)
	w.found(f, o, in)
	if len(attempts) != in.Attempts {
		f.add(counted, o.name, "%d attempts are listed, and %d counted", len(attempts), in.Attempts)
	}
	for _, a := range attempts {
		if a.Decision == "interrupted" {
			w.seen.Interrupted++
		}
	}
	if in.Resumes > 0 {
		w.seen.Resumed++
	}
	if in.Doubt || in.Notify {
		f.add(settledAll, o.name, "doubt %t, to be told %t", in.Doubt, in.Notify)
	}
	switch in.State {
	case idem.StateSucceeded:
		if len(effects) != 1 || effects[0].Key != in.Key || string(effects[0].Body) != killedBody(o.name) {
			f.add(booksAgree, o.name, "key %s succeeded, and the effects are %+v", in.Key, effects)
		}
		if in.Outcome == nil || !in.Outcome.Complete {
			f.add(booksAgree, o.name, "its answer is not whole")
		}
		if (o.prepared || in.Prepared || in.Resumes > 0) && o.tells == 0 {
			f.add(toldOfAll, o.name, "prepared %t, %d resumes, and nobody was told", in.Prepared, in.Resumes)
		}
	case idem.StateWithdrawn:
		if len(effects) > 0 {
			f.add(booksAgree, o.name, "withdrawn, and the effects are %+v", effects)
		}
	default:
		f.add(settledAll, o.name, "%s", in.State)
	}
	return nil
}

// readOn returns what was written to the file since the last time.
func readOn(f *os.File) (string, error) {
	text, err := io.ReadAll(f)
	return string(text), err
}
