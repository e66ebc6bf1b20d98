package journaltest_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/journaltest"
)

const brokenEnv = "JOURNALTEST_BROKEN"

// An exam that nobody fails proves nothing: each of these mistakes fails, and
// at the rule that it breaks.
func TestMistakesAreFound(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestBrokenJournals$", "-test.v")
	cmd.Env = append(os.Environ(), brokenEnv+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "the exam let all of them pass: %s", out)
	for _, m := range mistakes {
		rule := strings.ReplaceAll("TestBrokenJournals/"+m.name+"/"+m.breaks, " ", "_")
		assert.True(t, strings.Contains(string(out), "--- FAIL: "+rule+" ("), "passed, or was not reached: %s", rule)
	}
	ended := strings.Contains(string(out), "--- PASS: TestBrokenJournals/none (")
	assert.True(t, ended, "the wrapper itself makes no mistake, and the process came to its end:\n...%s", out[max(0, len(out)-4000):])
}

// TestBrokenJournals is what TestMistakesAreFound runs in a process of its own,
// where it must fail. Elsewhere there is nothing to do.
func TestBrokenJournals(t *testing.T) {
	if os.Getenv(brokenEnv) == "" {
		return
	}
	none := mistake{name: "none", wrap: func() func(*bent) { return func(*bent) {} }}
	for _, m := range append(mistakes, none) {
		t.Run(m.name, func(t *testing.T) {
			journaltest.Run(t, func(*testing.T) journaltest.Store {
				s, wrap := journaltest.Memory(), m.wrap()
				return journaltest.Store{
					Open: func() (idem.Journal, error) {
						j, err := s.Open()
						b := &bent{Journal: j, inner: j}
						wrap(b)
						return b, err
					},
					Kill: func(j idem.Journal) {
						if b := j.(*bent); !b.immortal {
							s.Kill(b.inner)
						}
					},
				}
			})
		})
	}
}

// bent is a journal of which some methods are replaced.
type bent struct {
	idem.Journal
	inner    idem.Journal
	immortal bool

	begin    func(context.Context, idem.Intent) (idem.Intent, bool, error)
	claimDue func(context.Context, time.Time, idem.Filter) ([]idem.Intent, time.Time, error)
	update   func(context.Context, idem.Intent, *idem.Attempt, bool) (idem.Intent, error)
	lookup   func(context.Context, string, string) (idem.Intent, error)
	list     func(context.Context, idem.Filter) ([]idem.Intent, error)
	close    func() error
}

func (b *bent) Begin(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
	if b.begin != nil {
		return b.begin(ctx, want)
	}
	return b.Journal.Begin(ctx, want)
}

func (b *bent) ClaimDue(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
	if b.claimDue != nil {
		return b.claimDue(ctx, now, f)
	}
	return b.Journal.ClaimDue(ctx, now, f)
}

func (b *bent) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	if b.update != nil {
		return b.update(ctx, next, a, durable)
	}
	return b.Journal.Update(ctx, next, a, durable)
}

func (b *bent) Lookup(ctx context.Context, scope, operation string) (idem.Intent, error) {
	if b.lookup != nil {
		return b.lookup(ctx, scope, operation)
	}
	return b.Journal.Lookup(ctx, scope, operation)
}

func (b *bent) List(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
	if b.list != nil {
		return b.list(ctx, f)
	}
	return b.Journal.List(ctx, f)
}

func (b *bent) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Journal.Close()
}

// changed is a begin that changes what is wanted and what comes back.
func (b *bent) changed(want func(*idem.Intent), got func(*idem.Intent)) {
	b.begin = func(ctx context.Context, w idem.Intent) (idem.Intent, bool, error) {
		if want != nil {
			want(&w)
		}
		in, claimed, err := b.Journal.Begin(ctx, w)
		if got != nil {
			got(&in)
		}
		return in, claimed, err
	}
}

// claims is a claimDue that changes what comes back.
func (b *bent) claims(change func(due []idem.Intent) []idem.Intent) {
	b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
		due, next, err := b.Journal.ClaimDue(ctx, now, f)
		return change(due), next, err
	}
}

// owing are the rows that owe a notification.
func (b *bent) owing() []idem.Intent {
	list, _ := b.Journal.List(context.Background(), idem.Filter{})
	return slices.DeleteFunc(list, func(in idem.Intent) bool { return !in.State.Final() || !in.Notify })
}

// mistake is one way to get it wrong. wrap is called once for each store.
type mistake struct {
	name   string
	breaks string // the rule
	wrap   func() func(*bent)
}

// stateless is the wrap of a mistake whose handles have nothing in common.
func stateless(wrap func(*bent)) func() func(*bent) {
	return func() func(*bent) { return wrap }
}

