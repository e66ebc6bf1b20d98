package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// This file has to do with the example only: it runs the shop in a process of
// its own, which is killed, and stops it where a kill hurts most.

const (
	workerEnv = "OUTBOX_WORKER" // its value is the assignment

	wordUp      = "up"      // the process works
	wordTold    = "told"    // OnSettled was called
	wordStopped = "stopped" // the process waits to be killed

	exitFailed = 3 // unlike what a killed process exits with
	dayPause   = 30 * time.Millisecond
)

// The moments at which a process waits to be killed.
const (
	stopNowhere  = ""
	stopPlacing  = "placing"  // an order's row is committed, its charge is not prepared
	stopSettling = "settling" // a settled order's row is committed, OnSettled has not returned
)

// assignment is what a worker is told by its parent.
type assignment struct {
	Dir, URL string
	Orders   int
	Stop     string
}

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// workerMain is main of a worker process. It returns the exit status: 0 once
// every order is settled.
func workerMain() int {
	go endWithParent()
	var a assignment
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &a)
	if err == nil {
		err = a.work(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}

// work is the shop's day: orders come in, until there are enough of them and
// all are settled.
func (a assignment) work(ctx context.Context) (err error) {
	// Short waits, since this provider is on loopback and fails on purpose.
	// MaxDeaths is far above its default of 3 for the same reason: here a death
	// in the middle of an attempt says nothing about the request, as somebody
	// kills us all the time. Leave all of them out elsewhere.
	s, err := openShop(a.Dir, a.URL, idem.RetryPolicy{
		MaxDeaths: 1000, MinBackoff: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, AttemptTimeout: 300 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	s.client.OnSettled = a.troubled(s.settled)
	if err := s.start(ctx); err != nil {
		return err
	}
	fmt.Println(wordUp)
	for {
		all, open, err := s.count(ctx)
		switch {
		case err != nil:
			return err
		case all < a.Orders:
			err = a.place(ctx, s, newOrder(all+1))
		case open == 0:
			return s.close(ctx)
		}
		if err != nil {
			return err
		}
		time.Sleep(dayPause)
	}
}

// newOrder is the n-th order. Every tenth is more than the card is good for.
func newOrder(n int) order {
	o := order{fmt.Sprintf("order-%d", n), 1000 + n}
	if n%10 == 0 {
		o.cents += maxCents
	}
	return o
}

func (a assignment) place(ctx context.Context, s *shop, o order) error {
	if a.Stop != stopPlacing {
		return s.place(ctx, o)
	}
	if err := s.record(ctx, o); err != nil {
		return err
	}
	waitToBeKilled()
	return nil
}

// troubled is the shop's hook on a bad day: its database is down for the first
// call of each process.
func (a assignment) troubled(settled func(context.Context, idem.Intent) error) func(context.Context, idem.Intent) error {
	var calls atomic.Int64
	return func(ctx context.Context, in idem.Intent) error {
		fmt.Println(wordTold, strings.TrimSuffix(in.Operation, chargeSuffix))
		if calls.Add(1) == 1 {
			return errors.New("the shop's database is down")
		}
		err := settled(ctx, in)
		if a.Stop == stopSettling && err == nil {
			waitToBeKilled()
		}
		return err
	}
}

func waitToBeKilled() {
	fmt.Println(wordStopped)
	select {} // endWithParent is still there
}

// endWithParent ends the process when its parent is gone, however that went: the
// parent holds the other end of stdin.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
	os.Exit(exitFailed)
}
