package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

func init() { children["cases/finish"] = childFinishes }

// childFinishes works through what is due once its parent says so. It tells of
// each send, and of the count in the journal then; the deadly one kills it.
func childFinishes() {
	args := strings.Split(childFile(), argsSep)
	path, how, deadly := args[0], args[1], args[2]
	journal, base := orExit(Open(path, nil)), &http.Transport{}
	t := &Transport{Journal: journal, Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: 5 * time.Millisecond}}
	t.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		name := req.Header.Get("X-Order")
		say(fmt.Sprintf("%s %d", name, orExit(journal.Lookup(context.Background(), "", name)).Attempts))
		if name == deadly {
			dieNow()
		}
		return base.RoundTrip(req)
	})
	client := NewClient(t)
	say("ready")
	waitForParent()
	if how == "Resume" {
		orExit(client.Resume(context.Background()))
	} else {
		ctx, cancel := context.WithCancel(context.Background())
		open := Filter{States: []State{StatePending, StateInFlight, StateUnknown}}
		go func() {
			defer cancel()
			for len(orExit(journal.List(ctx, open))) > 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}()
		orExit(0, client.Run(ctx))
	}
	orExit(0, journal.Close())
}

// finisher is a process that finishes what is due in the journal.
func (r *realRig) finisher(how, deadly string) *process {
	r.tb.Helper()
	p := spawn(r.tb, "cases/finish", strings.Join([]string{r.path, how, deadly}, argsSep))
	p.await("ready")
	return p
}

// begins lets it begin.
func (p *process) begins() {
	p.tb.Helper()
	require.NoError(p.tb, p.in.Close())
}

// sends are what it told of until it ended, or was killed.
func (p *process) sends() []string {
	p.tb.Helper()
	text, err := io.ReadAll(p.out)
	require.NoError(p.tb, err)
	_ = p.cmd.Wait()
	require.LessOrEqual(p.tb, p.cmd.ProcessState.ExitCode(), 0, "it ended well, or was killed")
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// prepareHere puts n orders into the outbox, for the server that listens.
func (r *realRig) prepareHere(n int) {
	r.tb.Helper()
	for i := range n {
		req := mustRequest(r.tb, r.tb.Context(), r.url+"/charges", orderBody(i))
		req.Header.Set("X-Order", fmt.Sprint("order-", i))
		_, err := r.client.Prepare(fmt.Sprint("order-", i), req)
		require.NoError(r.tb, err)
	}
}

// awaitIdle waits until the server has done what it was asked to by a process
// that is gone.
func (r *realRig) awaitIdle() {
	r.tb.Helper()
	require.Eventually(r.tb, func() bool {
		counts, err := r.ledger.Counts()
		return err == nil && counts.Outcomes[faultinjection.OutcomeUnfinished] == 0
	}, patience, time.Millisecond)
}

// One of eleven kills its process whenever it is sent.
func TestO20_PoisonIsHeldAndTheOthersAreFinished(t *testing.T) {
	t.Parallel()
	const n = 11
	for _, how := range []string{"Resume", "Run"} {
		for _, poison := range []int{0, n / 2, n - 1} {
			for _, work := range []time.Duration{0, 50 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s, order %d, a server that takes %v", how, poison, work), func(t *testing.T) {
					t.Parallel() // they wait most of the time
					r := newRealRigFor(t, func(r *rig) { r.server.Work = work })
					r.prepareHere(n)
					names := orders("order", n)
					deadly, tries := names[poison], 0
					for start := 1; start <= 10; start++ {
						p := r.finisher(how, deadly)
						p.begins()
						for _, send := range p.sends() {
							if name, count, _ := strings.Cut(send, " "); name == deadly {
								tries++
								assert.Equal(t, strconv.Itoa(tries), count, "counted before it is tried")
							}
						}
						assert.Equal(t, tries, r.lookup(deadly).Attempts)
						r.awaitIdle()
						// At the second start, but for those that were on their way when the
						// process died: each of them may have killed it.
						for _, name := range names {
							if in := r.lookup(name); start >= 2 && name != deadly && in.Deaths == 0 {
								require.True(t, in.State.Final(), "start %d: %s is %s", start, name, in.State)
							}
						}
						if start > defaultMaxDeaths {
							require.Equal(t, n-1, r.settled(names), "start %d", start)
						}
					}
					assert.Equal(t, HoldPoison, r.lookup(deadly).HoldReason)
					assert.Equal(t, defaultMaxDeaths, tries)
					assert.Equal(t, n-1, r.effects())
				})
			}
		}
	}
}

