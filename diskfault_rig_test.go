package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

// What becomes of an operation is in its name, which is such as "lost-7".
const (
	diskPlain   = "plain"   // succeeds
	diskLost    = "lost"    // succeeds; the first answer is lost
	diskBusy    = "busy"    // succeeds; the first answer is a gateway's 503
	diskReject  = "reject"  // 402
	diskRefused = "refused" // never connects
)

const diskOperationHeader = "X-Operation" // in each request

func diskContract() *contract.Contract { return contract.Keyed("Idempotency-Key", 24*time.Hour) }

// diskDir is on a RAM disk where there is one.
func diskDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "idem")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { assert.NoError(tb, os.RemoveAll(dir)) })
	return dir
}

// mustHook sets the hook on all that is in a folder, until the test ends.
func mustHook(tb testing.TB, dir string, hook func(diskfault.Op) diskfault.Verdict) {
	tb.Helper()
	_, err := diskfault.Register()
	require.NoError(tb, err)
	require.NoError(tb, diskfault.SetHook(dir, hook))
	tb.Cleanup(func() { require.NoError(tb, diskfault.SetHook(dir, nil)) })
}

// diskProvider is a reference server, and what went to it.
type diskProvider struct {
	tb     testing.TB
	ledger *faultinjection.Ledger
	server *faultinjection.Server
	base   http.RoundTripper
	onSend func(operation, key string) // before it goes; nil: nobody

	mu       sync.Mutex
	arrivals map[string]int
	sends    map[string]int
	answers  map[string]int // the last one's status; 0: none came
}

func newDiskProvider(tb testing.TB) *diskProvider {
	tb.Helper()
	ledger, err := faultinjection.OpenLedger(filepath.Join(diskDir(tb), "ledger.db"))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, ledger.Close()) })
	p := &diskProvider{tb: tb, ledger: ledger, arrivals: map[string]int{}, sends: map[string]int{}, answers: map[string]int{}}
	p.server = faultinjection.NewServer(diskContract(), ledger)
	p.server.Each(p.step)
	p.base = p.server.Transport()
	return p
}

func (p *diskProvider) step(a faultinjection.Arrival) faultinjection.Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrivals[a.Operation]++
	first := p.arrivals[a.Operation] == 1
	switch kind, _, _ := strings.Cut(a.Operation, "-"); {
	case kind == diskLost && first:
		return faultinjection.DieAfterEffect
	case kind == diskBusy && first:
		return faultinjection.Unavailable()
	case kind == diskReject:
		return faultinjection.Fail(http.StatusPaymentRequired)
	}
	return faultinjection.Run
}

// RoundTrip counts what is sent.
func (p *diskProvider) RoundTrip(req *http.Request) (*http.Response, error) {
	operation := req.Header.Get(diskOperationHeader)
	if p.onSend != nil {
		p.onSend(operation, req.Header.Get("Idempotency-Key"))
	}
	p.note(operation, 0, 1)
	if strings.HasPrefix(operation, diskRefused) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%w: connection refused", idem.ErrNotSent)
	}
	resp, err := p.base.RoundTrip(req)
	if err == nil {
		p.note(operation, resp.StatusCode, 0)
	}
	return resp, err
}

func (p *diskProvider) note(operation string, status, sends int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[operation] = status
	p.sends[operation] += sends
}

func (p *diskProvider) sent(operation string) (sends, lastAnswer int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends[operation], p.answers[operation]
}

// client is a new client of the provider over a journal.
func (p *diskProvider) client(journal idem.Journal) *idem.Client { return diskClient(journal, p) }

func diskClient(journal idem.Journal, base http.RoundTripper) *idem.Client {
	return idem.NewClient(&idem.Transport{
		Journal: journal, Contracts: diskContract(), Base: base,
		Retry: idem.RetryPolicy{
			MaxAttempts: 3, ResumeAttempts: 1 << 20, MaxDeaths: 1 << 20, Budget: 1 << 20,
			MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		},
	})
}

func diskRequest(ctx context.Context, url, operation string) (*http.Request, error) {
	body := fmt.Sprintf(`{"order":%q,"amount":4200}`, operation)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(diskOperationHeader, operation)
	}
	return req, err
}

// diskEnd is how a call ended, as its caller sees it.
type diskEnd struct {
	word     string // succeeded, rejected, not_sent or unknown
	answer   string // status and body
	recorded bool
	proven   bool // by a replay of the provider's
	err      error
}

const (
	endSucceeded = "succeeded"
	endRejected  = "rejected"
	endNotSent   = "not_sent"
	endUnknown   = "unknown"
)

// diskDo calls an operation.
func diskDo(client *idem.Client, url, operation string) (end diskEnd, err error) {
	var result idem.Result
	ctx, cancel := context.WithTimeout(idem.WithResult(context.Background(), &result), 20*time.Second)
	defer cancel()
	req, err := diskRequest(ctx, url, operation)
	if err != nil {
		return end, err
	}
	resp, failure := client.Do(operation, req)
	end = diskEnd{recorded: result.Recorded, proven: result.FromProvider, err: failure}
	if failure == nil {
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return end, err
		}
		end.answer = fmt.Sprint(resp.StatusCode, " ", string(bytes.TrimSpace(body)))
	}
	notSent, unknown := errors.Is(failure, idem.ErrNotSent), errors.Is(failure, idem.ErrUnknownOutcome)
	switch {
	case failure == nil && resp.StatusCode < 300:
		end.word = endSucceeded
	case failure == nil:
		end.word = endRejected
	case notSent == unknown:
		return end, fmt.Errorf("%s: neither not sent nor unknown, or both: %w", operation, failure)
	case notSent:
		end.word = endNotSent
	default:
		end.word = endUnknown
	}
	return end, nil
}

// resumeAll resumes until nothing waits any more.
func resumeAll(client *idem.Client) error {
	for end := time.Now().Add(10 * time.Second); ; {
		report, err := client.Resume(context.Background())
		if err != nil || report.Next.IsZero() {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("something waits for ever: %+v", report)
		}
		time.Sleep(time.Until(report.Next))
	}
}

// answerText is a recorded outcome as diskEnd has it.
func answerText(in idem.Intent) string {
	if in.Outcome == nil {
		return "none"
	}
	return fmt.Sprint(in.Outcome.StatusCode, " ", string(bytes.TrimSpace(in.Outcome.Body)))
}

// books checks the provider's side: one key and the same bytes for each
// operation, and at most one effect.
func (p *diskProvider) books(keys map[string]string) {
	p.tb.Helper()
	all, err := p.ledger.Arrivals()
	require.NoError(p.tb, err)
	bodies := map[string]string{}
	for _, a := range all {
		require.Len(p.tb, a.Keys, 1, a.Operation)
		if keys[a.Operation] == "" {
			keys[a.Operation] = a.Keys[0]
		}
		require.Equal(p.tb, keys[a.Operation], a.Keys[0], "%s: another key", a.Operation)
		if bodies[a.Operation] == "" {
			bodies[a.Operation] = string(a.Body)
		}
		require.Equal(p.tb, bodies[a.Operation], string(a.Body), "%s: other bytes", a.Operation)
	}
	counts, err := p.ledger.Counts()
	require.NoError(p.tb, err)
	require.Zero(p.tb, counts.Duplicates)
}
