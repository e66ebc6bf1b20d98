package faultinjection

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"
)

// Ledger is what a [Server] remembers: the requests that arrived, the effects
// they had, and the keys it has seen. It is an SQLite file and outlives its
// server, kill -9 included, so that a test can count afterwards what really
// happened.
//
// A ledger keeps headers and bodies as they came, credentials too: use test
// credentials. One living server writes to it; any number of other handles,
// also of other processes, may read meanwhile. A power cut may lose its last
// rows: it is a witness for crashes of processes, not of machines.
//
// A Ledger is safe for concurrent use. Inside a [testing/synctest] bubble,
// open it and close it there.
type Ledger struct {
	mu      sync.Mutex // one user of conn at a time
	db      *sql.DB
	conn    *sql.Conn // nil: closed
	stmts   map[string]*sql.Stmt
	scratch string // a directory to remove at Close; empty: the file is the caller's
}

// Outcome is what became of an arrival.
type Outcome string

const (
	// OutcomeUnfinished is being worked on, or its server was killed.
	OutcomeUnfinished Outcome = ""
	// OutcomeExecuted made an effect.
	OutcomeExecuted Outcome = "executed"
	// OutcomeFailed was executed, answered with a failure, and had no effect.
	OutcomeFailed Outcome = "failed"
	// OutcomeReplayed was given the stored answer of its key.
	OutcomeReplayed Outcome = "replayed"
	// OutcomeInFlight was refused, since its key is being worked on.
	OutcomeInFlight Outcome = "in_flight"
	// OutcomeMismatch was refused, since its key stands for another request.
	OutcomeMismatch Outcome = "mismatch"
	// OutcomeBadKey was refused for a missing, malformed or repeated key.
	OutcomeBadKey Outcome = "bad_key"
	// OutcomeRead was a safe method: answered, without an effect.
	OutcomeRead Outcome = "read"
	// OutcomeLost was dropped in front of the key store, by [LoseRequest].
	OutcomeLost Outcome = "lost"
	// OutcomeUnavailable was turned away by [Unavailable].
	OutcomeUnavailable Outcome = "unavailable"
	// OutcomeAnswered was answered in front of the key store, by [Status] or
	// [Redirect].
	OutcomeAnswered Outcome = "answered"
	// OutcomeDied was claimed and then rolled back: no effect, no stored answer.
	OutcomeDied Outcome = "died"
)

// Arrival is one request that reached the server with its whole body.
type Arrival struct {
	Number            int64 // 1, 2, ... over the life of the ledger
	Operation         string
	Keys              []string // values of the key header as they came; nil: none
	Method, URI, Host string
	Header            http.Header
	Body              []byte
	At                time.Time
	Step              string // the planned fault; empty: none
	Outcome           Outcome
}

// Effect is one change in the world.
type Effect struct {
	Number    int64 // 1, 2, ... over the life of the ledger
	Arrival   int64 // the number of the request that made it
	Operation string
	Key       string // empty: the request was not keyed
	Body      []byte // the request's
	At        time.Time
}

// Counts sums a ledger up.
type Counts struct {
	Arrivals   int
	Effects    int
	Operations int // operations with at least one effect
	// Duplicates are effects beyond the first of their operation: zero is the
	// aim. It counts for nothing where several orders share one operation name.
	Duplicates int
	Outcomes   map[Outcome]int
}

// applicationID marks a file as a ledger: "idlg".
const applicationID = 0x69646c67

//go:embed ledger.sql
var sqlSchema string

const (
	sqlArrivals = `SELECT number, operation, keys, method, uri, host, header, body, at, step, outcome FROM arrival ORDER BY number`
	sqlEffects  = `SELECT number, arrival, operation, key, body, at FROM effect ORDER BY number`
	sqlCountOf  = `SELECT count(*) FROM effect WHERE operation = ?`
	sqlCounts   = `SELECT count(*), count(DISTINCT operation) FROM effect`
	sqlOutcomes = `SELECT outcome, count(*) FROM arrival GROUP BY outcome`
)

// OpenLedger opens the ledger at path, and makes it if there is none. An empty
// path makes one that is gone after Close. A file that is no ledger is refused.
func OpenLedger(path string) (*Ledger, error) {
	l := &Ledger{stmts: map[string]*sql.Stmt{}}
	if path == "" {
		dir, err := os.MkdirTemp("", "faultinjection-")
		if err != nil {
			return nil, fmt.Errorf("faultinjection: open ledger: %w", err)
		}
		l.scratch, path = dir, filepath.Join(dir, "ledger.db")
	}
	if err := l.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("faultinjection: open ledger %q: %w", path, err), l.Close())
	}
	return l, nil
}

func (l *Ledger) open(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// A new file is private: it holds whatever the requests held. An existing
	// one is not opened here, since closing it would drop SQLite's locks.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dsn := "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"
	if l.db, err = sql.Open("sqlite", dsn); err != nil {
		return err
	}
	if l.conn, err = l.db.Conn(context.Background()); err != nil {
		return err
	}
	return l.atomically(l.setUp)
}

