package idem

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wrongJournal is the true one with a mistake. What a mistake remembers is
// shared by the handles of a file, as it would be if it were in the file.
type wrongJournal struct {
	*SQLiteJournal
	*mistake
	path string
	late []wrongPost
}

type wrongPost struct {
	next Intent
	note *Attempt
}

// mistake is what a wrong journal does otherwise; what is nil is done right.
type mistake struct {
	begin  func(w *wrongJournal, want, got Intent, claimed bool) (Intent, bool)
	due    func(got []Intent) []Intent
	update func(w *wrongJournal, next Intent, a *Attempt, durable bool) (Intent, *Attempt, bool)
	after  func(w *wrongJournal, next, got Intent, err error) (Intent, error)
	prune  func(w *wrongJournal, before time.Time)
	read   func(in Intent) (shown Intent, gone bool)
	close  func(w *wrongJournal)
}

func (w *wrongJournal) Begin(ctx context.Context, want Intent) (Intent, bool, error) {
	w.flush(ctx)
	got, claimed, err := w.SQLiteJournal.Begin(ctx, want)
	if err == nil && w.mistake.begin != nil {
		got, claimed = w.mistake.begin(w, want, got, claimed)
	}
	return got, claimed, err
}

func (w *wrongJournal) ClaimDue(ctx context.Context, now time.Time, f Filter) ([]Intent, time.Time, error) {
	w.flush(ctx)
	got, next, err := w.SQLiteJournal.ClaimDue(ctx, now, f)
	if w.mistake.due != nil {
		got = w.mistake.due(got)
	}
	return got, next, err
}

func (w *wrongJournal) Update(ctx context.Context, next Intent, a *Attempt, durable bool) (Intent, error) {
	wrong, note, skip := next, a, false
	if w.mistake.update != nil {
		wrong, note, skip = w.mistake.update(w, next, a, durable)
	}
	if skip {
		next.Version++
		return next, nil
	}
	got, err := w.SQLiteJournal.Update(ctx, wrong, note, durable)
	if w.mistake.after != nil {
		got, err = w.mistake.after(w, next, got, err)
	}
	return got, err
}

// flush writes what was posted, except for a death or a Close.
func (w *wrongJournal) flush(ctx context.Context) {
	for _, p := range w.late {
		_, _ = w.SQLiteJournal.Update(ctx, p.next, p.note, false)
	}
	w.late = nil
}

func (w *wrongJournal) Lookup(ctx context.Context, scope, operation string) (Intent, error) {
	w.flush(ctx)
	in, err := w.SQLiteJournal.Lookup(ctx, scope, operation)
	if err == nil && w.mistake.read != nil {
		in, _ = w.mistake.read(in)
	}
	return in, err
}

func (w *wrongJournal) List(ctx context.Context, f Filter) ([]Intent, error) {
	w.flush(ctx)
	list, err := w.SQLiteJournal.List(ctx, f)
	if w.mistake.read == nil {
		return list, err
	}
	var left []Intent
	for _, in := range list {
		if in, gone := w.mistake.read(in); !gone {
			left = append(left, in)
		}
	}
	return left, err
}

func (w *wrongJournal) Prune(ctx context.Context, before time.Time) (int, error) {
	w.flush(ctx)
	n, err := w.SQLiteJournal.Prune(ctx, before)
	if w.mistake.prune != nil {
		w.mistake.prune(w, before)
	}
	return n, err
}

func (w *wrongJournal) Close() error {
	if w.mistake.close != nil {
		w.mistake.close(w)
	}
	return w.SQLiteJournal.Close()
}

// exec does to the file what a wrong statement would.
func (w *wrongJournal) exec(query string, args ...any) {
	db, err := openRaw(w.path)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(query, args...); err != nil {
		panic(err)
	}
}

