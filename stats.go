package idem

import (
	"context"
	"time"
)

// Stats tells how much a journal holds, and how it does. Counts are rows:
// generations of operations. What is zero does not occur.
type Stats struct {
	// Rows are all rows by state. Those that are pending, in flight, unknown or
	// held are counted at the call, the others at Counted.
	Rows map[State]int
	// Held are the held rows by reason. They wait for a person.
	Held map[HoldReason]int
	// Unfinished are the rows that are pending, in flight or unknown.
	Unfinished int
	// Oldest is when the first of the unfinished rows was made, in UTC; zero
	// means that there is none.
	Oldest time.Time
	// Tombstones are the rows whose bodies were pruned, counted at Counted. They
	// stay until Forget.
	Tombstones int
	// Counted is when the rows that are succeeded, rejected or withdrawn, or
	// whose state is damaged, were counted, in UTC. In a journal of up to 20,000
	// rows that is at each call.
	Counted time.Time

	// FileBytes is the size of the main file. It does not shrink: what is pruned
	// becomes FreeBytes, which are used again before the file grows.
	FileBytes, FreeBytes int64
	// WALBytes is the size of the -wal file beside it. It is kept at some
	// MiB, and grows only while another program keeps reading the journal.
	WALBytes int64

	// LastSync is the wall time of the last write of this handle that was
	// synced, in UTC; zero means that there was none since Open.
	LastSync time.Time
	// LastPrune is when bodies were pruned last, by whichever handle and
	// process, in UTC; zero means never.
	LastPrune time.Time
	// LastPruned is how many rows that changed.
	LastPruned int
}

// Stats looks at the journal, for a monitor. It is right while other handles
// and processes write, and writes nothing itself but what was posted before.
//
// It takes less than a millisecond, and about one more for each thousand of
// rows that it counts: all that are not closed, and of the closed ones either
// all or, where there are more than 20,000, none, so that counting takes no
// more than a twentieth of the time. A million of them take about a second,
// once in twenty. Others read and write meanwhile.
//
// Errors match [ErrJournal], after Close [ErrClosed] too, and where the file
// was deleted or replaced say so.
func (j *SQLiteJournal) Stats(ctx context.Context) (Stats, error) {
	st, err := j.store.Stats(ctx)
	if err != nil {
		return Stats{}, failure("stats", err)
	}
	told := Stats{
		Rows: make(map[State]int, len(st.States)), Held: make(map[HoldReason]int, len(st.Held)),
		Oldest: instant(st.Oldest), Tombstones: int(st.Tombstones), Counted: instant(st.Counted),
		FileBytes: st.File, FreeBytes: st.Free, WALBytes: st.Log,
		LastSync: instant(st.Synced), LastPrune: instant(st.Pruned), LastPruned: int(st.PrunedRows),
	}
	for state, n := range st.States {
		told.Rows[State(state)] = int(n)
	}
	for why, n := range st.Held {
		told.Held[HoldReason(why)] = int(n)
	}
	told.Unfinished = told.Rows[StatePending] + told.Rows[StateInFlight] + told.Rows[StateUnknown]
	return told, nil
}
