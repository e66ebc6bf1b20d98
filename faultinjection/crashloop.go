package faultinjection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// CrashLoop lets processes work, kills them at random moments, starts others in
// their place, and has somebody look what they left: again and again, and at the
// end once more after a life that nobody disturbed. What must hold at every
// moment has to hold after every life; what must come out in the end has to be
// there at the end.
//
// A life is one process, from its start to its end. It is killed, by the loop or
// by a crash point of its own ([HookFromEnv]), or ends by itself with status 0.
// Any other end is a failure: a process that meets what must not be says so, and
// exits with another status (on Windows with none of 0 and 1, which is that of a
// killed one).
//
// kill -9 leaves what was written to files, synced or not: such a loop proves
// nothing about power cuts.
type CrashLoop struct {
	// Command makes the command of a life, and does not start it. Lives are
	// numbered from 1; the last one, which nobody disturbs, has the number
	// Processes*Lives + 1. Standard output and error are kept, and shown if
	// something fails, where the command has no others. A command should end
	// when it is an orphan, such as when its standard input closes. It is
	// required.
	Command func(life int) *exec.Cmd
	// Processes is how many work at a time: they are started together, and the
	// next ones when the last of them has ended. Zero means 1.
	Processes int
	// Lives is how many lives each of these processes has, before the last one.
	// Zero means 100.
	Lives int
	// MaxLife is the longest time until a life is killed. Zero means that the
	// loop kills nobody: lives end by their own crash points.
	MaxLife time.Duration
	// Seed decides how long each life lasts, and so not what it does in that time.
	// Zero means a random one, which the report and every error tell.
	Seed uint64
	// Check looks at what was left, and returns an error if that must not be. No
	// life runs meanwhile: it is called each time that all which were started
	// together have ended; last is true after the one that nobody disturbed, which
	// runs without the variable FAULTINJECTION_CRASH. It is required.
	Check func(last bool) error
}

// CrashReport is what a [CrashLoop] did.
type CrashReport struct {
	Lives  int // processes started, the last one included
	Killed int // of them by the loop, or by their own crash points
	Checks int // calls of Check
	Seed   uint64
}

const (
	defaultLives = 100
	keptOutput   = 16 << 10        // bytes of a life's output, the last ones
	orphanedPipe = 5 * time.Second // how long output is awaited from processes that a life left
)

// Run runs the loop until the end, the first failure, or the end of ctx, which
// bounds it. In every case nothing that it has started is alive when it returns.
// The report tells how far it came, with an error too.
func (c CrashLoop) Run(ctx context.Context) (CrashReport, error) {
	l := &crashLoop{CrashLoop: c, ctx: ctx}
	if err := l.complete(); err != nil {
		return l.report, fmt.Errorf("faultinjection: crash loop: %w", err)
	}
	err := l.run()
	if err != nil {
		err = fmt.Errorf("faultinjection: crash loop with seed %d, after %d lives: %w", l.Seed, l.report.Lives, err)
	}
	return l.report, err
}

// crashLoop is one run.
type crashLoop struct {
	CrashLoop
	ctx    context.Context
	report CrashReport
}

// complete checks the fields and fills in what zero means.
func (l *crashLoop) complete() error {
	switch {
	case l.Command == nil:
		return errors.New("field Command is nil")
	case l.Check == nil:
		return errors.New("field Check is nil")
	case l.Processes < 0, l.Lives < 0, l.MaxLife < 0:
		return fmt.Errorf("fields Processes %d, Lives %d, MaxLife %v: none may be negative", l.Processes, l.Lives, l.MaxLife)
	}
	if l.Processes == 0 {
		l.Processes = 1
	}
	if l.Lives == 0 {
		l.Lives = defaultLives
	}
	for l.Seed == 0 {
		l.Seed = rand.Uint64()
	}
	l.report.Seed = l.Seed
	return nil
}

func (l *crashLoop) run() error {
	for range l.Lives {
		if err := l.round(l.Processes, false); err != nil {
			return err
		}
	}
	return l.round(1, true)
}

