package idem

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// answer is how a RoundTrip ends: a response or an error, and the journal's
// side of it.
type answer struct {
	resp   *http.Response // nil with err
	body   []byte         // what was read of its body
	broken error          // how the body ended, where not cleanly
	open   bool           // the body is still arriving: the answer cannot be given twice
	err    *OperationError
	result Result
	left   bool // it ended because this caller left, which is nobody else's end

	request *StoredRequest // of a redirect that may be followed: what the hop sends; else nil
}

// shareable reports whether others that wait for the same operation can have
// this answer too.
func (a *answer) shareable() bool { return !a.left && !a.open }

// give hands the answer to the caller of req.
func (a *answer) give(req *http.Request, x *exchange) (*http.Response, error) {
	if r, ok := req.Context().Value(resultKey{}).(*Result); ok && r != nil {
		*r = a.result
	}
	if a.resp == nil {
		return nil, a.err
	}
	g := &given{marked: answered{result: a.result, call: x.call, contract: x.contract, request: a.request, same: x.identity()}}
	resp := a.resp
	if !a.open {
		g.resp = *a.resp
		g.resp.Header, g.resp.Trailer = a.resp.Header.Clone(), a.resp.Trailer.Clone()
		if a.resp.Body != http.NoBody || a.broken != nil {
			g.body.take(a.body, a.broken)
			g.resp.Body = &g.body
		}
		resp = &g.resp
	}
	resp.Request = req.WithContext(context.WithValue(req.Context(), answerKey{}, &g.marked))
	return resp, nil
}

// given is what one caller gets of an answer, in one piece of memory.
type given struct {
	resp   http.Response
	body   keptBody
	marked answered
}

// keptBody is a body that was read before.
type keptBody struct {
	bytes.Reader
	end    error // after the last byte; nil: io.EOF
	closed atomic.Bool
}

func (b *keptBody) take(body []byte, end error) {
	b.end = end
	b.Reset(body)
}

func (b *keptBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.Reader.Read(p)
	if err == io.EOF && b.end != nil {
		err = b.end
	}
	return n, err
}

// WriteTo keeps the end that Reader's own would hide.
func (b *keptBody) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.Reader.WriteTo(w)
	if err == nil {
		err = b.end
	}
	return n, err
}

func (b *keptBody) Close() error {
	b.closed.Store(true)
	return nil
}

// openBody is a body that goes to the caller while it arrives: what was read
// already, then the connection's. ended is told once how it ended.
type openBody struct {
	io.Reader
	conn  io.Closer
	left  atomic.Int64 // of a known length; negative: unknown. Close may come during a Read
	shut  atomic.Bool
	once  sync.Once
	ended func(clean bool)
}

func newOpenBody(read []byte, conn io.ReadCloser, length int64, ended func(clean bool)) *openBody {
	b := &openBody{Reader: io.MultiReader(bytes.NewReader(read), conn), conn: conn, ended: ended}
	b.left.Store(length)
	return b
}

func (b *openBody) Read(p []byte) (int, error) {
	if b.shut.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.Reader.Read(p)
	if b.left.Load() >= 0 {
		b.left.Add(-int64(n))
	}
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

func (b *openBody) Close() error {
	b.shut.Store(true)
	err := b.conn.Close()
	b.end(b.left.Load() == 0)
	return err
}

func (b *openBody) end(clean bool) { b.once.Do(func() { b.ended(clean) }) }

// streaming are media types whose answers are handed over while they arrive.
var streaming = []string{
	"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl",
	"application/stream+json", "application/json-seq",
}

func streams(resp *http.Response) bool {
	if resp.StatusCode/100 != 2 {
		return false
	}
	whole := resp.Header.Get("Content-Type")
	media, _, _ := strings.Cut(whole, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if !slices.Contains(streaming, media) && !strings.HasPrefix(media, "application/grpc") && !strings.HasPrefix(media, "application/connect+") {
		return false
	}
	_, _, err := mime.ParseMediaType(whole)
	return err == nil
}

// read takes what is needed of the body to judge the answer. With rest, the
// body is longer than limit, or streams.
func readAnswer(resp *http.Response, limit int64, mayStream bool) (body []byte, rest io.ReadCloser, broken error) {
	if mayStream && (streams(resp) || resp.StatusCode/100 == 2 && resp.ContentLength > limit) {
		return nil, resp.Body, nil
	}
	if resp.ContentLength == 0 || resp.Body == nil || resp.Body == http.NoBody {
		if resp.Body != nil {
			resp.Body.Close()
		}
		return nil, nil, nil
	}
	body, err := readAll(resp.Body, resp.ContentLength, limit+1)
	if err == nil && int64(len(body)) > limit {
		return body, resp.Body, nil
	}
	resp.Body.Close()
	if err == nil && resp.ContentLength > 0 && int64(len(body)) < resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return body, nil, err
}

// storedAnswer makes the recorded outcome an answer again.
func storedAnswer(in Intent) *http.Response {
	out := in.Outcome
	header := maps.Clone(out.Header)
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Length", strconv.Itoa(len(out.Body)))
	return &http.Response{
		Status:        strconv.Itoa(out.StatusCode) + " " + http.StatusText(out.StatusCode),
		StatusCode:    out.StatusCode,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: int64(len(out.Body)),
	}
}

// errAttemptTimeout ends an attempt that took too long.
var errAttemptTimeout error = timeoutError("the attempt took longer than RetryPolicy.AttemptTimeout")

type timeoutError string

func (e timeoutError) Error() string { return string(e) }
func (timeoutError) Timeout() bool   { return true }

// buffered is a response whose body was read, at most MaxResponseBody of it,
// and closed.
func (t *Transport) buffered(resp *http.Response) *http.Response {
	if _, kept := resp.Body.(*keptBody); kept {
		return resp
	}
	body, err := readAll(resp.Body, -1, t.maxResponseBody())
	if err == nil && int64(len(body)) >= t.maxResponseBody() {
		err = io.ErrUnexpectedEOF
	}
	resp.Body.Close()
	kept := &keptBody{}
	kept.take(body, err)
	resp.Body = kept
	return resp
}
