package faultinjection

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// crashEnv names the point at which a process is to die, and the pass: send:2.
const crashEnv = "FAULTINJECTION_CRASH"

// KillAt returns a hook for the named points of a program, such as
// idem.Transport.CrashPoint: when point is passed for the nth time, counted from
// 1, this process ends as kill -9 ends it. No deferred call runs, no buffer is
// flushed, and the hook does not return. (On Windows the process ends with
// status 1.) A point that the program does not have is never passed, so look
// whether the process died.
//
// It panics if point is empty or nth is less than 1. The hook is safe for
// concurrent use.
func KillAt(point string, nth int) func(point string) {
	return atPass(point, nth, killSelf)
}

// HookFromEnv returns the hook that the environment asks for:
// FAULTINJECTION_CRASH=send:2 means KillAt("send", 2). Without the variable, or
// with an empty one, it is nil, which is what a program runs with in production.
//
// Any other value is a mistake that would make a test prove nothing: it panics.
func HookFromEnv() func(point string) {
	value := os.Getenv(crashEnv)
	if value == "" {
		return nil
	}
	colon := strings.LastIndexByte(value, ':')
	nth, err := strconv.Atoi(value[colon+1:])
	if colon < 1 || err != nil || nth < 1 {
		panic(fmt.Sprintf("faultinjection: %s is %q, and not a point and the number of a pass, such as send:2", crashEnv, value))
	}
	return KillAt(value[:colon], nth)
}

// StopAt returns a hook that stops the goroutine which passes point for the nth
// time, counted from 1, so that a test can look at that moment, or do something
// in it. reached is closed when that goroutine is there, and goOn lets it go on;
// called before, it lets it pass without a stop. goOn may be called more than
// once, and must be called at all, or the goroutine is never seen again.
//
// It panics if point is empty or nth is less than 1. All three are safe for
// concurrent use, and work in a [testing/synctest] bubble if they are made there.
func StopAt(point string, nth int) (hook func(point string), reached <-chan struct{}, goOn func()) {
	there, away := make(chan struct{}), make(chan struct{})
	hook = atPass(point, nth, func() {
		close(there)
		<-away
	})
	return hook, there, sync.OnceFunc(func() { close(away) })
}

// atPass is a hook that does something at the nth pass of point.
func atPass(point string, nth int, do func()) func(string) {
	if point == "" || nth < 1 {
		panic(fmt.Sprintf("faultinjection: crash point %q, pass %d: a point has a name, and passes count from 1", point, nth))
	}
	var passed atomic.Int64
	return func(here string) {
		if here == point && passed.Add(1) == int64(nth) {
			do()
		}
	}
}

// killSelf does not return.
func killSelf() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil { // a test that waits for a kill has to see that there was none
		fmt.Fprintln(os.Stderr, "faultinjection: kill this process:", err)
		os.Exit(2)
	}
	select {} // it takes effect at once, but not before Kill returns
}