// doorman is a base transport that lets in whoever has the new token. Order 1 it
// keeps waiting until the others are settled.
type doorman struct {
	server http.RoundTripper

	mu     sync.Mutex
	tokens []string      // that came with order 1
	others int           // not settled yet
	all    chan struct{} // closed when they are
	gaveUp bool          // order 1 waited for the others in vain
}

func (d *doorman) settled(_ context.Context, in Intent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.Operation != "order-1" {
		if d.others--; d.others == 0 {
			close(d.all)
		}
	}
}

func (d *doorman) RoundTrip(req *http.Request) (*http.Response, error) {
	token := req.Header.Get("Authorization")
	if req.Header.Get("X-Order") == "order-1" {
		var left bool
		select {
		case <-d.all:
		case <-req.Context().Done():
			left = true
		}
		d.mu.Lock()
		d.tokens, d.gaveUp = append(d.tokens, token), d.gaveUp || left
		d.mu.Unlock()
	}
	if token != "new" {
		closeBody(req)
		return status(http.StatusUnauthorized)(req)
	}
	return d.server.RoundTrip(req)
}

// tokenSources are what Authorize yields for order 1, the last one again and
// again; "" is an error.
var tokenSources = map[string]struct {
	yields []string
	sends  []string
	held   bool
}{
	"recovered":               {[]string{"new"}, []string{"new"}, false},
	"recovers after a while":  {[]string{"bad", "", "new"}, []string{"bad", "new"}, false},
	"yields only bad tokens":  {[]string{"bad"}, []string{"bad", "bad", "bad"}, true},
	"does not work any more":  {[]string{""}, nil, true},
	"works for a moment only": {[]string{"bad", ""}, []string{"bad"}, true},
}

const elsewhere = "http://elsewhere.example/charges"

func TestO27_OldCredentialsAreNotReplayedAndHoldUpNobody(t *testing.T) {
	t.Parallel()
	for name, source := range tokenSources {
		for _, how := range []string{"Resume", "Run"} {
			for _, made := range []struct {
				others string
				doubt  bool
			}{{elsewhere, false}, {elsewhere, true}, {rigURL, false}} {
				t.Run(fmt.Sprintf("the source %s, %s, %+v", name, how, made), func(t *testing.T) {
					virtually(t, func(t *testing.T) {
						r, door := tokenRig(t, made.others, made.doubt)
						asked := 0
						r.client.Authorize = func(req *http.Request, in Intent) error {
							yields := "new"
							if in.Operation == "order-1" {
								yields = source.yields[min(asked, len(source.yields)-1)]
								asked++
							}
							req.Header.Set("Authorization", yields)
							if yields == "" {
								return errors.New("the token source is down")
							}
							return nil
						}
						if how == "Run" {
							stop := r.running()
							time.Sleep(4 * time.Hour)
							stop()
						}
						for range 30 {
							_, err := r.client.Resume(t.Context())
							require.NoError(t, err)
							time.Sleep(time.Minute)
						}
						assert.False(t, door.gaveUp, "order 1 held up the others")
						assert.Zero(t, door.others)
						assert.Equal(t, source.sends, door.tokens, "never the old one")
						assert.LessOrEqual(t, asked, defaultResumeAttempts)
						in := r.lookup("order-1")
						if !source.held {
							assert.Equal(t, StateSucceeded, in.State)
							assert.Equal(t, 10, r.effects())
							return
						}
						want := HoldCredentials
						if made.doubt && source.yields[len(source.yields)-1] == "bad" {
							want = HoldUnsettlingAnswer // what became of the first attempt is not known
						}
						assert.Equal(t, want, in.HoldReason)
						assert.Equal(t, 9, r.effects())
					})
				})
			}
		}
	}
}

