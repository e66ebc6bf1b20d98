//go:build unix

package idem

import (
	"os"
	"syscall"
)

// stop freezes a process until cont: alive, and silent.
func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
