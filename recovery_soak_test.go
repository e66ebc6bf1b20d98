package idem

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

const (
	soakEnv       = "IDEM_SOAK" // how long, such as 2m
	soakTime      = 4 * time.Second
	soakProcesses = 3
	soakCallers   = 4  // in each process
	soakRate      = 40 // new operations a second
	soakWindow    = 5 * soakRate
)

// soakRetry is short waits, and no end of attempts: somebody kills us all the
// time.
func soakRetry() RetryPolicy {
	return RetryPolicy{
		MaxAttempts: 3, ResumeAttempts: 1 << 20, MaxDeaths: 1 << 20,
		MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, AttemptTimeout: 500 * time.Millisecond,
	}
}

func init() { children["recover"] = childRecovers }

// soakLife is one process of the soak, from its start until it is killed.
type soakLife struct {
	client *Client
	server string
	begun  time.Time // of the whole soak: the operations grow with its age
	notes  *os.File  // what it did, a line each
}

func childRecovers() {
	args := childArgs()
	l := &soakLife{server: args[1], notes: orExit(openNotes(args[2])), begun: time.Unix(0, orExit(strconv.ParseInt(args[3], 10, 64)))}
	l.client = NewClient(&Transport{
		Journal: orExit(Open(args[0], nil)), Contracts: rigContract(), Base: &http.Transport{}, Retry: soakRetry(),
	})
	l.client.OnSettled = l.settled
	for range soakCallers {
		go func() {
			for {
				l.call()
				time.Sleep(rand.N(20 * time.Millisecond)) // or those that are settled take all the time
			}
		}()
	}
	orExit(0, l.client.Run(context.Background()))
	orExit(0, errors.New("Run ended"))
}

