//go:build linux || darwin

package idem_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// The operations of a journal that is to be damaged are named by what becomes of
// them, and by where they are when its process dies: those of "old" in the file
// itself, those of "new" in its log.
const (
	damageOld = "old"
	damageNew = "new"

	damageMoved  = "moved"  // held: redirect
	damageFlight = "flight" // in flight when the process dies
)

var damageKinds = []string{diskPlain, diskLost, diskReject, diskRefused, damageMoved, damageFlight}

const (
	damageScope  = "acct"
	damageSecret = "Bearer damage"
	damageFile   = "journal.db"
)

// damageBase is a provider that notes each arrival's key, and answers what is
// lost or refused only once it is up.
type damageBase struct {
	mu       sync.Mutex
	up       bool
	arrivals map[string][]string // operation: keys
	onSend   func(operation string)
}

func (b *damageBase) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	operation := req.Header.Get(diskOperationHeader)
	b.mu.Lock()
	if req.Method == http.MethodPost { // else it follows a redirect
		b.arrivals[operation] = append(b.arrivals[operation], req.Header.Get("Idempotency-Key"))
	}
	up := b.up
	b.mu.Unlock()
	if b.onSend != nil {
		b.onSend(operation)
	}
	kind, _, _ := strings.Cut(operation, "-")
	answer := func(status int) (*http.Response, error) {
		body := fmt.Sprintf(`{"of":%q}`, operation)
		return &http.Response{
			StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req, ContentLength: int64(len(body)),
			Header: http.Header{"Location": {"/elsewhere"}, "X-Of": {operation}}, Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
	switch {
	case kind == diskLost && !up:
		return nil, syscall.ECONNRESET
	case kind == diskRefused && !up:
		return nil, fmt.Errorf("%w: connection refused", idem.ErrNotSent)
	case kind == diskReject:
		return answer(http.StatusPaymentRequired)
	case kind == damageMoved:
		return answer(http.StatusFound)
	}
	return answer(http.StatusCreated)
}

// sent is how often an operation arrived; without a name: all of them together.
func (b *damageBase) sent(operation string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o, keys := range b.arrivals {
		if operation == "" || o == operation {
			n += len(keys)
		}
	}
	return n
}

// damageTemplate is a journal to damage copies of.
type damageTemplate struct {
	closed  string            // its folder, once it was closed: all is in the file
	crashed string            // when its process died: what is new is in the log only
	keys    map[string]string // of each operation, as it was sent
}

func newDamageTemplate(t *testing.T) *damageTemplate {
	root := diskDir(t)
	live := filepath.Join(root, "live")
	m := &damageTemplate{closed: filepath.Join(root, "closed"), crashed: filepath.Join(root, "crashed"), keys: map[string]string{}}
	require.NoError(t, os.Mkdir(live, 0o700))
	base := &damageBase{arrivals: map[string][]string{}}
	for _, age := range []string{damageOld, damageNew} {
		journal, err := idem.Open(filepath.Join(live, damageFile), nil)
		require.NoError(t, err)
		base.onSend = func(operation string) {
			if operation == damageFlight+"-"+damageNew {
				require.NoError(t, copyJournal(live, m.crashed))
			}
		}
		client := damageClient(journal, base)
		for _, kind := range damageKinds {
			if kind == damageFlight && age == damageOld {
				continue
			}
			_, _ = damageCall(t.Context(), client, kind+"-"+age)
		}
		require.NoError(t, journal.Close())
	}
	require.NoError(t, copyJournal(m.crashed, m.closed))
	journal, err := idem.Open(filepath.Join(m.closed, damageFile), nil)
	require.NoError(t, err)
	require.NoError(t, journal.Close())
	for operation, keys := range base.arrivals {
		m.keys[operation] = keys[0]
		require.Len(t, slices.Compact(slices.Clone(keys)), 1, operation)
	}
	require.Len(t, m.keys, 2*len(damageKinds)-1)
	return m
}

// copyJournal copies a folder, private to the user as the files in it were.
func copyJournal(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Mkdir(filepath.Join(to, name), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o600)
	})
}

func damageClient(journal idem.Journal, base http.RoundTripper) *idem.Client {
	client := diskClient(journal, base)
	client.Transport.Scope, client.Transport.Name = damageScope, "main"
	client.Authorize = func(req *http.Request, _ idem.Intent) error {
		req.Header.Set("Authorization", damageSecret)
		return nil
	}
	return client
}

