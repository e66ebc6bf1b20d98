package idem_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// killedWorld is what outlives the processes: a provider, the journal, and what
// they noted.
type killedWorld struct {
	*testing.T
	seed    uint64
	journal string
	ledger  *faultinjection.Ledger
	server  *faultinjection.Server
	url     string
	notes   *os.File
	held    *os.File // read by the processes; ends with the test
	judged  []string // rules; nil: all of them
	calm    atomic.Bool

	mu      sync.Mutex
	fresh   []faultinjection.Arrival // since the last look
	answers map[string]string        // of the provider, by operation

	operations map[string]*killedOperation
	ended      map[string]bool // numbers of lives that ended by themselves
	seen       killedCounts
}

// killedOperation is what is known of one operation without the journal.
type killedOperation struct {
	name            string
	key             string // of its arrivals
	arrivals        int
	acknowledged    bool // a call returned that knew it as journaled
	prepared        bool
	answered, tells int
}

// killedCounts show that something happened at all.
type killedCounts struct {
	Works                          int // processes that had opened the journal
	Operations, Arrivals           int
	Answered, Prepared, Told, Open int // notes
	Interrupted, Resumed           int // attempts, and operations
}

func (c *killedCounts) add(more killedCounts) {
	c.Works += more.Works
	c.Operations += more.Operations
	c.Arrivals += more.Arrivals
	c.Answered += more.Answered
	c.Prepared += more.Prepared
	c.Told += more.Told
	c.Open += more.Open
	c.Interrupted += more.Interrupted
	c.Resumed += more.Resumed
}

// violation is a promise that was broken.
type violation struct{ rule, operation, detail string }

func (v violation) Error() string { return fmt.Sprintf("%s: %s: %s", v.rule, v.operation, v.detail) }

// The rules.
const (
	oneEffect   = "one effect"
	oneKey      = "one key"
	sameBytes   = "same bytes"
	oneAnswer   = "one answer"
	keyFirst    = "key before wire"
	counted     = "counted before sent"
	notForgot   = "never forgotten"
	settledAll  = "settled in the end"
	booksAgree  = "the books agree"
	toldOfAll   = "OnSettled is told"
	journalGood = "the journal's file is whole"
)

func newKilledWorld(t *testing.T, seed uint64) *killedWorld {
	dir := t.TempDir()
	w := &killedWorld{
		T: t, seed: seed, journal: filepath.Join(dir, "journal.db"),
		answers: map[string]string{}, operations: map[string]*killedOperation{}, ended: map[string]bool{},
	}
	var err error
	w.ledger, err = faultinjection.OpenLedger(filepath.Join(dir, "ledger.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.ledger.Close()) })
	w.server = faultinjection.NewServer(killedContract(), w.ledger)
	w.server.Each(w.arrive)
	w.server.Effect = w.effect
	running, err := w.server.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Close()) })
	w.url = running.URL

	w.notes, err = os.Create(filepath.Join(dir, "notes"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.notes.Close()) })
	held, end, err := os.Pipe()
	require.NoError(t, err)
	w.held = held
	t.Cleanup(func() {
		require.NoError(t, held.Close())
		require.NoError(t, end.Close())
	})
	return w
}

// arrive notes an arrival, and loses a tenth of them before the effect and a
// tenth after it.
func (w *killedWorld) arrive(a faultinjection.Arrival) faultinjection.Step {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh = append(w.fresh, a)
	if w.calm.Load() {
		return faultinjection.Run
	}
	random := rand.New(rand.NewPCG(w.seed, uint64(a.Number)))
	faults := []faultinjection.Step{
		faultinjection.LoseRequest, faultinjection.DieBeforeEffect, faultinjection.DieAfterEffect, faultinjection.CutAnswer,
	}
	if i := random.IntN(5 * len(faults)); i < len(faults) {
		return faults[i]
	}
	return faultinjection.Run
}

// effect gives each execution an answer of its own.
func (w *killedWorld) effect(r *http.Request, body []byte) (int, http.Header, []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := strings.Split(string(body), `"`)[3]
	answer := fmt.Sprintf(`{"id":"ch_%x"}`, rand.Uint64())
	w.answers[name] = fmt.Sprint(http.StatusCreated, " ", answer)
	return http.StatusCreated, nil, []byte(answer)
}

// life is a process of this world.
func (w *killedWorld) life(number, round int) killedLife {
	return killedLife{Journal: w.journal, Server: w.url, Notes: w.notes.Name(), Number: number, Round: round}
}

func (w *killedWorld) operation(name string) *killedOperation {
	o := w.operations[name]
	if o == nil {
		o = &killedOperation{name: name}
		w.operations[name] = o
	}
	return o
}

// findings are violations of the rules that are judged.
type findings struct {
	world *killedWorld
	all   []error
}

func (f *findings) add(rule, operation, format string, args ...any) {
	if f.world.judged == nil || slices.Contains(f.world.judged, rule) {
		f.all = append(f.all, violation{rule, operation, fmt.Sprintf(format, args...)})
	}
}

func (f *findings) err() error {
	return errors.Join(f.all[:min(len(f.all), 10)]...)
}

