package idem

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// This file reads what a vector gives: the contract, the request, the answer.

// given takes a condition into account.
func (v *vector) given(name string) (value any, ok bool) {
	value, ok = v.Given.Condition[name]
	v.seen[name] = v.seen[name] || ok
	return value, ok
}

// text is a condition that is a text; empty: there is none.
func (v *vector) text(tb testing.TB, name string) string {
	tb.Helper()
	value, ok := v.given(name)
	if !ok {
		return ""
	}
	text, isText := value.(string)
	require.True(tb, isText && text != "", "condition %q is %v", name, value)
	return text
}

// flag is a condition that is true or false; nil: there is none.
func (v *vector) flag(tb testing.TB, name string) *bool {
	tb.Helper()
	value, ok := v.given(name)
	if !ok {
		return nil
	}
	is, isBool := value.(bool)
	require.True(tb, isBool, "condition %q is %v", name, value)
	return &is
}

func (v *vector) says(tb testing.TB, name string, is bool) bool {
	tb.Helper()
	flag := v.flag(tb, name)
	return flag != nil && *flag == is
}

// vectorHost is where the vectors' provider is.
const vectorHost = "provider.example"

// vectorContracts are the values that the vectors name. "ietf_draft" and
// "generic" are made for each vector.
func vectorContracts() map[string]*contract.Contract {
	values := map[string]*contract.Contract{}
	for _, c := range []*contract.Contract{
		contract.Adyen, contract.Anthropic, contract.AWSDynamoDBTransaction, contract.AWSEC2, contract.BraintreeAtMostOnce,
		contract.BraintreeClassic, contract.Brex, contract.CheckoutCom, contract.CoinbaseCDP, contract.Column, contract.Dwolla,
		contract.GoCardless, contract.GoogleAIP155, contract.GoogleCloudStorage, contract.Increase, contract.Klarna,
		contract.Lithic, contract.LithicPayments, contract.Mercury, contract.ModernTreasury, contract.Mollie,
		contract.OASISRepeatable, contract.OpenAI, contract.PayPalOrdersV2, contract.PayPalPaymentsV2,
		contract.PayPalPayoutsV1, contract.PayPalVaultV3, contract.PlaidTransferAuthorization, contract.PlaidTransferCreate,
		contract.PlaidWallet, contract.RazorpayPayouts, contract.RazorpayRefunds, contract.RazorpayTransfers,
		contract.Resend, contract.SendGrid, contract.Shopify, contract.SquareOrders, contract.SquarePayments,
		contract.StandardWebhooks, contract.StripeV1, contract.StripeV2, contract.Twilio, contract.Wise, contract.WorldpayWPG,
	} {
		values[c.Name] = c
	}
	return values
}

// vectorMarkers are the replay markers of servers without a value of their own
// (docs.novu.co/additional-resources/idempotency,
// developerhub.ppro.com/global-api/reference/api-requests-idempotency; the last
// one is the vectors'; read 2026-11-30).
var vectorMarkers = []contract.Marker{
	{Header: "Idempotent-Replayed", Value: "true"},
	{Header: "Idempotency-Replay", Value: "true"},
	{Header: "Request-Idempotency", Value: "true"},
	{Header: "X-GCS-Idempotence-Request-Timestamp"},
}

// vectorRevisions are contracts as they were, by name, environment and years;
// the figure is in the comment of contract.CheckoutCom.
var vectorRevisions = map[string]func(*contract.Contract){
	"checkout_com sandbox 2022-2024": func(c *contract.Contract) { c.Retention = 2 * time.Minute },
}

