// Agent runs an agent's loop of model turns and tool calls in a process that is
// killed again and again, and started again as agent frameworks do: from the last
// turn that was written down. It does so twice, first with tools whose HTTP client
// mints a key for each call, then with idem, which names each call by its run and
// by the id that the model gave it. Then it counts what the tools did.
//
//	go run ./examples/agent
//
// It needs nothing but a loopback port and a temporary directory, and exits with 0
// only if under idem every tool call had its effect exactly once, and equal calls
// that were meant twice had it twice.
//
// The part to copy from is agent.go. model.go plays the model, provider.go is what
// the tools call, with its faults, worker.go is the process that is killed, and
// check.go counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idem-go/idem/faultinjection"
)

// config is what both halves of the story depend on.
type config struct {
	runs    int           // of the agent
	lives   int           // of its process, before the one that nobody disturbs
	maxLife time.Duration // until it is killed, if it has not died before; zero: it is not
	seed    uint64        // of faults and kills
	limit   time.Duration // for everything
}

// report is everything that is printed and checked.
type report struct {
	naive, idem tally
	wrong       []string // empty: all is well
}

func main() {
	if isWorker() { // the parent started this process to be the agent
		os.Exit(workerMain())
	}
	c := config{runs: 8, lives: 12, maxLife: time.Second, limit: 2 * time.Minute}
	flag.Uint64Var(&c.seed, "seed", 17, "seed of the faults and the kills")
	flag.Parse()

	// Ctrl-C ends the run in order: the agent is killed, the files removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r, err := run(ctx, c, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
	}
	if err != nil || len(r.wrong) > 0 {
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, c config, out io.Writer) (r report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("not done after %v", c.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(out, "%d runs of an agent, killed while it works, seed %d\n", c.runs, c.seed)
	if r.naive, err = work(ctx, c, modeNaive, filepath.Join(dir, modeNaive)); err != nil {
		return r, fmt.Errorf("naive tools: %w", err)
	}
	if r.idem, err = work(ctx, c, modeIdem, filepath.Join(dir, modeIdem)); err != nil {
		return r, fmt.Errorf("tools under idem: %w", err)
	}
	r.wrong = check(c, r)
	r.print(out, c)
	return r, nil
}

// work is one half: the agent's process is killed and started until every run has
// come to its end.
func work(ctx context.Context, c config, mode, dir string) (t tally, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t, err
	}
	p, err := startProvider(dir, c.seed)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.close()) }() // before the directory goes
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	lives, err := faultinjection.CrashLoop{
		Command: func(life int) *exec.Cmd {
			return assignment{Mode: mode, Dir: dir, URL: p.running.URL, Runs: c.runs}.command(self, life)
		},
		Lives: c.lives, MaxLife: c.maxLife, Seed: c.seed + 1,
		Check: func(last bool) (err error) {
			t, err = count(ctx, c, mode, dir, p.ledger)
			if err == nil && last && t.ended < c.runs {
				err = fmt.Errorf("%d of %d runs have come to their end", t.ended, c.runs)
			}
			return err
		},
	}.Run(ctx)
	t.kills = lives.Killed
	return t, err
}
