package faultinjection_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// commands are the children of a loop, as its Command made them.
type commands struct {
	*testing.T
	made []*exec.Cmd
}

func (c *commands) make(name string, more ...string) *exec.Cmd {
	cmd := crashChild(c.T, name, more...)
	c.made = append(c.made, cmd)
	return cmd
}

// over demands that so many were started, and that all of them have ended.
func (c *commands) over(want int) {
	c.Helper()
	require.Len(c, c.made, want)
	for i, cmd := range c.made {
		require.NotNil(c, cmd.ProcessState, "life %d is not over", i+1)
	}
}

func TestCrashLoop(t *testing.T) {
	children := &commands{T: t}
	var checks []bool
	loop := faultinjection.CrashLoop{
		Processes: 2, Lives: 5, MaxLife: 20 * time.Millisecond, Seed: 7,
		Command: func(life int) *exec.Cmd {
			require.Len(t, children.made, life-1)
			if life > 2*5 {
				return children.make("ends")
			}
			return children.make("sleeps")
		},
		Check: func(last bool) error {
			checks = append(checks, last)
			children.over(min(2*len(checks), 11))
			return nil
		},
	}
	report, err := loop.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, faultinjection.CrashReport{Lives: 11, Killed: 10, Checks: 6, Seed: 7}, report)
	assert.Equal(t, []bool{false, false, false, false, false, true}, checks)
}

// Without numbers it is one process after another, many of them, and nobody
// kills but their own crash points.
func TestCrashLoopDefaults(t *testing.T) {
	children, enough, checks := &commands{T: t}, errors.New("enough"), 0
	loop := faultinjection.CrashLoop{
		Command: func(life int) *exec.Cmd {
			if life%2 == 1 {
				return children.make("ends")
			}
			return children.make("passes", "FAULTINJECTION_CRASH=b:2")
		},
		Check: func(last bool) error {
			assert.False(t, last)
			children.over(checks + 1)
			if checks++; checks == 10 {
				return enough
			}
			return nil
		},
	}
	report, err := loop.Run(t.Context())
	require.ErrorIs(t, err, enough)
	assert.Equal(t, faultinjection.CrashReport{Lives: 10, Killed: 5, Checks: 10, Seed: report.Seed}, report)
	assert.ErrorContains(t, err, fmt.Sprintf("with seed %d, after 10 lives", report.Seed))
	assert.NotZero(t, report.Seed)
}

func TestCrashLoopThatFails(t *testing.T) {
	wrong := errors.New("two effects")
	fine := func(bool) error { return nil }
	for _, test := range []struct {
		name   string
		second string // what life 2 of 4 does; the others end
		check  func(last bool) error
		says   []string
		lives  int
	}{
		{"a life that ends otherwise", "fails", fine, []string{"life 2 ended by itself: exit status 3", "life 2 said:\nwhat must not be"}, 2},
		{"a check", "dies", func(bool) error { return wrong }, []string{"check: two effects", "life 1 said:\nends"}, 2},
		{"the last check", "dies", func(last bool) error {
			if last {
				return wrong
			}
			return nil
		}, []string{"check: two effects"}, 5},
		{"no crash point in the last life", "ends", fine, []string{"life 5 ended by itself: exit status 3", `crash ""`}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			children := &commands{T: t}
			loop := faultinjection.CrashLoop{Processes: 2, Lives: 2, Seed: 9, Check: test.check, Command: func(life int) *exec.Cmd {
				switch {
				case life == 2:
					return children.make(test.second)
				case life == 5:
					return children.make("remembers", "FAULTINJECTION_CRASH=a:1")
				}
				return children.make("ends")
			}}
			if test.name == "the last check" {
				loop.Command = func(int) *exec.Cmd { return children.make("ends") }
			}
			report, err := loop.Run(t.Context())
			require.ErrorContains(t, err, "faultinjection: crash loop with seed 9, after ")
			for _, text := range test.says {
				assert.ErrorContains(t, err, text)
			}
			assert.Equal(t, test.lives, report.Lives)
			children.over(test.lives)
			if test.check(true) != nil {
				assert.ErrorIs(t, err, wrong)
			}
		})
	}
}

func TestCrashLoopWhoseLastLifeDies(t *testing.T) {
	children := &commands{T: t}
	report, err := faultinjection.CrashLoop{
		Lives: 1, Check: func(bool) error { return nil }, Command: func(int) *exec.Cmd { return children.make("dies") },
	}.Run(t.Context())
	require.ErrorContains(t, err, "life 2 was killed, though nobody was to disturb it")
	assert.Equal(t, 1, report.Killed)
}

func TestCrashLoopKeepsTheEndOfTheOutput(t *testing.T) {
	children := &commands{T: t}
	_, err := faultinjection.CrashLoop{
		Check: func(bool) error { return nil }, Command: func(int) *exec.Cmd { return children.make("talks") },
	}.Run(t.Context())
	require.ErrorContains(t, err, "xxxlast")
	assert.NotContains(t, err.Error(), "first")
	assert.Less(t, len(err.Error()), 17<<10)
}

// The end of the context ends every life.
func TestCrashLoopEndsWithItsContext(t *testing.T) {
	children := &commands{T: t}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too long"))
	defer cancel()
	report, err := faultinjection.CrashLoop{
		Processes: 2, Check: func(bool) error { return errors.New("is not asked") },
		Command: func(int) *exec.Cmd { return children.make("sleeps") },
	}.Run(ctx)
	require.ErrorContains(t, err, "too long")
	assert.Equal(t, 2, report.Lives)
	children.over(2)
	report, err = faultinjection.CrashLoop{
		Check: func(bool) error { return nil }, Command: func(int) *exec.Cmd { return children.make("sleeps") },
	}.Run(ctx)
	require.ErrorContains(t, err, "too long")
	assert.Zero(t, report.Lives)
	children.over(2)
}

// A Command that fails leaves no life behind that began before.
func TestCrashLoopWithACommandThatFails(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func() *exec.Cmd
		says string // empty: Run does not return
	}{
		{"none", func() *exec.Cmd { return nil }, "start life 2: field Command returned nil"},
		{"not there", func() *exec.Cmd { return exec.Command("/nothing/of/this/name") }, "start life 2: "},
		{"gives up", func() *exec.Cmd { runtime.Goexit(); return nil }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			children := &commands{T: t}
			loop := faultinjection.CrashLoop{Processes: 2, Check: func(bool) error { return nil }, Command: func(life int) *exec.Cmd {
				if life == 2 {
					return test.fail()
				}
				return children.make("sleeps")
			}}
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = loop.Run(t.Context())
			}()
			<-done
			if test.says != "" {
				assert.ErrorContains(t, err, test.says)
			}
			children.over(1)
		})
	}
}

func TestCrashLoopThatIsNone(t *testing.T) {
	command, check := func(int) *exec.Cmd { return nil }, func(bool) error { return nil }
	for says, loop := range map[string]faultinjection.CrashLoop{
		"Command is nil": {Check: check},
		"Check is nil":   {Command: command},
		"Processes -1":   {Command: command, Check: check, Processes: -1},
		"Lives -1":       {Command: command, Check: check, Lives: -1},
		"MaxLife -1ns":   {Command: command, Check: check, MaxLife: -1},
	} {
		_, err := loop.Run(t.Context())
		assert.ErrorContains(t, err, says)
	}
}
