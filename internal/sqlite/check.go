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

// damaged reports a stored status that the schema would refuse, so that no
// write may leave it as it is.
func (st *Status) damaged() bool {
	return st.check(st.Owner != 0) != nil || st.Version < 1 || st.State == inFlight && st.Began == 0 ||
		min(st.Began, st.FirstSent, st.Due, st.Expires, st.Settled) < 0
}

// judge shows a row whose status cannot be as held, and in doubt: what was sent
// of it is not known. What is final stays so. odd means that a value of it is of
// another type.
func (r *Row) judge(odd bool) {
	if !odd && !r.Status.damaged() {
		return
	}
	was := r.Status
	r.Damaged, r.stored = true, &was
	for _, n := range []*int64{
		&r.Attempts, &r.Deaths, &r.Resumes, &r.Began, &r.FirstSent, &r.Due, &r.Wait, &r.Expires, &r.Settled,
	} {
		*n = max(*n, 0)
	}
	r.Doubt, r.HoldReason = !final(r.State), ""
	if r.Doubt {
		r.State, r.HoldReason = held, holdChecksum
		if r.FirstSent == 0 { // the earliest that it can be
			r.FirstSent = max(r.Created, 0)
		}
	}
	if r.Settled == 0 {
		r.Settled = max(r.Began, r.FirstSent, r.Created, 1)
	}
}
