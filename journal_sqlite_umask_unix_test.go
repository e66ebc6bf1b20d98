//go:build unix

package idem

import "syscall"

func setUmask(mask int) int { return syscall.Umask(mask) }
