package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

const (
	errorURL    = "http://provider.example"
	errorRuns   = 900
	errorRounds = 16 // of the random ones
)

// diskFault is what happens to one disk operation, and for good where sticky.
type diskFault struct {
	kind   string
	code   int32
	sticky bool
	short  bool // half of it is written before
}

var diskFaults = []diskFault{
	{kind: diskfault.Write, code: diskfault.WriteFailed},
	{kind: diskfault.Write, code: diskfault.WriteFailed, short: true},
	{kind: diskfault.Write, code: diskfault.DiskFull},
	{kind: diskfault.Write, code: diskfault.DiskFull, sticky: true},
	{kind: diskfault.Sync, code: diskfault.SyncFailed},
	{kind: diskfault.Sync, code: diskfault.SyncFailed, sticky: true},
	{kind: diskfault.Truncate, code: diskfault.TruncateFailed},
	{kind: diskfault.Open, code: diskfault.OpenFailed},
	{kind: diskfault.Delete, code: diskfault.DeleteFailed},
	{kind: "", code: diskfault.WriteFailed, sticky: true}, // the disk is gone
}

// hook fails the n-th operation of the kind, and notes that it did.
func (f diskFault) hook(n int64, fired *atomic.Bool) func(diskfault.Op) diskfault.Verdict {
	fail := diskfault.FailNth(f.kind, n, f.code, f.sticky)
	return func(op diskfault.Op) diskfault.Verdict {
		v := fail(op)
		if v.Code != 0 {
			fired.Store(true)
			if f.short {
				v.Short = len(op.Data) / 2
			}
		}
		return v
	}
}

// errorRun is one journal whose disk fails.
type errorRun struct {
	dir, path string
	provider  *diskProvider
	journal   *idem.SQLiteJournal
	client    *idem.Client

	mu       sync.Mutex
	ends     map[string]diskEnd
	seen     bool  // somebody was told of a journal that failed
	unbacked error // what was sent without being in the journal
}

func newErrorRun(provider *diskProvider, dir string) *errorRun {
	return &errorRun{dir: dir, path: filepath.Join(dir, "journal.db"), provider: provider, ends: map[string]diskEnd{}}
}

// open opens the journal and a client of it.
func (r *errorRun) open() (err error) {
	r.journal, err = idem.Open(r.path, nil)
	if err != nil {
		r.seen = true
		return err
	}
	r.client = diskClient(r.journal, r)
	return nil
}

// RoundTrip sends what the journal knows of, and nothing else.
func (r *errorRun) RoundTrip(req *http.Request) (*http.Response, error) {
	operation, key := req.Header.Get(diskOperationHeader), req.Header.Get("Idempotency-Key")
	in, err := r.journal.Lookup(context.Background(), "", operation)
	wrong := err == nil && (in.Key != key || in.State != idem.StateInFlight)
	if sends, _ := r.provider.sent(operation); wrong || errors.Is(err, idem.ErrNotFound) || err == nil && in.Attempts <= sends {
		r.mu.Lock()
		r.unbacked = fmt.Errorf("%s: sent, and the journal says: %s, %d attempts after %d sends: %w", operation, in.State, in.Attempts, sends, err)
		r.mu.Unlock()
	}
	return r.provider.RoundTrip(req)
}

// call calls an operation and holds what its caller is told against what was
// sent and answered.
func (r *errorRun) call(operation string) (diskEnd, error) {
	before, _ := r.provider.sent(operation)
	end, err := diskDo(r.client, errorURL, operation)
	if err != nil {
		return end, err
	}
	after, answer := r.provider.sent(operation)
	failed := errors.Is(end.err, idem.ErrJournal)
	refused := strings.HasPrefix(operation, diskRefused)
	r.mu.Lock()
	r.seen = r.seen || failed || !end.recorded && end.err == nil
	unbacked := r.unbacked
	r.mu.Unlock()
	told := func(what string) error {
		return fmt.Errorf("%s: %s: %d sends, answer %d: %w", operation, what, after-before, answer, end.err)
	}
	switch {
	case unbacked != nil:
		return end, unbacked
	case end.word == endNotSent && after > before && !refused:
		return end, told("told that it was not sent")
	case after == before && end.err != nil && !failed && !errors.Is(end.err, idem.ErrHeld):
		return end, told("nothing sent, and not for the journal")
	case after > before && answer == http.StatusCreated && end.word != endSucceeded:
		return end, told("the provider's answer was kept from the caller")
	case after > before && answer == http.StatusPaymentRequired && end.word != endRejected:
		var failure *idem.OperationError
		if !failed || end.word != endUnknown || !errors.As(end.err, &failure) || failure.Response == nil || failure.Response.StatusCode != answer {
			return end, told("the provider's refusal was kept from the caller")
		}
	}
	return end, nil
}

