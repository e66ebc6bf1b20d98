package idem

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// wire notes how far an attempt came.
type wire struct {
	asked    atomic.Bool  // a connection was asked for: the base transport traces
	got      atomic.Bool  // a connection was had
	wrote    atomic.Bool  // a byte of the request may have left
	requests atomic.Int32 // requests written
	shared   atomic.Bool  // the connection carries others too: it is HTTP/2
	answered atomic.Bool  // an answer began
	sent     func()       // told when a request is written; nil: nobody
	pass     func(string) // Transport.CrashPoint
	unseen   func()       // stops what is about to be sent again unseen; nil: cannot be
	trace    httptrace.ClientTrace
}

// errSentAgain ends an attempt without a body when net/http is about to send it
// again by itself, as it does over HTTP/2 after errors of which some prove nothing
// (http2shouldRetryRequest, Go 1.26.8). It looks at the context once more before
// it writes.
var errSentAgain = errors.New("the connection failed after the request was written")

func (w *wire) hooks() *httptrace.ClientTrace {
	w.trace = httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			w.got.Store(true)
			if w.unseen != nil && w.wrote.Load() && !w.answered.Load() {
				w.unseen()
			}
		},
		WroteHeaderField: func(name string, _ []string) {
			w.wrote.Store(true)
			if strings.HasPrefix(name, ":") {
				w.shared.Store(true)
			}
		},
		WroteHeaders: func() {
			w.wrote.Store(true)
			w.requests.Add(1)
			if w.pass != nil {
				w.pass(pointWritten)
			}
			if w.sent != nil {
				w.sent()
			}
		},
	}
	if w.unseen != nil {
		w.trace.GotFirstResponseByte = func() { w.answered.Store(true) }
	}
	return &w.trace
}

// phase of an attempt that ended with err. Without a trace, only an error that
// says so proves that nothing was sent.
func (w *wire) phase(err error) string {
	switch {
	case refusedStream(err):
		return phaseNotSent
	case w.wrote.Load():
		return phaseMaybeSent
	}
	var dial *net.OpError
	var unresolved *net.DNSError
	switch {
	case w.asked.Load(),
		errors.Is(err, ErrNotSent),
		errors.As(err, &dial) && dial.Op == "dial",
		errors.As(err, &unresolved),
		untrusted(err):
		return phaseNotSent
	}
	return phaseMaybeSent
}

// refusedStream reports that an HTTP/2 server refused the request's stream, or
// went away below it: by RFC 9113 8.7 and 6.8 it was not processed. net/http hides
// the first in a text where the request has a body, and has no type for the
// second (h2_bundle.go, Go 1.26.8); an unknown text is doubt.
func refusedStream(err error) bool {
	var stream streamError
	const refused = 7
	if errors.As(err, &stream) && stream.Code == refused {
		return true
	}
	text := err.Error()
	for _, known := range []string{
		"http2: Transport received Server's graceful shutdown GOAWAY", "http2: Transport received GOAWAY from server ErrCode:",
	} {
		if strings.HasPrefix(text, known) || strings.HasPrefix(text, cannotRetry+"["+known) {
			return true
		}
	}
	return strings.HasPrefix(text, cannotRetry+"[stream error: ") && strings.Contains(text, "; REFUSED_STREAM")
}

// streamError has the fields by which net/http lets its own type be read.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "HTTP/2 stream error" }

const cannotRetry = "http2: Transport: cannot retry err "

// untrusted reports that the TLS handshake refused the server.
func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

// permanent reports an error that the same request would meet again.
func permanent(err error) bool {
	var unresolved *net.DNSError
	var record tls.RecordHeaderError
	return untrusted(err) ||
		errors.As(err, &unresolved) && unresolved.IsNotFound ||
		errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch) ||
		strings.Contains(err.Error(), "net/http: invalid header field")
}
