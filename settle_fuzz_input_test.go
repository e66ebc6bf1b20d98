package idem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// judgedContracts are what the settlement is tried with: every value of
// docs/providers.md, under the name that it has there, and some that have none.
var judgedContracts = []struct {
	value string
	c     *contract.Contract
}{
	{"Adyen", contract.Adyen}, {"Anthropic", contract.Anthropic}, {"AWSDynamoDBTransaction", contract.AWSDynamoDBTransaction},
	{"AWSEC2", contract.AWSEC2}, {"BraintreeAtMostOnce", contract.BraintreeAtMostOnce}, {"BraintreeClassic", contract.BraintreeClassic},
	{"Brex", contract.Brex}, {"CheckoutCom", contract.CheckoutCom}, {"CoinbaseCDP", contract.CoinbaseCDP}, {"Column", contract.Column},
	{"Dwolla", contract.Dwolla}, {"GoCardless", contract.GoCardless}, {"GoogleAIP155", contract.GoogleAIP155},
	{"GoogleCloudStorage", contract.GoogleCloudStorage}, {"Increase", contract.Increase}, {"Klarna", contract.Klarna},
	{"Lithic", contract.Lithic}, {"LithicPayments", contract.LithicPayments}, {"Mercury", contract.Mercury},
	{"ModernTreasury", contract.ModernTreasury}, {"Mollie", contract.Mollie}, {"OASISRepeatable", contract.OASISRepeatable},
	{"OpenAI", contract.OpenAI}, {"PayPalOrdersV2", contract.PayPalOrdersV2}, {"PayPalPaymentsV2", contract.PayPalPaymentsV2},
	{"PayPalPayoutsV1", contract.PayPalPayoutsV1}, {"PayPalVaultV3", contract.PayPalVaultV3},
	{"PlaidTransferAuthorization", contract.PlaidTransferAuthorization}, {"PlaidTransferCreate", contract.PlaidTransferCreate},
	{"PlaidWallet", contract.PlaidWallet}, {"RazorpayPayouts", contract.RazorpayPayouts}, {"RazorpayRefunds", contract.RazorpayRefunds},
	{"RazorpayTransfers", contract.RazorpayTransfers}, {"Resend", contract.Resend}, {"SendGrid", contract.SendGrid},
	{"Shopify", contract.Shopify}, {"SquareOrders", contract.SquareOrders}, {"SquarePayments", contract.SquarePayments},
	{"StandardWebhooks", contract.StandardWebhooks}, {"StripeV1", contract.StripeV1}, {"StripeV2", contract.StripeV2},
	{"Twilio", contract.Twilio}, {"Wise", contract.Wise}, {"WorldpayWPG", contract.WorldpayWPG},
	{"IETF(retention)", contract.IETF(time.Hour)},
	{"", contract.Keyed("Idempotency-Key", 24*time.Hour)}, {"", contract.Keyed("Idempotency-Key", 0)},
	{"", contract.Unsupported}, {"", outspoken()}, {"", nil},
}

// outspoken has a sign for everything, so that each rule is tried beside all
// the others.
func outspoken() *contract.Contract {
	c := contract.Keyed("Idempotency-Key", 6*time.Hour)
	code := func(status int, value string) contract.Signal {
		return contract.Signal{Status: status, Pointer: "/code", Value: value}
	}
	c.Name = "outspoken"
	c.AlreadyDone = []contract.Signal{code(409, "done")}
	c.InFlight = append(c.InFlight, code(200, "busy"))
	c.Mismatch = []contract.Signal{code(422, "mismatch")}
	c.StoreDown = []contract.Signal{{Status: 503, Text: "store is down"}}
	c.NotExecuted = []contract.Signal{code(402, "closed"), {Status: 500, Header: contract.Marker{Header: "X-Executed", Value: "no"}}}
	c.Overlap = []contract.Signal{{Status: 412}}
	c.Proven = []contract.Signal{code(0, "declined"), {Status: 402, Header: contract.Marker{Header: "X-Decided"}}}
	c.ErrorsInside200, c.FailOpen = true, true
	c.ShouldRetry = contract.Advice{Header: "X-Should-Retry", Yes: "true", No: "false"}
	c.Transient = contract.Marker{Header: "X-Transient", Value: "true"}
	c.Waits = []contract.Wait{
		{Header: "Retry-After-Ms", Unit: contract.Milliseconds},
		{Header: "X-Reset", Unit: contract.UnixSeconds, When: contract.Marker{Header: "X-Remaining", Value: "0"}}, {Header: "Retry-After"},
	}
	c.MinDelay = 3 * time.Second
	c.RetryStatuses, c.FinalStatuses = []int{409, 418}, []int{404, 502}
	return c
}

