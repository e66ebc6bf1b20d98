package model

import "fmt"

// Result is what an exploration found.
type Result struct {
	States, Steps int            // that were explored
	Depth         int            // of the last state, in steps from the start
	Taken         map[string]int // how often each kind of step was taken
	Cut           bool           // there are more states than were asked for; nothing is broken in those seen
	Broken        Rules          // by the first step that broke any; zero: the whole space holds
	Trace         []string       // the shortest way there
}

// graph is the explored space. State 0 is the start.
type graph struct {
	d      *Design
	states []state
	found  map[state]int32
	parent []int32
	edges  []int32 // targets, state after state
	ends   []int32 // where a state's edges end
}

// Explore visits every state that d can get into, breadth first, and stops at
// the first step that breaks one of the rules in watch. Where none does, and
// R13 is watched, it looks for states from which nothing leads to an end. It
// gives up when there are more than so many states.
func Explore(d Design, watch Rules, most int) Result {
	g := graph{d: &d, found: map[state]int32{}}
	g.add(d.start(), -1)
	r := Result{Taken: map[string]int{}}
	for at := int32(0); at < int32(len(g.states)); at++ {
		bad := ""
		d.steps(g.states[at], func(s *step) {
			if bad != "" {
				return
			}
			r.Steps++
			r.Taken[s.text.does]++
			if r.Broken = s.broken & watch; r.Broken != 0 {
				bad = s.String()
				return
			}
			to, ok := g.found[s.to]
			if !ok {
				to = g.add(s.to, at)
			}
			if s.actor != person { // nobody may have to rely on one: see R13
				g.edges = append(g.edges, to)
			}
		})
		if bad != "" {
			return r.end(&g, append(g.trace(at), bad))
		}
		g.ends = append(g.ends, int32(len(g.edges)))
		if r.Cut = len(g.states) > most; r.Cut {
			return r.end(&g, nil)
		}
	}
	r = r.end(&g, g.trace(int32(len(g.states)-1)))
	if watch&R13 != 0 {
		if stuck := g.stuck(); stuck >= 0 {
			r.Broken = R13
			return r.end(&g, g.trace(stuck))
		}
	}
	return r
}

func (r Result) end(g *graph, trace []string) Result {
	r.States, r.Depth, r.Trace = len(g.states), len(trace), nil
	if r.Broken != 0 {
		for i, line := range trace {
			r.Trace = append(r.Trace, fmt.Sprintf("%2d. %s", i+1, line))
		}
	}
	return r
}

func (g *graph) add(s state, parent int32) int32 {
	id := int32(len(g.states))
	g.found[s] = id
	g.states = append(g.states, s)
	g.parent = append(g.parent, parent)
	return id
}

// stuck is the first state from which no way leads to a settled one, or -1.
// The ways are followed backward from the settled ones.
func (g *graph) stuck() int32 {
	// Edges by target: those of t are sources[from[t]:from[t+1]].
	from := make([]int32, len(g.states)+1)
	for _, to := range g.edges {
		from[to+1]++
	}
	for i := 1; i < len(from); i++ {
		from[i] += from[i-1]
	}
	sources := make([]int32, len(g.edges))
	next := append([]int32(nil), from[:len(g.states)]...)
	first := int32(0)
	for source, end := range g.ends {
		for _, to := range g.edges[first:end] {
			sources[next[to]] = int32(source)
			next[to]++
		}
		first = end
	}
	reaches := make([]bool, len(g.states))
	var queue []int32
	for i := range g.states {
		if g.states[i].settled() {
			reaches[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, source := range sources[from[at]:from[at+1]] {
			if !reaches[source] {
				reaches[source] = true
				queue = append(queue, source)
			}
		}
	}
	for i, ok := range reaches {
		if !ok {
			return int32(i)
		}
	}
	return -1
}

// trace is the shortest way to a state, which is the way it was found.
func (g *graph) trace(at int32) []string {
	if at == 0 {
		return nil
	}
	line := ""
	g.d.steps(g.states[g.parent[at]], func(s *step) {
		if line == "" && s.to == g.states[at] {
			line = s.String()
		}
	})
	return append(g.trace(g.parent[at]), line)
}
