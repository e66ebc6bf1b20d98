package journaltest_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// turnMistakes are about what ClaimDue hands out, and when.
var turnMistakes = []mistake{
	{"hides what became held", "ClaimDue/an in_flight row with a HoldReason and no call becomes held, and comes back once, unclaimed",
		stateless(func(b *bent) {
			b.claims(func(due []idem.Intent) []idem.Intent {
				return slices.DeleteFunc(due, func(in idem.Intent) bool { return in.State == idem.StateHeld })
			})
		})},
	{"claims what became held", "Death/and so it does in ClaimDue, which shows it once", stateless(func(b *bent) {
		b.claims(func(due []idem.Intent) []idem.Intent {
			for i := range due {
				due[i].Claimed = true
			}
			return due
		})
	})},
	{"counts only what it claims", "ClaimDue/what becomes held has its turn, too, and counts against the limit", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			if slices.ContainsFunc(due, func(in idem.Intent) bool { return in.State == idem.StateHeld }) {
				more, _, _ := b.Journal.ClaimDue(ctx, now, f)
				due = append(due, more...)
			}
			return due, next, err
		}
	})},
	{"takes the deadly as they are due", "ClaimDue/those with deaths come by deaths, then by the instant their last attempt began",
		stateless(func(b *bent) {
			b.claims(func(due []idem.Intent) []idem.Intent {
				slices.SortStableFunc(due, func(a, b idem.Intent) int {
					return cmp.Or(min(a.Deaths, 1)-min(b.Deaths, 1), a.Due.Compare(b.Due))
				})
				return due
			})
		})},
	{"takes the deadly as they were made", "ClaimDue/those with deaths come by deaths, then by the instant their last attempt began",
		stateless(func(b *bent) {
			b.claims(func(due []idem.Intent) []idem.Intent {
				slices.SortStableFunc(due, func(a, b idem.Intent) int {
					return cmp.Or(a.Deaths-b.Deaths, min(a.Deaths, 1)*cmp.Compare(a.Key, b.Key))
				})
				return due
			})
		})},
	{"suspects who began first", "Death/the order is over all the dead, and the limit cuts it", stateless(func(b *bent) {
		b.claims(func(due []idem.Intent) []idem.Intent {
			if !slices.ContainsFunc(due, func(in idem.Intent) bool { return in.Deaths == 0 }) {
				slices.Reverse(due)
			}
			return due
		})
	})},
	{"tells of all generations at once", "ClaimDue/an operation tells of one generation at a time, the oldest first", stateless(tellsAll)},
	{"tells of the next before the dead one's", "Death/a notification that the dead did not give is due again, before the next generation's",
		stateless(tellsAll)},
	{"waits for the next generation", "ClaimDue/next is when the oldest generation's notification is due", stateless(func(b *bent) {
		b.claimDue = func(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
			due, next, err := b.Journal.ClaimDue(ctx, now, f)
			for _, in := range b.owing() {
				if in.Due.After(now) && (next.IsZero() || in.Due.Before(next)) {
					next = in.Due
				}
			}
			return due, next, err
		}
	})},
	{"lets one operation wait for another", "ClaimDue/it waits for no other operation, and for nothing that is never told",
		stateless(func(b *bent) {
			b.claims(func(due []idem.Intent) []idem.Intent {
				if len(due) > 0 && due[0].State.Final() {
					return due[:1]
				}
				return due
			})
		})},
}

func tellsAll(b *bent) {
	b.claims(func(due []idem.Intent) []idem.Intent {
		for _, in := range b.owing() {
			if !in.Owned {
				in.Claimed = true
				due = append(due, in)
			}
		}
		return due
	})
}
