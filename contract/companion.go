package contract

import (
	"net/http"
	"strconv"
	"time"
)

// Companion is a header that goes with the key and that we write. It takes the
// place of one that the caller has set.
type Companion struct {
	Header string
	Value  CompanionValue
	// PerAttempt is true where each attempt has its own value. Zero means that
	// the first send's is kept, however often the request is sent.
	PerAttempt bool
}

// CompanionValue is what a companion header says.
type CompanionValue string

const (
	// HTTPDate is the instant of the send as an IMF-fixdate (RFC 9110 5.6.7).
	HTTPDate CompanionValue = "http date"
	// UnixTime is the instant of the send in whole seconds since 1970.
	UnixTime CompanionValue = "unix"
)

// Text returns the header's value for an attempt at now of an intent that was
// first sent at firstSent; at the first attempt the two are the same. It is
// empty where the companion says nothing.
func (c Companion) Text(firstSent, now time.Time) string {
	at := firstSent
	if c.PerAttempt {
		at = now
	}
	switch c.Value {
	case HTTPDate:
		return at.UTC().Format(http.TimeFormat)
	case UnixTime:
		return strconv.FormatInt(at.Unix(), 10)
	}
	return ""
}
