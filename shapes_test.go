package idem

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// shape is one way in which a caller and a server use HTTP. It goes through
// http.Client over net/http alone and over a Transport, and everything that the
// caller can observe and everything that the server received is compared.
type shape struct {
	name     string
	request  func(*http.Request) // changes the ordinary POST; nil: as it is
	client   func(*http.Client)  // nil: as it is
	answer   reply               // nil: an ordinary 201
	early    bool                // the answer comes before the request's body was read
	read     func(body io.Reader, leave func()) ([]byte, error)
	proto    string // the only protocol that has it; empty: both
	attempts int    // RetryPolicy.MaxAttempts; zero: 1
	slow     bool   // waits for a real second: in one setting only

	// differs says what of a journaled request is not the same, each with the
	// sentence of the documentation that says so.
	differs map[string]string
	// refused is the sentence by which a request that would be journaled is
	// refused; so many arrive before it.
	refused string
	arrive  int
}

// facts are what was seen of one run, by name.
type facts map[string]string

// setting is what a request is to the journal.
type setting struct {
	name                   string
	named, keyed, ownedKey bool
}

var settings = []setting{
	{name: "named, contract", named: true, keyed: true},
	{name: "named, no contract", named: true},
	{name: "unnamed, contract", keyed: true},
	{name: "unnamed, no contract"},
	{name: "the caller's key", keyed: true, ownedKey: true},
}

// sides is a server of one protocol, a second origin, and what sends to them.
type sides struct {
	stage   *stage
	url     string
	base    func() *http.Transport // a new one, which has no connection yet
	journal *SQLiteJournal
	runs    int
}

const http1, http2 = "HTTP/1.1", "HTTP/2.0"

// listen starts a server of one protocol.
func listen(tb testing.TB, proto string, handler http.Handler) *httptest.Server {
	tb.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = quiet
	if proto == http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	tb.Cleanup(server.Close)
	return server
}

func newSides(tb testing.TB, proto string) *sides {
	tb.Helper()
	w := &sides{stage: &stage{}}
	server := listen(tb, proto, w.stage)
	w.url, w.stage.other = server.URL, listen(tb, proto, w.stage).URL
	w.base = func() *http.Transport {
		base := server.Client().Transport.(*http.Transport).Clone()
		base.ExpectContinueTimeout = patience
		tb.Cleanup(base.CloseIdleConnections)
		return base
	}
	journal, err := Open(filepath.Join(tb.TempDir(), "journal.db"), nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, journal.Close()) })
	w.journal = journal
	return w
}

// run sends the shape over net/http alone, or over a Transport.
func (w *sides) run(t *testing.T, s shape, how setting, ours bool) (facts, Result) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	defer time.AfterFunc(patience, leave).Stop()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	var result Result
	base := w.base()
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: base}
	if ours {
		w.runs++
		if how.named {
			ctx = WithOperation(ctx, fmt.Sprintf("%s/%d", s.name, w.runs))
		}
		ctx = WithResult(ctx, &result)
		over := NewClient(&Transport{Journal: w.journal, Base: base, Contracts: contract.First(), Retry: RetryPolicy{MaxAttempts: max(s.attempts, 1)}})
		if how.keyed {
			over.Transport.Contracts = rigContract()
		}
		defer func() { require.NoError(t, over.Shutdown(t.Context()), "no call is left open") }()
		client = over.HTTPClient()
	}
	client.Jar = jar
	if s.client != nil {
		s.client(client)
	}
	seen := facts{}
	var events events
	left := leave
	ctx = context.WithValue(httptrace.WithClientTrace(ctx, events.hooks()), leaveKey{}, &left)
	req := mustRequest(t, ctx, w.url+"/charges", orderBody(1))
	if s.request != nil {
		s.request(req)
	}
	w.stage.set(s, left)
	if how.ownedKey {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("own-%d", w.runs))
	}
	resp, err := client.Do(req)
	seen["error"] = kindOf(err)
	if resp != nil {
		seen.response(resp)
		seen.body(s, resp, left)
		seen["trailer"] = headerText(resp.Trailer)
	}
	leave()
	left()
	seen["connections"] = events.text()
	seen["cookies"] = fmt.Sprint(jar.Cookies(req.URL))
	seen["the caller's request"] = requestFacts(req)
	if body, ok := req.Body.(*watchedBody); ok {
		seen["request body closed"] = fmt.Sprint(body.closed.Load() > 0)
	}
	keys := w.stage.end(t, seen)
	if ours {
		requireKeys(t, how, result, keys)
	}
	return seen, result
}

