package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// killedEnv makes this test binary a process that is to be killed, and says
// what it does until then.
const killedEnv = "IDEM_TEST_KILLED"

func init() {
	text := os.Getenv(killedEnv)
	if text == "" {
		return
	}
	var l killedLife
	orDie(0, json.Unmarshal([]byte(text), &l))
	if l.Together > 0 {
		l.callTogether()
		os.Exit(0)
	}
	go func() { // the test is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	l.live()
	os.Exit(0)
}

func orDie[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	return v
}

// killedLife is one process, from its start until it is killed.
type killedLife struct {
	Journal, Server, Notes string
	Number, Round          int
	Calls                  int     // of each caller; zero: as long as it lives
	Last                   bool    // it ends when nothing waits, the others when their calls have ended
	Wrong                  mistake // what it does wrong, for the tests of the tests
	Together               int     // calls the same operations as others do, with so many callers at once
	Synced                 bool    // and then every update is durable when it returns

	client *idem.Client
	notes  *os.File
}

// command is the process. It ends when its standard input does.
func (l killedLife) command(tb testing.TB) *exec.Cmd {
	tb.Helper()
	text, err := json.Marshal(l)
	require.NoError(tb, err)
	self, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), killedEnv+"="+string(text))
	return cmd
}

func killedContract() *contract.Contract { return contract.Keyed("Idempotency-Key", 24*time.Hour) }

// killedRetry is short waits, and no end of deaths: somebody kills us all the
// time.
func killedRetry() idem.RetryPolicy {
	return idem.RetryPolicy{
		MaxAttempts: 3, ResumeAttempts: 1 << 20, MaxDeaths: 1 << 20, Budget: 1 << 20,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, AttemptTimeout: 5 * time.Second,
	}
}

const killedCallers = 2

// live calls, prepares and resumes operations, until they are done.
func (l *killedLife) live() {
	l.notes = orDie(os.OpenFile(l.Notes, os.O_APPEND|os.O_WRONLY, 0))
	journal := orDie(idem.Open(l.Journal, nil))
	l.client = idem.NewClient(l.Wrong.make(&idem.Transport{
		Journal: journal, Contracts: killedContract(), Base: &http.Transport{}, Retry: killedRetry(),
		CrashPoint: faultinjection.HookFromEnv(),
	}))
	l.client.OnSettled = func(_ context.Context, in idem.Intent) error {
		if l.Wrong != mute {
			l.note("told", in.Operation, killedOutcome(in))
		}
		return nil
	}
	l.note("works", fmt.Sprint(l.Number))
	var callers sync.WaitGroup
	for caller := range killedCallers {
		callers.Go(func() {
			for i := 0; l.Calls == 0 || i < l.Calls; i++ {
				l.call(caller, i)
				time.Sleep(rand.N(time.Millisecond))
			}
		})
	}
	called := make(chan struct{})
	go func() {
		callers.Wait()
		close(called)
	}()
	if l.Wrong.resumes() {
		l.resume(called)
	}
	<-called
	l.note("ended", fmt.Sprint(l.Number))
	orDie(0, journal.Close())
}

// resume makes one pass after another until the callers are done and, in the
// last life, nothing waits.
func (l *killedLife) resume(called <-chan struct{}) {
	for {
		done := false
		select {
		case <-called:
			done = true
		default:
		}
		report := orDie(l.client.Resume(context.Background()))
		if len(report.Held) > 0 {
			l.mustNotBe(fmt.Errorf("%s became held: %s", report.Held[0].Operation, report.Held[0].HoldReason))
		}
		if done && (!l.Last || report.Next.IsZero() && report.Waiting == 0) {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// mustNotBe ends the process, and so the test, but for one that does something
// wrong: that has to be seen from outside.
func (l *killedLife) mustNotBe(err error) {
	if l.Wrong == "" {
		orDie(0, err)
	}
}

const noteEnd = " ."

// note writes one line, with one write: once that has returned, it is there
// whatever happens next. A kill within it can leave a part of it, without its end,
// which is no note; so a line of its own begins with each.
func (l *killedLife) note(words ...string) {
	orDie(l.notes.WriteString("\n" + strings.Join(words, " ") + noteEnd + "\n"))
}

// call is about an operation of this round. The first caller's are called by
// each process of the round, some again by those of the next one, and the
// second caller's by one process alone. A third of them are called, a third are
// prepared, and a third are both.
func (l *killedLife) call(caller, i int) {
	round, who := l.Round, fmt.Sprint("p", l.Number)
	if caller == 0 {
		who = "all"
		if i < 3 && rand.N(2) == 0 {
			round--
		}
	}
	name, prepared := fmt.Sprintf("%d-%s-%d", round, who, i), false
	if i%3 > 0 {
		in, err := l.client.Prepare(name, killedRequest(context.Background(), l.Server, name))
		if errors.Is(err, idem.ErrBusy) {
			return
		}
		if err != nil {
			l.mustNotBe(err)
			return
		}
		if prepared = in.Prepared; prepared {
			l.note("prepared", name)
		} else if i%3 == 2 {
			l.mustNotBe(fmt.Errorf("%s was not prepared", name))
		}
	}
	if i%3 < 2 {
		l.do(name, prepared)
	}
}

func (l *killedLife) do(name string, prepared bool) {
	ctx := context.Background()
	if rand.N(8) == 0 { // some callers leave
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
		defer cancel()
	}
	resp, err := l.client.Do(name, killedRequest(ctx, l.Server, name))
	notSent := errors.Is(err, idem.ErrNotSent)
	switch {
	case err == nil:
		l.note("answered", name, fmt.Sprint(resp.StatusCode), string(bytes.TrimSpace(orDie(io.ReadAll(resp.Body)))))
	case notSent && prepared, errors.Is(err, idem.ErrHeld), errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrJournal) && ctx.Err() == nil:
		l.mustNotBe(fmt.Errorf("prepared %t: %w", prepared, err))
	case notSent && ctx.Err() == nil:
		l.mustNotBe(fmt.Errorf("not sent, though nobody left: %w", err))
	case errors.Is(err, idem.ErrUnknownOutcome):
		l.note("open", name)
	case ctx.Err() != nil: // not sent, or settled by somebody else meanwhile
	default:
		l.mustNotBe(err)
	}
}

func killedRequest(ctx context.Context, server, name string) *http.Request {
	return orDie(http.NewRequestWithContext(ctx, http.MethodPost, server+"/charges", strings.NewReader(killedBody(name))))
}

func killedBody(name string) string { return fmt.Sprintf(`{"order":%q,"amount":4200}`, name) }

// killedOutcome is status and body, as a caller notes them.
func killedOutcome(in idem.Intent) string {
	if in.Outcome == nil {
		return "no outcome"
	}
	return fmt.Sprint(in.Outcome.StatusCode, " ", string(bytes.TrimSpace(in.Outcome.Body)))
}
