package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// api is what the provider publishes: it honours a raw key in this header,
// remembers it for a day, and refuses a card only after it has looked at the
// key, so that this refusal settles an order even when an answer was lost
// before.
var api = func() *contract.Contract {
	c := contract.Keyed("Idempotency-Key", 24*time.Hour)
	c.Proven = []contract.Signal{{Status: http.StatusPaymentRequired, Pointer: "/error", Value: "card_declined"}}
	return c
}()

// The states of an order in the shop's own database.
const (
	stateOpen    = "open"
	statePaid    = "paid"
	stateRefused = "refused"
)

const (
	sqlCreate = `CREATE TABLE IF NOT EXISTS orders (
		id     TEXT PRIMARY KEY,
		cents  INTEGER NOT NULL,
		state  TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paid', 'refused')),
		answer TEXT NOT NULL DEFAULT '' -- the provider's
	) STRICT`
	sqlInsert = `INSERT INTO orders (id, cents) VALUES (?, ?)`
	sqlOpen   = `SELECT id, cents FROM orders WHERE state = 'open' ORDER BY rowid`
	sqlSettle = `UPDATE orders SET state = ?, answer = ? WHERE id = ?`
	sqlCount  = `SELECT count(*), count(*) FILTER (WHERE state = 'open') FROM orders`
)

// shop is the application: orders in a database of its own, and a client that
// charges for them. The journal is the outbox.
type shop struct {
	db       *sql.DB
	journal  *idem.SQLiteJournal
	client   *idem.Client
	charges  string     // where to charge
	delivery chan error // how Run ended
}

type order struct {
	id    string
	cents int
}

// openShop opens both databases. Nothing is delivered before start.
func openShop(dir, provider string, retry idem.RetryPolicy) (*shop, error) {
	at, err := url.Parse(provider)
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(dir)
	if err != nil {
		return nil, err
	}
	journal, err := idem.Open(filepath.Join(dir, journalFile), nil)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &shop{db: db, journal: journal, charges: provider + "/charges"}
	s.client = idem.NewClient(&idem.Transport{Journal: journal, Contracts: api.At(at.Host), Retry: retry})
	s.client.OnSettled = s.settled
	return s, nil
}

func openDatabase(dir string) (*sql.DB, error) {
	path := (&url.URL{Path: filepath.ToSlash(filepath.Join(dir, shopFile))}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(sqlCreate); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// start looks after what an earlier process left, and begins to deliver.
func (s *shop) start(ctx context.Context) error {
	if err := s.sweep(ctx); err != nil {
		return err
	}
	s.delivery = make(chan error, 1)
	go func() { s.delivery <- s.client.Run(context.WithoutCancel(ctx)) }() // until close
	return nil
}

// place takes an order: first the shop's own row, committed, then the charge
// into the outbox. Between the two the process may die: then the row is there,
// open, and sweep prepares the charge. The other way round, a crash would leave
// a charge for an order that nobody has heard of.
func (s *shop) place(ctx context.Context, o order) error {
	if err := s.record(ctx, o); err != nil {
		return err
	}
	return s.charge(ctx, o)
}

// record commits the order's row. Whatever else belongs to the order goes into
// the same transaction.
func (s *shop) record(ctx context.Context, o order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, sqlInsert, o.id, o.cents); err != nil {
		return err
	}
	return tx.Commit()
}

// charge puts the charge of an order into the outbox, and returns once it is on
// disk. The name comes from the order's id and the request from its row, so
// that doing it twice is doing it once.
func (s *shop) charge(ctx context.Context, o order) error {
	body := fmt.Sprintf(`{"order":%q,"amount":%d}`, o.id, o.cents)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.charges, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	_, err = s.client.Prepare(o.id+chargeSuffix, req)
	return err
}

const chargeSuffix = "/charge"

// sweep prepares the charge of every open order once more. For nearly all of
// them the journal has it, and Prepare changes nothing.
func (s *shop) sweep(ctx context.Context) error {
	open, err := s.open(ctx)
	if err != nil {
		return err
	}
	for _, o := range open {
		if err := s.charge(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *shop) open(ctx context.Context) (open []order, err error) {
	rows, err := s.db.QueryContext(ctx, sqlOpen)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.id, &o.cents); err != nil {
			return nil, err
		}
		open = append(open, o)
	}
	return open, rows.Err()
}

// settled is the client's OnSettled: it writes down what became of a charge. It
// is called at least once for each, so it must not matter how often. Only when
// it returns nil, with the row committed, it is not called again.
func (s *shop) settled(ctx context.Context, in idem.Intent) error {
	id, isCharge := strings.CutSuffix(in.Operation, chargeSuffix)
	if !isCharge {
		return fmt.Errorf("operation %q is none of ours", in.Operation)
	}
	state := statePaid
	if in.State == idem.StateRejected {
		state = stateRefused
	}
	result, err := s.db.ExecContext(ctx, sqlSettle, state, string(in.Outcome.Body), id)
	if err != nil {
		return err // told again
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("there is no order %q", id))
	}
	return nil
}

// count is how many orders there are, and how many of them are open.
func (s *shop) count(ctx context.Context) (all, open int, err error) {
	err = s.db.QueryRowContext(ctx, sqlCount).Scan(&all, &open)
	return all, open, err
}

// close ends the delivery after the attempts that are under way.
func (s *shop) close(ctx context.Context) error {
	err := s.client.Shutdown(ctx)
	if s.delivery != nil && err == nil {
		err = <-s.delivery
	}
	return errors.Join(err, s.journal.Close(), s.db.Close())
}
