//go:build !linux

package sqlite

func statfs(string) (uint32, error) { return 0, nil }

func checkFilesystem(string, func(string) (uint32, error)) error { return nil }
