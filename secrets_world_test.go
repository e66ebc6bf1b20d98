package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// markWorld is a journal, what is told beside it, and the providers.
type markWorld struct {
	t          *testing.T
	path, told string // the journal, and the folder of what is told
	options    *SQLiteOptions
	home, away *markProvider
}

// markProvider answers by the last part of the path, and notes what came.
type markProvider struct {
	server *httptest.Server
	away   string

	mu       sync.Mutex
	arrivals []markArrival
	healed   bool          // nothing fails any more
	hanging  chan struct{} // told when a request hangs
}

type markArrival struct {
	what   string // the last part of the path
	method string
	query  string
	header http.Header
	body   string
}

func newMarkProvider(t *testing.T, away string) *markProvider {
	p := &markProvider{away: away, hanging: make(chan struct{}, 1)}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

func (p *markProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	p.mu.Lock()
	p.arrivals = append(p.arrivals, markArrival{what, r.Method, r.URL.RawQuery, r.Header.Clone(), string(body)})
	nth, healed := p.count(what), p.healed
	p.mu.Unlock()
	h := w.Header()
	h.Set("Set-Cookie", "id="+mark("setcookie"))
	h.Set("X-Auth-Token", mark("answertoken"))
	h.Set("X-Session-Id", mark("answersession"))
	h.Set("Location", fmt.Sprintf("http://%s:pw@%s/done?token=%s#access_token=%s", mark("locationuser"), r.Host, mark("locationquery"), mark("fragment")))
	h.Set("X-Plain", mark("answerheader"))
	h.Set("Request-Id", mark("requestid"))
	h.Set("X-Echo", "you came with "+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
	h.Set("X-Echo-Query", "apikey:"+r.URL.Query().Get("api_key"))
	switch {
	case what == "reject":
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprintf(w, "%s %s", mark("refusal"), r.Header.Get("Idempotency-Key"))
		return
	case what == "again":
		h.Set("Location", "/x/landed?token="+mark("hopquery"))
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	case what == "leave":
		h.Set("Location", p.away+"/stolen?token="+mark("awayquery"))
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	case what == "seeother":
		h.Set("Location", p.away+"/receipt?token="+mark("receiptquery"))
		w.WriteHeader(http.StatusSeeOther)
		return
	case healed:
	case what == "retry" && nth == 1:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, mark("passing"))
		return
	case what == "reset":
		panic(http.ErrAbortHandler)
	case what == "cut":
		h.Set("Content-Length", "1000")
		_, _ = io.WriteString(w, mark("cut"))
		return
	case what == "hang":
		p.hanging <- struct{}{}
		<-r.Context().Done()
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, mark("answer"))
}

// count is how often what was asked for. The caller holds mu.
func (p *markProvider) count(what string) (n int) {
	for _, a := range p.arrivals {
		if a.what == what {
			n++
		}
	}
	return n
}

func (p *markProvider) all() []markArrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.arrivals)
}

func (p *markProvider) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = true
}

// secretMarks are the marks of secret headers.
var secretMarks = map[string]string{
	"Authorization": "authorization", "Proxy-Authorization": "proxyauth", "X-Api-Key": "apikey", "X-Auth-Token": "authtoken",
	"Client-Secret": "clientsecret", "X-Password": "passwordhead", "X-Signature": "signature", "X-Session-Id": "sessionid",
	"X-Jwt-Assertion": "jwt", "X-Ours": "declared", "Cookie": "cookie",
}

func putMarks(req *http.Request) {
	for name, m := range secretMarks {
		req.Header.Set(name, mark(m))
	}
	req.Header.Set("Cookie", "a=b; sid="+mark("cookie"))
	req.Header.Set("Authorization", "Bearer "+mark("authorization"))
	req.URL.User = url.UserPassword(mark("username"), mark("password"))
	q := req.URL.Query()
	q.Set("api_key", mark("querykey"))
	q.Set("sig", mark("querysig"))
	q.Set("x-ours", mark("querydeclared"))
	req.URL.RawQuery = q.Encode()
}

// markedCall is a request with a mark in every part.
func markedCall(home, what string) (*http.Request, error) {
	address := fmt.Sprintf("%s/%s/%s?api_key=%s&customer=%s&sig=%s&empty_key=&x-ours=%s", home, mark("path"), what,
		mark("querykey"), mark("query"), mark("querysig"), mark("querydeclared"))
	req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(`{"card":"`+mark("body")+`"}`))
	if err != nil {
		return nil, err
	}
	query := req.URL.RawQuery
	putMarks(req)
	req.URL.RawQuery = query
	req.Header.Set("X-Customer", mark("header"))
	req.Host = mark("host") + ".example"
	return req, nil
}