// contract is the vector's, bound to its hosts.
func (v *vector) contract(tb testing.TB) *contract.Contract {
	tb.Helper()
	var c *contract.Contract
	header := v.text(tb, "header")
	switch v.Contract {
	case "generic": // a server that honours keys for a day
		c = contract.Keyed(cmp.Or(header, "Idempotency-Key"), 24*time.Hour)
		if v.Given.Response != nil {
			h := v.Given.Response.header(tb, time.Now())
			for _, m := range vectorMarkers {
				if len(h.Values(m.Header)) > 0 {
					c.Replayed = m
				}
			}
		}
	case "ietf_draft":
		c = contract.IETF(0)
	default:
		c = vectorContracts()[v.Contract].Clone()
		require.NotNil(tb, c, "no contract %q", v.Contract)
	}
	require.Equal(tb, cmp.Or(header, c.Key.Header), c.Key.Header)
	if environment, revision := v.text(tb, "environment"), v.text(tb, "contract_revision"); environment+revision != "" {
		change := vectorRevisions[v.Contract+" "+environment+" "+revision]
		require.NotNil(tb, change, "no contract of %s %s", environment, revision)
		change(c)
	}
	v.amend(tb, c)
	c = c.At(vectorHost, cmp.Or(v.text(tb, "first_host"), vectorHost+".first"), cmp.Or(v.text(tb, "next_host"), vectorHost+".next"))
	require.NoError(tb, c.Validate())
	return c
}

var vectorReplay = regexp.MustCompile(`^(\d{3}) (with body|without result|without a body|on a repeat)$`)

// amend changes what the conditions say of the contract.
func (v *vector) amend(tb testing.TB, c *contract.Contract) {
	tb.Helper()
	if style := v.text(tb, "contract.replay_style"); style != "" {
		switch found := vectorReplay.FindStringSubmatch(style); {
		case found != nil && found[2] == "with body":
			status, err := strconv.Atoi(found[1])
			require.NoError(tb, err)
			c.Replay, c.AlreadyDone = contract.ReplayConflict, []contract.Signal{{Status: status}}
			c.InFlight = slices.DeleteFunc(c.InFlight, func(s contract.Signal) bool { return s.Status == status })
		case found != nil: // the effect may be there, and no field of a contract takes that for proof
		case style == "verbatim":
			c.Replay = contract.ReplayVerbatim
		case strings.HasPrefix(style, "current state"), style == "object":
			c.Replay = contract.ReplayCurrent
		case style == "none", style == "unknown":
			c.Replay = contract.ReplayUnknown
		default:
			require.Fail(tb, "not understood", "contract.replay_style %q", style)
		}
	}
	if kept, ok := v.given("contract.retention_floor_s"); ok {
		seconds, isNumber := kept.(float64)
		require.True(tb, isNumber || kept == nil)
		c.Retention = time.Duration(seconds * float64(time.Second))
	}
	if wait, ok := v.given("contract.min_retry_delay_s"); ok {
		c.MinDelay = time.Duration(wait.(float64) * float64(time.Second))
	}
}

// request is the caller's, with another host where that is not empty.
func (v *vector) request(tb testing.TB, c *contract.Contract, host string) *http.Request {
	tb.Helper()
	path := v.Given.Path
	if path == "" {
		path = "/v1/things"
		if len(c.Paths) > 0 {
			path = strings.ReplaceAll(c.Paths[0], "*", "x")
		}
	}
	req, err := http.NewRequest(v.Given.Method, "https://"+cmp.Or(host, vectorHost)+path, bytes.NewReader(vectorBody(tb, c)))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/json")
	rewinds, stored := v.flag(tb, "get_body"), v.flag(tb, "body_spooled")
	if rewinds != nil && !*rewinds || stored != nil && !*stored {
		req.Body, req.GetBody = io.NopCloser(req.Body), nil
	}
	if method := v.text(tb, "request"); method != "" {
		require.Equal(tb, v.Given.Method, method)
	}
	return req
}

// vectorBody is a body that can carry the contract's key, or has the one that
// the provider issued.
func vectorBody(tb testing.TB, c *contract.Contract) []byte {
	tb.Helper()
	body := map[string]any{"order": "order-1", "amount": 4200}
	inner := body
	if steps := strings.Split(c.Key.Pointer, "/"); len(steps) > 1 {
		for _, step := range steps[1 : len(steps)-1] {
			next := map[string]any{}
			inner[step] = next
			inner = next
		}
		if c.Form == contract.Issued {
			inner[steps[len(steps)-1]] = "issued-1"
		}
	}
	text, err := json.Marshal(body)
	require.NoError(tb, err)
	return text
}

