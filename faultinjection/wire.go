package faultinjection

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

// reply is an answer and what becomes of the connection.
type reply struct {
	answer answer
	end    ending
}

type ending int

const (
	whole ending = iota
	reset        // nothing is sent, the connection is reset
	cut          // half of the body is sent, the connection is closed
)

// ServeHTTP serves one request on a real connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		reply{answer: problem(status, "the body was not read: %v", err)}.send(w, r)
		return
	}
	life, ok := r.Context().Value(lifeKey{}).(context.Context)
	if !ok {
		life = context.Background() // not ours to end: the caller's own http.Server
	}
	s.handle(life, r, body).send(w, r)
}

// send puts the reply on the wire.
func (p reply) send(w http.ResponseWriter, r *http.Request) {
	p = p.settle(r.Method)
	if p.end == reset {
		resetConnection(w)
	}
	for name, values := range p.answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.answer.status)
	body := p.answer.body
	if p.end == cut {
		body = body[:len(body)/2]
	}
	_, err := w.Write(body) // fails where the status forbids a body, or nobody listens any more
	if p.end == cut {
		err = errors.Join(err, http.NewResponseController(w).Flush())
	}
	if p.end == cut || err != nil {
		panic(http.ErrAbortHandler) // closes the connection
	}
}

// settle makes the reply one that can be sent: what has no body cannot be cut,
// and its length is said beforehand.
func (p reply) settle(method string) reply {
	status := p.answer.status
	bodyless := method == http.MethodHead || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if p.end == cut && (bodyless || len(p.answer.body) == 0) {
		p.end = reset
	}
	if p.end == reset {
		return reply{end: reset}
	}
	header := p.answer.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if !bodyless || method == http.MethodHead {
		header.Set("Content-Length", strconv.Itoa(len(p.answer.body)))
	}
	p.answer.header = header
	if bodyless {
		p.answer.body = nil
	}
	return p
}

// resetConnection ends the request without a byte of an answer: with a real
// reset where the connection can be had (HTTP/1), else by closing it. It does
// not return.
func resetConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if secure, ok := conn.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // failing that, it is closed without a reset: the answer is lost as well
	}
	_ = raw.Close() // not conn: TLS would say goodbye first
	panic(http.ErrAbortHandler)
}
