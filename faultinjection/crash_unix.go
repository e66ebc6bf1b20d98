//go:build unix

package faultinjection

import (
	"os"
	"syscall"
)

// wasKilled reports that a process ended by kill -9, whoever sent it.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