// mistakes are the designs that must be found. Each call makes a new one.
var mistakes = map[string]func() *mistake{
	"forgets what was given up": func() *mistake {
		return &mistake{read: func(in Intent) (Intent, bool) { return in, in.State == StateWithdrawn || in.State == StateHeld }}
	},
	"mints a new key when it is begun again": func() *mistake {
		return &mistake{begin: func(_ *wrongJournal, want, got Intent, claimed bool) (Intent, bool) {
			if claimed && want.Key != "" {
				got.Key = want.Key
			}
			return got, claimed
		}}
	},
	"grants a claim to two": func() *mistake {
		return &mistake{begin: func(_ *wrongJournal, want, got Intent, claimed bool) (Intent, bool) {
			if got.Owned && !got.State.Final() {
				got.Claimed, got.Owned, claimed = true, false, true
			}
			return got, claimed
		}}
	},
	"changes a final state": func() *mistake {
		changed := map[string]State{}
		return &mistake{
			after: func(_ *wrongJournal, next, got Intent, err error) (Intent, error) {
				if err != nil && next.State.Final() {
					changed[next.Key] = next.State
				}
				return got, err
			},
			read: func(in Intent) (Intent, bool) {
				if to, ok := changed[in.Key]; ok && in.State.Final() {
					in.State = to
				}
				return in, false
			},
		}
	},
	"lets the last answer win": func() *mistake {
		codes := map[string]int{}
		return &mistake{
			after: func(_ *wrongJournal, next, got Intent, err error) (Intent, error) {
				if next.State.Final() && next.Outcome != nil {
					codes[next.Key] = next.Outcome.StatusCode
				}
				return got, err
			},
			read: func(in Intent) (Intent, bool) {
				if code, ok := codes[in.Key]; ok && in.Outcome != nil {
					in.Outcome.StatusCode = code
				}
				return in, false
			},
		}
	},
	"loses what was posted when it is closed": func() *mistake {
		return &mistake{
			update: func(w *wrongJournal, next Intent, a *Attempt, durable bool) (Intent, *Attempt, bool) {
				if durable || next.State != StateSucceeded {
					return next, a, false
				}
				w.late = append(w.late, wrongPost{next, a})
				return next, a, true
			},
			close: func(w *wrongJournal) { w.late = nil },
		}
	},
	"prunes what is unfinished": func() *mistake {
		pruned := map[string]bool{}
		return &mistake{
			prune: func(w *wrongJournal, before time.Time) {
				list, _ := w.SQLiteJournal.List(context.Background(), Filter{Limit: 10_000, States: []State{StatePending, StateUnknown, StateHeld}})
				for _, in := range list {
					pruned[in.ID] = pruned[in.ID] || in.Created.Before(before) && !in.Owned
				}
			},
			read: func(in Intent) (Intent, bool) { return in, pruned[in.ID] },
		}
	},
	"takes what a dead owner was sending for unsent": func() *mistake {
		return &mistake{
			begin: func(_ *wrongJournal, _, got Intent, claimed bool) (Intent, bool) {
				if claimed && got.Deaths > 0 {
					got.State, got.Doubt = StatePending, false
				}
				return got, claimed
			},
		}
	},
	"loses doubt when it is resent": func() *mistake {
		return &mistake{update: func(_ *wrongJournal, next Intent, a *Attempt, _ bool) (Intent, *Attempt, bool) {
			if next.State == StateInFlight {
				next.Doubt = false
			}
			return next, a, false
		}}
	},
	"counts the attempts of a life": func() *mistake {
		return &mistake{due: func(due []Intent) []Intent {
			for i := range due {
				due[i].Attempts = 0
			}
			return due
		}}
	},
	"claims a dead owner's rows for nobody": func() *mistake {
		return &mistake{due: func(due []Intent) []Intent {
			return slices.DeleteFunc(due, func(in Intent) bool { return in.Deaths > 0 })
		}}
	},
	"writes over a living owner": func() *mistake {
		return &mistake{after: func(w *wrongJournal, next, got Intent, err error) (Intent, error) {
			if err != nil && next.State == StateUnknown {
				if id, e := rowID(next.ID); e == nil {
					w.exec(`UPDATE status SET state = 'unknown', doubt = 1, hold_reason = '', version = version + 1 WHERE id = ? AND state = 'in_flight'`, id)
				}
			}
			return got, err
		}}
	},
	"notes no attempt that was cut": func() *mistake {
		return &mistake{begin: func(w *wrongJournal, _, got Intent, claimed bool) (Intent, bool) {
			if claimed && got.Deaths > 0 {
				w.exec(`DELETE FROM attempt WHERE decision = 'interrupted'`)
			}
			return got, claimed
		}}
	},
}

// wrongly makes journals with a mistake.
func wrongly(mistaken func() *mistake) machineWrap {
	return func() func(*SQLiteJournal, string) Journal {
		wrong := mistaken()
		return func(j *SQLiteJournal, path string) Journal {
			return &wrongJournal{SQLiteJournal: j, mistake: wrong, path: path}
		}
	}
}

// Each mistake is found in less than what a run tries.
func TestMachine_FindsMistakes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, make := range mistakes {
		t.Run(name, func(t *testing.T) {
			wrap := wrongly(make)
			right, _, failed := machineTried(t, seed, machineChecks, wrap)
			require.NotNil(t, failed, "not found in %d sequences", right)
			t.Logf("found in sequence %d: %v", right, failed.err)
		})
	}
	assert.GreaterOrEqual(t, len(mistakes), 10)
}

// A failure is shown with no more than it needs.
func TestMachine_Shrinks(t *testing.T) {
	wrap := wrongly(mistakes["grants a claim to two"])
	_, _, failed := machineTried(t, 1, machineChecks, wrap)
	require.NotNil(t, failed)
	acts, trace, err := machineShrunk(t, machineSequence(failed.seed, failed.n), wrap)
	require.ErrorContains(t, err, "R12")
	assert.LessOrEqual(t, len(acts), 3, "%v", trace)
	assert.Len(t, trace, len(acts))
}
