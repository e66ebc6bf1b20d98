package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// chargeArgs is a job: one for each order, with the key that was minted when it
// was inserted.
type chargeArgs struct {
	Order string `json:"order" river:"unique"`
	Key   string `json:"key"`
}

func (chargeArgs) Kind() string { return "charge" }

func (chargeArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// chargeWorker works on jobs, and tells who waits for one in this process.
type chargeWorker struct {
	river.WorkerDefaults[chargeArgs]
	s       site
	client  *http.Client
	keyed   bool
	waiting sync.Map // order to chan struct{}
}

func (w *chargeWorker) Work(ctx context.Context, job *river.Job[chargeArgs]) error {
	key := job.Args.Key
	if !w.keyed {
		key = mint(job.Args.Order)
	}
	req, err := newRequest(ctx, w.s.url, job.Args.Order, key)
	if err != nil {
		return err
	}
	if err := charged(w.client.Do(req)); err != nil {
		return err
	}
	if answered, ok := w.waiting.LoadAndDelete(job.Args.Order); ok {
		close(answered.(chan struct{}))
	}
	if w.s.told != nil {
		w.s.told(job.Args.Order)
	}
	return nil
}

// soon retries after a short wait. The default is 1 s, 16 s, 81 s and so on.
type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(maxWait / 2) }

// openRiver inserts a job for each order. keyed says that the key is that of its
// args, and not a new one made by the worker.
func openRiver(keyed bool) func(site) (*tool, error) {
	return func(s site) (*tool, error) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "river.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1) // as its documentation has it
		transport := base()
		worker := &chargeWorker{s: s, client: &http.Client{Transport: transport}, keyed: keyed}
		client, err := startRiver(db, worker)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return &tool{
			ask: func(order string) error { return askRiver(client, worker, order) },
			accept: func(order string) error {
				_, err := client.Insert(context.Background(), chargeArgs{order, mint(order)}, nil)
				return err
			},
			audit: func(ctx context.Context, made func(string)) error { return auditRiver(ctx, db, made) },
			close: func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				err := client.Stop(ctx)
				transport.CloseIdleConnections()
				return errors.Join(err, db.Close())
			},
		}, nil
	}
}

func startRiver(db *sql.DB, worker *chargeWorker) (*river.Client[*sql.Tx], error) {
	ctx := context.Background()
	logger := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riversqlite.New(db), &river.Config{
		Queues:      map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers:     workers,
		Logger:      logger,
		RetryPolicy: soon{},
		// By default a job waits for 50 ms here, which is how often this driver
		// looks for notifications, and is fetched every 100 ms at most.
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 5 * time.Millisecond,
		// A job that was being worked on when its process died is found after
		// this; by default after an hour. It must be longer than JobTimeout.
		JobTimeout:           attemptTimeout,
		RescueStuckJobsAfter: attemptTimeout + time.Second,
	})
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

func askRiver(client *river.Client[*sql.Tx], worker *chargeWorker, order string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	answered := make(chan struct{})
	worker.waiting.Store(order, answered)
	defer worker.waiting.Delete(order)
	inserted, err := client.Insert(ctx, chargeArgs{order, mint(order)}, nil)
	if err != nil {
		return err
	}
	if !inserted.UniqueSkippedAsDuplicate {
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for { // it was inserted by an earlier process, and may be done
		job, err := client.JobGet(ctx, inserted.Job.ID)
		if err != nil {
			return err
		}
		switch job.State {
		case rivertype.JobStateCompleted:
			return nil
		case rivertype.JobStateDiscarded, rivertype.JobStateCancelled:
			return fmt.Errorf("the job is %s", job.State)
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

func auditRiver(ctx context.Context, db *sql.DB, made func(string)) error {
	for {
		var open int
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM river_job WHERE state NOT IN ('completed', 'discarded', 'cancelled')`).Scan(&open); err != nil {
			return err
		}
		if open == 0 {
			break
		}
		if err := pause(ctx, 5*pollEvery); err != nil {
			return err
		}
	}
	rows, err := db.QueryContext(ctx, `SELECT json_extract(args, '$.order') FROM river_job WHERE state = 'completed'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var order string
		if err := rows.Scan(&order); err != nil {
			return err
		}
		made(order)
	}
	return rows.Err()
}
