package idem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// What the documentation says of requests that are journaled.
const (
	recordedFirst = "Before the first byte leaves, the key and the request are in the journal"
	thenHanded    = "The outcome is recorded, then the answer is handed over"
	sameBytes     = "Every attempt sends the same method, URL, body and headers"
	bounded       = "a larger request is refused"
)

// A body is in the journal before the head is sent, so its length is known.
var lengthKnown = map[string]string{"arrival 1: length": recordedFirst}

// An answer is handed over whole, so its trailers are known.
var trailersKnown = map[string]string{"trailer before the body": thenHanded}

// change is how a shape changes the ordinary request.
type change = func(*http.Request)

func changes(list ...change) change {
	return func(r *http.Request) {
		for _, c := range list {
			c(r)
		}
	}
}

func method(name string) change { return func(r *http.Request) { r.Method = name } }

// bare is a request without a body.
func bare(name string) change {
	return func(r *http.Request) {
		r.Method, r.Body, r.GetBody, r.ContentLength = name, nil, nil, 0
		r.Header.Del("Content-Type")
	}
}

// once is a body that can be read once; a negative length is unknown.
func once(body string, length int64) change {
	return func(r *http.Request) {
		r.Body, r.GetBody, r.ContentLength = &watchedBody{Reader: strings.NewReader(body)}, nil, length
	}
}

// inMemory is a body that net/http knows how to read again.
func inMemory(body string) change {
	return func(r *http.Request) {
		made, err := http.NewRequest(http.MethodPost, r.URL.String(), strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		r.Body, r.GetBody, r.ContentLength = made.Body, made.GetBody, made.ContentLength
	}
}

// head sets a header as it stands in the map.
func head(name string, values ...string) change {
	return func(r *http.Request) { r.Header[name] = values }
}

// to changes the path and query by hand, past the host.
func to(rest string) change {
	return func(r *http.Request) {
		made, err := url.Parse("http://" + r.URL.Host + rest)
		if err != nil {
			panic(err)
		}
		made.Scheme, r.URL = r.URL.Scheme, made
	}
}

func requestShapes() []shape {
	long := strings.Repeat("0123456789abcdef", 32<<10)
	return []shape{
		{name: "POST"},
		{name: "GET", request: bare("GET")},
		{name: "no method", request: bare("")},
		{name: "HEAD with a length", request: bare("HEAD"), answer: says(200, "", "Content-Length", "57178")},
		{name: "OPTIONS", request: bare("OPTIONS"), answer: says(204, "", "Allow", "GET, POST")},
		{name: "TRACE", request: bare("TRACE")},
		{name: "PUT", request: method("PUT")},
		{name: "PATCH", request: method("PATCH")},
		{name: "DELETE", request: bare("DELETE"), answer: says(204, "")},
		{name: "DELETE with a body", request: method("DELETE")},
		{name: "PURGE", request: bare("PURGE")},
		{name: "REPORT with a body", request: method("REPORT")},
		{name: "method in lower case", request: method("post")},
		{name: "GET with a body", request: method("GET")},
		{name: "no body", request: bare("POST")},
		{name: "NoBody", request: changes(bare("POST"), func(r *http.Request) { r.Body = http.NoBody })},
		{name: "one-shot body of unknown length", request: once(orderBody(1), -1), differs: lengthKnown},
		{name: "one-shot body of known length", request: once("abc", 3)},
		{name: "one-shot body, PUT", request: changes(method("PUT"), once("abc", -1)), differs: lengthKnown},
		{name: "one-shot body, GET", request: changes(method("GET"), once("abc", -1))},
		{name: "empty reader", request: once("", 0), differs: lengthKnown},
		{name: "empty reader of unknown length", request: once("", -1), differs: lengthKnown},
		{name: "empty reader, DELETE", request: changes(method("DELETE"), once("", 0)), differs: lengthKnown},
		{name: "chunked by the caller", request: changes(inMemory("abc"), func(r *http.Request) {
			r.TransferEncoding, r.ContentLength = []string{"chunked"}, -1
		}), differs: lengthKnown},
		{name: "long body", request: inMemory(long)},
		{name: "body at the limit", request: inMemory(long + long)},
		{name: "body above the limit", request: inMemory(long + long + "x"), refused: bounded},
		{name: "one-shot body above the limit", request: once(long+long+"x", -1), refused: bounded},
		{name: "encoded body", request: changes(inMemory("\x1f\x8b\x00\xff\r\n\x00"), head("Content-Encoding", "gzip"))},
		{name: "trailers", request: changes(once("abc", -1), func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"17"}} }),
			refused: "request has trailers, which cannot be journaled"},
		{name: "upgrade that the server refuses", request: changes(bare("GET"), head("Connection", "Upgrade"), head("Upgrade", "websocket")),
			proto: http1, answer: says(426, "no", "Upgrade", "h3")},
		{name: "upgrade, POST", request: changes(head("Connection", "Upgrade"), head("Upgrade", "h3")), proto: http1, answer: says(200, "no"),
			refused: "request asks for an upgrade of the connection, which cannot be journaled"},
	}
}

