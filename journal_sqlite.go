package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/internal/sqlite"
)

// defaultPruneAfter is the age at which bodies go where the options say none.
const defaultPruneAfter = 720 * time.Hour

// defaultLimit is the page of a [Filter] that names none.
const defaultLimit = 100

// SQLiteOptions are the choices of [Open]. The zero value is recommended.
type SQLiteOptions struct {
	// MustExist makes a missing file an error, so that a lost volume or a wrong
	// path is noticed. False means that a missing file is a new journal.
	MustExist bool
	// SyncOutcomes makes posted updates durable before they return, at one more
	// sync each. It is for servers that forget keys sooner than they say. False
	// means that they become durable with the next write.
	SyncOutcomes bool
	// PruneAfter is the age at which settled intents lose their bodies, never
	// before the provider's retention is over. Zero means 720 hours.
	PruneAfter time.Duration
	// Sealer seals what is stored of requests and answers: bodies, headers, the
	// URL with its query, and the fingerprint. Names, keys, states, methods and
	// URLs without query stay readable. From its first Open with a Sealer on, a
	// journal needs one (else [ErrSealed]); what it held before stays as it is.
	// nil means that all is stored in clear text.
	Sealer Sealer
	// NoRequestBodies keeps request bodies out of the files, for those who may
	// not store them. What a call leaves open can then be sent by another call
	// of the operation only, with the same bytes, whatever Transport.Fingerprint
	// compares: a digest of them is stored. Resume holds it ([HoldBodyNotKept]), and
	// Prepare is refused. False means that they are kept.
	NoRequestBodies bool
	// NoResponseBodies keeps the bodies of answers out: a later call of a final
	// operation is told how it ended, and [ErrNotKept]. False means that they are
	// kept, up to Transport.MaxResponseBody.
	NoResponseBodies bool
}

// SQLiteJournal is a [Journal] in one SQLite file. It is safe for concurrent
// use, by several handles and processes of one machine too.
type SQLiteJournal struct {
	store *sqlite.Store
	told  sync.Map // IDs of damaged rows that cannot be written, as ClaimDue has shown them
}

var _ Journal = (*SQLiteJournal)(nil)

// Open opens the journal at path, or makes it, private to the user, together
// with a folder path-owners beside it. What cannot work fails here: an empty
// path, a missing or unwritable directory, a network filesystem, a file that is
// empty, foreign or of a newer schema. Errors match [ErrJournal]; a file that
// must exist and does not matches [fs.ErrNotExist] too. A link in place of the
// file or of one beside it, another user's file, and a directory in which
// everybody may replace files match [fs.ErrPermission]. nil opts means the
// defaults. Close the journal to make what was posted durable.
//
// The file, its -wal and its -shm belong together; copy none of them while the
// journal is open, and never delete one.
func Open(path string, opts *SQLiteOptions) (*SQLiteJournal, error) {
	var o SQLiteOptions
	if opts != nil {
		o = *opts
	}
	if o.PruneAfter < 0 {
		return nil, fmt.Errorf("idem: open %q: %w: PruneAfter is negative: %s", path, ErrJournal, o.PruneAfter)
	}
	if o.PruneAfter == 0 {
		o.PruneAfter = defaultPruneAfter
	}
	store, err := sqlite.Open(path, sqlite.Options{
		MustExist: o.MustExist, SyncOutcomes: o.SyncOutcomes, PruneAfter: o.PruneAfter, Sealer: o.Sealer,
		NoRequestBodies: o.NoRequestBodies, NoResponseBodies: o.NoResponseBodies,
	})
	if err != nil {
		return nil, &storeError{text: fmt.Sprintf("open %q", path), err: err, is: []error{ErrJournal}}
	}
	return &SQLiteJournal{store: store}, nil
}

// seals reports that the journal seals what it stores.
func (j *SQLiteJournal) seals() bool { return j.store.Seals() }

// Begin implements [Journal].
func (j *SQLiteJournal) Begin(ctx context.Context, want Intent) (got Intent, claimed bool, err error) {
	row, err := rowOf(&want)
	if err != nil {
		return Intent{}, false, failure("begin", err)
	}
	found, claimed, err := j.store.Begin(ctx, row)
	if err != nil {
		return Intent{}, false, failure("begin", err)
	}
	if found == row { // made from want
		want.ID, want.Generation, want.Version = strconv.FormatInt(row.ID, 10), int(row.Generation), row.Version
		want.State, want.Claimed, want.Owned = State(row.State), true, false
		return want, true, nil
	}
	got = j.claimedAs(ctx, found, claimed)
	return got, got.Claimed, nil
}