// damageRequest carries a credential, and another host than its URL's.
func damageRequest(ctx context.Context, operation string) (*http.Request, error) {
	req, err := diskRequest(ctx, errorURL, operation)
	if err == nil {
		req.Host = "gateway.example"
		req.Header.Set("Authorization", damageSecret)
	}
	return req, err
}

// damageCall calls an operation.
func damageCall(ctx context.Context, client *idem.Client, operation string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := damageRequest(ctx, operation)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(operation, req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), errors.Join(err, resp.Body.Close())
}

// damage is one journal, and what was done to it.
type damage struct {
	*testing.T
	template  *damageTemplate
	dir, path string
	base      *damageBase
	journal   *idem.SQLiteJournal
	client    *idem.Client
	held      map[string]bool // by the damage: a person must decide
	gone      map[string]bool // with the damage, which DESIGN.md does not promise to survive
	fresh     []string        // operations that were made after the damage
	lent      bool            // to another user
}

// newDamage is one whose files are still to be made.
func newDamage(t *testing.T, m *damageTemplate) *damage {
	d := &damage{
		T: t, template: m, dir: filepath.Join(diskDir(t), "j"), base: &damageBase{arrivals: map[string][]string{}},
		held: map[string]bool{}, gone: map[string]bool{},
	}
	d.path = filepath.Join(d.dir, damageFile)
	return d
}

// open opens the journal.
func (d *damage) open() error {
	if d.lent {
		d.owned(os.Geteuid())
		d.lent = false
	}
	journal, err := idem.Open(d.path, nil)
	if err != nil {
		return err
	}
	d.journal, d.client = journal, damageClient(journal, d.base)
	return nil
}

func (d *damage) mustOpen() {
	d.Helper()
	require.NoError(d, d.open())
}

func (d *damage) mustClose() {
	d.Helper()
	require.NoError(d, d.journal.Close())
	d.journal = nil
}

// file is a file of the journal: "" is the database.
func (d *damage) file(side string) string { return d.path + side }

// change rewrites a file at rest; undo puts back what was there.
func (d *damage) change(side string, change func([]byte) []byte) (undo func()) {
	d.Helper()
	before, err := os.ReadFile(d.file(side))
	require.NoError(d, err)
	after := change(slices.Clone(before))
	require.NotEqual(d, before, after)
	require.NoError(d, os.WriteFile(d.file(side), after, 0o600))
	return func() { require.NoError(d, os.WriteFile(d.file(side), before, 0o600)) }
}

// remove deletes a file; undo puts it back.
func (d *damage) remove(side string) (undo func()) {
	d.Helper()
	before, err := os.ReadFile(d.file(side))
	require.NoError(d, err)
	require.NoError(d, os.Remove(d.file(side)))
	return func() { require.NoError(d, os.WriteFile(d.file(side), before, 0o600)) }
}

// all are the operations that are not gone, in order.
func (d *damage) all() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.template.keys)), func(o string) bool { return d.gone[o] })
}

// keeps checks that each operation is still there under its key.
func (d *damage) keeps() {
	d.Helper()
	for _, o := range d.all() {
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		require.NoError(d, err, o)
		require.Equal(d, d.template.keys[o], in.Key, o)
	}
}

// calls calls an operation, and checks that its caller is told what is so.
func (d *damage) calls(operation string) (sends int, err error) {
	d.Helper()
	before := d.base.sent(operation)
	var result idem.Result
	var failure *idem.OperationError
	_, err = damageCall(idem.WithResult(d.Context(), &result), d.client, operation)
	sends = d.base.sent(operation) - before
	notSent, unknown := errors.Is(err, idem.ErrNotSent), errors.Is(err, idem.ErrUnknownOutcome)
	if err == nil {
		require.True(d, result.Recorded || sends > 0, operation)
		return sends, nil
	}
	require.True(d, errors.Is(err, idem.ErrJournal) || errors.Is(err, idem.ErrHeld), "%s: %v", operation, err)
	if errors.As(err, &failure) && failure.State.Final() {
		require.False(d, notSent || unknown, "%s: it is known what became of it: %v", operation, err)
	} else {
		require.NotEqual(d, notSent, unknown, "%s: one of both: %v", operation, err)
	}
	require.False(d, notSent && sends > 0, "%s: told that it was not sent", operation)
	return sends, err
}

// refuses checks that a call is refused because the journal fails, that its
// error says so, and that nothing of it is sent.
func (d *damage) refuses(operation, why string) error {
	d.Helper()
	before := d.base.sent("")
	_, err := d.calls(operation)
	require.ErrorIs(d, err, idem.ErrJournal, operation)
	assert.ErrorContains(d, err, why, operation)
	assert.Equal(d, before, d.base.sent(""), "%s: sent", operation)
	return err
}

