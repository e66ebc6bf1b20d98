package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// load is what a number of callers did in a stretch of time.
type load struct {
	operations int
	took       time.Duration
	latencies  []time.Duration // of each, sorted
}

func (l load) perSecond() float64 { return float64(l.operations) / l.took.Seconds() }

func (l load) quantile(q float64) time.Duration {
	if len(l.latencies) == 0 {
		return 0
	}
	return l.latencies[min(int(q*float64(len(l.latencies))), len(l.latencies)-1)]
}

// subject is one of the things that are compared.
type subject struct {
	name string
	do   func(n int64) error // one operation; n is new each time
}

// numbers are given to operations, over the whole run.
var numbers atomic.Int64

// play lets callers work at once for a while.
func (r *run) play(s subject, callers int, length time.Duration) (load, error) {
	ctx, cancel := context.WithTimeout(r.ctx, length)
	defer cancel()
	parts := make([]load, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				if errs[i] = s.do(numbers.Add(1)); errs[i] != nil {
					cancel()
					return
				}
				parts[i].latencies = append(parts[i].latencies, time.Since(start))
			}
		})
	}
	all.Wait()
	out := load{took: time.Since(begun)}
	for _, part := range parts {
		out.latencies = append(out.latencies, part.latencies...)
	}
	slices.Sort(out.latencies)
	out.operations = len(out.latencies)
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("%s: %w", s.name, err)
	}
	return out, nil
}

// compare plays the subjects in turn, in each round in another order, and calls
// each with the loads of every round, in the order of the subjects.
func (r *run) compare(callers int, each func(loads []load), subjects ...subject) error {
	for _, s := range subjects { // connections, caches, file sizes
		if _, err := r.play(s, callers, r.round/2); err != nil {
			return err
		}
	}
	for round := range r.rounds {
		loads := make([]load, len(subjects))
		for i := range subjects {
			at := (i + round) % len(subjects)
			var err error
			if loads[at], err = r.play(subjects[at], callers, r.round); err != nil {
				return err
			}
		}
		each(loads)
	}
	return r.ctx.Err()
}

// provider is a server in a process of its own: it reads the request and answers
// 300 bytes.
type provider struct {
	url     string
	command *exec.Cmd
	input   io.Closer
}

func (r *run) provider() (*provider, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &provider{command: exec.Command(self)}
	p.command.Env = append(os.Environ(), "IDEM_BENCH_SERVER=1")
	p.command.Stderr = os.Stderr
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

// served starts a provider for do.
func (r *run) served(do func(p *provider) error) error {
	p, err := r.provider()
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.close())
}

// journaled opens a new journal for do.
func (r *run) journaled(do func(*idem.SQLiteJournal) error) error {
	journal, err := idem.Open(r.scratch("idem"), nil)
	if err != nil {
		return err
	}
	return errors.Join(do(journal), journal.Close())
}

func (p *provider) close() error {
	return errors.Join(p.input.Close(), p.command.Wait())
}

// serve is the provider's process. It ends when its standard input does.
func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answer := []byte(`{"id":"ch_1","filler":"` + strings.Repeat("x", 300-26) + `"}`)
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/stream" { // the instant at which its first byte leaves
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintln(w, time.Now().UnixNano())
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
		}))
	}()
	fmt.Println("http://" + listener.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