// ClaimDue implements [Journal].
func (j *SQLiteJournal) ClaimDue(ctx context.Context, now time.Time, f Filter) (due []Intent, next time.Time, err error) {
	rows, wait, err := j.store.ClaimDue(ctx, nanos(now), f.Name, f.Scope, f.limit())
	if err != nil {
		return nil, time.Time{}, failure("claim what is due", err)
	}
	for _, r := range rows {
		if r.Unwritten {
			if len(due) >= f.limit() {
				break
			}
			if _, told := j.told.LoadOrStore(r.ID, true); told {
				continue
			}
		}
		due = append(due, j.claimedAs(ctx, r, State(r.State) != StateHeld))
	}
	return due, instant(wait), nil
}

// claimedAs is a row as a claim hands it over. One that cannot be read, though
// its checksums fit, is given up and held: nobody could send it as it was.
func (j *SQLiteJournal) claimedAs(ctx context.Context, r *sqlite.Row, claimed bool) Intent {
	in, sound := intentOf(r)
	in.Claimed = claimed
	if sound || !claimed || in.State.Final() {
		return in
	}
	in.State, in.HoldReason, in.Settled = StateHeld, HoldChecksum, j.store.Clock.Now().UTC()
	in.Claimed, in.Request = false, nil
	if held, err := j.Update(ctx, in, nil, false); err == nil {
		return held
	}
	return in // without a running call it is a dead owner's, to be claimed again
}

// Update implements [Journal].
func (j *SQLiteJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	c, err := changeOf(&next, a)
	if err != nil {
		return Intent{}, failure("update", err)
	}
	if c.Outcome != nil && !durable { // it outlives the call
		c.Outcome.Body = bytes.Clone(c.Outcome.Body)
	}
	version, err := j.store.Update(ctx, c, durable)
	if err != nil {
		return Intent{}, failure("update", err)
	}
	next.Version = version
	return next, nil
}

// Lookup implements [Journal].
func (j *SQLiteJournal) Lookup(ctx context.Context, scope, operation string) (Intent, error) {
	if operation == "" {
		return Intent{}, failure("look up", sqlite.ErrNotFound)
	}
	row, err := j.store.Lookup(ctx, scope, operation)
	if err != nil {
		return Intent{}, failure("look up", err)
	}
	in, _ := intentOf(row)
	return in, nil
}

// known finds what Begin would, without a claim, on a closed handle too.
func (j *SQLiteJournal) known(ctx context.Context, want Intent) (Intent, error) {
	row, err := j.store.Known(ctx, want.Scope, want.Operation, want.Adopted)
	if err != nil {
		return Intent{}, failure("look up", err)
	}
	in, _ := intentOf(row)
	return in, nil
}

// List implements [Journal].
func (j *SQLiteJournal) List(ctx context.Context, f Filter) ([]Intent, error) {
	after := int64(0)
	if f.After != "" {
		id, err := rowID(f.After)
		if err != nil {
			return nil, failure("list", err)
		}
		after = id
	}
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = string(s)
	}
	rows, err := j.store.List(ctx, f.Name, f.Scope, states, after, f.limit())
	if err != nil {
		return nil, failure("list", err)
	}
	list := make([]Intent, 0, len(rows))
	for _, r := range rows {
		in, _ := intentOf(r)
		list = append(list, in)
	}
	return list, nil
}

// Attempts implements [Journal].
func (j *SQLiteJournal) Attempts(ctx context.Context, in Intent) ([]Attempt, error) {
	id, err := rowID(in.ID)
	if err != nil {
		return nil, failure("attempts", err)
	}
	stored, err := j.store.Attempts(ctx, id)
	if err != nil {
		return nil, failure("attempts", err)
	}
	attempts := make([]Attempt, 0, len(stored))
	for _, a := range stored {
		attempts = append(attempts, Attempt{
			Number: int(a.Number), Started: instant(a.Started), Ended: instant(a.Ended), Phase: a.Phase,
			StatusCode: int(a.StatusCode), Decision: a.Decision, Error: a.Error,
		})
	}
	return attempts, nil
}

// Prune implements [Journal]. It is done by itself too, from time to time, for
// what is older than [SQLiteOptions.PruneAfter].
func (j *SQLiteJournal) Prune(ctx context.Context, before time.Time) (int, error) {
	n, err := j.store.Prune(ctx, nanos(before))
	return n, failure("prune", err)
}

