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

// lives are the processes of the shop, one after another.
type lives struct {
	c    config
	work assignment

	kills map[string]int // by moment; stopNowhere: at random
	told  map[string]int // calls of OnSettled, by order
}

func newLives(c config, work assignment) *lives {
	return &lives{c: c, work: work, kills: map[string]int{}, told: map[string]int{}}
}

// all starts the shop again and again, and kills it: at a random moment, or at
// one of the two that matter. After c.kills kills it is left alone.
func (l *lives) all(ctx context.Context) error {
	random := rand.New(rand.NewPCG(l.c.seed, 0))
	stops := []string{stopPlacing, stopSettling, stopNowhere}
	for n := 0; ; n++ {
		var death time.Duration // zero: not at random
		l.work.Stop = stopNowhere
		if n < l.c.kills {
			l.work.Stop = stops[n%len(stops)]
			if l.work.Stop == stopNowhere {
				death = between(random, l.c.minLife, l.c.maxLife)
			}
		}
		if done, err := l.one(ctx, death); done || err != nil {
			return err
		}
	}
}

// one is the life of one process. It returns once that process is gone.
func (l *lives) one(ctx context.Context, death time.Duration) (done bool, err error) {
	w, err := startWorker(l.work)
	if err != nil {
		return false, err
	}
	var late <-chan time.Time
	killed, moment, cancelled := false, stopNowhere, ctx.Done()
	for lines := w.lines; lines != nil; {
		select {
		case line, ok := <-lines:
			word, order, _ := strings.Cut(line, " ")
			switch {
			case !ok:
				lines = nil // it is gone
			case word == wordUp && death > 0:
				late = time.After(death)
			case word == wordTold:
				l.told[order]++
			case word == wordStopped && !killed:
				killed, moment = true, l.work.Stop
				w.kill()
			}
		case <-late:
			killed = true
			w.kill()
		case <-cancelled:
			cancelled = nil
			w.kill()
		}
	}
	code := w.wait()
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case code == 0:
		return true, nil
	case killed && code != exitFailed:
		l.kills[moment]++
		return false, nil
	}
	return false, fmt.Errorf("the shop failed with exit status %d: %s", code, strings.TrimSpace(w.stderr.String()))
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
