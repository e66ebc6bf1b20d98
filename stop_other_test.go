//go:build !unix

package idem

import "os"

// There is no such thing here: the process just goes on.
func stop(*os.Process) error { return nil }
func cont(*os.Process) error { return nil }
