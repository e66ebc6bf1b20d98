package faultinjection

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/idem-go/idem/contract"
)

// RandomScript is a script in which each attempt fails with probability rate,
// from 0 to 1, with a fault chosen at random: [DropRequest], [DropResponse],
// [Abandon], [CutHeader], [CutBody] after at most 256 bytes, or an [Answer] of
// 429, 502 or 503. None is delayed; [Script.On] can add that. Print the seed: the
// same seed gives the n-th attempt the same fault, whatever the attempts are. A
// rate that is no probability is told to every attempt.
//
// What is abandoned never arrives unless [Script.Release] is called; call it
// from time to time, and at the end, for the worst case.
func RandomScript(c *contract.Contract, seed uint64, rate float64) *Script {
	s := newScript(c, func(number int) Fault {
		r := rand.New(rand.NewPCG(seed, uint64(number)))
		if r.Float64() >= rate {
			return Pass
		}
		return randomFault(r)
	})
	if !(rate >= 0 && rate <= 1) && s.unfit == nil { // NaN is neither
		s.unfit = fmt.Errorf("faultinjection: rate %v is not between 0 and 1", rate)
	}
	return s
}

func randomFault(r *rand.Rand) Fault {
	faults := []Fault{DropRequest, DropResponse, Abandon, CutHeader, CutBody(r.Int64N(257))}
	for _, code := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable} {
		p := problem(code, "random fault")
		faults = append(faults, Answer(p.status, p.header, p.body))
	}
	return faults[r.IntN(len(faults))]
}