// setUp makes the tables in a new file and refuses a stranger's.
func (l *Ledger) setUp() error {
	var id, tables int
	var mode string
	if err := l.row(`PRAGMA journal_mode`, nil, &mode); err != nil {
		return err
	}
	if mode != "wal" { // without it, readers would stop the server
		return fmt.Errorf("SQLite answered journal mode %q, not wal", mode)
	}
	if err := l.row(`PRAGMA application_id`, nil, &id); err != nil {
		return err
	}
	if id == applicationID {
		return nil
	}
	if err := l.row(`SELECT count(*) FROM sqlite_schema`, nil, &tables); err != nil {
		return err
	}
	if id != 0 || tables != 0 {
		return errors.New("the file is another program's database")
	}
	schema := sqlSchema + fmt.Sprintf("PRAGMA application_id = %d;", applicationID)
	_, err := l.conn.ExecContext(context.Background(), schema)
	return err
}

// Close closes the ledger; an unnamed one is removed. Close its servers first.
// Calling it again does nothing.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, stmt := range l.stmts {
		errs = append(errs, stmt.Close())
	}
	l.stmts = nil
	if l.conn != nil {
		errs = append(errs, l.conn.Close())
		l.conn = nil
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
		l.db = nil
	}
	if l.scratch != "" {
		errs = append(errs, os.RemoveAll(l.scratch))
		l.scratch = ""
	}
	return errors.Join(errs...)
}

// Arrivals returns every request seen, in order of arrival.
func (l *Ledger) Arrivals() ([]Arrival, error) {
	var all []Arrival
	err := l.each(sqlArrivals, func(rows *sql.Rows) error {
		var a Arrival
		var keys, header string
		var at int64
		err := rows.Scan(&a.Number, &a.Operation, &keys, &a.Method, &a.URI, &a.Host, &header, &a.Body, &at, &a.Step, &a.Outcome)
		if err != nil {
			return err
		}
		a.At = time.Unix(0, at).UTC()
		all = append(all, a)
		last := &all[len(all)-1]
		return errors.Join(json.Unmarshal([]byte(keys), &last.Keys), json.Unmarshal([]byte(header), &last.Header))
	})
	return all, err
}

// Effects returns every effect, in order.
func (l *Ledger) Effects() ([]Effect, error) {
	var all []Effect
	err := l.each(sqlEffects, func(rows *sql.Rows) error {
		var e Effect
		var at int64
		if err := rows.Scan(&e.Number, &e.Arrival, &e.Operation, &e.Key, &e.Body, &at); err != nil {
			return err
		}
		e.At = time.Unix(0, at).UTC()
		all = append(all, e)
		return nil
	})
	return all, err
}

// EffectsOf counts the effects of one operation. More than one is a duplicate.
func (l *Ledger) EffectsOf(operation string) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int
	err := l.row(sqlCountOf, []any{operation}, &n)
	return n, wrap("read ledger", err)
}

// Counts sums the ledger up.
func (l *Ledger) Counts() (Counts, error) {
	c := Counts{Outcomes: map[Outcome]int{}}
	err := l.each(sqlOutcomes, func(rows *sql.Rows) error {
		var o Outcome
		var n int
		err := rows.Scan(&o, &n)
		c.Outcomes[o] = n
		c.Arrivals += n
		return err
	})
	if err != nil {
		return Counts{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.row(sqlCounts, nil, &c.Effects, &c.Operations)
	c.Duplicates = c.Effects - c.Operations
	return c, wrap("read ledger", err)
}

// atomically runs f in one transaction: all of it is kept, or nothing.
func (l *Ledger) atomically(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	committed := false
	defer func() { // also when f panics, or a test inside it gives up
		if !committed {
			_ = l.exec(`ROLLBACK`) // whatever it says, nothing was committed
		}
	}()
	if err := f(); err != nil {
		return err
	}
	err := l.exec(`COMMIT`)
	committed = err == nil
	return err
}

// each calls f for every row of a query.
func (l *Ledger) each(query string, f func(*sql.Rows) error) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { err = wrap("read ledger", err) }()
	stmt, err := l.stmt(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// row, exec and changed run one statement; the caller holds mu. The driver gets
// no cancellable context: a client that goes away must not undo what happened.

func (l *Ledger) row(query string, args []any, into ...any) error {
	stmt, err := l.stmt(query)
	if err != nil {
		return err
	}
	return stmt.QueryRowContext(context.Background(), args...).Scan(into...)
}

func (l *Ledger) exec(query string, args ...any) error {
	_, err := l.changed(query, args...)
	return err
}

func (l *Ledger) changed(query string, args ...any) (int64, error) {
	stmt, err := l.stmt(query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// stmt prepares each query once.
func (l *Ledger) stmt(query string) (*sql.Stmt, error) {
	if l.conn == nil {
		return nil, errors.New("ledger is closed")
	}
	if stmt := l.stmts[query]; stmt != nil {
		return stmt, nil
	}
	stmt, err := l.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	l.stmts[query] = stmt
	return stmt, nil
}

// wrap says what was being done, unless the error says so already.
func wrap(doing string, err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "faultinjection: ") {
		return err
	}
	return fmt.Errorf("faultinjection: %s: %w", doing, err)
}
