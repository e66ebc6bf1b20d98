package integration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const (
	operation = "order-42/charge"
	patience  = 20 * time.Second

	childEnv   = "INTEGRATION_CHILD"
	urlEnv     = "INTEGRATION_URL"
	journalEnv = "INTEGRATION_JOURNAL"
)

// subject is a client that others wrote, over our transport, and the server
// that it speaks to.
type subject struct {
	// server is what the server keeps to. nil means that it keeps no keys.
	server *contract.Contract
	// client is what our transport is told of the server at a host.
	client func(host string) contract.Resolver
	// effect is the server's answer to a request that is executed.
	effect func(r *http.Request, body []byte) (status int, header http.Header, answer []byte)
	// front stands before the server, for what is no operation. nil means nothing.
	front func(server http.Handler) http.Handler
	// setup changes the transport before its first use. nil means nothing.
	setup func(t *idem.Transport, url string)
	// open makes the client. Each call of what it returns is one call through
	// it, of the operation that ctx names, and tells what the client decoded.
	open func(s site) (call func(ctx context.Context) (string, error), err error)
	// want is what the client must decode.
	want string
}

// subjects are the clients by name, so that another process finds them.
var subjects = map[string]*subject{}

// site is what a subject's client is made from.
type site struct {
	url  string
	http *http.Client // over our transport
}

// keyed is the contract of a gateway that keeps keys for those that do not.
func keyed() *contract.Contract { return contract.Keyed("Idempotency-Key", 24*time.Hour) }

func at(c *contract.Contract) func(host string) contract.Resolver {
	return func(host string) contract.Resolver { return c.At(host) }
}

// withoutKeys registers a subject once more, with a server that keeps no keys.
func withoutKeys(name string) {
	s := *subjects[name]
	s.server, s.client = nil, at(contract.Unsupported)
	subjects[name+" without keys"] = &s
}

// says answers every request with this.
func says(status int, body string) func(*http.Request, []byte) (int, http.Header, []byte) {
	return func(*http.Request, []byte) (int, http.Header, []byte) {
		return status, http.Header{"Content-Type": {"application/json"}}, []byte(body)
	}
}

// runs answers with what a handler does.
func runs(h http.Handler) func(*http.Request, []byte) (int, http.Header, []byte) {
	return func(r *http.Request, body []byte) (int, http.Header, []byte) {
		req := r.Clone(context.WithoutCancel(r.Context())) // a client that is gone stops nothing
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code, w.Header(), w.Body.Bytes()
	}
}

// life is one process's use of the journal.
type life struct {
	client  *idem.Client
	journal *idem.SQLiteJournal
	call    func(ctx context.Context) (string, error)
	result  idem.Result // of the last call
}

// live opens the journal and makes the client. die is called at the transport's
// crash points from then on.
func (s *subject) live(url, path string, die func(point string)) (*life, error) {
	journal, err := idem.Open(path, nil)
	if err != nil {
		return nil, err
	}
	var armed atomic.Bool // what opening a client sends is not the operation
	t := &idem.Transport{
		Journal: journal, Contracts: s.client(strings.TrimPrefix(url, "http://")),
		Retry: idem.RetryPolicy{MinBackoff: 10 * time.Millisecond},
		CrashPoint: func(point string) {
			if die != nil && armed.Load() {
				die(point)
			}
		},
	}
	if s.setup != nil {
		s.setup(t, url)
	}
	l := &life{client: idem.NewClient(t), journal: journal}
	l.call, err = s.open(site{url: url, http: l.client.HTTPClient()})
	armed.Store(true)
	return l, err
}

