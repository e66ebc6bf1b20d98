package idem_test

import "os"

// fullFaults asks for the fault groups in the size that .ci/run demands of them:
// IDEM_FAULTS=full. Otherwise they are as small as they can be and still see
// each mistake in most runs.
var fullFaults = os.Getenv("IDEM_FAULTS") == "full" && !raced

// share divides a size that is for full runs.
func share(quick, race int) int {
	switch {
	case fullFaults:
		return 1
	case raced:
		return race
	}
	return quick
}

var (
	diskShare  = share(4, 8)   // of what the disk tests try
	killsShare = share(10, 20) // of how often the kill loops kill
)
