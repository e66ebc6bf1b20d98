package idem_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

const (
	killsEnv  = "IDEM_KILLS" // of the tests below together, such as 20000
	killsOf   = 2_000
	killsTime = 3 * time.Minute // bounds a test of killsOf kills, however slow the machine is
)

// kills is how often each of the two tests kills, and how long that may take.
func kills(t *testing.T) (n int, patience time.Duration) {
	n = killsOf / killsShare
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, killsEnv)
		require.Positive(t, n, killsEnv)
	}
	return n / 2, killsTime * time.Duration(1+n/killsOf)
}

// killing is one loop over one world.
type killing struct {
	*killedWorld
	processes, lives int           // as in faultinjection.CrashLoop
	maxLife          time.Duration // zero: only points
	calls            int           // of each caller; zero: until it is killed
	point            func(life int) string
	wrong            mistake
}

// run returns what the loop did, and the error that it ended with.
func (k *killing) run(ctx context.Context) (faultinjection.CrashReport, error) {
	return faultinjection.CrashLoop{
		Processes: k.processes, Lives: k.lives, MaxLife: k.maxLife, Seed: k.seed, Check: k.check,
		Command: func(number int) *exec.Cmd {
			l := k.life(number, (number-1)/k.processes)
			l.Calls, l.Wrong = k.calls, k.wrong
			if number > k.processes*k.lives {
				k.calm.Store(true)
				l.Calls, l.Last = 3, true
			}
			cmd := l.command(k)
			cmd.Stdin = k.held
			if k.point != nil {
				cmd.Env = append(cmd.Env, "FAULTINJECTION_CRASH="+k.point(number))
			}
			return cmd
		},
	}.Run(ctx)
}

// mustRun demands that no rule was broken.
func (k *killing) mustRun(ctx context.Context) faultinjection.CrashReport {
	k.Helper()
	start := time.Now()
	report, err := k.run(ctx)
	require.NoError(k, err)
	k.Logf("seed %d: %d kills of %d processes, %d at a time, and %d checks in %v, lives up to %v; %+v",
		report.Seed, report.Killed, report.Lives, k.processes, report.Checks, time.Since(start).Round(time.Millisecond), k.maxLife, k.seen)
	require.Equal(k, k.processes*k.lives+1, report.Lives)
	require.Equal(k, k.lives+1, report.Checks)
	return report
}

// idleLife is how long a process lives that does nothing but open the journal
// and close it, on this machine, now.
func idleLife(t *testing.T) time.Duration {
	w := newKilledWorld(t, 1)
	var took []time.Duration
	for range 5 {
		l := w.life(0, 0)
		l.Calls = -1
		cmd := l.command(t)
		cmd.Stdin = w.held
		start := time.Now()
		require.NoError(t, cmd.Run())
		took = append(took, time.Since(start))
	}
	return slices.Max(took)
}