// do is one call of the operation.
func (l *life) do(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.result = idem.Result{}
	return l.call(idem.WithResult(idem.WithOperation(ctx, operation), &l.result))
}

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		flag.Parse()
		if at := flag.Lookup("test.parallel").Value; at.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
			_ = at.Set("8") // most of these tests wait
		}
		os.Exit(m.Run())
	}
	go func() { // the parent is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	l, err := subjects[name].live(os.Getenv(urlEnv), os.Getenv(journalEnv), faultinjection.HookFromEnv())
	if err == nil {
		_, err = l.do(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the call ended:", err)
	os.Exit(4)
}

// world is a server with its ledger, and a place for a journal.
type world struct {
	t       *testing.T
	name    string
	s       *subject
	ledger  *faultinjection.Ledger
	server  *faultinjection.Server
	url     string
	journal string
}

func newWorld(t *testing.T, name string, steps ...faultinjection.Step) *world {
	t.Helper()
	w := &world{t: t, name: name, s: subjects[name], journal: filepath.Join(t.TempDir(), "journal.db")}
	var err error
	w.ledger, err = faultinjection.OpenLedger("")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.ledger.Close()) })
	w.server = faultinjection.NewServer(w.s.server, w.ledger)
	w.server.Effect = w.s.effect
	w.server.Plan(steps...)
	t.Cleanup(w.server.Release)
	var handler http.Handler = w.server
	if w.s.front != nil {
		handler = w.s.front(w.server)
	}
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	t.Cleanup(listening.CloseClientConnections)
	w.url = listening.URL
	return w
}

// live is a life in this process.
func (w *world) live() *life {
	w.t.Helper()
	l, err := w.s.live(w.url, w.journal, nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, l.journal.Close()) })
	return l
}

// child begins a life in another process, which makes one call.
func (w *world) child(crash string) *exec.Cmd {
	w.t.Helper()
	self, err := os.Executable()
	require.NoError(w.t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+w.name, urlEnv+"="+w.url, journalEnv+"="+w.journal, "FAULTINJECTION_CRASH="+crash)
	cmd.Stderr = &bytes.Buffer{}
	_, err = cmd.StdinPipe() // closed when this process ends
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	return cmd
}

// ended waits for a child's end.
func (w *world) ended(cmd *exec.Cmd) error {
	w.t.Helper()
	var late atomic.Bool
	timer := time.AfterFunc(patience, func() { late.Store(true); _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	require.False(w.t, late.Load(), "the child does not end: %s", cmd.Stderr)
	return err
}

// dead waits for a child that was killed, or has killed itself.
func (w *world) dead(cmd *exec.Cmd) {
	w.t.Helper()
	err := w.ended(cmd)
	require.False(w.t, cmd.ProcessState.Exited(), "the child was not killed: %v, %s", err, cmd.Stderr)
}

// killedWhileHeld is a life that is killed after the server has begun to work.
// The server ends its work all the same.
func (w *world) killedWhileHeld() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := w.child("")
	held := w.server.AwaitHeld(ctx, 1)
	require.NoError(w.t, cmd.Process.Kill())
	w.dead(cmd)
	require.NoError(w.t, held, "%s", cmd.Stderr)
	w.server.Release()
	require.Eventually(w.t, func() bool { return w.counts().Effects == 1 }, patience, time.Millisecond)
}

func (w *world) counts() faultinjection.Counts {
	counts, err := w.ledger.Counts()
	require.NoError(w.t, err)
	return counts
}

// keys are the different keys that arrived; none at all counts as one.
func (w *world) keys() []string {
	arrivals, err := w.ledger.Arrivals()
	require.NoError(w.t, err)
	var keys []string
	for _, a := range arrivals {
		if key := strings.Join(a.Keys, ", "); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// once checks that there was one effect, under one key, and that the journal
// agrees with the server.
func (w *world) once(l *life) {
	w.t.Helper()
	counts := w.counts()
	assert.Equal(w.t, 1, counts.Effects, "effects")
	assert.Equal(w.t, []string{l.result.Intent.Key}, w.keys(), "keys on the wire")
	violations, err := w.ledger.Check(l.journal)
	require.NoError(w.t, err)
	assert.Empty(w.t, violations)
}