// another is the name of an operation that is new now.
func (d *damage) another() string {
	d.fresh = append(d.fresh, fmt.Sprint(diskPlain, "-fresh", len(d.fresh)))
	return d.fresh[len(d.fresh)-1]
}

// works checks that all goes on as if nothing had been: what is final answers
// from the journal, what is not is sent under its key, and what is new is made.
func (d *damage) works() {
	d.Helper()
	d.mustOpen()
	d.base.up = true
	d.keeps()
	for _, o := range d.all() {
		before := d.base.sent(o)
		in, err := d.journal.Lookup(d.Context(), damageScope, o)
		require.NoError(d, err, o)
		answer, err := damageCall(d.Context(), d.client, o)
		kind, _, _ := strings.Cut(o, "-")
		want, most := http.StatusCreated, 1
		switch {
		case kind == damageMoved || d.held[o]:
			require.ErrorIs(d, err, idem.ErrHeld, o)
			require.ErrorIs(d, err, idem.ErrUnknownOutcome, o)
			most, want = 0, 0
		case kind == diskReject && !in.State.Final(): // it is in doubt, and such a refusal proves nothing
			require.ErrorIs(d, err, idem.ErrHeld, o)
			want = 0
		case kind == diskReject:
			most, want = 0, http.StatusPaymentRequired
		case kind == diskPlain:
			most = 0
		}
		if want != 0 {
			require.NoError(d, err, o)
			require.Equal(d, fmt.Sprintf(`%d {"of":%q}`, want, o), answer)
		}
		require.LessOrEqual(d, d.base.sent(o), before+most, "%s: arrivals", o)
	}
	d.another()
	for _, o := range d.fresh {
		_, err := damageCall(d.Context(), d.client, o)
		require.NoError(d, err, o)
		require.Positive(d, d.base.sent(o), o)
	}
	d.mustClose()
	d.sound()
}

// sound runs SQLite's own checks.
func (d *damage) sound() {
	d.Helper()
	d.query(func(db *sql.DB) {
		var answer string
		require.NoError(d, db.QueryRow(`PRAGMA integrity_check`).Scan(&answer))
		require.Equal(d, "ok", answer)
	})
}

func (d *damage) query(do func(db *sql.DB)) {
	d.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: d.path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	require.NoError(d, err)
	db.SetMaxOpenConns(1)
	do(db)
	require.NoError(d, db.Close())
}

// oneKey checks that whatever arrived came under the key that it had before the
// damage.
func (d *damage) oneKey() {
	d.Helper()
	for o, keys := range d.base.arrivals {
		want := d.template.keys[o]
		if want == "" {
			want = keys[0] // it is new
		}
		for _, key := range keys {
			require.Equal(d, want, key, "%s: another key", o)
		}
	}
}

// damageRow is one kind of damage.
type damageRow struct {
	name    string
	closed  bool                   // the journal was closed before; else its process died
	harm    func(d *damage) func() // does it, at rest; undo may be nil
	refused string                 // how Open fails; empty: it opens
	check   func(d *damage)        // what else is promised; nil: that everything works
	broken  bool                   // Close fails, or may
	after   func(d *damage)        // when the damage is undone, before everything works

}

// run damages a copy of the journal, and looks what becomes of it.
func (row damageRow) run(t *testing.T, m *damageTemplate) {
	d := newDamage(t, m)
	from := m.crashed
	if row.closed {
		from = m.closed
	}
	require.NoError(t, copyJournal(from, d.dir))
	undo := func() {}
	if row.harm != nil {
		if u := row.harm(d); u != nil {
			undo = u
		}
	}
	if row.refused != "" {
		err := d.open()
		require.Nil(t, d.journal)
		require.ErrorIs(t, err, idem.ErrJournal)
		assert.ErrorContains(t, err, strconv.Quote(d.path), "it names the place")
		assert.ErrorContains(t, err, row.refused, "and the cause")
	}
	if row.check != nil {
		row.check(d)
	}
	if d.journal != nil {
		if err := d.journal.Close(); err != nil {
			require.True(t, row.broken, "%v", err)
			require.ErrorIs(t, err, idem.ErrJournal)
		}
		d.journal = nil
	}
	undo()
	if row.after != nil {
		row.after(d)
	}
	d.works()
	d.oneKey()
}