func headShapes() []shape {
	long := strings.Repeat("yes ", 8<<10)
	return []shape{
		{name: "values", request: changes(head("X-Tag", "a", "b", "a"), head("X-Empty", ""), head("X-None"), head("X-Spaces", " a  b "))},
		{name: "spellings", request: changes(head("x-odd-CASE", "1", "2"), head("X_Under", "3"))},
		{name: "header that is not ASCII", request: head("X-Name", "Zo\u00eb", "\xff\xfe")},
		{name: "long headers", request: changes(head("X-Long", long), head("X-Longer", long, long))},
		{name: "headers of net/http", request: changes(head("Content-Length", "99"), head("Host", "other.example"), head("Trailer", "X-A"),
			head("Transfer-Encoding", "gzip"))},
		{name: "TE", request: head("Te", "trailers")},
		{name: "Connection: close", request: head("Connection", "close")},
		{name: "Connection names a header", request: changes(head("Connection", "X-Hop"), head("X-Hop", "1")), proto: http1},
		{name: "Close", request: func(r *http.Request) { r.Close = true }},
		{name: "empty Accept-Encoding", request: head("Accept-Encoding", "")},
		{name: "another key", request: changes(bare("POST"), head("X-Idempotency-Key", "k-1"))},
		{name: "own User-Agent", request: head("User-Agent", "shop/1")},
		{name: "empty User-Agent", request: head("User-Agent", "")},
		{name: "User-Agent without a value", request: head("User-Agent")},
		{name: "nil header", request: func(r *http.Request) { r.Header = http.Header{} }},
		{name: "range", request: head("Range", "bytes=2-4"), answer: says(206, "cde", "Content-Range", "bytes 2-4/9")},
		{name: "range, GET", request: changes(bare("GET"), head("Range", "bytes=2-4")), answer: says(206, "cde", "Content-Range", "bytes 2-4/9")},
		{name: "conditional", request: head("If-Match", `"v1"`), answer: says(412, "changed")},
		{name: "other host", request: func(r *http.Request) { r.Host = "shop.example:81" }},
		{name: "host in other letters", request: func(r *http.Request) {
			r.URL.Host = "localhost:" + r.URL.Port()
			r.Host = strings.ToUpper(r.URL.Host)
		}, proto: http1},
		{name: "user info", request: func(r *http.Request) { r.URL.User = url.UserPassword("sk_test", "p@ss:1") }},
		{name: "user info beside credentials", request: changes(head("Authorization", "Bearer b"), func(r *http.Request) { r.URL.User = url.User("u") })},
		{name: "credentials", request: changes(head("Authorization", "Bearer b"), head("Cookie", "a=1; b=2"), head("X-Api-Key", "k", "l"))},
		{name: "odd query", request: to("/charges?a=%2F+%20&b&c=&=d&a=;&e=%zz&f=\u00e9&g=[]|")},
		{name: "query set by hand", request: func(r *http.Request) { r.URL.RawQuery = "tag=#1&b=2" }},
		{name: "empty query", request: to("/charges?")},
		{name: "odd path", request: to("/a%2Fb/%41%7e/;x=1,2/%E2%82%AC//c/../d/.")},
		{name: "path set by hand", request: func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a b/\u00e9%", "" }},
		{name: "path with two slashes", request: to("//charges")},
		{name: "no path", request: to("")},
		{name: "fragment", request: to("/charges#part")},
		{name: "100-continue", request: changes(head("Expect", "100-continue"), inMemory("abc"))},
		{name: "100-continue refused", early: true, request: changes(head("Expect", "100-continue"), inMemory("abc")), answer: says(417, "no")},
		{name: "unknown scheme", request: func(r *http.Request) { r.URL.Scheme = "ftp" }},
		{name: "opaque URL", request: func(r *http.Request) { r.URL.Opaque = "//" + r.URL.Host + "/opaque" }, refused: "request URL has no host, or is opaque"},
		{name: "invalid header", request: head("X-A", "a\nb")},
		{name: "closed port", request: func(r *http.Request) { r.URL.Host = closedPort }},
	}
}

// closedPort is an address that nobody listens at.
var closedPort = func() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}()

