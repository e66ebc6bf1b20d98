//go:build unix

package faultinjection_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

var _ = addTerminated() // before the init function that looks for it

func addTerminated() bool {
	crashChildren["is terminated"] = func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {}
	}
	return true
}

// Only kill -9 is one: whatever else ends a process is a failure.
func TestCrashLoopWithAnotherSignal(t *testing.T) {
	children := &commands{T: t}
	_, err := faultinjection.CrashLoop{
		Check: func(bool) error { return nil }, Command: func(int) *exec.Cmd { return children.make("is terminated") },
	}.Run(t.Context())
	require.ErrorContains(t, err, "life 1 ended by itself: signal: terminated")
}
