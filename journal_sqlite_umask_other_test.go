//go:build !unix

package idem

func setUmask(int) int { return 0 }
