package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // its database is SQLite
)

const stepRetries = 20 // a workflow whose step failed for good stays failed

// openDBOS makes each order a workflow of one step, with the order's name as its
// id. keyed says that the workflow's id is the key too, and not a new one made in
// the step; synced that each commit is synced, which its own settings leave out.
func openDBOS(keyed, synced bool) func(site) (*tool, error) {
	return func(s site) (*tool, error) {
		path := filepath.Join(s.dir, "dbos.db")
		config := dbos.Config{AppName: "bench", DatabaseURL: "sqlite:" + path, Logger: slog.New(slog.DiscardHandler)}
		release := func() error { return nil }
		if synced {
			db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(on)"+
				"&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
			if err != nil {
				return nil, err
			}
			db.SetMaxOpenConns(8) // as DBOS has it
			db.SetMaxIdleConns(4)
			config.DatabaseURL, config.SQLiteSystemDB, release = "", db, db.Close
		}
		c, err := dbos.NewContext(context.Background(), config)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		transport := base()
		charge := chargeWorkflow(s, &http.Client{Transport: transport, Timeout: attemptTimeout}, keyed)
		dbos.RegisterWorkflow(c, charge, dbos.WithWorkflowName("charge"))
		if err := dbos.Launch(c); err != nil {
			return nil, errors.Join(err, release())
		}
		start := func(order string) (dbos.WorkflowHandle[string], error) {
			return dbos.RunWorkflow(c, charge, order, dbos.WithWorkflowID(order))
		}
		return &tool{
			ask: func(order string) error {
				handle, err := start(order)
				if err != nil {
					return err
				}
				_, err = handle.GetResult(dbos.WithHandlePollingInterval(pollEvery))
				return err
			},
			accept: func(order string) error {
				handle, err := start(order)
				if err != nil {
					return err
				}
				go func() {
					if _, err := handle.GetResult(dbos.WithHandlePollingInterval(pollEvery)); err == nil {
						s.told(order)
					}
				}()
				return nil
			},
			audit: func(ctx context.Context, made func(string)) error { return auditDBOS(ctx, c, made) },
			close: func() error {
				err := dbos.Shutdown(c, 5*time.Second)
				transport.CloseIdleConnections()
				return errors.Join(err, release())
			},
		}, nil
	}
}

func chargeWorkflow(s site, client *http.Client, keyed bool) dbos.Workflow[string, string] {
	return func(c dbos.Context, order string) (string, error) {
		id, err := dbos.GetWorkflowID(c)
		if err != nil {
			return "", err
		}
		return dbos.RunAsStep(c, func(ctx context.Context) (string, error) {
			key := id
			if !keyed {
				key = mint(order)
			}
			req, err := newRequest(ctx, s.url, order, key)
			if err != nil {
				return "", err
			}
			return "charged", charged(client.Do(req))
		}, dbos.WithStepName("charge"), dbos.WithStepMaxRetries(stepRetries),
			dbos.WithStepBaseInterval(minWait), dbos.WithStepMaxInterval(maxWait))
	}
}

func auditDBOS(ctx context.Context, c dbos.Context, made func(string)) error {
	for {
		open, err := dbos.ListWorkflows(c, dbos.WithFilterStatus(dbos.WorkflowStatusPending, dbos.WorkflowStatusEnqueued))
		if err != nil {
			return err
		}
		if len(open) == 0 {
			break
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	all, err := dbos.ListWorkflows(c, dbos.WithFilterStatus(dbos.WorkflowStatusSuccess))
	for _, w := range all {
		made(w.ID)
	}
	return err
}