func TestSettleFuzz_EveryContractOfThePage(t *testing.T) {
	page, err := os.ReadFile("docs/providers.md")
	require.NoError(t, err)
	var want, have []string
	for _, row := range regexp.MustCompile("(?m)^\\| [a-z0-9_]+ \\| `([^`]+)`").FindAllStringSubmatch(string(page), -1) {
		want = append(want, row[1])
	}
	for _, j := range judgedContracts {
		if j.value != "" {
			have = append(have, j.value)
		}
	}
	require.NotEmpty(t, want)
	assert.ElementsMatch(t, want, have)
	require.NoError(t, outspoken().Validate())
}

// judgedAnswer is an answer that says something under a contract.
type judgedAnswer struct {
	says         string // the verdict's decision, without doubt; empty: whatever
	status       int
	header, body string
}

// plainStatuses are asked of every contract without another word.
var plainStatuses = []int{
	100, 200, 201, 202, 204, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 407, 408, 409, 410, 412, 413, 418, 421, 422, 425,
	429, 500, 501, 502, 503, 504, 505, 507, 511, 520, 524, 529, 530, 599, 999,
}

// judgedAnswers has each of the contract's signals, markers, advices and waits.
func judgedAnswers(c *contract.Contract) (all []judgedAnswer) {
	for _, status := range plainStatuses {
		all = append(all, judgedAnswer{status: status})
	}
	all = append(all, judgedAnswer{header: "Idempotent-Replayed: true", status: 402}, judgedAnswer{header: "Retry-After: 3", status: 429})
	if c == nil {
		return all
	}
	for _, list := range []struct {
		says    string
		signals []contract.Signal
	}{
		{"already_done", c.AlreadyDone}, {"in_flight", c.InFlight}, {"mismatch", c.Mismatch}, {"store_down", c.StoreDown},
		{"not_executed", c.NotExecuted}, {"rejected", c.Proven}, {"", c.Overlap},
	} {
		for _, s := range list.signals {
			all = append(all, judgedSignal(list.says, s))
			if s.Status == 0 { // and no error inside a success
				inside := judgedSignal("", s)
				inside.status = 200
				all = append(all, inside)
			}
		}
	}
	if line := markerLine(c.Replayed); line != "" {
		all = append(all,
			judgedAnswer{"replayed", 200, line, ""}, judgedAnswer{"see_other", 303, line, ""}, judgedAnswer{"replayed", 402, line, ""},
			judgedAnswer{"stored_failure", 500, line, ""})
		for _, more := range []string{": false", ":"} { // a marker must say it each time
			all = append(all, judgedAnswer{"rejected", 422, line + "\n" + c.Replayed.Header + more, ""})
		}
		for _, s := range c.Mismatch {
			both := judgedSignal("mismatch", s)
			both.header += "\n" + line
			all = append(all, both)
		}
	}
	if line := markerLine(c.Transient); line != "" {
		all = append(all, judgedAnswer{"transient", 500, line, ""}, judgedAnswer{"transient", 422, line, ""})
	}
	if a := c.ShouldRetry; a.Header != "" && !c.NoKeys {
		for _, status := range []int{400, 429, 500, 503} {
			all = append(all, judgedAnswer{"retry_advised", status, a.Header + ": " + a.Yes, ""}, judgedAnswer{"", status, a.Header + ": " + a.No, ""})
		}
	}
	for _, w := range c.Waits {
		for _, value := range []string{"2", "-7", "1e300", "NaN", "99999999999", "Wed, 21 Oct 2099 07:28:00 GMT", "1764417700"} {
			all = append(all, judgedAnswer{"", 429, w.Header + ": " + value + "\n" + markerLine(w.When), ""})
		}
	}
	return all
}

