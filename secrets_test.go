package idem

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// markedOperations are called by the process that is killed, in this order. The
// last one hangs.
var markedOperations = []string{"ok", "retry", "reject", "reset", "cut", "again", "leave", "seeother", "oauth", "talk", "panic", "hang"}

func init() {
	children["secrets"] = func() { childMarks(nil) }
	children["secrets sealed"] = func() { childMarks(&SQLiteOptions{Sealer: orExit(NewAESGCM(sealKeys("a"), "a"))}) }
}

func childMarks(opts *SQLiteOptions) {
	args := childArgs()
	c := orExit(openMarkClient(args[0], args[1], args[2], opts))
	*c.panics = true
	prepared := orExit(markedCall(c.home, "oauth-prepared"))
	in := orExit(c.Prepare(markedName("oauth-prepared"), prepared))
	c.tell(inLists, in)
	for _, what := range markedOperations {
		if what == "hang" { // a resume whose base panics, and what it leaves
			func() {
				defer func() { _ = recover() }()
				report, err := c.Resume(context.Background())
				c.say(inLists, report)
				c.fail(err)
			}()
			fmt.Println("hanging")
		}
		_ = c.call(what)
	}
}

// Nothing secret of a call is seen anywhere, and what is stored is sealed where
// there is a Sealer.
func TestO03_MarksAreWhereTheyMayBe(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]*SQLiteOptions{"clear": nil, "sealed": sealed(t, "a")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := &markWorld{t: t, path: filepath.Join(dir, "journal", "j.db"), told: filepath.Join(dir, "told"), options: options}
			require.NoError(t, os.Mkdir(w.told, 0o700))
			require.NoError(t, os.Mkdir(filepath.Dir(w.path), 0o700))
			w.away = newMarkProvider(t, "")
			w.home = newMarkProvider(t, w.away.server.URL)
			child := "secrets"
			if options != nil {
				child = "secrets sealed"
			}
			first := startChild(t, child, w.path, w.told, w.home.server.URL)
			first.awaitLine("hanging")
			select {
			case <-w.home.hanging:
			case <-time.After(patience):
				require.FailNow(t, "no request hangs", first.err.String())
			}
			w.requireNone("alive")
			first.kill()
			log, err := os.Stat(w.path + "-wal")
			require.NoError(t, err, "as the kill left it")
			require.Positive(t, log.Size())
			w.requireNone("killed")
			assert.NotContains(t, first.err.String(), "m7", "said by the process")

			w.home.heal()
			w.goOn()
			w.requireArrivals()
			w.requireNone("closed")
			w.requireAll("closed")
		})
	}
}

// goOn is the second process, which finishes what the first one left.
func (w *markWorld) goOn() {
	c, err := openMarkClient(w.path, w.told, w.home.server.URL, w.options)
	require.NoError(w.t, err)
	ctx := w.t.Context()
	w.refuseBadAuthorize(c)
	open := []string{"reset", "cut", "talk", "panic", "hang", "oauth-prepared"}
	for range 200 {
		report, err := c.Resume(ctx)
		require.NoError(w.t, err)
		c.say(inLists, report)
		for _, in := range report.Held {
			c.tell(inLists, in)
		}
		settled := 0
		for _, what := range open {
			in, err := c.Lookup(WithScope(ctx, mark("scope")), markedName(what))
			require.NoError(w.t, err)
			if in.State.Final() && !in.Notify {
				settled++
			}
		}
		if settled == len(open) {
			break
		}
		time.Sleep(time.Until(report.Next))
	}
	for _, what := range append(open, "ok", "retry", "reject", "again", "seeother", "oauth") {
		in, err := c.Lookup(ctx, markedName(what))
		require.NoError(w.t, err)
		assert.True(w.t, in.State.Final(), "%s is %s (%s)", what, in.State, in.HoldReason)
		require.NoError(w.t, c.call(what), "from the journal")
	}
	w.mismatch(c)
	w.look(c)
	require.NoError(w.t, c.close())
}

