package journaltest_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/journaltest"
)

// Handles that are processes: each Open starts this test binary again, which
// opens the journal and does what it is told over its pipes. Kill is kill -9.
func TestSQLiteProcesses(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Store {
		path := filepath.Join(t.TempDir(), "journal.db")
		return journaltest.Store{
			Open: func() (idem.Journal, error) { return startRemote(t, path) },
			Kill: func(j idem.Journal) { j.(*remote).kill() },
		}
	})
}

const remoteEnv = "JOURNALTEST_REMOTE" // the journal that a child serves

func TestMain(m *testing.M) {
	if path := os.Getenv(remoteEnv); path != "" {
		serve(path, os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// request is one call of a method; reply is what came of it.
type request struct {
	Number    int
	Method    string
	Cancelled bool // the context had ended
	Intent    idem.Intent
	Attempt   *idem.Attempt
	Durable   bool
	At        time.Time
	Filter    idem.Filter
	Scope     string
	Operation string
}

type reply struct {
	Number   int
	Intents  []idem.Intent
	Attempts []idem.Attempt
	Claimed  bool
	Next     time.Time
	Pruned   int
	Failure  *failure
}

// sentinels are what an error may match; the bits of a failure name them.
var sentinels = []error{
	idem.ErrJournal, idem.ErrClosed, idem.ErrBusy, idem.ErrNotFound, idem.ErrNotSent, idem.ErrUnknownOutcome,
	context.Canceled, context.DeadlineExceeded,
}

// failure is an error that went through a pipe.
type failure struct {
	Text    string
	Matches uint
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.Matches |= 1 << i
		}
	}
	return f
}

func (f *failure) Error() string { return f.Text }

func (f *failure) Is(target error) bool {
	for i, s := range sentinels {
		if target == s {
			return f.Matches&(1<<i) != 0
		}
	}
	return false
}

// err is a nil error where there is no failure.
func (f *failure) err() error {
	if f == nil {
		return nil
	}
	return f
}

// serve is the child: it ends with its input, or when it is killed.
func serve(path string, in io.Reader, out io.Writer) {
	j, err := idem.Open(path, nil)
	var mu sync.Mutex
	enc := gob.NewEncoder(out)
	answer := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		if err := enc.Encode(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	answer(reply{Failure: failureOf(err)})
	if err != nil {
		return
	}
	dec := gob.NewDecoder(bufio.NewReader(in))
	for {
		var q request
		if dec.Decode(&q) != nil {
			return
		}
		go func() { answer(q.do(j)) }()
	}
}

func (q request) do(j idem.Journal) reply {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if q.Cancelled {
		cancel()
	}
	r := reply{Number: q.Number}
	var in idem.Intent
	var err error
	switch q.Method {
	case "Begin":
		in, r.Claimed, err = j.Begin(ctx, q.Intent)
		r.Intents = []idem.Intent{in}
	case "ClaimDue":
		r.Intents, r.Next, err = j.ClaimDue(ctx, q.At, q.Filter)
	case "Update":
		in, err = j.Update(ctx, q.Intent, q.Attempt, q.Durable)
		r.Intents = []idem.Intent{in}
	case "Lookup":
		in, err = j.Lookup(ctx, q.Scope, q.Operation)
		r.Intents = []idem.Intent{in}
	case "List":
		r.Intents, err = j.List(ctx, q.Filter)
	case "Attempts":
		r.Attempts, err = j.Attempts(ctx, q.Intent)
	case "Prune":
		r.Pruned, err = j.Prune(ctx, q.At)
	case "Close":
		err = j.Close()
	default:
		err = fmt.Errorf("no method %q", q.Method)
	}
	r.Failure = failureOf(err)
	return r
}

// remote is a journal whose handle is another process.
type remote struct {
	cmd *exec.Cmd
	in  io.Closer
	enc *gob.Encoder

	mu      sync.Mutex // of what follows, and of enc
	number  int
	waiting map[int]chan reply
	gone    bool
}

func startRemote(tb testing.TB, path string) (*remote, error) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), remoteEnv+"="+path, "GORACE=atexit_sleep_ms=0") // or each would take a second to end
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	r := &remote{cmd: cmd, in: in, enc: gob.NewEncoder(in), waiting: map[int]chan reply{}}
	tb.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	dec := gob.NewDecoder(bufio.NewReader(out))
	var opened reply
	require.NoError(tb, dec.Decode(&opened))
	if opened.Failure != nil {
		return nil, opened.Failure
	}
	go r.receive(dec) // until the process is gone
	return r, nil
}

func (r *remote) receive(dec *gob.Decoder) {
	for {
		var got reply
		err := dec.Decode(&got)
		r.mu.Lock()
		if err != nil {
			r.gone = true
			for _, w := range r.waiting {
				close(w)
			}
			r.mu.Unlock()
			return
		}
		w := r.waiting[got.Number]
		delete(r.waiting, got.Number)
		r.mu.Unlock()
		w <- got
	}
}

func (r *remote) kill() {
	r.cmd.Process.Kill()
	r.cmd.Wait() // its locks are free
}

func (r *remote) call(ctx context.Context, q request) (reply, error) {
	q.Cancelled = ctx.Err() != nil
	w := make(chan reply, 1)
	r.mu.Lock()
	if r.gone {
		r.mu.Unlock()
		return reply{}, errors.New("the process is gone")
	}
	r.number++
	q.Number = r.number
	r.waiting[q.Number] = w
	err := r.enc.Encode(q)
	r.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	got, ok := <-w
	if !ok {
		return reply{}, errors.New("the process died")
	}
	return got, got.Failure.err()
}

// one is the only intent of a reply.
func (r reply) one() (in idem.Intent) {
	if r.Failure == nil && len(r.Intents) == 1 {
		in = r.Intents[0]
	}
	return in
}

func (r *remote) Begin(ctx context.Context, want idem.Intent) (idem.Intent, bool, error) {
	got, err := r.call(ctx, request{Method: "Begin", Intent: want})
	return got.one(), got.Claimed, err
}

func (r *remote) ClaimDue(ctx context.Context, now time.Time, f idem.Filter) ([]idem.Intent, time.Time, error) {
	got, err := r.call(ctx, request{Method: "ClaimDue", At: now, Filter: f})
	return got.Intents, got.Next, err
}

func (r *remote) Update(ctx context.Context, next idem.Intent, a *idem.Attempt, durable bool) (idem.Intent, error) {
	got, err := r.call(ctx, request{Method: "Update", Intent: next, Attempt: a, Durable: durable})
	return got.one(), err
}

func (r *remote) Lookup(ctx context.Context, scope, operation string) (idem.Intent, error) {
	got, err := r.call(ctx, request{Method: "Lookup", Scope: scope, Operation: operation})
	return got.one(), err
}

func (r *remote) List(ctx context.Context, f idem.Filter) ([]idem.Intent, error) {
	got, err := r.call(ctx, request{Method: "List", Filter: f})
	return got.Intents, err
}

func (r *remote) Attempts(ctx context.Context, in idem.Intent) ([]idem.Attempt, error) {
	got, err := r.call(ctx, request{Method: "Attempts", Intent: in})
	return got.Attempts, err
}

func (r *remote) Prune(ctx context.Context, before time.Time) (int, error) {
	got, err := r.call(ctx, request{Method: "Prune", At: before})
	return got.Pruned, err
}

func (r *remote) Close() error {
	_, err := r.call(context.Background(), request{Method: "Close"})
	return err
}