var mistakes = slices.Concat(claimMistakes, turnMistakes, writeMistakes, readMistakes)

var claimMistakes = []mistake{
	{"claims owned rows", "Begin/a living owner's row comes back Owned, unclaimed and unwritten", stateless(func(b *bent) {
		b.begin = func(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
			got, claimed, err := b.Journal.Begin(ctx, want)
			if got.Owned {
				got.Owned, got.Claimed, claimed = false, true, true
			}
			return got, claimed, err
		}
	})},
	{"claims another request's row", "Begin/another fingerprint's row comes back unclaimed and unwritten", stateless(func(b *bent) {
		b.begin = func(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
			if found, err := b.Journal.Lookup(ctx, want.Scope, want.Operation); err == nil {
				want.Fingerprint = found.Fingerprint
			}
			return b.Journal.Begin(ctx, want)
		}
	})},
	{"forgets the doubt of the dead", "Death/what a dead owner was sending comes back from Begin unknown, in doubt, interrupted",
		stateless(func(b *bent) {
			b.changed(nil, func(got *idem.Intent) {
				if got.Deaths > 0 {
					got.State, got.Doubt = idem.StatePending, false
				}
			})
		})},
	{"forgets the doubt of the dead that are due", "Death/and from ClaimDue", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			for i := range due {
				due[i].Doubt = false
			}
			return due, next, err
		}
	})},
	{"takes the dead for living", "Death/a new handle sees the death, too", stateless(func(b *bent) { b.immortal = true })},
	{"renews twice", "Renews/renewing again continues the generation that was made", stateless(func(b *bent) {
		b.begin = func(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
			if newest, err := b.Journal.Lookup(ctx, want.Scope, want.Operation); err == nil && want.Renews != "" {
				want.Renews = newest.Key
			}
			return b.Journal.Begin(ctx, want)
		}
	})},
	{"lets two operations adopt one key", "Begin/a key that another operation holds brings that row back, and makes none",
		stateless(func(b *bent) {
			b.changed(func(want *idem.Intent) {
				if want.Operation != "" {
					want.Adopted = nil
				}
			}, nil)
		})},
	{"takes an empty name for any", "ClaimDue/the name is exact, and empty is a name", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			if f.Name == "" {
				f.Name = "main"
				more, _, _ := b.Journal.ClaimDue(ctx, now, f)
				due = append(due, more...)
			}
			return due, next, err
		}
	})},
	{"counts claims as attempts", "ClaimDue/a claim is no attempt", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			for i := range due {
				due[i].Attempts++
			}
			return due, next, err
		}
	})},
	{"resumes the deadly first", "ClaimDue/rows without deaths come first", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			limit := max(f.Limit, 1)
			f.Limit = 0
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			slices.Reverse(due)
			return due[:min(limit, len(due))], next, err
		}
	})},
	{"claims too early", "ClaimDue/what is not due yet stays, and next is the first of it", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			return b.Journal.ClaimDue(ctx, now.Add(time.Minute), f)
		}
	})},
	{"makes all handles one owner", "Handles/two handles are two owners of one store", func() func(*bent) {
		var first idem.Journal
		return func(b *bent) {
			if first == nil {
				first = b.Journal
			}
			b.Journal = first
		}
	}},
}