// callAll calls each, and keeps what it was told.
func (r *errorRun) callAll(operations ...string) error {
	for _, o := range operations {
		end, err := r.call(o)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.ends[o] = end
		r.mu.Unlock()
	}
	return nil
}

// afterwards is the next life, on a disk that works: nothing that was told is
// wrong, what was not sent stays so, and all can be settled.
func (r *errorRun) afterwards() (err error) {
	if err := r.open(); err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	defer func() { err = errors.Join(err, r.journal.Close()) }()
	sends := map[string]int{}
	for o := range r.ends {
		sends[o], _ = r.provider.sent(o)
	}
	r.client.Transport.Retry.ResumeAttempts = 3
	if err := resumeAll(r.client); err != nil {
		return err
	}
	for o, told := range r.ends {
		if err := r.settled(o, told, sends[o]); err != nil {
			return err
		}
	}
	return nil
}

// settled checks one operation after a resume.
func (r *errorRun) settled(operation string, told diskEnd, sends int) error {
	in, err := r.journal.Lookup(context.Background(), "", operation)
	wrong := func(what string) error {
		return fmt.Errorf("%s, told %s %q: %s: it is %s %s, outcome %s, %w", operation, told.word, told.answer, what,
			in.State, in.HoldReason, answerText(in), err)
	}
	now, _ := r.provider.sent(operation)
	switch {
	case errors.Is(err, idem.ErrNotFound):
		if told.word != endNotSent && told.word != endUnknown || sends > 0 {
			return wrong("not in the journal")
		}
	case err != nil:
		return wrong("look-up")
	case told.word == endNotSent && now > sends:
		return wrong("sent by a resume")
	case told.recorded && told.answer != "" && answerText(in) != told.answer:
		return wrong("what was recorded is not there")
	case in.Attempts < now:
		return wrong(fmt.Sprintf("%d attempts for %d sends", in.Attempts, now))
	}
	end, err := r.call(operation)
	if err != nil {
		return err
	}
	kind, _, _ := strings.Cut(operation, "-")
	switch {
	case kind == diskRefused:
	case kind == diskReject && errors.Is(end.err, idem.ErrHeld) && !told.recorded: // once in doubt, such a refusal proves nothing
	case end.word != endSucceeded && end.word != endRejected:
		return wrong(fmt.Sprintf("called again: %v", end.err))
	case told.answer != "" && end.answer != told.answer && kind != diskReject:
		return wrong("called again, it has another answer: " + end.answer)
	}
	return nil
}

// template is a journal that was used and closed, to start runs from.
func template(tb testing.TB, provider *diskProvider) string {
	tb.Helper()
	dir := diskDir(tb)
	journal, err := idem.Open(filepath.Join(dir, "journal.db"), nil)
	require.NoError(tb, err)
	_, err = diskDo(provider.client(journal), errorURL, "plain-template")
	require.NoError(tb, err)
	require.NoError(tb, journal.Close())
	return dir
}

// errorCase is one run of the matrix.
type errorCase struct {
	fault diskFault
	n     int64
	fresh bool // the journal is made under the fault too
	heals bool // while the journal is open; else it closes under the fault
}

func (c errorCase) String() string {
	return fmt.Sprintf("%q %d, number %d (sticky %t, short %t, fresh %t, heals %t)",
		c.fault.kind, c.fault.code, c.n, c.fault.sticky, c.fault.short, c.fresh, c.heals)
}

// run makes one run; fired reports whether there was such an operation.
func (c errorCase) run(provider *diskProvider, dir, from string, id int) (fired, seen bool, err error) {
	if !c.fresh {
		err = os.CopyFS(dir, os.DirFS(from))
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return false, false, err
	}
	r := newErrorRun(provider, dir)
	var hit atomic.Bool
	if err := diskfault.SetHook(dir, c.fault.hook(c.n, &hit)); err != nil {
		return false, false, err
	}
	defer func() { err = errors.Join(err, diskfault.SetHook(dir, nil)) }()
	if err := c.life(r, id); err != nil {
		return hit.Load(), r.seen, err
	}
	if err := diskfault.SetHook(dir, nil); err != nil {
		return hit.Load(), r.seen, err
	}
	return hit.Load(), r.seen, r.afterwards()
}