// markBase adds a token, as OAuth transports do, and fails in words that show
// more than they should.
func markBase(inner http.RoundTripper, panics *bool) roundTripper {
	return func(req *http.Request) (*http.Response, error) {
		what := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
		own := req.Clone(req.Context())
		if strings.HasPrefix(what, "oauth") || what == "talk" || what == "panic" {
			own.Header.Set("Authorization", "Bearer "+mark("oauthbearer"))
			own.Header.Set("X-Access-Token", mark("oauthadded"))
		}
		switch {
		case what == "talk" && *panics:
			body, _ := io.ReadAll(own.Body)
			return nil, fmt.Errorf("Post %q through http://%s:%s@proxy.example:3128/connect?key=%s with %s and %q, %v: %w", own.URL, mark("proxyuser"),
				mark("proxypass"), mark("proxyquery"), body, body, own.Header, errors.Join(io.ErrUnexpectedEOF, errors.New(own.URL.String())))
		case what == "panic" && *panics:
			panic(fmt.Sprintf("%s %s %v", mark("panic"), own.URL, own.Header))
		}
		return inner.RoundTrip(own)
	}
}

// markClient is a client over the world's journal that tells all it can.
type markClient struct {
	*Client
	journal *SQLiteJournal
	told    string
	home    string
	panics  *bool
	files   map[string]*os.File
	mu      sync.Mutex
}

func openMarkClient(path, told, home string, opts *SQLiteOptions) (*markClient, error) {
	journal, err := Open(path, opts)
	if err != nil {
		return nil, err
	}
	c := &markClient{journal: journal, told: told, home: home, panics: new(bool), files: map[string]*os.File{}}
	for _, s := range surfaces[1:] {
		f, err := os.OpenFile(filepath.Join(told, s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		c.files[s] = f
	}
	tell := func(_ context.Context, in Intent) { c.tell(inHooks, in) }
	t := &Transport{
		Journal: journal, Contracts: rigContract(), Scope: mark("scope"), Secrets: []string{"x-ours"},
		Retry:  RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, MaxAttempts: 2, MaxDeaths: 100, Budget: 10_000},
		Base:   markBase(&http.Transport{}, c.panics),
		Logger: slog.New(slog.NewTextHandler(c.files[inLog], &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observer: &Observer{
			Recorded: tell, Settled: tell, Held: tell,
			Attempted: func(_ context.Context, in Intent, a Attempt) { c.tell(inHooks, in); c.say(inHooks, a) },
			Waiting:   func(_ context.Context, in Intent, _ time.Duration) { c.tell(inHooks, in) },
		},
	}
	c.Client = NewClient(t)
	c.Authorize = func(req *http.Request, in Intent) error {
		c.tell(inHooks, in)
		putMarks(req)
		return nil
	}
	c.Verify = func(_ context.Context, in Intent) (State, error) { c.tell(inHooks, in); return StateUnknown, nil }
	c.OnSettled = func(_ context.Context, in Intent) error {
		c.tell(inHooks, in)
		return nil
	}
	return c, nil
}

// close ends the client.
func (c *markClient) close() error {
	for _, f := range c.files {
		if err := f.Close(); err != nil {
			return err
		}
	}
	return c.journal.Close()
}

// say writes what it is given, as loggers would.
func (c *markClient) say(surface string, values ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range values {
		fmt.Fprintf(c.files[surface], "%+v\n", v)
	}
}

func (c *markClient) tell(surface string, in Intent) {
	c.say(surface, in)
	if in.Request != nil {
		c.say(surface, in.Request, string(in.Request.Body))
	}
	if in.Outcome != nil {
		c.say(surface, in.Outcome, string(in.Outcome.Body))
	}
}

// fail writes an error in every way in which one is shown.
func (c *markClient) fail(err error) {
	if err == nil {
		return
	}
	c.say(inErrors, err.Error(), fmt.Errorf("charge: %w", err), fmt.Sprintf("%+v %q", err, err))
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		c.fail(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range x.Unwrap() {
			c.fail(err)
		}
	}
}

// call makes one call, and tells how it ended.
func (c *markClient) call(what string) error {
	defer func() { _ = recover() }() // of the base; what it says is the caller's own
	var result Result
	req, err := markedCall(c.home, what)
	if err != nil {
		return err
	}
	resp, err := c.Do(markedName(what), req.WithContext(WithResult(context.Background(), &result)))
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	c.fail(err)
	c.fail(result.Err())
	c.say(inLists, result)
	c.tell(inLists, result.Intent)
	return err
}

func markedName(what string) string { return mark("operation") + "/" + what }