func judgedSignal(says string, s contract.Signal) judgedAnswer {
	a := judgedAnswer{says: says, status: s.Status, header: markerLine(s.Header), body: s.Text}
	if a.status == 0 {
		a.status = 400
	}
	if s.Pointer == "" {
		return a
	}
	tree := plant(nil, strings.Split(s.Pointer, "/")[1:], s.Value+s.Text)
	if s.Also != "" {
		tree = plant(tree, strings.Split(s.Also, "/")[1:], "there")
	}
	body, _ := json.Marshal(tree) // maps, lists and strings always encode
	a.body = string(body)
	return a
}

func markerLine(m contract.Marker) string {
	switch {
	case m.Header == "":
		return ""
	case m.Param != "":
		return m.Header + ": <about:blank>; " + m.Param + `="` + m.Value + `"`
	}
	return m.Header + ": " + m.Value
}

// plant puts a value where a pointer leads to.
func plant(at any, path []string, value string) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "*" || path[0] == "0" {
		list, _ := at.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = plant(list[0], path[1:], value)
		return list
	}
	object, _ := at.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[path[0]] = plant(object[path[0]], path[1:], value)
	return object
}

// The seeds do reach what they are made for.
func TestSettleFuzz_SeedsReachEverySignal(t *testing.T) {
	for _, j := range judgedContracts {
		if j.c == nil || j.c.NoKeys {
			continue
		}
		for _, a := range judgedAnswers(j.c) {
			if a.says != "" {
				v := settle(Intent{Place: j.c.Key}, j.c, ending{status: a.status, header: headerLines(a.header), body: []byte(a.body), phase: phaseAnswered})
				assert.Equal(t, a.says, v.decision, "%s: %+v", j.c.Name, a)
			}
		}
		for _, s := range j.c.Overlap {
			a := judgedSignal("", s)
			v := settle(Intent{Place: j.c.Key, Doubt: true}, j.c, ending{status: a.status, header: headerLines(a.header), body: []byte(a.body), phase: phaseAnswered})
			assert.Equal(t, "in_flight", v.decision, "%s: %+v", j.c.Name, a)
			v = settle(Intent{Place: j.c.Key}, j.c, ending{status: a.status, header: headerLines(a.header), body: []byte(a.body), phase: phaseAnswered})
			assert.Equal(t, "rejected", v.decision, "without doubt it is what its status says, %s: %+v", j.c.Name, a)
		}
	}
}

func headerLines(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			h.Add(name, strings.TrimSpace(value))
		}
	}
	return h
}

// judgedToday is the contract when the answer comes: the stored one, or what an
// application that was changed has by then.
func judgedToday(who, n uint8) *contract.Contract {
	list := laterContracts()[int(who)%len(judgedContracts)]
	return list[int(n)%len(list)]
}

var laterContracts = sync.OnceValue(func() (all [][]*contract.Contract) {
	with := func(c *contract.Contract, retention time.Duration, after contract.AfterExpiry) *contract.Contract {
		c = c.Clone()
		c.Retention, c.AfterExpiry = retention, after
		return c
	}
	for _, j := range judgedContracts {
		list := []*contract.Contract{j.c, j.c, nil, contract.Unsupported}
		if j.c != nil {
			list = append(list, with(j.c, 2*time.Minute, ""), with(j.c, 0, ""), with(j.c, 0, contract.NeverExpires), with(j.c, 90*24*time.Hour, ""))
		}
		all = append(all, list)
	}
	return all
})

// lifeOf is how long a key may be trusted; zero: not known.
func lifeOf(c *contract.Contract) time.Duration {
	if c.Retention == 0 && c.AfterExpiry == contract.NeverExpires {
		return 30 * 24 * time.Hour
	}
	return c.Retention
}

// stopOf is P7 in other words: from this instant on nothing is sent that may
// have executed, whichever contract is the stricter one.
func stopOf(in Intent, c *contract.Contract) time.Time {
	lives := []time.Duration{in.Retention}
	if c != nil {
		lives = append(lives, lifeOf(c))
	}
	room := time.Duration(math.MaxInt64)
	for _, life := range lives {
		if life <= 0 {
			life = time.Hour
		} else {
			life -= slackOf(life)
		}
		room = min(room, life)
	}
	return in.FirstSent.Add(room)
}

