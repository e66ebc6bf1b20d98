package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// lives are the processes of one run, one after another.
type lives struct {
	k     kills
	work  assignment
	queue []string // orders that are to be brought, in order

	killed   int
	brought  int             // orders, again and again
	accepted map[string]bool // they are not brought again
	made     map[string]bool // the charge is known to have been made
	lastKill time.Time
}

// all starts the worker again and again, and kills it at random moments, until
// one comes to its end. After the last kill the worker is left alone.
func (l *lives) all(ctx context.Context) error {
	l.accepted, l.made = map[string]bool{}, map[string]bool{}
	random := rand.New(rand.NewPCG(l.k.seed, 1)) // the same moments for all
	for {
		life := l.k.minLife + time.Duration(random.Int64N(int64(l.k.maxLife-l.k.minLife)))
		ended, err := l.one(ctx, life)
		if ended || err != nil {
			return err
		}
	}
}

// life is one process.
type life struct {
	*lives
	input io.WriteCloser
	open  map[string]bool // brought, and not ended in this life
	up    bool
	last  bool // nothing more is brought
}

// one is the life of one process. It returns once that process is gone.
func (l *lives) one(ctx context.Context, length time.Duration) (ended bool, err error) {
	command, complaints, err := l.command()
	if err != nil {
		return false, err
	}
	one := &life{lives: l, open: map[string]bool{}}
	if one.input, err = command.StdinPipe(); err != nil {
		return false, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := command.Start(); err != nil {
		return false, err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	killed := one.follow(ctx, lines, length, command.Process.Kill)
	_ = one.input.Close()
	waited := command.Wait()
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("%s: %w", l.work.Kind, ctx.Err())
	case waited == nil:
		return true, nil // it came to its end, perhaps just before the kill
	case !killed || command.ProcessState.Exited():
		return false, fmt.Errorf("the worker failed: %w\n%s", waited, complaints)
	}
	l.killed++
	l.lastKill = time.Now()
	for order := range one.open { // what was being worked on comes last
		l.queue = append(l.queue, order)
	}
	return false, nil
}

func (l *lives) command() (*exec.Cmd, *bytes.Buffer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(l.work)
	if err != nil {
		return nil, nil, err
	}
	command := exec.Command(self)
	complaints := &bytes.Buffer{}
	command.Env = append(os.Environ(), workerEnv+"="+string(text))
	command.Stderr = complaints
	return command, complaints, nil
}

// follow brings orders and hears what becomes of them until the process is gone.
// It kills when the time has come, or ctx has ended.
func (l *life) follow(ctx context.Context, lines <-chan string, length time.Duration, kill func() error) (killed bool) {
	var death <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return killed
			}
			l.hear(line)
			if l.up && death == nil && l.killed < l.k.kills {
				death = time.After(length)
			}
			if !killed {
				l.bring()
			}
		case <-death:
			killed = kill() == nil
			death = make(chan time.Time) // once
		case <-done:
			done = nil
			_ = kill()
		}
	}
}

// hear notes one line of the worker.
func (l *life) hear(line string) {
	word, order, _ := strings.Cut(line, " ")
	switch word {
	case wordUp:
		l.up = true
	case wordAccepted:
		l.accepted[order] = true
	case wordMade:
		l.made[order] = true
		delete(l.open, order)
	case wordFailed, wordRefused:
		delete(l.open, order)
		if !l.accepted[order] {
			l.queue = append(l.queue, order) // brought again
		}
	}
}

// bring gives the worker so many orders that its callers are busy.
func (l *life) bring() {
	if !l.up || l.last {
		return
	}
	for len(l.open) < l.k.callers && len(l.queue) > 0 {
		order := l.queue[0]
		l.queue = l.queue[1:]
		if l.accepted[order] || l.made[order] || l.brought >= 50*l.k.orders {
			continue
		}
		l.brought++
		l.open[order] = true
		if _, err := fmt.Fprintln(l.input, order); err != nil {
			return // it is dying; the order is still open
		}
	}
	if len(l.open) == 0 && len(l.queue) == 0 {
		l.last = true
		_ = l.input.Close()
	}
}