// round is so many lives at the same time, and a look at what they left.
func (l *crashLoop) round(n int, last bool) (err error) {
	var lives []*crashLife
	defer func() {
		if err != nil {
			err = withOutput(err, lives)
		}
	}()
	if err := l.live(n, last, &lives); err != nil {
		return err
	}
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	for _, life := range lives {
		killed, err := life.end()
		switch {
		case err != nil:
			return err
		case killed && last:
			return fmt.Errorf("life %d was killed, though nobody was to disturb it", life.number)
		case killed:
			l.report.Killed++
		}
	}
	l.report.Checks++
	if err := l.Check(last); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}

// live returns when all n lives are over.
func (l *crashLoop) live(n int, last bool, lives *[]*crashLife) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var over sync.WaitGroup
	defer over.Wait()
	started := false
	defer func() {
		if !started { // an error, or a test that gives up in Command: end the others
			cancel()
		}
	}()
	for range n {
		if l.ctx.Err() != nil {
			break
		}
		number := l.report.Lives + 1
		life := &crashLife{number: number, cmd: l.Command(number), left: &tail{}}
		if err := life.start(last); err != nil {
			return fmt.Errorf("start life %d: %w", number, err)
		}
		l.report.Lives++
		*lives = append(*lives, life)
		limit := l.limit(number)
		if last {
			limit = 0
		}
		over.Go(func() { life.await(ctx, limit) })
	}
	started = true
	return nil
}

// limit is how long a life lasts; zero means as long as it likes.
func (l *crashLoop) limit(number int) time.Duration {
	if l.MaxLife == 0 {
		return 0
	}
	random := rand.New(rand.NewPCG(l.Seed, uint64(number)))
	return 1 + time.Duration(random.Int64N(int64(l.MaxLife)))
}

// crashLife is one process.
type crashLife struct {
	number int
	cmd    *exec.Cmd
	left   *tail // of its output
	err    error // of Wait
}

func (l *crashLife) start(last bool) error {
	if l.cmd == nil {
		return errors.New("field Command returned nil")
	}
	if l.cmd.Stdout == nil {
		l.cmd.Stdout = l.left
	}
	if l.cmd.Stderr == nil {
		l.cmd.Stderr = l.left
	}
	if l.cmd.WaitDelay == 0 {
		l.cmd.WaitDelay = orphanedPipe
	}
	if last {
		l.cmd.Env = slices.DeleteFunc(l.cmd.Environ(), func(variable string) bool {
			return strings.HasPrefix(variable, crashEnv+"=")
		})
	}
	return l.cmd.Start()
}

// await waits for the end of the life, and brings it about after limit (zero:
// never) or when ctx ends.
func (l *crashLife) await(ctx context.Context, limit time.Duration) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.err = l.cmd.Wait()
	}()
	var due <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-over:
		return
	case <-due:
	case <-ctx.Done():
	}
	_ = l.cmd.Process.Kill() // fails where it has ended just now
	<-over
}

// end tells how a life ended that is over.
func (l *crashLife) end() (killed bool, err error) {
	switch state := l.cmd.ProcessState; {
	case state == nil:
		return false, fmt.Errorf("life %d: %w", l.number, l.err)
	case state.Success():
		return false, nil
	case wasKilled(state):
		return true, nil
	default:
		return false, fmt.Errorf("life %d ended by itself: %v", l.number, state)
	}
}

// withOutput adds to an error what the lives said.
func withOutput(err error, lives []*crashLife) error {
	var text strings.Builder
	for _, life := range lives {
		if said := life.left.String(); said != "" {
			fmt.Fprintf(&text, "\nlife %d said:\n%s", life.number, said)
		}
	}
	if text.Len() == 0 {
		return err
	}
	return fmt.Errorf("%w%s", err, text.String())
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if more := len(t.kept) - keptOutput; more > 0 {
		t.kept, t.cut = slices.Delete(t.kept, 0, more), true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return "... " + string(t.kept)
	}
	return string(t.kept)
}
