package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// lives are the processes of one run, one after another.
type lives struct {
	c        config
	work     assignment
	provider *provider
	progress progress

	kills   int // that found the worker alive
	settled map[string]bool
}

const progressEvery = 250 * time.Millisecond // looked at; how often it is printed is up to progress

// all starts the worker again and again, and kills it at random moments, until
// it says that every order is settled. After c.kills kills it is left alone.
func (l *lives) all(ctx context.Context) error {
	l.settled = map[string]bool{}
	random := rand.New(rand.NewPCG(l.c.seed, 0)) // the same moments in both runs
	for {
		life := between(random, l.c.minLife, l.c.maxLife)
		done, err := l.one(ctx, life)
		if done || err != nil {
			l.progress.show(len(l.settled), l.work.Orders, l.kills, l.provider.arrivals.Load(), true)
			return err
		}
	}
}

// one is the life of one process. It returns once that process is gone.
func (l *lives) one(ctx context.Context, life time.Duration) (done bool, err error) {
	w, err := startWorker(l.work)
	if err != nil {
		return false, err
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var death <-chan time.Time
	killed, cancelled := false, ctx.Done()
	for lines := w.lines; lines != nil; {
		select {
		case line, ok := <-lines:
			word, order, _ := strings.Cut(line, " ")
			switch {
			case !ok:
				lines = nil // it is gone
			case word == wordUp && l.kills < l.c.kills:
				death = time.After(life)
			case word == wordFinished:
				l.settled[order] = true
			}
		case <-death:
			killed = true
			w.kill()
		case <-tick.C:
			l.progress.show(len(l.settled), l.work.Orders, l.kills, l.provider.arrivals.Load(), false)
		case <-cancelled:
			cancelled = nil
			w.kill()
		}
	}
	code := w.wait()
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case code == 0: // before the kill, if there was one
		if len(l.settled) < l.work.Orders {
			return false, fmt.Errorf("the worker ended with %d of %d orders settled", len(l.settled), l.work.Orders)
		}
		return true, nil
	case killed && code != exitFailed:
		l.kills++
		return false, nil
	}
	return false, fmt.Errorf("the worker failed with exit status %d: %s", code, strings.TrimSpace(w.stderr.String()))
}

// worker is a process that we started.
type worker struct {
	cmd    *exec.Cmd
	lines  chan string // what it says; closed when it is gone
	stderr bytes.Buffer
}

// startWorker starts this very program again, as a worker.
func startWorker(a assignment) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(self), lines: make(chan string)}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(told))
	w.cmd.Stderr = &w.stderr
	stdin, err := w.cmd.StdinPipe() // stays open as long as we live: see endWithParent
	if err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			w.lines <- scan.Text()
		}
	}()
	return w, nil
}

// kill sends SIGKILL. One that is gone already is not hurt: its id is ours until
// wait.
func (w *worker) kill() { _ = w.cmd.Process.Kill() }

// wait returns the exit status, -1 for a process that was killed, or 1 on
// Windows. It is called once lines are closed.
func (w *worker) wait() int {
	_ = w.cmd.Wait() // the status says it all; it closes stdin
	return w.cmd.ProcessState.ExitCode()
}
