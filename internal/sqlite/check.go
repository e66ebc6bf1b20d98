package sqlite

import (
	"fmt"
)

// check says why a row cannot be, as the CHECKs of the schema do, which a
// posted update would meet only after its caller has gone.
func (st *Status) check(owned bool) error {
	why := ""
	closed := final(st.State) || st.State == withdrawn || st.State == held
	switch {
	case !known(st.State):
		why = "no such state"
	case st.State == held && st.HoldReason == "" || st.HoldReason != "" && st.State != held && st.State != inFlight:
		why = "a hold reason goes with held, and with what is held once its owner is dead"
	case st.State == unknown && !st.Doubt:
		why = "it needs doubt"
	case st.Doubt && (st.State == pending || st.State == withdrawn || final(st.State)):
		why = "there can be no doubt"
	case st.State == inFlight && st.Attempts < 1:
		why = "no attempt was counted"
	case closed && st.Settled == 0:
		why = "it needs the instant of its settlement"
	case final(st.State) && owned && !st.Notify:
		why = "nobody owns it unless a notification is owed"
	case min(st.Attempts, st.Deaths, st.Resumes, st.Wait) < 0:
		why = "a count is negative"
	default:
		return nil
	}
	return fmt.Errorf("%w: state %q: %s", ErrNothingWritten, st.State, why)
}

func known(state string) bool {
	switch state {
	case pending, inFlight, unknown, held, withdrawn, succeeded, rejected:
		return true
	}
	return false
}