// slackOf is what is kept of a key's life for clocks that differ.
func slackOf(life time.Duration) time.Duration {
	switch {
	case life < 5*time.Minute:
		return 30 * time.Second
	case life < 100*time.Minute:
		return life / 10
	}
	return 10 * time.Minute
}

// provedByStore is the proof that P6 asks for, read from the contract by other
// means than the code under test: a replay marker, or what is named as given
// only after the key was claimed. A status alone is none.
func provedByStore(c *contract.Contract, e ending) bool {
	if e.status == 0 || e.cut {
		return false
	}
	if c.Replayed.Header != "" && marked(e.header, c.Replayed) {
		return true
	}
	for _, s := range c.Proven {
		if s.Text != "" || s.Also != "" || strings.Contains(s.Pointer, "*") || s.Header.Param != "" || s == (contract.Signal{Status: s.Status}) {
			panic(fmt.Sprintf("provedByStore cannot read %+v", s))
		}
		if s.Status != 0 && s.Status != e.status || s.Status == 0 && s.Pointer != "" && e.status/100 == 2 ||
			s.Header.Header != "" && !marked(e.header, s.Header) || s.Pointer != "" && textAt(e.body, s.Pointer) != s.Value {
			continue
		}
		return true
	}
	return false
}

func marked(h http.Header, m contract.Marker) bool {
	lines := h.Values(m.Header)
	for _, line := range lines {
		if bare, _, _ := strings.Cut(line, ";"); m.Value != "" && !strings.EqualFold(strings.TrimSpace(bare), m.Value) {
			return false
		}
	}
	return len(lines) > 0
}

// textAt is the text of the scalar at a pointer; empty where there is none.
func textAt(body []byte, pointer string) string {
	var at any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if !json.Valid(body) || d.Decode(&at) != nil {
		return ""
	}
	for _, name := range strings.Split(pointer, "/")[1:] {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	switch value := at.(type) {
	case string, json.Number, bool:
		return fmt.Sprint(value)
	}
	return ""
}

func drawnCase(r *rand.Rand, answers [][]judgedAnswer) judgedCase {
	who := r.IntN(len(answers))
	a := answers[who][r.IntN(len(answers[who]))]
	jc := judgedCase{
		who: uint8(who), status: uint16(a.status), flags: r.Uint32() & r.Uint32() &^ (judgedBare | judgedNeverSent), header: a.header, body: a.body,
		age: drawnTime(r), later: drawnTime(r), due: drawnTime(r), wait: drawnTime(r),
	}
	if r.IntN(3) == 0 {
		jc.today = uint8(r.UintN(8))
	}
	switch r.IntN(8) {
	case 0: // two answers in one
		from := answers[r.IntN(len(answers))]
		other := from[r.IntN(len(from))]
		jc.header += "\n" + other.header
		if jc.body == "" {
			jc.body = other.body
		}
	case 1:
		jc.status = uint16(plainStatuses[r.IntN(len(plainStatuses))])
	case 2:
		jc.body = jc.body[:r.IntN(len(jc.body)+1)]
	case 3:
		jc.flags |= judgedBare
	case 4:
		jc.flags |= judgedNeverSent
	}
	return jc
}

// drawnTime is a length of time at which something may tip over.
func drawnTime(r *rand.Rand) int64 {
	tips := []time.Duration{
		0, time.Second, 30 * time.Second, 90 * time.Second, 2 * time.Minute, 4*time.Minute + 30*time.Second, 54 * time.Minute, time.Hour,
		6*time.Hour - 10*time.Minute, 24*time.Hour - 10*time.Minute, 24 * time.Hour, 7 * 24 * time.Hour, 720 * time.Hour, math.MaxInt64,
	}
	at := tips[r.IntN(len(tips))]
	switch r.IntN(4) {
	case 0:
		at = -at
	case 1:
		at -= time.Duration(r.IntN(3) - 1)
	case 2:
		at = time.Duration(r.Int64N(int64(at/2) + 1))
	}
	return int64(at)
}