// tokenRig is a rig with order 1, made with a token that has expired since, and
// nine others.
func tokenRig(t *testing.T, others string, doubt bool) (*rig, *doorman) {
	t.Helper()
	var lost []faultinjection.Step
	if doubt {
		lost = append(lost, faultinjection.LoseRequest)
	}
	r := newRig(t, lost...)
	r.client.Authorize = func(*http.Request, Intent) error { return nil }
	r.transport.Retry.MaxAttempts = 1
	for i := 1; i <= 10; i++ {
		name, address := fmt.Sprint("order-", i), others
		if i == 1 {
			address = rigURL
		}
		req := mustRequest(t, t.Context(), address, orderBody(i))
		req.Header.Set("Authorization", "old")
		req.Header.Set("X-Order", name)
		if i == 1 && doubt {
			_, err := r.client.Do(name, req)
			requireUnknown(t, err, StateUnknown)
			continue
		}
		_, err := r.client.Prepare(name, req)
		require.NoError(t, err)
	}
	time.Sleep(time.Minute)
	r.reopen()
	door := &doorman{server: r.transport.Base, others: 9, all: make(chan struct{})}
	r.transport.Base = door
	r.transport.Observer = &Observer{Settled: door.settled}
	return r, door
}

// dieAmidst makes n calls, and dies when all of them are about to be sent.
func (r *realRig) dieAmidst(n int) {
	r.tb.Helper()
	var there atomic.Int32
	dead := make(chan struct{})
	r.transport.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		closeBody(req)
		if int(there.Add(1)) == n {
			r.journal.store.Die()
			close(dead)
		}
		<-dead
		return nil, errReset
	})
	var calls sync.WaitGroup
	for i, name := range orders("order", n) {
		req := mustRequest(r.tb, r.tb.Context(), r.url+"/charges", orderBody(i))
		req.Header.Set("X-Order", name)
		calls.Go(func() {
			_, err := r.client.Do(name, req)
			assert.ErrorIs(r.tb, err, ErrUnknownOutcome)
		})
	}
	calls.Wait()
}

func TestO39_TwoProcessesTakeEachIntentOnce(t *testing.T) {
	t.Parallel()
	const n = 50
	lefts := map[string]func(r *realRig){
		"in the middle of an attempt": func(r *realRig) { r.dieAmidst(n) },
		"in the outbox":               func(r *realRig) { r.prepareHere(n); r.journal.store.Die() },
	}
	for left, leave := range lefts {
		for _, how := range []string{"Resume", "Run"} {
			t.Run(left+", "+how, func(t *testing.T) {
				t.Parallel()
				r := newRealRigFor(t, func(r *rig) { r.server.Work = 200 * time.Millisecond })
				leave(r)
				both := []*process{r.finisher(how, ""), r.finisher(how, "")}
				for _, p := range both { // at the same moment
					p.begins()
				}
				sends := 0
				for _, p := range both {
					own := len(p.sends())
					assert.Positive(t, own, "each had its share")
					sends += own
				}
				counts, err := r.ledger.Counts()
				require.NoError(t, err)
				assert.Equal(t, map[faultinjection.Outcome]int{faultinjection.OutcomeExecuted: n}, counts.Outcomes,
					"none met its own key, open or done")
				assert.Equal(t, n, counts.Effects)
				assert.Equal(t, n, counts.Operations)
				assert.Equal(t, n, sends)
				r.open()
				assert.Equal(t, n, r.settled(orders("order", n)))
			})
		}
	}
}

// dayLongWaits are the ways to be told to wait for a day, and what becomes of
// the intent.
var dayLongWaits = map[string]struct {
	prepared bool
	first    []faultinjection.Step // before the 429
	kept     time.Duration         // the key
	state    State
	sent     bool // by Run, after the day
}{
	"called":                    {false, nil, 24 * time.Hour, StateWithdrawn, false},
	"prepared":                  {true, nil, 24 * time.Hour, StatePending, true},
	"in doubt":                  {false, []faultinjection.Step{faultinjection.DieAfterEffect}, 72 * time.Hour, StateUnknown, true},
	"in doubt, kept for a day":  {false, []faultinjection.Step{faultinjection.DieAfterEffect}, 24 * time.Hour, StateUnknown, false},
	"prepared, and then called": {true, []faultinjection.Step{faultinjection.DieAfterEffect}, 72 * time.Hour, StateUnknown, true},
}