func openNotes(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// note writes one line, with one write: it is there whatever happens next.
func (l *soakLife) note(word, operation string, more ...any) {
	orExit(l.notes.WriteString(strings.TrimSpace(fmt.Sprintln(append([]any{word, operation}, more...)...)) + "\n"))
}

// call is about one of the newest operations: a third of them are called, a
// third are prepared, and a third are both.
func (l *soakLife) call() {
	newest := int(time.Since(l.begun).Seconds() * soakRate)
	i := max(newest-rand.N(soakWindow), 0)
	name, prepared := fmt.Sprint("order-", i), false
	if i%3 == 1 && rand.N(2) == 0 || i%3 == 2 {
		in, err := l.client.Prepare(name, orExit(http.NewRequest(http.MethodPost, l.server+"/charges", strings.NewReader(orderBody(i)))))
		if errors.Is(err, ErrBusy) {
			return
		}
		orExit(0, err)
		if prepared = in.Prepared; prepared {
			l.note("prepared", name)
		} else if i%3 == 2 {
			orExit(0, fmt.Errorf("%s was not prepared", name))
		}
	}
	if i%3 != 2 {
		l.do(i, name, prepared)
	}
}

func (l *soakLife) do(i int, name string, prepared bool) {
	patience := time.Minute
	if rand.N(5) == 0 { // some callers leave
		patience = rand.N(200 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := orExit(http.NewRequestWithContext(ctx, http.MethodPost, l.server+"/charges", &oneShot{Reader: strings.NewReader(orderBody(i))}))
	l.note("asked", name)
	resp, err := l.client.Do(name, req)
	notSent := errors.Is(err, ErrNotSent)
	switch {
	case err == nil:
		l.note("answered", name, resp.StatusCode, string(bytes.TrimSpace(orExit(io.ReadAll(resp.Body)))))
	case notSent && prepared, errors.Is(err, ErrHeld), errors.Is(err, ErrMismatch), errors.Is(err, ErrJournal) && ctx.Err() == nil:
		orExit(0, fmt.Errorf("prepared %t: %w", prepared, err))
	case notSent, errors.Is(err, ErrUnknownOutcome), ctx.Err() != nil:
		l.note("open", name)
	default:
		orExit(0, err)
	}
}

// settled is the OnSettled of a process: at times it fails, and at times the
// process dies in it.
func (l *soakLife) settled(_ context.Context, in Intent) error {
	switch rand.N(40) {
	case 0, 1, 2, 3:
		return errors.New("the application's side failed")
	case 4:
		dieNow()
	}
	l.tell(in)
	if rand.N(40) == 0 {
		dieNow()
	}
	return nil
}

func (l *soakLife) tell(in Intent) { l.note("told", in.Operation, outcomeText(in)) }

// outcomeText is status and body, as a caller notes them.
func outcomeText(in Intent) string {
	if in.Outcome == nil {
		return "no outcome"
	}
	return fmt.Sprint(in.Outcome.StatusCode, " ", string(bytes.TrimSpace(in.Outcome.Body)))
}

// soak is the test's side.
type soak struct {
	*testing.T
	dir    string
	random *rand.Rand
	ledger *faultinjection.Ledger
	server *faultinjection.Server
	watch  *watcher
	url    string
	calm   atomic.Bool // no more faults
	begun  time.Time

	started, kills, deaths int // deaths: by their own hand
	succeeded, owed, lost  int // lost: answers to calls that were killed
}

func newSoak(t *testing.T) *soak {
	seed := rand.Uint64()
	t.Log("seed", seed)
	s := &soak{T: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0)), begun: time.Now()}
	var err error
	s.ledger, err = faultinjection.OpenLedger(filepath.Join(s.dir, "ledger.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.ledger.Close()) })
	s.server = faultinjection.NewServer(rigContract(), s.ledger)
	s.server.Each(func(a faultinjection.Arrival) faultinjection.Step {
		if s.calm.Load() {
			return faultinjection.Run
		}
		return soakFault(rand.New(rand.NewPCG(seed, uint64(a.Number))))
	})
	s.watch = &watcher{next: s.server, open: map[string]*openArrival{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.calm.Load() {
			s.server.ServeHTTP(w, r)
			return
		}
		s.watch.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// soakFault is what happens to an arrival: every second one goes well.
func soakFault(random *rand.Rand) faultinjection.Step {
	faults := []faultinjection.Step{
		faultinjection.Unavailable(), faultinjection.Status(http.StatusTooManyRequests, time.Second),
		faultinjection.LoseRequest, faultinjection.DieBeforeEffect, faultinjection.DieAfterEffect, faultinjection.CutAnswer,
		faultinjection.SlowAnswer(time.Duration(random.IntN(1000)) * time.Millisecond),
		faultinjection.Slow(time.Duration(random.IntN(1000)) * time.Millisecond),
	}
	if i := random.IntN(2 * len(faults)); i < len(faults) {
		return faults[i]
	}
	return faultinjection.Run
}

// Three processes share a journal, and each is killed again and again, in
// OnSettled too, while operations are called and prepared. In the end every
// operation had one effect, nothing is open, every settlement that no call
// returned was told, and the journal agrees with the provider row by row.
func TestRecoverySoak(t *testing.T) {
	t.Parallel()
	s := newSoak(t)
	s.churn()
	s.finish()
	s.watch.mu.Lock()
	assert.Empty(t, s.watch.twice, "two open arrivals with one key")
	s.watch.mu.Unlock()
	s.compare()
}

func (s *soak) journal() string { return filepath.Join(s.dir, "journal.db") }

func (s *soak) start() *child {
	s.started++
	notes := filepath.Join(s.dir, fmt.Sprintf("life-%d.notes", s.started))
	return startChild(s, "recover", s.journal(), s.url, notes, strconv.FormatInt(s.begun.UnixNano(), 10))
}

// churn kills and starts for as long as it is told.
func (s *soak) churn() {
	whole, err := time.ParseDuration(cmp.Or(os.Getenv(soakEnv), soakTime.String()))
	require.NoError(s, err, soakEnv)
	until := func() time.Time {
		return time.Now().Add(200*time.Millisecond + time.Duration(s.random.IntN(800))*time.Millisecond)
	}
	lives, dies := make([]*child, soakProcesses), make([]time.Time, soakProcesses)
	for i := range lives {
		lives[i], dies[i] = s.start(), until()
	}
	for time.Since(s.begun) < whole {
		time.Sleep(10 * time.Millisecond)
		for i, c := range lives {
			select {
			case <-c.done:
				s.mustBeKilled(c)
				s.deaths++
			default:
				if time.Now().Before(dies[i]) {
					continue
				}
				c.kill()
				s.mustBeKilled(c)
				s.kills++
			}
			lives[i], dies[i] = s.start(), until()
		}
	}
	for _, c := range lives {
		c.kill()
		s.mustBeKilled(c)
	}
}

// mustBeKilled checks that a process did not end by itself, which it does when
// it meets what must not be.
func (s *soak) mustBeKilled(c *child) {
	s.Helper()
	code := c.cmd.ProcessState.ExitCode() // Windows has 1 for a killed one
	require.True(s, code == -1 || code == 1, "a process ended by itself with exit status %d: %s", code, c.err)
}

// finish is the last process: it resumes until nothing waits.
func (s *soak) finish() {
	s.calm.Store(true)
	journal, err := Open(s.journal(), &SQLiteOptions{MustExist: true})
	require.NoError(s, err)
	notes, err := openNotes(filepath.Join(s.dir, "last.notes"))
	require.NoError(s, err)
	last := &soakLife{notes: notes}
	client := NewClient(&Transport{Journal: journal, Contracts: rigContract(), Base: &http.Transport{}, Retry: soakRetry()})
	client.OnSettled = func(_ context.Context, in Intent) error {
		last.tell(in)
		return nil
	}
	for end := time.Now().Add(time.Minute + time.Since(s.begun)); ; {
		report, err := client.Resume(s.Context())
		require.NoError(s, err)
		require.Empty(s, report.Held)
		if report.Next.IsZero() && report.Waiting == 0 {
			break
		}
		require.True(s, time.Now().Before(end), "something waits for ever: %+v", report)
		time.Sleep(min(time.Until(report.Next), 100*time.Millisecond))
	}
	client.Transport.CloseIdleConnections()
	require.NoError(s, journal.Close())
	require.NoError(s, notes.Close())
}

// compare holds the journal against the ledger and against what the processes
// noted.
func (s *soak) compare() {
	journal, err := Open(s.journal(), &SQLiteOptions{MustExist: true})
	require.NoError(s, err)
	defer func() {
		require.NoError(s, journal.Close())
		s.sound()
	}()
	open, err := journal.List(s.Context(), Filter{States: []State{StatePending, StateInFlight, StateUnknown, StateHeld}})
	require.NoError(s, err)
	for _, in := range open {
		assert.Fail(s, "unfinished in the journal", "%s: %s %s", in.Operation, in.State, in.HoldReason)
	}

	books, notes := s.books(), s.notes()
	operations := 0
	for f := (Filter{}); ; {
		page, err := journal.List(s.Context(), f)
		require.NoError(s, err)
		if len(page) == 0 {
			break
		}
		for _, in := range page {
			whole, err := journal.Lookup(s.Context(), in.Scope, in.Operation)
			require.NoError(s, err)
			attempts, err := journal.Attempts(s.Context(), in)
			require.NoError(s, err)
			assert.Len(s, attempts, in.Attempts, in.Operation)
			s.row(whole, books)
			s.told(whole, notes[in.Operation])
		}
		operations += len(page)
		f.After = page[len(page)-1].ID
	}
	counts, err := s.ledger.Counts()
	require.NoError(s, err)
	assert.Equal(s, s.succeeded, counts.Effects, "effects, and operations that succeeded")
	assert.Equal(s, s.succeeded, counts.Operations, "operations with an effect")
	notified := 0
	for _, n := range notes {
		notified += len(n.told)
	}
	assert.Positive(s, s.kills)
	assert.Positive(s, s.owed)
	s.Logf("%d kills and %d deaths in OnSettled of %d processes; %d operations, %d succeeded; %d arrivals; "+
		"%d notifications for %d owed; %d answers lost with the calls that waited for them",
		s.kills, s.deaths, s.started, operations, s.succeeded, len(books.arrivals), notified, s.owed, s.lost)
}

// sound checks the journal's file.
func (s *soak) sound() {
	db, err := sql.Open("sqlite", "file:"+s.journal())
	require.NoError(s, err)
	defer db.Close()
	var found string
	require.NoError(s, db.QueryRow(`PRAGMA integrity_check`).Scan(&found))
	assert.Equal(s, "ok", found)
}

// soakBooks are the provider's side.
type soakBooks struct {
	arrivals []faultinjection.Arrival
	byKey    map[string]int // arrivals
	effects  map[string][]faultinjection.Effect
	bodies   map[string]string // of the requests, by operation
}

func (s *soak) books() *soakBooks {
	b := &soakBooks{byKey: map[string]int{}, effects: map[string][]faultinjection.Effect{}, bodies: map[string]string{}}
	var err error
	b.arrivals, err = s.ledger.Arrivals()
	require.NoError(s, err)
	keys := map[string]string{}
	for _, a := range b.arrivals {
		require.Len(s, a.Keys, 1)
		b.byKey[a.Keys[0]]++
		assert.Equal(s, cmp.Or(keys[a.Operation], a.Keys[0]), a.Keys[0], "%s: another key", a.Operation)
		assert.Equal(s, cmp.Or(b.bodies[a.Operation], string(a.Body)), string(a.Body), "%s: other bytes", a.Operation)
		keys[a.Operation], b.bodies[a.Operation] = a.Keys[0], string(a.Body)
	}
	effects, err := s.ledger.Effects()
	require.NoError(s, err)
	for _, e := range effects {
		b.effects[e.Operation] = append(b.effects[e.Operation], e)
	}
	return b
}

// row holds one operation of the journal against the provider.
func (s *soak) row(in Intent, b *soakBooks) {
	name, effects := in.Operation, b.effects[in.Operation]
	assert.False(s, in.Doubt || in.Notify, "%s: doubt %t, to be told %t", name, in.Doubt, in.Notify)
	assert.LessOrEqual(s, b.byKey[in.Key], in.Attempts, "%s: more arrivals than attempts", name)
	if in.State == StateWithdrawn {
		assert.Empty(s, effects, "%s: withdrawn", name)
		assert.False(s, in.Prepared, "%s: prepared, and withdrawn", name)
		return
	}
	s.succeeded++
	require.Equal(s, StateSucceeded, in.State, name)
	require.Len(s, effects, 1, name)
	assert.Equal(s, effects[0].Key, in.Key, name)
	i, err := strconv.Atoi(strings.TrimPrefix(name, "order-"))
	require.NoError(s, err)
	assert.Equal(s, orderBody(i), string(effects[0].Body), name)

	req := mustRequest(s, s.Context(), "http://provider/charges", orderBody(i))
	req.Header.Set("Idempotency-Key", in.Key)
	resp, err := s.server.Transport().RoundTrip(req) // the provider's stored answer
	require.NoError(s, err)
	assert.True(s, rigContract().Replayed.Matches(resp.Header), "%s: not in the provider's store", name)
	stored := fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(readAndClose(s, resp)))
	require.NotNil(s, in.Outcome, name)
	assert.True(s, in.Outcome.Complete, name)
	assert.Equal(s, stored, outcomeText(in), name)
}

// soakNotes are what the processes noted of one operation.
type soakNotes struct {
	prepared       bool
	cut            bool // a call was killed
	answered, told []string
}

func (s *soak) notes() map[string]*soakNotes {
	all := map[string]*soakNotes{}
	files, err := filepath.Glob(filepath.Join(s.dir, "*.notes"))
	require.NoError(s, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(s, err)
		running := map[string]int{}
		for line := range strings.Lines(string(text)) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, rest, _ := strings.Cut(rest, " ")
			if all[name] == nil {
				all[name] = &soakNotes{}
			}
			n := all[name]
			switch word {
			case "prepared":
				n.prepared = true
			case "asked":
				running[name]++
			case "answered":
				n.answered = append(n.answered, rest)
				running[name]--
			case "open":
				running[name]--
			case "told":
				n.told = append(n.told, rest)
			default:
				require.Fail(s, "a note that is none", line)
			}
		}
		for name, calls := range running {
			all[name].cut = all[name].cut || calls > 0
		}
	}
	return all
}

// told checks that a settlement was told that is owed: of what was prepared,
// and of what a resume settled. What no call returned is one of them, but for
// the answer that a call had recorded when it was killed.
func (s *soak) told(in Intent, n *soakNotes) {
	if n == nil {
		n = &soakNotes{}
	}
	for _, text := range append(n.answered, n.told...) {
		assert.Equal(s, outcomeText(in), text, "%s: told otherwise", in.Operation)
	}
	if !in.State.Final() {
		return
	}
	owed := in.Prepared || n.prepared || in.Resumes > 0
	if !owed && len(n.answered) == 0 && len(n.told) == 0 {
		assert.True(s, n.cut, "%s settled, and nobody was told", in.Operation)
		s.lost++
	}
	if owed {
		s.owed++
		assert.NotEmpty(s, n.told, "%s settled (prepared %t, resumes %d), and OnSettled was not told", in.Operation, in.Prepared, in.Resumes)
	}
}
