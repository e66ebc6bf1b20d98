package faultinjection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"syscall"
)

// Transport returns a RoundTripper that reaches the server without a socket,
// whatever host the URL names. What the client sees is what it would see over
// TCP: a lost request and a lost answer are both a connection reset, a cut body
// ends in [io.ErrUnexpectedEOF], and a caller that goes away does not stop the
// server. Hooks of [httptrace] are called for a fresh connection, so that a
// request counts as written.
//
// It uses no time of its own and works in a [testing/synctest] bubble; release
// what is held before the bubble ends. It is safe for concurrent use.
func (s *Server) Transport() http.RoundTripper { return memory{s} }

type memory struct{ server *Server }

// errReset is what a client reads from a connection that was reset.
func errReset() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

// served is the end of one request: a reply, or a panic on the way to it.
type served struct {
	reply    reply
	panicked any
}

// RoundTrip hands the request to the server and waits for its answer.
func (m memory) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	if req.URL == nil {
		return nil, errors.New("faultinjection: request without a URL")
	}
	ctx := req.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	inner, err := arrive(req, body)
	if err != nil {
		return nil, err
	}
	trace := traceOf(ctx)
	trace.written(req)
	end := make(chan served, 1) // the server does not wait for a caller that left
	go m.serve(inner, body, end)
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case got := <-end:
		if got.panicked != nil {
			panic(got.panicked)
		}
		return m.response(req, got.reply, trace)
	}
}

// serve runs the server. A test that gives up inside Effect is a reset.
func (m memory) serve(r *http.Request, body []byte, end chan<- served) {
	got := served{reply: reply{end: reset}}
	defer func() {
		if got.panicked = recover(); got.panicked == http.ErrAbortHandler {
			got.panicked = nil
		}
		end <- got
	}()
	got.reply = m.server.handle(context.Background(), r, body).settle(r.Method)
}

func (m memory) response(req *http.Request, p reply, trace trace) (*http.Response, error) {
	if p.end == reset {
		return nil, errReset()
	}
	trace.answered()
	var body io.Reader = bytes.NewReader(p.answer.body)
	if p.end == cut {
		body = io.MultiReader(bytes.NewReader(p.answer.body[:len(p.answer.body)/2]), cutReader{})
	}
	length := int64(len(p.answer.body))
	if req.Method == http.MethodHead {
		length = -1
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", p.answer.status, http.StatusText(p.answer.status)),
		StatusCode: p.answer.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.answer.header, Body: io.NopCloser(body), ContentLength: length, Request: req,
	}, nil
}

type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// readBody reads the request's body and closes it, as a RoundTripper must.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err := errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("faultinjection: body is larger than %d bytes", maxBody)
	}
	if req.ContentLength > 0 && req.ContentLength != int64(len(body)) {
		return nil, fmt.Errorf("faultinjection: ContentLength=%d with body length %d", req.ContentLength, len(body))
	}
	return body, err
}

// arrive makes the request that the server sees, as it would come off the wire.
func arrive(req *http.Request, body []byte) (*http.Request, error) {
	inner := req.Clone(context.Background()) // neither values nor an end cross the wire
	inner.RequestURI = req.URL.RequestURI()
	u, err := url.ParseRequestURI(inner.RequestURI)
	if err != nil {
		return nil, err
	}
	inner.URL = u
	if inner.Host == "" {
		inner.Host = req.URL.Host
	}
	if inner.Method == "" {
		inner.Method = http.MethodGet
	}
	inner.Header = make(http.Header, len(req.Header))
	for name, values := range req.Header {
		name = http.CanonicalHeaderKey(name) // spelling does not survive the wire
		inner.Header[name] = append(inner.Header[name], values...)
	}
	inner.ContentLength = int64(len(body))
	inner.RemoteAddr = "memory"
	inner.Response, inner.GetBody = nil, nil
	return inner, nil
}

// trace calls the caller's hooks, which tell a transport what was written.
type trace struct{ *httptrace.ClientTrace }

func traceOf(ctx context.Context) trace {
	if t := httptrace.ContextClientTrace(ctx); t != nil {
		return trace{t}
	}
	return trace{&httptrace.ClientTrace{}}
}

// written reports one fresh connection and the whole request on it.
func (t trace) written(r *http.Request) {
	if t.GetConn != nil {
		t.GetConn(address(r.URL))
	}
	if t.GotConn != nil {
		client, server := net.Pipe() // only to have addresses to ask for
		_ = server.Close()
		t.GotConn(httptrace.GotConnInfo{Conn: client})
	}
	if t.WroteHeaderField != nil {
		for name, values := range r.Header {
			t.WroteHeaderField(name, values)
		}
	}
	if t.WroteHeaders != nil {
		t.WroteHeaders()
	}
	if t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{})
	}
}

func (t trace) answered() {
	if t.GotFirstResponseByte != nil {
		t.GotFirstResponseByte()
	}
}
