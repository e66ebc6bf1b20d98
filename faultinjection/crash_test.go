package faultinjection_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// A process dies at the pass that its environment names, with nothing after it.
func TestHookFromEnv(t *testing.T) {
	for _, test := range []struct {
		value string
		says  string // standard output, in words
		dies  bool
		panic bool
	}{
		{value: "a:1", says: "a", dies: true},
		{value: "b:1", says: "a b", dies: true},
		{value: "a:2", says: "a b a", dies: true},
		{value: "b:2", says: "a b a b", dies: true},
		{value: "b:3", says: "a b a b end a deferred call"},
		{value: "c:1", says: "a b a b end a deferred call"},
		{value: "", says: "no hook a deferred call"},
		{value: "a", panic: true},
		{value: ":1", panic: true},
		{value: "a:", panic: true},
		{value: "a:0", panic: true},
		{value: "a:-1", panic: true},
		{value: "a:two", panic: true},
	} {
		t.Run(test.value, func(t *testing.T) {
			cmd := crashChild(t, "passes", "FAULTINJECTION_CRASH="+test.value)
			var mistakes strings.Builder
			cmd.Stderr = &mistakes
			out, err := cmd.Output()
			switch {
			case test.panic:
				assert.Contains(t, mistakes.String(), "FAULTINJECTION_CRASH is \""+test.value+"\"")
				assert.Equal(t, 2, cmd.ProcessState.ExitCode())
				assert.Equal(t, []string{"a", "deferred", "call"}, strings.Fields(string(out)), "a panic is no kill")
				return
			case test.dies:
				assert.Error(t, err)
				assert.NotContains(t, []int{0, 2}, cmd.ProcessState.ExitCode(), mistakes.String())
			default:
				assert.NoError(t, err)
			}
			assert.Equal(t, strings.Fields(test.says), strings.Fields(string(out)))
			assert.Empty(t, mistakes.String())
		})
	}
}

func TestCrashPointsThatAreNone(t *testing.T) {
	assert.PanicsWithValue(t, `faultinjection: crash point "", pass 1: a point has a name, and passes count from 1`,
		func() { faultinjection.KillAt("", 1) })
	assert.PanicsWithValue(t, `faultinjection: crash point "send", pass 0: a point has a name, and passes count from 1`,
		func() { faultinjection.StopAt("send", 0) })
}

// One goroutine of many stops: the one that is there for the nth time.
func TestStopAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const passes = 20
		hook, reached, goOn := faultinjection.StopAt("send", 3)
		var mu sync.Mutex
		var passed []string
		pass := func(point string) {
			hook(point)
			mu.Lock()
			defer mu.Unlock()
			passed = append(passed, point)
		}
		count := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return len(passed)
		}
		for range 2 {
			go pass("send")
			go pass("begin")
		}
		require.Equal(t, 4, count())
		select {
		case <-reached:
			require.Fail(t, "nobody is there yet")
		default:
		}
		for range passes {
			go pass("send")
		}
		<-reached
		require.Equal(t, 4+passes-1, count(), "the others pass")
		goOn()
		goOn()
		require.Equal(t, 4+passes, count())
		go pass("send")
		require.Equal(t, 5+passes, count())
		slices.Sort(passed)
		assert.Equal(t, []string{"begin", "begin", "send"}, passed[:3])
	})
}

func TestStopAtThatMayGoOnAlready(t *testing.T) {
	hook, reached, goOn := faultinjection.StopAt("send", 1)
	goOn()
	hook("send")
	<-reached
}
