package diskfault

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// FailNth fails the n-th operation of a kind, counted from 1, with a result code
// of SQLite; an empty kind means any. With sticky all later ones of the kind fail
// too, as those of a disk that is broken or full do.
func FailNth(kind string, n int64, code int32, sticky bool) func(Op) Verdict {
	var seen atomic.Int64
	return func(op Op) Verdict {
		if kind != "" && op.Kind != kind {
			return Verdict{}
		}
		if i := seen.Add(1); i == n || sticky && i > n {
			return Verdict{Code: code}
		}
		return Verdict{}
	}
}

// FailRandom fails a share of the operations of a kind, such as 0.05, with a
// result code of SQLite; an empty kind means any. The same seed fails the same
// operations, as long as they come in the same order. Half of the writes that
// fail are half done.
func FailRandom(seed uint64, share float64, kind string, code int32) func(Op) Verdict {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(op Op) Verdict {
		if kind != "" && op.Kind != kind {
			return Verdict{}
		}
		mu.Lock()
		defer mu.Unlock()
		if random.Float64() >= share {
			return Verdict{}
		}
		v := Verdict{Code: code}
		if op.Kind == Write && random.IntN(2) == 0 {
			v.Short = len(op.Data) / 2
		}
		return v
	}
}

// KillNth ends the process at the n-th operation, counted from 1, as kill -9
// does: before it, or with within once half of it is written. Operations other
// than writes have no half.
func KillNth(n int64, within bool) func(Op) Verdict {
	return func(op Op) Verdict {
		if op.N != n {
			return Verdict{}
		}
		v := Verdict{Kill: true}
		if within {
			v.Short = len(op.Data) / 2
		}
		return v
	}
}

// DelaySync makes each sync take d longer, by package time: a slow disk. Delays
// much shorter than a millisecond are not kept exactly.
func DelaySync(d time.Duration) func(Op) Verdict {
	return func(op Op) Verdict {
		if op.Kind == Sync {
			time.Sleep(d)
		}
		return Verdict{}
	}
}