// Forget removes settled operations whole, tombstones included, and returns how
// many rows went. It does so only when told. Afterwards a call of the same
// operation is a new one: it gets a new key (with Transport.Key the first one
// again) and may execute again. So choose an
// instant before which lies nothing that anybody will call again; before is
// exclusive. Prune is for keeping the file small.
//
// An operation goes with all its generations, and only if each of them is final
// or withdrawn, was settled before that instant, is not remembered by the
// provider any more, is nobody's, and is owed to no OnSettled; a withdrawn one
// that is not due yet stays too. Unnamed intents go one by one. What is gone is
// gone durably, also where an error tells that the rest is not. IDs are never
// given again.
func (j *SQLiteJournal) Forget(ctx context.Context, before time.Time) (int, error) {
	n, err := j.store.Forget(ctx, nanos(before))
	return n, failure("forget", err)
}

// Each calls f for every intent, oldest first, until it returns an error: its
// operation, key and state, and the status and body of its recorded answer. The
// body is nil where it was not kept, and for all but an operation's newest
// generation. It is what faultinjection's Ledger.Check compares with the
// provider's side.
func (j *SQLiteJournal) Each(f func(operation, key, state string, status int, body []byte) error) error {
	ctx := context.Background()
	var page Filter
	for {
		all, err := j.List(ctx, page)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, in := range all {
			if in.State.Final() && in.Operation != "" {
				newest, err := j.Lookup(ctx, in.Scope, in.Operation)
				if err != nil && !errors.Is(err, ErrNotFound) { // its name may be damaged
					return err
				}
				if err == nil && newest.Key == in.Key {
					in = newest
				}
			}
			var out Outcome
			if in.Outcome != nil {
				out = *in.Outcome
			}
			if err := f(in.Operation, in.Key, string(in.State), out.StatusCode, out.Body); err != nil {
				return err
			}
		}
		page.After = all[len(all)-1].ID
	}
}

// Flush returns when everything that was posted before is on stable storage.
func (j *SQLiteJournal) Flush(ctx context.Context) error {
	return failure("flush", j.store.Flush(ctx))
}

// Close implements [Journal].
func (j *SQLiteJournal) Close() error {
	return failure("close", j.store.Close())
}

func (f Filter) limit() int {
	if f.Limit <= 0 {
		return defaultLimit
	}
	return f.Limit
}

// storeError is a failure of the journal. It matches what it is, and unwraps
// to the cause.
type storeError struct {
	text string
	err  error
	is   []error
}

func (e *storeError) Error() string {
	return "idem: " + e.text + ": " + e.err.Error()
}

func (e *storeError) Unwrap() []error { return append(e.is, e.err) }

// failure names what failed, and says in our words what the store's error is.
// That a row is busy or missing is an answer, not a failure of storage.
func failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	e := &storeError{text: doing, err: err, is: []error{ErrJournal}}
	var at *sqlite.FileError
	if errors.As(err, &at) {
		e.text = fmt.Sprintf("%s %q", doing, at.Path)
	}
	switch {
	case errors.Is(err, sqlite.ErrBusy):
		e.is = []error{ErrBusy}
	case errors.Is(err, sqlite.ErrNotFound):
		e.is = []error{ErrNotFound}
	case errors.Is(err, sqlite.ErrMayBeWritten):
		e.is = []error{ErrJournal, ErrUnknownOutcome}
	}
	if doing == "begin" && len(e.is) == 1 && e.is[0] == ErrJournal {
		e.is = append(e.is, ErrNotSent)
	}
	if errors.Is(err, sqlite.ErrClosed) {
		e.is = append(e.is, ErrClosed)
	}
	return e
}

func rowID(id string) (int64, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%w: the id is %q", sqlite.ErrNotFound, id)
	}
	return n, nil
}

func rowOf(in *Intent) (*sqlite.Row, error) {
	r := &sqlite.Row{
		Scope: in.Scope, Operation: in.Operation, Key: in.Key, Adopted: in.Adopted, Credential: in.Credential,
		Name: in.Name, Provider: in.Provider, Method: in.Method, URL: in.URL, Fingerprint: in.Fingerprint,
		Place: in.Place.String(), Encoding: string(in.Place.Encoding), Retention: int64(in.Retention),
		Renews: in.Renews, Created: nanos(in.Created), Status: statusOf(in),
	}
	if r.State == "" {
		r.State = string(StatePending)
	}
	if in.ID != "" {
		id, err := rowID(in.ID)
		if err != nil {
			return nil, err
		}
		r.ID = id
	}
	if len(in.Withheld) > 0 {
		b, err := json.Marshal(in.Withheld)
		if err != nil {
			return nil, err
		}
		r.Withheld = string(b)
	}
	if q := in.Request; q != nil {
		r.Request = requestOf(q)
		if in.Place.Pointer != "" || in.Place.Param != "" {
			r.Rekeyed = func(key string) (*sqlite.Request, error) {
				rekeyed, err := q.rekeyed(in.Place, key)
				if err != nil {
					return nil, err
				}
				return requestOf(rekeyed), nil
			}
		}
	}
	return r, nil
}