func TestO48_ADayLongWaitParksOneOperationOnly(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range dayLongWaits {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				r := newRigFor(t, contract.Keyed("Idempotency-Key", test.kept), append(test.first, faultinjection.Status(429, day))...)
				r.transport.Retry.MaxBackoff = time.Minute
				r.patient()
				if test.prepared {
					r.prepare(rigURL, "order-0")
				}
				begun := time.Now()
				var failure *OperationError
				_, _, err := r.do(t.Context(), "order-0", orderBody(0)) // no deadline
				require.ErrorAs(t, err, &failure)
				asked := time.Now()
				assert.Less(t, asked.Sub(begun), time.Minute, "the caller is free")
				require.Equal(t, http.StatusTooManyRequests, failure.Response.StatusCode, "with the answer in hand")
				assert.Equal(t, test.state, failure.State)
				sent := len(r.arrivals())

				stop := sync.OnceFunc(r.running())
				defer func() { stop() }()                                     // where it ends early
				for i, address := range []string{rigURL, elsewhere, rigURL} { // others are not delayed
					begun := time.Now()
					name := fmt.Sprint("other-", i)
					resp, err := r.client.Do(name, mustRequest(t, t.Context(), address, orderBody(i+1)))
					require.NoError(t, err)
					readAndClose(t, resp)
					assert.Zero(t, time.Since(begun), address)
				}
				for i, address := range []string{elsewhere, rigURL} {
					_, err := r.client.Prepare(fmt.Sprint("prepared-", i), mustRequest(t, t.Context(), address, orderBody(10+i)))
					require.NoError(t, err)
				}
				time.Sleep(2 * time.Second)
				assert.Equal(t, StateSucceeded, r.lookup("prepared-0").State)
				time.Sleep(time.Minute)
				assert.Equal(t, StateSucceeded, r.lookup("prepared-1").State, "a destination's pause is bounded")

				time.Sleep(day / 2)
				stop()
				r.reopen()
				r.patient()
				stop = sync.OnceFunc(r.running())
				_, _, err = r.do(t.Context(), "order-0", orderBody(0))
				require.Error(t, err, "a call does not get past it either")
				time.Sleep(time.Until(asked.Add(day)))
				assert.Len(t, r.arrivalsOf("order-0"), sent, "not before")
				time.Sleep(day / 8) // waits are spread upward by a tenth
				stop()
				r.afterTheDay(sent, asked.Add(day), test.sent, test.state)
			})
		})
	}
}

// afterTheDay checks what became of order 0, which had come that often.
func (r *rig) afterTheDay(sent int, day time.Time, resumed bool, state State) {
	r.tb.Helper()
	if !resumed {
		assert.Len(r.tb, r.arrivalsOf("order-0"), sent, "not by itself")
		if state == StateUnknown {
			assert.Equal(r.tb, HoldExpired, r.lookup("order-0").HoldReason)
			return
		}
		_, _, err := r.do(context.Background(), "order-0", orderBody(0))
		require.NoError(r.tb, err, "by a call")
	}
	arrivals := r.arrivalsOf("order-0")
	requireOneKey(r.tb, arrivals, sent+1)
	assert.False(r.tb, arrivals[sent].At.Before(day), "not before")
	assert.Equal(r.tb, StateSucceeded, r.lookup("order-0").State)
	n, err := r.ledger.EffectsOf("order-0")
	require.NoError(r.tb, err)
	assert.Equal(r.tb, 1, n)
}

// arrivalsOf are those with the body of the order.
func (r *rig) arrivalsOf(order string) (all []faultinjection.Arrival) {
	r.tb.Helper()
	for _, a := range r.arrivals() {
		if a.Operation == order {
			all = append(all, a)
		}
	}
	return all
}