// leaveKey is for how the caller leaves, where that is not by its context.
type leaveKey struct{}

// requireKeys checks what is left out of the facts: one key on every send of
// what is journaled for a server that honours keys, and none elsewhere.
func requireKeys(t *testing.T, how setting, result Result, keys []string) {
	t.Helper()
	for _, key := range keys {
		method, sent, _ := strings.Cut(key, " ")
		switch {
		case result.Intent.Place.Header != "" && !safeMethod(method):
			assert.Equal(t, result.Intent.Key, sent, how.name)
		case !how.ownedKey || result.Intent.ID != "": // not on the GET that follows, either
			assert.Empty(t, sent, how.name)
		}
	}
}

// response notes what is there before the body is read.
func (f facts) response(resp *http.Response) {
	h := resp.Header.Clone()
	h.Del("Date")
	f["status"] = fmt.Sprintf("%d, %q", resp.StatusCode, resp.Status)
	f["protocol"] = fmt.Sprintf("%s, %d, %d", resp.Proto, resp.ProtoMajor, resp.ProtoMinor)
	f["header"] = headerText(h)
	f["trailer before the body"] = headerText(resp.Trailer)
	f["length"] = fmt.Sprint(resp.ContentLength)
	f["transfer encoding"] = fmt.Sprint(resp.TransferEncoding)
	f["uncompressed, close"] = fmt.Sprint(resp.Uncompressed, resp.Close)
	f["set cookies"] = fmt.Sprint(resp.Cookies())
	f["no body"] = fmt.Sprint(resp.Body == http.NoBody)
	f["tls"] = "none"
	if state := resp.TLS; state != nil {
		f["tls"] = fmt.Sprintf("%x %q %d", state.Version, state.NegotiatedProtocol, len(state.PeerCertificates))
	}
	var chain []string
	for at := resp; at != nil && at.Request != nil; at = at.Request.Response {
		chain = append(chain, fmt.Sprintf("%d of %s", at.StatusCode, requestFacts(at.Request)))
	}
	f["chain"] = strings.Join(chain, " after ")
}

// requestFacts are a request as its sender sees it. A key is not part of it.
func requestFacts(req *http.Request) string {
	h := req.Header.Clone()
	h.Del("Idempotency-Key")
	return fmt.Sprintf("%s %q, host %q, length %d, encoding %v, close %t, body %t, again %t, %s", req.Method, req.URL, req.Host,
		req.ContentLength, req.TransferEncoding, req.Close, req.Body != nil, req.GetBody != nil, headerText(h))
}

// body reads as the caller of s does, closes, and looks what is left.
func (f facts) body(s shape, resp *http.Response, leave func()) {
	read := s.read
	if read == nil {
		read = func(body io.Reader, _ func()) ([]byte, error) { return io.ReadAll(body) }
	}
	body, err := read(resp.Body, leave)
	f["body"], f["body's end"] = bodyText(body), kindOf(err)
	if !errors.Is(err, context.DeadlineExceeded) { // of which net/http has two, and a race for the first
		f["body's end"] += fmt.Sprintf(", %T", err)
	}
	end := resp.Body.Close()
	n, after := resp.Body.Read(make([]byte, 1))
	f["body after close"] = fmt.Sprintf("%d bytes", n)
	if err == nil { // else net/http's own depend on what comes first
		f["body's close"] = fmt.Sprint(end)
		f["body after close"] += fmt.Sprint(", at its end ", len(body) == 0 || after == io.EOF)
	}
}

// events are what httptrace told the caller.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf(format, args...))
}

func (e *events) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.list, ", ")
}

func (e *events) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:        func(hostPort string) { e.add("asked for %s", hostPort) },
		GotConn:        func(info httptrace.GotConnInfo) { e.add("reused %t", info.Reused) },
		Got100Continue: func() { e.add("100") },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			e.add("%d %s", code, headerText(h))
			return nil
		},
	}
}

// headerText is a header with names as they are in the map and values in order.
func headerText(h map[string][]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s: %q; ", name, h[name])
	}
	return b.String()
}

func bodyText(b []byte) string {
	if len(b) <= 100 {
		return fmt.Sprintf("%d bytes %q", len(b), b)
	}
	return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
}

// brokenOff is net/http's own of HTTP/2, which converts to it.
type brokenOff struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e brokenOff) Error() string { return fmt.Sprint("stream error ", e.Code) }