// life is the one under the fault.
func (c errorCase) life(r *errorRun, id int) error {
	if err := r.open(); err != nil { // it fails closed; the next life opens it
		if !errors.Is(err, idem.ErrJournal) {
			return err
		}
		return nil
	}
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%d-%d", kind, id, i) }
	err := r.callAll(name(diskPlain, 1), name(diskLost, 2), name(diskReject, 3), name(diskRefused, 4), name(diskPlain, 5))
	if err == nil && c.heals {
		if err = diskfault.SetHook(r.dir, nil); err == nil {
			err = r.callAll(name(diskPlain, 6))
		}
		if end := r.ends[name(diskPlain, 6)]; err == nil && end.word != endSucceeded {
			err = fmt.Errorf("the fault is gone, and the journal does not recover: %w", end.err)
		}
	}
	closed := r.journal.Close()
	if closed != nil {
		r.seen = true
	}
	if closed != nil && (c.heals || !errors.Is(closed, idem.ErrJournal)) {
		err = errors.Join(err, fmt.Errorf("close: %w", closed))
	}
	return err
}

// Each disk operation fails in each of nine ways, once or for good: nobody is
// told what is not so, nothing is sent whose claim failed, no answer is kept
// from its caller, and once the disk works again all goes on by itself.
func TestDiskErrors(t *testing.T) {
	_, err := diskfault.Register()
	require.NoError(t, err)
	provider := newDiskProvider(t)
	from, root := template(t, provider), diskDir(t)
	var runs, fired, unseen atomic.Int64
	var mu sync.Mutex
	var bad []error
	cases := make(chan []errorCase)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for series := range cases {
				for _, c := range series { // until there is no such operation any more
					id := int(runs.Add(1))
					dir := filepath.Join(root, fmt.Sprint(id))
					hit, seen, err := c.run(provider, dir, from, id)
					_ = os.RemoveAll(dir)
					if err != nil {
						mu.Lock()
						bad = append(bad, fmt.Errorf("%s: %w", c, err))
						mu.Unlock()
					}
					if !hit {
						break
					}
					fired.Add(1)
					if !seen {
						unseen.Add(1)
					}
				}
			}
		})
	}
	start := time.Now()
	for _, f := range diskFaults {
		for _, fresh := range []bool{false, true} {
			if fresh && (f.sticky || f.short) {
				continue
			}
			var series []errorCase
			for n := int64(1 + rand.N(diskShare)); n < 1000; n += int64(diskShare) {
				series = append(series, errorCase{f, n, fresh, n%2 == 0})
			}
			cases <- series
		}
	}
	close(cases)
	workers.Wait()
	for _, err := range bad[:min(len(bad), 10)] {
		t.Error(err)
	}
	provider.books(map[string]string{})
	t.Logf("%d runs, %d faults, %d of which no caller heard, %d bad; %s", runs.Load(), fired.Load(), unseen.Load(), len(bad), time.Since(start).Round(time.Millisecond))
	assert.Empty(t, len(bad))
	assert.GreaterOrEqual(t, int(fired.Load()), errorRuns/diskShare)
}

// Eight callers at once, while some writes and syncs fail.
func TestRandomDiskErrors(t *testing.T) {
	for _, share := range []float64{0.05, 0.01} {
		t.Run(fmt.Sprint(share), func(t *testing.T) { randomDiskErrors(t, share) })
	}
}

func randomDiskErrors(t *testing.T, share float64) {
	seed := rand.Uint64()
	r := newErrorRun(newDiskProvider(t), diskDir(t))
	_, err := diskfault.Register()
	require.NoError(t, err)
	require.NoError(t, r.open())
	writes := diskfault.FailRandom(seed, share, diskfault.Write, diskfault.WriteFailed)
	syncs := diskfault.FailRandom(seed, share, diskfault.Sync, diskfault.SyncFailed)
	var faults atomic.Int64
	mustHook(t, r.dir, func(op diskfault.Op) diskfault.Verdict {
		v := writes(op)
		if v.Code == 0 {
			v = syncs(op)
		}
		if v.Code != 0 {
			faults.Add(1)
		}
		return v
	})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range errorRounds / diskShare {
				for _, kind := range []string{diskPlain, diskLost, diskReject, diskRefused} {
					if !assert.NoError(t, r.callAll(fmt.Sprintf("%s-r%d-%d", kind, caller, i)), "seed %d", seed) {
						return
					}
				}
			}
		})
	}
	callers.Wait()
	require.NoError(t, diskfault.SetHook(r.dir, nil))
	require.NoError(t, r.callAll("plain-healed"))
	assert.Equal(t, endSucceeded, r.ends["plain-healed"].word)
	require.NoError(t, r.journal.Close(), "seed %d", seed)
	require.NoError(t, r.afterwards(), "seed %d", seed)
	r.provider.books(map[string]string{})
	ends := map[string]int{}
	for _, end := range r.ends {
		ends[end.word]++
	}
	t.Logf("seed %d: %d faults, %d operations: %v", seed, faults.Load(), len(r.ends), ends)
	assert.Len(t, r.ends, errorRounds/diskShare*8*4+1)
	assert.GreaterOrEqual(t, int(faults.Load()), 20/diskShare)
}
