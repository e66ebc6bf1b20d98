package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A worker is a process that has one tool and is killed. It is told an order in
// each line of its standard input, and says in lines what becomes of it.

const workerEnv = "IDEM_COMPARE_WORKER" // its value is the assignment

// assignment is what a worker is told by its parent.
type assignment struct {
	Kind, Dir, URL string
	// Once says that whoever brings an order brings it once, and is done with it
	// when it is accepted. Otherwise it is brought again until it is answered.
	Once bool
}

const (
	wordUp       = "up"       // the worker takes orders
	wordAccepted = "accepted" // the order is taken on: it need not be brought again
	wordMade     = "made"     // the charge is known to have been made
	wordFailed   = "failed"   // an error was given to the caller
	wordRefused  = "refused"  // the order could not be accepted
)

// auditTime bounds the wait for what is open at the end.
const auditTime = 2 * time.Minute

// exitFailed is the status of a worker that cannot work.
const exitFailed = 3

type worker struct {
	a    assignment
	tool *tool

	mu   sync.Mutex // of standard output
	open sync.WaitGroup
}

func (w *worker) say(word, order string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Println(word, order)
}

// workerMain is main of a worker process. It returns its exit status.
func workerMain() int {
	w := &worker{}
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &w.a)
	if err == nil {
		err = w.work()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}

// work takes orders until there are no more, and then says what is recorded.
func (w *worker) work() (err error) {
	k, err := kindNamed(w.a.Kind)
	if err != nil {
		return err
	}
	w.tool, err = k.open(site{dir: w.a.Dir, url: w.a.URL, told: func(order string) { w.say(wordMade, order) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.tool.close()) }()
	w.say(wordUp, "")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		order := lines.Text()
		w.open.Go(func() { w.take(order) })
	}
	w.open.Wait()
	if w.tool.audit == nil {
		return lines.Err()
	}
	ctx, cancel := context.WithTimeout(context.Background(), auditTime)
	defer cancel()
	return errors.Join(lines.Err(), w.tool.audit(ctx, func(order string) { w.say(wordMade, order) }))
}

func (w *worker) take(order string) {
	if w.a.Once && w.tool.accept != nil {
		word := wordAccepted
		if err := w.tool.accept(order); err != nil {
			word = wordRefused
		}
		w.say(word, order) // its end is told by the tool
		return
	}
	if w.a.Once {
		w.say(wordAccepted, order) // in memory, where else
	}
	word := wordMade
	if err := w.tool.ask(order); err != nil {
		word = wordFailed
	}
	w.say(word, order)
}