var vectorTime = regexp.MustCompile(`^\((HTTP-date|Unix time|unix seconds) (\d+) (s|min|h|d) (ahead|ago|in the past)\)$`)

// header is the answer's, as it is at now.
func (r *vectorResponse) header(tb testing.TB, now time.Time) http.Header {
	tb.Helper()
	h := http.Header{}
	for name, value := range r.Headers {
		lines, isList := value.([]any)
		if !isList {
			lines = []any{value}
		}
		for _, line := range lines {
			h.Add(name, vectorHeaderText(tb, fmt.Sprint(line), now))
		}
	}
	return h
}

// vectorHeaderText writes an instant that the vector only describes.
func vectorHeaderText(tb testing.TB, text string, now time.Time) string {
	tb.Helper()
	found := vectorTime.FindStringSubmatch(text)
	if found == nil {
		require.False(tb, strings.HasPrefix(text, "("), "header value %q is not understood", text)
		return text
	}
	n, err := strconv.Atoi(found[2])
	require.NoError(tb, err)
	away := time.Duration(n) * map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[found[3]]
	if found[4] != "ahead" {
		away = -away
	}
	if found[1] == "HTTP-date" {
		return now.Add(away).Format(http.TimeFormat)
	}
	return strconv.FormatInt(now.Add(away).Unix(), 10)
}

// body writes what is known of the answer's body, and how. A name without a
// place stands where the contract looks for a member of that name, else at the
// top.
func (r *vectorResponse) body(tb testing.TB, c *contract.Contract) (text []byte, media string) {
	tb.Helper()
	root := map[string]any{}
	var element struct {
		XMLName xml.Name
		Attrs   []xml.Attr `xml:",any,attr"`
		Text    string     `xml:",chardata"`
	}
	for at, value := range r.Body {
		switch name, isXML := strings.CutPrefix(at, "//"); {
		case isXML:
			name, attribute, isAttribute := strings.Cut(name, "/@")
			require.NotContains(tb, name, "/", "body_facts %q is not understood", at)
			require.Contains(tb, []string{"", name}, element.XMLName.Local)
			element.XMLName.Local = name
			if isAttribute {
				element.Attrs = append(element.Attrs, xml.Attr{Name: xml.Name{Local: attribute}, Value: fmt.Sprint(value)})
			} else {
				element.Text = fmt.Sprint(value)
			}
		case strings.HasPrefix(at, "/"):
			vectorPut(tb, root, at, value)
		default:
			vectorPut(tb, root, vectorPlaceOf(c, at), value)
		}
	}
	if element.XMLName.Local != "" {
		require.Empty(tb, root, "both JSON and XML")
		text, err := xml.Marshal(element)
		require.NoError(tb, err)
		return append([]byte(xml.Header), text...), "text/xml"
	}
	if len(root) == 0 {
		return nil, ""
	}
	text, err := json.Marshal(root)
	require.NoError(tb, err)
	return text, "application/json"
}

// vectorPlaceOf is where the contract looks for a member.
func vectorPlaceOf(c *contract.Contract, name string) string {
	for _, signals := range [][]contract.Signal{c.AlreadyDone, c.InFlight, c.Mismatch, c.StoreDown, c.NotExecuted, c.Overlap, c.Proven} {
		for _, s := range signals {
			if strings.HasSuffix(s.Pointer, "/"+name) {
				return strings.ReplaceAll(s.Pointer, "*", "0")
			}
		}
	}
	return "/" + name
}

