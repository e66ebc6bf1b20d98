package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	sqlite3 "modernc.org/sqlite"
)

// conn is one connection with its prepared statements. One goroutine uses it
// at a time. It never sees a caller's context: an interrupted write may have
// happened all the same, and the driver throws the connection away.
type conn struct {
	path  string // of the journal; empty while it is made
	db    driver.Conn
	stmts [statementCount]driver.Stmt
	args  []driver.NamedValue
	dest  []driver.Value
	full  bool     // PRAGMA synchronous is at its full level
	seal  *sealing // nil: nothing is sealed
	sends bool     // it reads requests too, to send them
}

func connect(dsn string) (*conn, error) {
	connector, err := sqlite3.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &conn{db: db}, nil
}

// close finalizes the statements first: the engine keeps a connection with
// open ones alive as a zombie.
func (c *conn) close() error {
	var errs []error
	for i, s := range c.stmts {
		if s != nil {
			errs = append(errs, s.Close())
			c.stmts[i] = nil
		}
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// failed says which journal it was.
func (c *conn) failed(err error) error {
	if c.path == "" {
		return err
	}
	return of(c.path, err)
}

// text runs a statement that is not worth keeping, or that acts when it is
// prepared, as some PRAGMAs do.
func (c *conn) text(query string) error {
	_, err := c.db.(driver.ExecerContext).ExecContext(context.Background(), query, nil)
	return c.failed(err)
}

// snapshot gives the queries of do one view of the database.
func (c *conn) snapshot(do func() error) error {
	if err := c.text("BEGIN"); err != nil {
		return err
	}
	err := do()
	if undone := c.text("ROLLBACK"); err == nil {
		err = undone
	}
	return err
}

// value returns the first column of the first row, as an integer or as text.
func (c *conn) value(query string) (any, error) { return c.column(query, 0) }

func (c *conn) column(query string, n int) (any, error) {
	rows, err := c.db.(driver.QueryerContext).QueryContext(context.Background(), query, nil)
	if err != nil {
		return nil, c.failed(err)
	}
	dest := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(dest)
	if err = errors.Join(err, rows.Close()); err != nil {
		return nil, c.failed(err)
	}
	return dest[n], nil
}

// finds reports whether a query that is not worth keeping finds a row.
func (c *conn) finds(query string, values ...any) (bool, error) {
	rows, err := c.db.(driver.QueryerContext).QueryContext(context.Background(), query, c.bind(values))
	clear(c.args)
	if err != nil {
		return false, c.failed(err)
	}
	err = rows.Next(make([]driver.Value, len(rows.Columns())))
	found := err == nil
	if err == io.EOF {
		err = nil
	}
	return found, c.failed(errors.Join(err, rows.Close()))
}

func (c *conn) number(query string) (int64, error) {
	v, err := c.value(query)
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("%s answered %v", query, v)
	}
	return n, nil
}

func (c *conn) stmt(i statement) (driver.Stmt, error) {
	if c.stmts[i] == nil {
		s, err := c.db.Prepare(statements[i])
		if err != nil {
			return nil, c.failed(err)
		}
		c.stmts[i] = s
	}
	return c.stmts[i], nil
}

func (c *conn) bind(values []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, v := range values {
		if n, ok := v.(int); ok {
			v = int64(n)
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

// exec returns how many rows changed.
func (c *conn) exec(i statement, values ...any) (changed int64, err error) {
	r, err := c.run(i, values)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (c *conn) run(i statement, values []any) (driver.Result, error) {
	s, err := c.stmt(i)
	if err != nil {
		return nil, err
	}
	r, err := s.(driver.StmtExecContext).ExecContext(context.Background(), c.bind(values))
	clear(c.args) // keep no bodies alive
	return r, c.failed(err)
}

// query calls each for every row. The values are valid until it returns.
func (c *conn) query(i statement, each func([]driver.Value) error, values ...any) error {
	s, err := c.stmt(i)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), c.bind(values))
	clear(c.args)
	if err != nil {
		return c.failed(err)
	}
	dest := c.take(len(rows.Columns()))
	for err == nil {
		switch err = rows.Next(dest); err {
		case nil:
			err = each(dest)
		case io.EOF:
		default:
			err = c.failed(err)
		}
	}
	c.dest = dest
	clear(dest)
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, rows.Close())
}

// take lends the buffer for one row, so that queries may nest.
func (c *conn) take(n int) []driver.Value {
	d := c.dest
	c.dest = nil
	if cap(d) < n {
		return make([]driver.Value, n)
	}
	return d[:n]
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// null makes an empty text NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// nobody makes owner 0 NULL.
func nobody(owner int64) any {
	if owner == 0 {
		return nil
	}
	return owner
}

// blob keeps an empty one from becoming NULL, which the driver makes of nil.
func blob(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}

// optional makes an empty one NULL.
func optional(p []byte) any {
	if len(p) == 0 {
		return nil
	}
	return p
}

// errEnough ends a query early.
var errEnough = errors.New("enough")

// first reads rows until one is found.
func (c *conn) first(i statement, found func([]driver.Value) bool, values ...any) error {
	err := c.query(i, func(v []driver.Value) error {
		if found(v) {
			return errEnough
		}
		return nil
	}, values...)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
