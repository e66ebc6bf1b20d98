//go:build !race

package idem_test

// diskShare divides how much the disk tests try.
const diskShare = 1