// vectorPut puts a value at a JSON pointer. A number in it is an index of a
// list that has only this one member.
func vectorPut(tb testing.TB, root map[string]any, pointer string, value any) {
	tb.Helper()
	steps := strings.Split(pointer, "/")[1:]
	inner := root
	for i, step := range steps[:len(steps)-1] {
		if _, err := strconv.Atoi(step); err == nil {
			require.Positive(tb, i, "a list at the top is not understood")
			continue
		}
		next := map[string]any{}
		inList := false
		if _, err := strconv.Atoi(steps[i+1]); err == nil {
			inList = true
		}
		switch have := inner[step].(type) {
		case map[string]any:
			next = have
		case []any:
			next = have[0].(map[string]any)
		default:
			inner[step] = next
			if inList {
				inner[step] = []any{next}
			}
		}
		inner = next
	}
	inner[steps[len(steps)-1]] = value
}

// errVectorLeft is why a caller stopped waiting.
var errVectorLeft = fmt.Errorf("%w: the caller left", context.Canceled)

// vectorFailures are the vectors' words for how a send failed, the first one
// that fits counts, with what a base transport returns then.
var vectorFailures = []struct {
	words string
	err   error
}{
	{"context canceled", context.Canceled},
	{"Client.Timeout", context.DeadlineExceeded}, // http.Client's, which ends the caller's context
	{"deadline exceeded", context.DeadlineExceeded},
	{"timeout", timeoutError("net/http: timeout awaiting response headers")},
	{"timed out", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ETIMEDOUT}},
	{"no such host", &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: vectorHost, IsNotFound: true}}},
	{"connection refused", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	{"unreachable", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}},
	{"dial tcp", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	{"certificate signed by unknown authority", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}},
	{"certificate is valid for", &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: vectorHost}}},
	{"certificate has expired", &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}}},
	{"first record does not look like a TLS handshake", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}},
	{"connection reset", &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}},
	{"broken pipe", &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}},
	{"unexpected EOF", io.ErrUnexpectedEOF},
	{"EOF", io.EOF},
	{"server closed idle connection", errors.New("http: server closed idle connection")},
	{"GOAWAY", errors.New("http2: server sent GOAWAY and closed the connection")},
	{"REFUSED_STREAM", errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer")},
	{"stream error", errors.New("stream error: stream ID 3; INTERNAL_ERROR; received from peer")},
	{"client connection lost", errors.New("http2: client connection lost")},
	{"malformed HTTP", errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "x"`)},
}

// vectorUnwritten say that no byte of the request was written. Where nothing is
// said, the request may have been.
var vectorUnwritten = regexp.MustCompile(
	`^dial |lookup |no such host|connection refused|unreachable|x509|certificate|handshake|while waiting for a connection|before (the request|any|a) `)

// answer ends an attempt as the vector says, as a base transport does. leave
// makes the caller stop waiting.
func (v *vector) answer(tb testing.TB, c *contract.Contract, now time.Time, leave func(), req *http.Request) (*http.Response, error) {
	g := v.Given
	if req.Body != nil {
		_, err := io.Copy(io.Discard, req.Body)
		require.NoError(tb, err)
		require.NoError(tb, req.Body.Close())
	}
	text := g.TransportError
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
		trace.GetConn(vectorHost)
		if !vectorUnwritten.MatchString(text) {
			trace.GotConn(httptrace.GotConnInfo{})
			trace.WroteHeaders()
		}
		if text == vectorUnseen { // net/http sends it again
			trace.WroteHeaders()
		}
	}
	if text == vectorUnseen { // what comes then is no doubt by itself
		return &http.Response{StatusCode: http.StatusMisdirectedRequest, Header: http.Header{}, Body: http.NoBody}, nil
	}
	if g.Response == nil {
		for _, f := range vectorFailures {
			if strings.Contains(text, f.words) {
				if errors.Is(f.err, context.Canceled) {
					leave()
				}
				return nil, f.err
			}
		}
		require.Fail(tb, "not understood", "transport_error %q", text)
	}
	resp := &http.Response{StatusCode: g.Response.Status, Header: g.Response.header(tb, now)}
	body, media := g.Response.body(tb, c)
	if media != "" && resp.Header.Get("Content-Type") == "" {
		resp.Header.Set("Content-Type", media)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if text != "" {
		require.Contains(tb, text, "while reading the body", "an answer and a failure")
		resp.ContentLength++
	}
	return resp, nil
}
