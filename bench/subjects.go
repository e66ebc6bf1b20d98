package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the naive journal's driver

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

// payload is a request body of 512 bytes.
var payload = `{"amount":4200,"filler":"` + strings.Repeat("x", 512-26) + `"}`

func base() *http.Transport {
	return &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512}
}

func post(client func(*http.Request) (*http.Response, error), url, key string) error {
	req, err := http.NewRequest(http.MethodPost, url+"/charges", strings.NewReader(payload))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return take(client(req))
}

func take(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// bare is http.Client alone.
func bare(url string) subject {
	client := &http.Client{Transport: base()}
	return subject{"bare", func(int64) error { return post(client.Do, url, "k") }}
}

// durable is the SDK over a journal.
func durable(url string, journal *idem.SQLiteJournal) subject {
	client := idem.NewClient(&idem.Transport{
		Journal: journal, Base: base(), Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour),
	})
	return subject{"idem", func(n int64) error {
		return post(func(req *http.Request) (*http.Response, error) { return client.Do(operation(n), req) }, url, "")
	}}
}

// operation is a name whose order says nothing.
func operation(n int64) string {
	x := uint64(n) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("order-%016x/charge", x^x>>29)
}

// naive is what one writes first: two synced transactions through database/sql,
// one connection.
func naive(url, path string) (subject, io.Closer, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
	if err != nil {
		return subject{}, nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE intent (op TEXT PRIMARY KEY, key TEXT NOT NULL, method TEXT NOT NULL, url TEXT NOT NULL,
		body BLOB NOT NULL, status INTEGER, answer BLOB)`); err != nil {
		return subject{}, nil, errors.Join(err, db.Close())
	}
	client := &http.Client{Transport: base()}
	return subject{"naive", func(n int64) error {
		key := uuid.NewString()
		if err := inTx(db, `INSERT INTO intent (op, key, method, url, body) VALUES (?, ?, ?, ?, ?)`,
			operation(n), key, http.MethodPost, url, []byte(payload)); err != nil {
			return err
		}
		var answer []byte
		err := post(func(req *http.Request) (*http.Response, error) {
			resp, err := client.Do(req)
			if err == nil {
				answer, err = io.ReadAll(resp.Body)
			}
			return resp, err
		}, url, key)
		if err != nil {
			return err
		}
		return inTx(db, `UPDATE intent SET status = 200, answer = ? WHERE op = ?`, answer, operation(n))
	}}, db, nil
}

func inTx(db *sql.DB, query string, args ...any) error {
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(query, args...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// appendLog is an append-only file with the same grouping as the journal: whoever
// comes first writes and syncs for all who wait. It is what a file can do at best.
type appendLog struct {
	file *os.File

	mu    sync.Mutex
	queue []waiter
	busy  bool
}

type waiter struct {
	data []byte
	done chan error
}

func newAppendLog(path string) (*appendLog, error) {
	file, err := os.Create(path)
	return &appendLog{file: file}, err
}

// append returns when data is synced.
func (l *appendLog) append(data []byte) error {
	w := waiter{data, make(chan error, 1)}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	if l.busy {
		l.mu.Unlock()
		return <-w.done
	}
	l.busy = true
	for len(l.queue) > 0 {
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		l.write(batch)
		l.mu.Lock()
	}
	l.busy = false
	l.mu.Unlock()
	return <-w.done
}

func (l *appendLog) write(batch []waiter) {
	var all []byte
	for _, w := range batch {
		all = append(all, w.data...)
	}
	_, err := l.file.Write(all)
	if err == nil {
		err = l.file.Sync()
	}
	for _, w := range batch {
		w.done <- err
	}
}

// scratch is a new path on the disk that is measured.
func (r *run) scratch(name string) string {
	return filepath.Join(r.dir, fmt.Sprintf("%s-%d.db", name, numbers.Add(1)))
}