// refuseBadAuthorize: what Authorize put in before it failed is in no text.
func (w *markWorld) refuseBadAuthorize(c *markClient) {
	good := c.Authorize
	defer func() { c.Authorize = good }()
	c.Authorize = func(req *http.Request, in Intent) error {
		_ = good(req, in)
		req.Header.Set("Authorization", "Bearer "+mark("authorizeerr"))
		return fmt.Errorf("the server of tokens says: %s is old, for %s", req.Header.Get("Authorization"), req.URL)
	}
	_, err := c.Continue(w.t.Context(), markedName("hang"))
	require.ErrorContains(w.t, err, "the server of tokens says")
	c.fail(err)
	_, err = c.Resume(w.t.Context())
	require.NoError(w.t, err)
	c.Authorize = nil
	_, err = c.Continue(w.t.Context(), markedName("hang"))
	require.ErrorContains(w.t, err, "set Client.Authorize")
	c.fail(err)
}

// mismatch is another request under a known name, and a decision on one that is
// not to be sent.
func (w *markWorld) mismatch(c *markClient) {
	req, err := markedCall(c.home, "ok")
	require.NoError(w.t, err)
	req.URL.RawQuery += "&more=1"
	_, err = c.Do(markedName("ok"), req)
	require.ErrorIs(w.t, err, ErrMismatch)
	c.fail(err)
	in, err := c.Lookup(w.t.Context(), markedName("leave"))
	require.NoError(w.t, err)
	require.Equal(w.t, StateWithdrawn, in.State, "a redirect to another origin")
	prepared, err := markedCall(c.home, "noted")
	require.NoError(w.t, err)
	in, err = c.Prepare(markedName("noted"), prepared)
	require.NoError(w.t, err)
	_, err = c.Withdraw(w.t.Context(), in, "ops", mark("note"))
	require.NoError(w.t, err)
}

// look asks for all that the journal gives.
func (w *markWorld) look(c *markClient) {
	ctx := w.t.Context()
	list, err := c.journal.List(ctx, Filter{})
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, len(list), len(markedOperations))
	var keys []string
	for _, in := range list {
		c.tell(inLists, in)
		attempts, err := c.journal.Attempts(ctx, in)
		require.NoError(w.t, err)
		c.say(inLists, attempts)
		one, err := c.Lookup(ctx, in.Operation)
		require.NoError(w.t, err)
		c.tell(inLists, one)
		require.NotEmpty(w.t, in.Key)
		keys = append(keys, in.Key)
	}
	stats, err := c.journal.Stats(ctx)
	require.NoError(w.t, err)
	c.say(inLists, stats)
	var lines bytes.Buffer
	require.NoError(w.t, c.journal.Export(ctx, &lines))
	for line := range strings.Lines(lines.String()) {
		c.say(inExport, decoded(w.t, line))
	}
	for _, key := range keys { // it is in lists, and in no text
		for _, s := range []string{inLog, inErrors} {
			assert.NotContains(w.t, string(w.seen(s)), key, s)
		}
	}
}

// requireArrivals checks that the marks were there to be seen: every attempt had
// every credential and the whole query, at home; and that nothing of it came to
// another origin.
func (w *markWorld) requireArrivals() {
	for _, a := range w.home.all() {
		if a.what == "landed" { // the hop of a redirect
			assert.Contains(w.t, a.query, mark("hopquery"))
		} else {
			assert.Equal(w.t, fmt.Sprintf("api_key=%s&customer=%s&sig=%s&empty_key=&x-ours=%s",
				mark("querykey"), mark("query"), mark("querysig"), mark("querydeclared")), a.query, a.what)
		}
		for header, m := range secretMarks {
			if strings.HasPrefix(a.what, "oauth") && header == "Authorization" {
				m = "oauthbearer"
			}
			if !(header == "Authorization" && (a.what == "talk" || a.what == "panic")) {
				assert.Contains(w.t, a.header.Get(header), mark(m), a.what)
			}
		}
		assert.Contains(w.t, a.body, mark("body"), a.what)
		assert.Len(w.t, a.header.Values("Idempotency-Key"), 1, a.what)
	}
	for what, n := range map[string]int{"retry": 2, "hang": 2, "oauth-prepared": 1, "leave": 1, "again": 1, "landed": 1, "reject": 1} {
		assert.Equal(w.t, n, w.home.count(what), what)
	}
	for _, a := range w.away.all() {
		assert.Equal(w.t, "receipt", a.what)
		assert.Equal(w.t, "GET", a.method)
		assert.Empty(w.t, a.body)
		for name := range marks {
			assert.False(w.t, holdsMark(fmt.Appendf(nil, "%v %v", a.header, a.body), name), "%s went away: %v", name, a.header)
		}
		assert.Empty(w.t, a.header.Get("Idempotency-Key"))
	}
	assert.NotEmpty(w.t, w.away.all(), "the 303 was followed")
}