var writeMistakes = []mistake{
	{"ignores versions", "Update/a row that moved is ErrBusy, and stays", stateless(func(b *bent) {
		b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
			if now, err := b.Journal.Lookup(ctx, next.Scope, next.Operation); err == nil && !now.State.Final() {
				next.Version = now.Version
			}
			return b.Journal.Update(ctx, next, a, durable)
		}
	})},
	{"overwrites what is final", "Update/a final answer of a former owner is taken, once", func() func(*bent) {
		var last sync.Map // by ID
		return func(b *bent) {
			b.changed(nil, func(got *idem.Intent) {
				if over, ok := last.Load(got.ID); ok {
					*got = over.(idem.Intent)
				}
			})
			b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
				got, err := b.Journal.Update(ctx, next, a, durable)
				if errors.Is(err, idem.ErrBusy) && next.State.Final() {
					last.Store(next.ID, next)
					return next, nil
				}
				return got, err
			}
		}
	}},
	{"throws late answers away", "Update/a final answer of a former owner is taken, once", stateless(func(b *bent) {
		b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
			if now, err := b.Journal.Lookup(ctx, next.Scope, next.Operation); err == nil && now.Version != next.Version {
				return idem.Intent{}, idem.ErrBusy
			}
			return b.Journal.Update(ctx, next, a, durable)
		}
	})},
	{"shares memory with its callers", "Values/changing what was passed changes nothing stored", func() func(*bent) {
		var outcomes sync.Map // by ID
		return func(b *bent) {
			b.changed(nil, func(got *idem.Intent) {
				if o, ok := outcomes.Load(got.ID); ok && o.(*idem.Outcome) != nil {
					got.Outcome = o.(*idem.Outcome)
				}
			})
			b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
				outcomes.Store(next.ID, next.Outcome)
				return b.Journal.Update(ctx, next, a, durable)
			}
		}
	}},
	{"shows posted writes late", "Update/what is posted is seen at once through the handle", stateless(func(b *bent) {
		var mu sync.Mutex
		var flush []func()
		b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
			mu.Lock()
			defer mu.Unlock()
			if !durable {
				flush = append(flush, func() { b.Journal.Update(ctx, next, a, true) })
				next.Version++
				return next, nil
			}
			for _, do := range flush {
				do()
			}
			flush = nil
			return b.Journal.Update(ctx, next, a, durable)
		}
	})},
	{"keeps the call whose last write failed", "Update/a call ends even when its last write fails: the row is a dead owner's",
		stateless(func(b *bent) {
			b.update = func(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
				if err := ctx.Err(); err != nil {
					return idem.Intent{}, err
				}
				return b.Journal.Update(ctx, next, a, durable)
			}
		})},
	{"loses notes of attempts", "Update/attempts are noted, and come by number", stateless(func(b *bent) {
		b.update = func(ctx context.Context, next idem.Intent, _ *idem.Attempt, durable bool) (idem.Intent, error) {
			return b.Journal.Update(ctx, next, nil, durable)
		}
	})},
	{"writes for a caller that has gone", "Handles/a context that ended before writes nothing, and says so", stateless(func(b *bent) {
		b.begin = func(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
			return b.Journal.Begin(context.WithoutCancel(ctx), want)
		}
	})},
	{"gives nothing up at Close", "Handles/Close gives up what is owned: pending stays pending, in_flight is doubt",
		stateless(func(b *bent) { b.close = func() error { return nil } })},
}

var readMistakes = []mistake{
	{"lists the newest first", "Reads/List returns all, oldest first, without bodies", stateless(func(b *bent) {
		b.list = func(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
			list, err := b.Journal.List(ctx, f)
			slices.Reverse(list)
			return list, err
		}
	})},
	{"lists bodies", "Reads/List returns all, oldest first, without bodies", stateless(func(b *bent) {
		b.list = func(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
			list, err := b.Journal.List(ctx, f)
			for i := range list {
				list[i].Request = &idem.StoredRequest{URL: list[i].URL, Body: []byte("x")}
			}
			return list, err
		}
	})},
	{"forgets where the page began", "Reads/List pages by the last ID, however small the page", stateless(func(b *bent) {
		b.list = func(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
			f.After = ""
			return b.Journal.List(ctx, f)
		}
	})},
	{"looks the oldest generation up", "Reads/Lookup returns the newest generation, with its outcome's body, without its request",
		stateless(func(b *bent) {
			b.lookup = func(ctx context.Context, scope, operation string) (idem.Intent, error) {
				list, _ := b.Journal.List(ctx, idem.Filter{Scope: scope})
				for _, in := range list {
					if in.Operation == operation {
						return in, nil
					}
				}
				return b.Journal.Lookup(ctx, scope, operation)
			}
		})},
	{"forgets tombstones", "Prune/a named tombstone stays, and answers", stateless(func(b *bent) {
		b.lookup = func(ctx context.Context, scope, operation string) (idem.Intent, error) {
			in, err := b.Journal.Lookup(ctx, scope, operation)
			if o := in.Outcome; o != nil && !o.Complete {
				return idem.Intent{}, idem.ErrNotFound
			}
			return in, err
		}
	})},
	{"prunes what the provider remembers", "Prune/nothing goes before its retention is over", stateless(func(b *bent) {
		b.changed(func(want *idem.Intent) { want.Retention = 0 }, nil)
	})},
	{"spells headers its own way", "Values/headers keep their spelling, order and values, and names without a value",
		stateless(func(b *bent) {
			b.changed(func(want *idem.Intent) {
				if want.Request == nil {
					return
				}
				q, h := *want.Request, http.Header{}
				for name, values := range q.Header {
					for _, v := range values {
						h.Add(name, v)
					}
				}
				q.Header, want.Request = h, &q
			}, nil)
		})},
	{"keeps microseconds", "Values/instants come back to the nanosecond, in UTC", stateless(func(b *bent) {
		b.changed(func(want *idem.Intent) { want.Created = want.Created.Truncate(time.Microsecond) }, nil)
	})},
}