// kindOf is what a caller can find out about an error without its text.
func kindOf(err error) string {
	var kind []string
	add := func(is bool, format string, args ...any) {
		if is {
			kind = append(kind, fmt.Sprintf(format, args...))
		}
	}
	add(err == nil, "none")
	var of *url.Error
	add(errors.As(err, &of), "url.Error of %T", err)
	if of != nil {
		kind = append(kind, of.Op, of.URL)
	}
	var op *net.OpError
	add(errors.As(err, &op), "net.OpError")
	if op != nil {
		kind = append(kind, op.Op, fmt.Sprint(errors.Is(err, net.ErrClosed)))
	}
	var stream brokenOff
	add(errors.As(err, &stream), "stream error")
	add(stream.Code != 0, "%d", stream.Code)
	var timeout net.Error
	add(errors.As(err, &timeout) && timeout.Timeout(), "timeout")
	for _, known := range []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, http.ErrUseLastResponse, http.ErrSchemeMismatch} {
		add(errors.Is(err, known), "%v", known)
	}
	if len(kind) == 0 {
		return "another"
	}
	return strings.Join(kind, " ")
}

// TestShapes runs every shape over both protocols and in every setting.
func TestShapes(t *testing.T) {
	t.Parallel()
	require.GreaterOrEqual(t, len(shapes()), 60)
	used := map[string]bool{}
	runs := 0
	for _, proto := range []string{http1, http2} {
		t.Run(proto, func(t *testing.T) {
			w := newSides(t, proto)
			for _, s := range shapes() {
				if s.proto != "" && s.proto != proto {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					runs++
					alone, _ := w.run(t, s, setting{}, false)
					for i, how := range settings {
						if i > 0 && (s.slow || raceStep > 1) { // SQLite takes long under the race detector
							continue
						}
						if how.ownedKey {
							alone, _ = w.run(t, s, how, false)
						}
						ours, result := w.run(t, s, how, true)
						for field, because := range s.compare(t, how.name, alone, ours, result) {
							used[s.name+": "+field] = because != ""
						}
					}
				})
			}
		})
	}
	for _, s := range shapes() { // what is said to differ does
		for field := range s.differs {
			all := runs >= len(shapes())
			assert.True(t, used[s.name+": "+field] || !all, "%s: %s does not differ at all", s.name, field)
		}
	}
}

// compare reports what is not the same, and returns what may be so.
func (s shape) compare(t *testing.T, how string, alone, ours facts, result Result) (used map[string]string) {
	t.Helper()
	if err := result.Err(); err != nil && s.refused != "" {
		assert.ErrorIs(t, err, ErrNotSent, how)
		assert.Equal(t, fmt.Sprint(s.arrive), ours["arrivals"], how)
		assert.NotEqual(t, "false", ours["request body closed"], how)
		return nil
	}
	journaled := result.Intent.ID != ""
	assert.False(t, journaled && s.refused != "", "%s: not refused", how)
	used = map[string]string{}
	both := maps.Clone(alone)
	maps.Copy(both, ours)
	for _, field := range slices.Sorted(maps.Keys(both)) {
		if alone[field] == ours[field] {
			continue
		}
		if because := s.differs[field]; journaled && because != "" {
			used[field] = because
			continue
		}
		assert.Equal(t, alone[field], ours[field], "%s: %s", how, field)
	}
	return used
}

// The sentences that allow a difference are in the documentation, or in the
// error that the caller gets.
func TestShapesAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var told strings.Builder
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			told.Write(text)
		}
	}
	marks := strings.NewReplacer("//", "", "[", "", "]", "", "*", "", "`", "")
	words := strings.Join(strings.Fields(marks.Replace(told.String())), " ")
	for _, s := range shapes() {
		for _, sentence := range append(slices.Collect(maps.Values(s.differs)), s.refused) {
			assert.Contains(t, words, sentence, s.name)
		}
	}
}

// countedWrites is a connection that counts what it is given to send.
type countedWrites struct {
	net.Conn
	n *atomic.Int64
}

func (c countedWrites) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// net/http sends the head and a body from memory in one write, which is one
// packet, as long as it can see that the body is in memory.
func TestShapesBodyLeavesWithItsHead(t *testing.T) {
	w := newSides(t, http1)
	var writes atomic.Int64
	base := w.base()
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countedWrites{conn, &writes}, err
	}
	over := NewClient(&Transport{Journal: w.journal, Base: base, Contracts: rigContract()})
	for name, client := range map[string]*http.Client{"alone": {Transport: base}, "with idem": over.HTTPClient()} {
		writes.Store(0)
		resp, err := client.Do(mustRequest(t, t.Context(), w.url, orderBody(1)))
		require.NoError(t, err)
		readAndClose(t, resp)
		assert.Equal(t, int64(1), writes.Load(), name)
	}
}