func answerShapes() []shape {
	long := strings.Repeat("0123456789abcdef", 128<<10)
	shapes := []shape{
		{name: "205", answer: says(205, "")},
		{name: "304", answer: says(304, "", "Etag", `"v1"`)},
		{name: "304, GET", request: bare("GET"), answer: says(304, "", "Etag", `"v1"`)},
		{name: "status of its own", answer: raw("HTTP/1.1 299 Quite Fine\r\nContent-Length: 2\r\n\r\nok"), proto: http1},
		{name: "no reason", answer: raw("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"), proto: http1},
		{name: "HTTP/1.0", answer: raw("HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nuntil the end"), proto: http1},
		{name: "odd header", answer: raw("HTTP/1.1 200 OK\r\nx-ODD:  a \r\nX-Odd: b\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n"), proto: http1},
		{name: "Connection: close answered", answer: says(200, "bye", "Connection", "close")},
		{name: "gzip", answer: zipped(200, "hello")},
		{name: "gzip of an error", answer: zipped(400, "hello")},
		{name: "gzip, GET", request: bare("GET"), answer: zipped(200, "hello")},
		{name: "gzip, as asked", request: head("Accept-Encoding", "gzip"), answer: zipped(200, "hello")},
		{name: "gzip, not asked", request: head("Accept-Encoding", "identity"), answer: zipped(200, "hello")},
		{name: "gzip that is none", answer: says(200, "hello", "Content-Encoding", "gzip")},
		{name: "long gzip", answer: zipped(200, long)},
		{name: "chunked", answer: inPieces(false, "one ", "two ", "three"), read: pieces},
		{name: "chunked and empty", answer: inPieces(false, "")},
		{name: "length of zero", answer: says(200, "", "Content-Length", "0")},
		{name: "long", answer: says(200, long, "Content-Length", "2097152")},
		{name: "long and chunked", answer: inPieces(false, long), read: pieces},
		{name: "long error", answer: says(400, long)},
		{name: "long and unread", answer: says(200, long), read: unread},
		{name: "unread", read: unread},
		{name: "trailers answered", answer: trailed(true, true, inPieces(false, "body")), differs: trailersKnown},
		{name: "announced trailer", answer: trailed(true, false, inPieces(false, "body")), differs: trailersKnown},
		{name: "trailer of a long answer", answer: trailed(true, true, inPieces(false, long))},
		{name: "trailer of a stream", answer: trailed(true, true, with(inPieces(false, "data: 1\n\n"), "Content-Type", "text/event-stream"))},
		{name: "trailer of an error", answer: trailed(true, true, says(400, "no")), differs: trailersKnown},
		{name: "trailer, GET", request: bare("GET"), answer: trailed(true, true, inPieces(false, "body"))},
		{name: "early hints", answer: informed(says(200, "ok"), 103)},
		{name: "early hints, GET", request: bare("GET"), answer: informed(says(200, "ok"), 103, 103)},
		{name: "processing", answer: informed(says(201, "ok"), 102, 103)},
		{name: "cookies", answer: says(200, "ok", "Set-Cookie", "a=1; Path=/; HttpOnly", "Set-Cookie", "b=2; Max-Age=60", "Set-Cookie", "bad")},
		{name: "many headers", answer: manyHeaders},
		{name: "early refusal", early: true, request: inMemory(long[:900<<10]), answer: says(413, "too long", "Connection", "close")},
		{name: "event stream", answer: with(inPieces(false, "data: 1\n\n", "data: 2\n\n"), "Content-Type", "text/event-stream; charset=utf-8"), read: pieces},
		{name: "event stream of an error", answer: with(says(429, "data: slow down\n\n"), "Content-Type", "text/event-stream")},
		{name: "lines of JSON", answer: with(inPieces(false, "{}\n", "{}\n"), "Content-Type", "application/x-ndjson")},
		{name: "event stream that breaks", answer: with(inPieces(true, "data: 1\n\n"), "Content-Type", "text/event-stream")},
		{name: "event stream that is left", answer: beginning("text/event-stream", "data: 1\n\n"), read: leavingAfter(9)},
		{name: "event stream that is left, GET", request: bare("GET"), answer: beginning("text/event-stream", "data: 1\n\n"), read: leavingAfter(9)},
		{name: "event stream closed early", answer: beginning("text/event-stream", "data: 1\n\n"), read: unread},
		{name: "cut before its length", answer: with(inPieces(true, "only this"), "Content-Length", "1000")},
		{name: "cut between chunks", answer: inPieces(true, "one ", "two"), read: pieces},
		{name: "cut error", answer: raw("HTTP/1.1 400 Bad Request\r\nContent-Length: 1000\r\n\r\nonly this"), proto: http1},
		{name: "cut, GET", request: bare("GET"), answer: inPieces(true, "one ", "two")},
		{name: "no answer", answer: silent},
		{name: "no answer, GET", request: bare("GET"), answer: silent},
		{name: "not HTTP", answer: raw("SSH-2.0-OpenSSH_9.9\r\n"), proto: http1},
		{name: "two lengths", answer: raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok"), proto: http1},
		{name: "left while waiting", answer: untilLeft},
		{name: "left while waiting, GET", request: bare("GET"), answer: untilLeft},
		{name: "left before", request: leftBefore},
		{name: "deadline", request: deadline, answer: untilLeft},
		{name: "deadline, GET", request: changes(bare("GET"), deadline), answer: untilLeft},
		{name: "Client.Timeout", slow: true, proto: http1, client: second, answer: never},
		{name: "Client.Timeout in a stream", slow: true, proto: http2, client: second, answer: beginning("text/event-stream", "data: 1\n\n")},
	}
	for _, code := range []int{200, 202, 204, 226, 400, 401, 402, 403, 404, 407, 409, 410, 418, 421, 422, 425, 429, 451, 500, 501, 502, 503, 504, 505, 511, 529, 599} {
		body := "why"
		if code == 204 {
			body = ""
		}
		shapes = append(shapes, shape{
			name:   http.StatusText(code) + " answered",
			answer: says(code, body, "X-Request-Id", "r-1", "Retry-After", "3600", "Www-Authenticate", "Bearer"),
		})
	}
	return shapes
}

func manyHeaders(s *stage, w http.ResponseWriter, r *http.Request) {
	for i := range 300 {
		w.Header().Add("X-Many-"+string(rune('A'+i%26)), strings.Repeat("v", i))
	}
	says(200, "ok")(s, w, r)
}

func second(c *http.Client) { c.Timeout = time.Second }

func leftBefore(r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	*r = *r.WithContext(ctx)
}

// expiring is a context whose deadline comes when the server says so.
type expiring struct {
	context.Context
	over chan struct{}
}

func (c *expiring) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (c *expiring) Done() <-chan struct{}       { return c.over }

func (c *expiring) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// onLeaving gives the channel that is closed when the caller is to leave.
func onLeaving(r *http.Request) chan struct{} {
	left := make(chan struct{})
	*r.Context().Value(leaveKey{}).(*context.CancelFunc) = sync.OnceFunc(func() { close(left) })
	return left
}

func deadline(r *http.Request) {
	*r = *r.WithContext(&expiring{Context: r.Context(), over: onLeaving(r)})
}

func redirectShapes() []shape {
	done := says(200, "done")
	otherBody := func(r *http.Request) {
		r.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("x", int(r.ContentLength)))), nil
		}
	}
	// A hop is an attempt like the others: it has the same header.
	noReferer := func(hops int) map[string]string {
		differs := map[string]string{}
		for i := range hops {
			differs[fmt.Sprintf("arrival %d: referer", i+2)] = sameBytes
		}
		return differs
	}
	noRedirect := func(err error) func(*http.Client) {
		return func(c *http.Client) { c.CheckRedirect = func(*http.Request, []*http.Request) error { return err } }
	}
	return []shape{
		{name: "301", answer: moved(301, "/done", done)},
		{name: "301, GET", request: bare("GET"), answer: moved(301, "/done", done)},
		{name: "302", answer: moved(302, "done?x=%2F#end", done)},
		{name: "302, PUT", request: method("PUT"), answer: moved(302, "/done", done)},
		{name: "302, HEAD", request: bare("HEAD"), answer: moved(302, "/done", says(200, ""))},
		{name: "303", request: changes(head("Authorization", "Bearer b"), head("X-Tag", "a", "b")), answer: moved(303, "/done", done)},
		{name: "303 to another origin", differs: bareAway(), request: head("Authorization", "Bearer b"), answer: moved(303, "OTHER/done", done)},
		{name: "307", attempts: 4, differs: noReferer(1), request: head("X-Tag", "a", "b"), answer: moved(307, "/done?x=1", done)},
		{name: "307, GET", request: bare("GET"), answer: moved(307, "/done", done)},
		{name: "307, DELETE", attempts: 4, differs: noReferer(1), request: bare("DELETE"), answer: moved(307, "/done", says(204, ""))},
		{name: "308, PUT", attempts: 4, differs: noReferer(1), request: method("PUT"), answer: moved(308, "/done", done)},
		{name: "307 of another host", attempts: 4, differs: noReferer(1), request: func(r *http.Request) { r.Host = "shop.example" }, answer: moved(307, "/done", done)},
		{name: "307 with user info", attempts: 4, differs: noReferer(1), request: func(r *http.Request) { r.URL.User = url.UserPassword("u", "p") }, answer: moved(307, "/done", done)},
		{name: "307 of a one-shot body", request: once("abc", 3), answer: moved(307, "/done", done)},
		{name: "307 with another body", attempts: 4, request: otherBody, answer: moved(307, "/done", done),
			differs: map[string]string{"arrival 2: body": sameBytes, "arrival 2: referer": sameBytes}},
		{name: "307, then refused", attempts: 4, differs: noReferer(1), answer: moved(307, "/done", says(422, "no"))},
		{name: "307 to another origin", attempts: 4, answer: moved(307, "OTHER/done", done), refused: "the key, the headers and the body stay home", arrive: 1},
		{name: "307 to another origin, GET", request: bare("GET"), answer: moved(307, "OTHER/done", done)},
		{name: "307 in a circle", attempts: 20, differs: noReferer(9), answer: moved(307, "/charges", done)},
		{name: "307 and 303", attempts: 4, differs: noReferer(1), answer: moved(307, "/there", func(s *stage, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/there" {
				says(303, "", "Location", "/done")(s, w, r)
				return
			}
			done(s, w, r)
		})},
		{name: "redirect without a place", answer: says(302, "where?")},
		{name: "307 without a place", answer: says(307, "where?")},
		{name: "redirect to nowhere", answer: moved(302, "http://[::1", done)},
		{name: "300", answer: says(300, "choose")},
		{name: "redirects not followed", client: noRedirect(http.ErrUseLastResponse), answer: moved(307, "/done", done)},
		{name: "redirects forbidden", client: noRedirect(errors.New("no")), answer: moved(303, "/done", done)},
	}
}

func shapes() []shape {
	return slices.Concat(requestShapes(), headShapes(), answerShapes(), redirectShapes())
}

// bareAway is what a GET to another origin goes without.
func bareAway() map[string]string {
	const because = "that goes without the caller's headers and without a Referer"
	return map[string]string{"arrival 2: header": because, "arrival 2: referer": because, "chain": because}
}
