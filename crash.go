package idem

import "slices"

// The points of an operation's life at which Transport.CrashPoint is called.
const (
	pointBegin    = "begin"    // before the intent is journaled
	pointBegun    = "begun"    // it is durable, and nothing was sent
	pointCount    = "count"    // before a resend is counted
	pointSend     = "send"     // the attempt is counted durably, and nothing of it was sent
	pointWritten  = "written"  // the request's header has left; the body may be on its way
	pointAnswered = "answered" // the answer, or an error, is here; its body is read where it is read at all
	pointRecord   = "record"   // before the end of an attempt is recorded
	pointRecorded = "recorded" // it is
	pointWait     = "wait"     // before the wait for the next attempt
	pointTell     = "tell"     // before OnSettled is told
	pointTold     = "told"     // it has been, and this is not recorded yet
)

// CrashPoints returns the points at which Transport.CrashPoint is called, in the
// order of an operation's life: begin (before it is journaled), begun (it is
// durable), count (before a resend is counted), send (nothing of the attempt was
// sent), written (its header was), answered, record (before its end is recorded),
// recorded, wait (before the next one), tell and told (around OnSettled). A call
// that settles at its first attempt passes neither count nor wait.
func CrashPoints() []string {
	return slices.Clone(crashPoints)
}

var crashPoints = []string{
	pointBegin, pointBegun, pointCount, pointSend, pointWritten, pointAnswered, pointRecord, pointRecorded, pointWait,
	pointTell, pointTold,
}

// pass is called at a point.
func (t *Transport) pass(point string) {
	if t.CrashPoint != nil {
		t.CrashPoint(point)
	}
}