func requestOf(q *StoredRequest) *sqlite.Request {
	return &sqlite.Request{Target: q.URL, Host: q.Host, Header: sqlite.EncodeHeader(q.Header), Body: q.Body}
}

func statusOf(in *Intent) sqlite.Status {
	return sqlite.Status{
		Version: in.Version, State: string(in.State), Doubt: in.Doubt, HoldReason: string(in.HoldReason),
		Attempts: int64(in.Attempts), Deaths: int64(in.Deaths), Resumes: int64(in.Resumes), Prepared: in.Prepared,
		Notify: in.Notify, FirstSent: nanos(in.FirstSent), Due: nanos(in.Due), Wait: int64(in.Wait),
		Expires: nanos(in.Expires), Settled: nanos(in.Settled), By: in.By, Note: in.Note,
	}
}

func changeOf(next *Intent, a *Attempt) (*sqlite.Change, error) {
	id, err := rowID(next.ID)
	if err != nil {
		return nil, err
	}
	c := &sqlite.Change{ID: id, Key: next.Key, Status: statusOf(next), Claimed: next.Claimed}
	if o := next.Outcome; o != nil && next.State.Final() {
		c.Outcome = &sqlite.Outcome{
			StatusCode: int64(o.StatusCode), Complete: o.Complete, Replayed: o.Replayed, RequestID: o.RequestID,
			Header: sqlite.EncodeHeader(o.Header), Body: o.Body,
		}
		if o.Complete && o.Body == nil {
			c.Outcome.Body = []byte{}
		}
	}
	if a != nil {
		c.Attempt = &sqlite.Attempt{
			Number: int64(a.Number), Started: nanos(a.Started), Ended: nanos(a.Ended), Phase: a.Phase,
			StatusCode: int64(a.StatusCode), Decision: a.Decision, Error: a.Error,
		}
	}
	return c, nil
}

// intentOf shows a row with what can be read of it. sound is false where that is
// not all.
func intentOf(r *sqlite.Row) (in Intent, sound bool) {
	place, err := contract.ParsePlace(r.Place, contract.Encoding(r.Encoding))
	if err != nil {
		place = contract.Place{}
	}
	sound = err == nil && !r.Damaged
	in = Intent{
		ID: strconv.FormatInt(r.ID, 10), Scope: r.Scope, Operation: r.Operation, Key: r.Key,
		Generation: int(r.Generation), Name: r.Name, Provider: r.Provider, Method: r.Method, URL: r.URL,
		State: State(r.State), Doubt: r.Doubt, HoldReason: HoldReason(r.HoldReason), Attempts: int(r.Attempts),
		Deaths: int(r.Deaths), Resumes: int(r.Resumes), Created: instant(r.Created), FirstSent: instant(r.FirstSent),
		Due: instant(r.Due), Wait: time.Duration(r.Wait), Expires: instant(r.Expires), Settled: instant(r.Settled),
		By: r.By, Note: r.Note, Version: r.Version, Fingerprint: r.Fingerprint, Adopted: r.Adopted,
		Credential: r.Credential, Place: place,
		Retention: time.Duration(r.Retention), Renews: r.Renews, Owned: r.Owned, Prepared: r.Prepared, Notify: r.Notify,
	}
	if r.Withheld != "" {
		sound = json.Unmarshal([]byte(r.Withheld), &in.Withheld) == nil && sound
	}
	if q := r.Request; q != nil {
		h, err := sqlite.DecodeHeader(q.Header)
		sound = sound && err == nil
		in.Request = &StoredRequest{URL: q.Target, Host: q.Host, Header: http.Header(h), Body: q.Body}
	}
	if o := r.Outcome; o != nil {
		in.Outcome = &Outcome{}
		if h, err := sqlite.DecodeHeader(o.Header); err == nil {
			*in.Outcome = Outcome{
				StatusCode: int(o.StatusCode), Header: http.Header(h), Body: o.Body, Complete: o.Complete,
				RequestID: o.RequestID, Replayed: o.Replayed,
			}
		}
	} else if in.State.Final() { // settled by a person or a read
		in.Outcome = &Outcome{}
	}
	return in, sound
}
