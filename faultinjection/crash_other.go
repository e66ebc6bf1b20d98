//go:build !unix

package faultinjection

import "os"

// wasKilled reports that a process ended as os.Process.Kill ends it: Windows
// knows no signals, and notes status 1.
func wasKilled(state *os.ProcessState) bool { return state.ExitCode() == 1 }
