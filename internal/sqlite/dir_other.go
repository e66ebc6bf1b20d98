//go:build !unix

package sqlite

// syncDir does nothing: the system has no such call, and journals its names.
func syncDir(string) error { return nil }
