package idem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// each runs do b.N times from that many callers.
func each(b *testing.B, callers int, do func(n int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > b.N {
					return
				}
				do(n)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func benchIntent(n int) Intent {
	in := newIntent(fmt.Sprintf("%08x/charge", uint32(n)*2654435761)) // random-looking order
	in.Request.Body = make([]byte, 512)
	return in
}

// BenchmarkBegin measures intents alone: one synced commit each, shared.
func BenchmarkBegin(b *testing.B) {
	for _, callers := range []int{1, 4, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			j := mustOpen(b, tempJournal(b), nil)
			b.ReportAllocs()
			each(b, callers, func(n int) {
				_, _, err := j.Begin(b.Context(), benchIntent(n))
				require.NoError(b, err)
			})
		})
	}
}

// BenchmarkOperation measures an intent and its posted outcome.
func BenchmarkOperation(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			j := mustOpen(b, tempJournal(b), nil)
			b.ReportAllocs()
			each(b, callers, func(n int) {
				in, _, err := j.Begin(b.Context(), benchIntent(n))
				require.NoError(b, err)
				next, a := succeed(in)
				_, err = j.Update(b.Context(), next, a, false)
				require.NoError(b, err)
			})
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	j := mustOpen(b, tempJournal(b), nil)
	in, _, err := j.Begin(b.Context(), benchIntent(1))
	require.NoError(b, err)
	next, a := succeed(in)
	_, err = j.Update(b.Context(), next, a, true)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := j.Lookup(b.Context(), in.Scope, in.Operation)
		require.NoError(b, err)
	}
}
