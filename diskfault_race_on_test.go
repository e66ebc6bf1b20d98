//go:build race

package idem_test

// diskShare divides how much the disk tests try: the race detector makes them
// many times slower.
const diskShare = 8
