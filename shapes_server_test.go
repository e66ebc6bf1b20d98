package idem

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var quiet = log.New(io.Discard, "", 0)

// stage is the server's side of a shape: it notes what arrives, then answers.
type stage struct {
	other string // another origin, at which the same stage stands

	mu    sync.Mutex
	shape shape
	leave func() // the caller leaves
	seen  []facts
	keys  []string
	open  int
}

// reply is what a server does with a request that has been noted.
type reply func(*stage, http.ResponseWriter, *http.Request)

func (s *stage) set(shape shape, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shape, s.leave, s.seen, s.keys = shape, leave, nil, nil
}

// end waits until the server has done with all that arrived, and adds it to
// what the caller saw.
func (s *stage) end(t *testing.T, to facts) (keys []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.open == 0
	}, patience, 50*time.Microsecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	to["arrivals"] = strconv.Itoa(len(s.seen))
	for i, arrival := range s.seen {
		for field, value := range arrival {
			to[fmt.Sprintf("arrival %d: %s", i+1, field)] = value
		}
	}
	return s.keys
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.open++
	shape := s.shape
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	h := r.Header.Clone()
	h.Del("Idempotency-Key")
	length, referer := h["Content-Length"], h["Referer"]
	h.Del("Content-Length")
	h.Del("Referer")
	arrival := facts{
		"request line": fmt.Sprintf("%s %q %s", r.Method, r.RequestURI, r.Proto),
		"host":         r.Host,
		"header":       headerText(h),
		"length":       fmt.Sprint(r.ContentLength, length, r.TransferEncoding),
		"referer":      fmt.Sprint(referer),
		"close":        fmt.Sprint(r.Close),
	}
	if !shape.early {
		body, err := io.ReadAll(r.Body)
		arrival["body"] = bodyText(body) + ", " + kindOf(err)
		arrival["trailer"] = headerText(r.Trailer)
	}
	s.mu.Lock()
	s.seen = append(s.seen, arrival)
	s.keys = append(s.keys, r.Method+" "+strings.Join(r.Header.Values("Idempotency-Key"), ","))
	s.mu.Unlock()
	if shape.answer == nil {
		shape.answer = says(http.StatusCreated, `{"id":"ch_1"}`)
	}
	shape.answer(s, w, r)
}

// says answers with a status, a body and headers, given as name and value in
// turn.
func says(code int, body string, headers ...string) reply {
	return func(_ *stage, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// moved sends what comes to /charges elsewhere, where then answers it. OTHER
// stands for the other origin.
func moved(code int, location string, then reply) reply {
	return func(s *stage, w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/charges" {
			then(s, w, r)
			return
		}
		says(code, "moved", "Location", strings.ReplaceAll(location, "OTHER", s.other), "Set-Cookie", "hop=1")(s, w, r)
	}
}

// inPieces sends the body piece by piece, each flushed; with none left it breaks off
// where cut.
func inPieces(cut bool, pieces ...string) reply {
	return func(_ *stage, w http.ResponseWriter, _ *http.Request) {
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			flush(w)
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// with sets headers before the answer, given as name and value in turn.
func with(then reply, headers ...string) reply {
	return func(s *stage, w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		then(s, w, r)
	}
}

// trailed sends trailers after the answer: the first announced, the second not.
func trailed(announced, unannounced bool, then reply) reply {
	return func(s *stage, w http.ResponseWriter, r *http.Request) {
		if announced {
			w.Header().Set("Trailer", "X-Sum")
		}
		then(s, w, r)
		flush(w)
		if announced {
			w.Header().Set("X-Sum", "17")
		}
		if unannounced {
			w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
		}
	}
}

// informed sends informational answers first.
func informed(then reply, codes ...int) reply {
	return func(s *stage, w http.ResponseWriter, r *http.Request) {
		for _, code := range codes {
			w.Header().Set("Link", fmt.Sprintf("</%d>; rel=preload", code))
			w.WriteHeader(code)
		}
		w.Header().Del("Link")
		then(s, w, r)
	}
}

// zipped answers with a body that is compressed, whatever the caller accepts.
func zipped(code int, body string) reply {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return says(code, b.String(), "Content-Encoding", "gzip", "Content-Type", "text/plain", "X-Length", strconv.Itoa(b.Len()))
}

// raw answers with these bytes and closes the connection. Only HTTP/1.1 has it.
func raw(answer string) reply {
	return func(_ *stage, w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, answer)
	}
}

// silent breaks off, on a connection that has served nothing before.
func silent(*stage, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// untilLeft makes the caller leave, and never answers.
func untilLeft(s *stage, _ http.ResponseWriter, r *http.Request) {
	s.leave()
	<-r.Context().Done()
}

// never answers, until the caller has left.
func never(_ *stage, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// beginning sends the start of a body and no more, until the caller has left.
func beginning(media, start string) reply {
	return func(_ *stage, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, start)
		flush(w)
		<-r.Context().Done()
	}
}

// pieces reads a few bytes at a time.
func pieces(body io.Reader, _ func()) ([]byte, error) {
	var all []byte
	for {
		piece := make([]byte, 7)
		n, err := body.Read(piece)
		all = append(all, piece[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// unread closes the body as it is.
func unread(io.Reader, func()) ([]byte, error) { return nil, nil }

// leaving reads n bytes, leaves, and reads on.
func leavingAfter(n int) func(io.Reader, func()) ([]byte, error) {
	return func(body io.Reader, leave func()) ([]byte, error) {
		start := make([]byte, n)
		if _, err := io.ReadFull(body, start); err != nil {
			return start, err
		}
		leave()
		rest, err := io.ReadAll(body)
		return append(start, rest...), err
	}
}