// check looks at what dead processes left: at what is new in it, and in the end
// at everything.
func (w *killedWorld) check(last bool) error {
	f := &findings{world: w}
	touched := map[string]*killedOperation{}
	w.readArrivals(f, touched)
	if err := w.readNotes(f, touched); err != nil {
		return err
	}
	counts, err := w.ledger.Counts()
	if err != nil {
		return err
	}
	if counts.Duplicates > 0 {
		f.add(oneEffect, "all", "%d effects of %d operations", counts.Effects, counts.Operations)
	}
	if err := w.readJournal(f, touched, last); err != nil {
		return err
	}
	return f.err()
}

// readArrivals holds what arrived against what arrived before.
func (w *killedWorld) readArrivals(f *findings, touched map[string]*killedOperation) {
	w.mu.Lock()
	fresh := w.fresh
	w.fresh = nil
	w.mu.Unlock()
	for _, a := range fresh {
		o := w.operation(a.Operation)
		touched[o.name] = o
		w.seen.Arrivals++
		if len(a.Keys) != 1 {
			f.add(oneKey, o.name, "%d keys in one request", len(a.Keys))
			continue
		}
		if o.arrivals++; o.arrivals == 1 {
			o.key = a.Keys[0]
		}
		if a.Keys[0] != o.key {
			f.add(oneKey, o.name, "key %s arrived, and before it %s", a.Keys[0], o.key)
		}
		if request := fmt.Sprint(a.Method, " ", a.URI, " ", string(a.Body)); request != "POST /charges "+killedBody(o.name) {
			f.add(sameBytes, o.name, "%s", request)
		}
	}
}

// readNotes reads what the processes noted since the last look.
func (w *killedWorld) readNotes(f *findings, touched map[string]*killedOperation) error {
	text, err := readOn(w.notes)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		line, whole := strings.CutSuffix(strings.TrimSpace(line), noteEnd)
		if !whole {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		name, answer, _ := strings.Cut(rest, " ")
		switch word {
		case "works":
			w.seen.Works++
			continue
		case "ended":
			w.ended[name] = true
			continue
		}
		o := w.operation(name)
		o.acknowledged, touched[name] = true, o
		switch word {
		case "prepared":
			o.prepared = true
			w.seen.Prepared++
		case "open":
			w.seen.Open++
		case "answered":
			o.answered++
			w.seen.Answered++
			w.sameAnswer(f, o, "a call", answer)
		case "told":
			o.tells++
			w.seen.Told++
			w.sameAnswer(f, o, "OnSettled", answer)
		default:
			return fmt.Errorf("a note that is none: %q", line)
		}
	}
	return nil
}

func (w *killedWorld) sameAnswer(f *findings, o *killedOperation, who, answer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer != w.answers[o.name] {
		f.add(oneAnswer, o.name, "%s was told %q, and the provider has %q", who, answer, w.answers[o.name])
	}
}

// readJournal opens the journal as the next process would.
func (w *killedWorld) readJournal(f *findings, touched map[string]*killedOperation, last bool) (err error) {
	if len(touched) == 0 && !last {
		return nil // nobody came so far
	}
	journal, err := idem.Open(w.journal, nil)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, journal.Close())
		if err == nil && last {
			err = w.sound(f)
		}
	}()
	for _, o := range touched {
		in, err := journal.Lookup(w.Context(), "", o.name)
		switch {
		case errors.Is(err, idem.ErrNotFound):
			w.missing(f, o)
		case err != nil:
			return err
		default:
			w.found(f, o, in)
		}
	}
	if last {
		return w.compare(f, journal)
	}
	return nil
}

func (w *killedWorld) missing(f *findings, o *killedOperation) {
	if o.arrivals > 0 {
		f.add(keyFirst, o.name, "%d arrivals, and the journal does not know it", o.arrivals)
	}
	if o.acknowledged {
		f.add(notForgot, o.name, "a call returned that had journaled it, and the journal does not know it")
	}
}

// found is a row at any moment.
func (w *killedWorld) found(f *findings, o *killedOperation, in idem.Intent) {
	if o.arrivals > 0 && o.key != in.Key {
		f.add(oneKey, o.name, "key %s arrived, and the journal has %s", o.key, in.Key)
	}
	if o.arrivals > in.Attempts {
		f.add(counted, o.name, "%d arrivals of %d attempts", o.arrivals, in.Attempts)
	}
	switch {
	case in.State == idem.StateSucceeded:
		w.sameAnswer(f, o, "the journal", killedOutcome(in))
	case in.State == idem.StateHeld, in.State == idem.StateRejected, in.State == idem.StateWithdrawn && (o.prepared || o.answered > 0):
		f.add(notForgot, o.name, "it is %s (%s), prepared %t, answered %d times", in.State, in.HoldReason, o.prepared, o.answered)
	}
}

// sound checks the journal's file.
func (w *killedWorld) sound(f *findings) (err error) {
	db, err := sql.Open("sqlite", "file:"+w.journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		f.add(journalGood, "all", "%s", found)
	}
	return nil
}
