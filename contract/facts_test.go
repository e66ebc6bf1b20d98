package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fact is one entry of testdata/contracts.json, which is a copy of the project's
// table of facts.
type fact struct {
	ID               string                             `json:"id"`
	Place            string                             `json:"place"`
	KeyName          string                             `json:"key_name"`
	Encoding         string                             `json:"encoding"`
	Form             string                             `json:"form"`
	MinLen           int                                `json:"min_len"`
	MaxLen           int                                `json:"max_len"`
	Charset          string                             `json:"charset"`
	Companions       []struct{ Header string }          `json:"companions"`
	Methods          []string                           `json:"methods"`
	HostPinned       bool                               `json:"host_pinned"`
	CredentialPinned bool                               `json:"credential_pinned"`
	Retention        int                                `json:"retention_floor_s"`
	AfterExpiry      string                             `json:"after_expiry"`
	Stores           map[string]string                  `json:"stores"`
	ReplayStyle      string                             `json:"replay_style"`
	ReplayMarker     struct{ Header, Value string }     `json:"replay_marker"`
	Echo             string                             `json:"echo_header"`
	InFlight         []said                             `json:"in_flight"`
	Mismatch         []said                             `json:"mismatch"`
	AlreadyDone      []said                             `json:"already_done"`
	StoreDown        []said                             `json:"store_down"`
	FailOpen         bool                               `json:"fail_open"`
	ShouldRetry      struct{ Name, True, False string } `json:"should_retry_header"`
	Transient        struct{ Header, Value string }     `json:"transient_marker"`
	Waits            []string                           `json:"retry_after_headers"`
	RetrySameKey     []any                              `json:"retry_same_key"`
	MinDelay         float64                            `json:"min_retry_delay_s"`
	ErrorsInside200  bool                               `json:"errors_inside_200"`
	Sources          []string                           `json:"sources"`
}

// said is an answer with a meaning, in the table's words.
type said struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	At     string `json:"at"`
	Text   string `json:"text_contains"`
}

// exceptions are the fields in which a value differs from the table, and why.
var exceptions = map[string]string{
	"ietf_draft.in_flight":               "one signal for each of the two marks, and one by Retry-After that is ours",
	"ietf_draft.mismatch":                "one signal for each of the two marks",
	"paypal_orders_v2.in_flight":         "no code is published: see Overlap",
	"paypal_orders_v2.mismatch":          "the table names no place: PayPal's error object has it at /details/*/issue, else any text",
	"paypal_payments_v2.in_flight":       "no code is published: see Overlap",
	"paypal_payments_v2.mismatch":        "the table names no place",
	"paypal_vault_v3.mismatch":           "the table names no place: PayPal's error object has it at /details/*/issue",
	"gocardless.waits":                   "the table writes unit and condition into the text",
	"square_payments.waits":              "the table writes the unit into the text",
	"square_orders.waits":                "the table writes the unit into the text",
	"mercury.already_done":               "only with a transaction in it, as the table's note says",
	"razorpay_payouts.errors_inside_200": "a replay that says failed is a failure (vector CV073)",
	"braintree_classic.already_done":     "a guess by amount and card is no proof, and the server takes no key",
	"braintree_amo.in_flight":            "its code is not published",
	"braintree_amo.key":                  "the table has a name without a place",
	"shopify.key":                        "a directive's argument is a variable of the request",
	"worldpay_wpg.in_flight":             "the answer is XML, and its status is not published",
	"aws_ec2.mismatch":                   "the table names no place: the answer is XML",
	"aws_dynamodb_txn.mismatch":          "the table names no place: it is a part of __type",
	"gcs.key":                            "that the server keeps to the token was not found, so no key counts",
	"standard_webhooks.companions":       "the signature is Base's to make: only the caller has the secret",
	"standard_webhooks.retry":            "any failure but 410, which is no list of numbers in the table",
	"resend.retry":                       "in_flight is a signal",
}

func valuesByID() map[string]*Contract {
	values := map[string]*Contract{"ietf_draft": IETF(0)}
	for _, c := range providers() {
		values[c.Name] = c
	}
	return values
}

func loadFacts(t *testing.T) []fact {
	t.Helper()
	data, err := os.ReadFile("testdata/contracts.json")
	require.NoError(t, err)
	var table struct{ Contracts []fact }
	require.NoError(t, json.Unmarshal(data, &table))
	require.Len(t, table.Contracts, 45)
	return table.Contracts
}

// TestFactsOfTheTable compares every value with its entry, field by field.
func TestFactsOfTheTable(t *testing.T) {
	values, used := valuesByID(), map[string]bool{}
	for _, f := range loadFacts(t) {
		t.Run(f.ID, func(t *testing.T) {
			c := values[f.ID]
			require.NotNil(t, c)
			delete(values, f.ID)
			want, got := f.fields(), fieldsOf(c)
			require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
			for name := range want {
				if exceptions[f.ID+"."+name] != "" {
					used[f.ID+"."+name] = true
					assert.NotEqual(t, want[name], got[name], "%s is no exception any more", name)
					continue
				}
				assert.Equal(t, want[name], got[name], name)
			}
			assert.Equal(t, "2026-11-29", c.Checked)
			assert.GreaterOrEqual(t, len(c.Sources), min(1, len(f.Sources)))
		})
	}
	assert.Empty(t, values, "values without an entry")
	for name, reason := range exceptions {
		assert.True(t, used[name], "exception %s is not used", name)
		assert.NotEmpty(t, reason, name)
	}
}

// fields says in the words of fieldsOf what the table holds.
func (f fact) fields() map[string]string {
	words := f.answers()
	key := f.KeyName
	switch f.Place {
	case "query_or_form", "query_or_body":
		key = "?" + key
	case "none":
		key = ""
	}
	words["key"] = key
	words["encoding"] = map[string]string{"raw": "", "sf-string": "quoted"}[f.Encoding]
	words["form"] = string(formOf(f.Form, f.Charset))
	words["lengths"] = fmt.Sprint(f.MinLen, f.MaxLen)
	var companions []string
	for _, c := range f.Companions {
		companions = append(companions, c.Header)
	}
	words["companions"] = strings.Join(companions, " ")
	words["methods"] = strings.Join(f.Methods, " ")
	words["pinned"] = fmt.Sprint(f.HostPinned, f.CredentialPinned)
	words["retention"] = (time.Duration(f.Retention) * time.Second).String()
	words["after_expiry"] = string(map[string]AfterExpiry{
		"executes_again": ExecutesAgain, "never": NeverExpires, "rejected (412)": Refused,
	}[f.AfterExpiry])
	words["replay"] = string(map[string]ReplayStyle{
		"verbatim": ReplayVerbatim, "current state": ReplayCurrent, "current state allowed": ReplayCurrent,
		"object": ReplayCurrent, "reworked: failed work is continued, response updated": ReplayReworked,
		"409 pointing at the resource": ReplayConflict, "409 carrying the normal body": ReplayConflict,
	}[f.ReplayStyle])
	if f.Place == "none" || f.ID == "gcs" { // without a key nothing is replayed
		words["replay"], words["lengths"], words["form"] = "", "1 0", ""
	}
	return words
}

// formOf is the form for the table's form and charset. What is only preferred is
// not demanded.
func formOf(form, charset string) Form {
	switch form {
	case "uuid":
		return UUID
	case "uuid4":
		return UUID4
	case "provider-issued":
		return Issued
	}
	switch charset {
	case "[A-Za-z0-9_ -]":
		return WordSpace
	case "[A-Za-z0-9_-]":
		return Word
	case "ascii", "ascii 32-126, case sensitive":
		return Printable
	}
	return Visible
}

func (f fact) answers() map[string]string {
	yes := func(text string) bool { return strings.HasPrefix(text, "yes") }
	words := map[string]string{
		"stores":    fmt.Sprint(yes(f.Stores["4xx_business"]), yes(f.Stores["5xx"])),
		"replayed":  fmt.Sprint(f.ReplayMarker),
		"echo":      f.Echo,
		"fail_open": fmt.Sprint(f.FailOpen),
		"advice":    fmt.Sprint(f.ShouldRetry),
		"transient": fmt.Sprint(f.Transient),
		"waits":     strings.Join(f.Waits, " "),
		"min_delay": time.Duration(f.MinDelay * float64(time.Second)).String(),

		"errors_inside_200": fmt.Sprint(f.ErrorsInside200),
	}
	for name, list := range map[string][]said{
		"in_flight": f.InFlight, "mismatch": f.Mismatch, "already_done": f.AlreadyDone, "store_down": f.StoreDown,
	} {
		words[name] = fmt.Sprint(list)
	}
	// What is retried by every contract, or is in flight whatever its body says,
	// needs no list of its own.
	var retried []string
	for _, what := range f.RetrySameKey {
		status, isStatus := what.(float64)
		plain := slices.ContainsFunc(f.InFlight, func(s said) bool { return s == said{Status: int(status)} })
		switch {
		case isStatus && !plain && status != 408 && status != 429 && status != 503:
			retried = append(retried, fmt.Sprint(status))
		case what == "in_flight", what == "any non-2xx but 410":
			retried = append(retried, fmt.Sprint(what))
		}
	}
	words["retry"] = strings.Join(retried, " ")
	return words
}

func fieldsOf(c *Contract) map[string]string {
	companions, waits, retried := []string{}, []string{}, []string{}
	for _, companion := range c.Companions {
		companions = append(companions, companion.Header)
	}
	for _, w := range c.Waits {
		waits = append(waits, strings.Join(strings.Fields(fmt.Sprint(w.Header, " ", w.When.Header)), " when "))
		if w.Unit == UnixSeconds {
			waits[len(waits)-1] += " (unix)"
		}
	}
	if c.Waits == nil {
		waits = []string{"Retry-After"}
	}
	for _, status := range c.RetryStatuses {
		retried = append(retried, fmt.Sprint(status))
	}
	words := map[string]string{
		"key": c.Key.String(), "encoding": string(c.Key.Encoding), "form": string(c.Form),
		"lengths":    fmt.Sprint(max(1, c.MinLength), c.MaxLength),
		"companions": strings.Join(companions, " "),
		"methods":    strings.Join(c.Methods, " "),
		"pinned":     fmt.Sprint(c.HostPinned, c.CredentialPinned),
		"retention":  c.Retention.String(), "after_expiry": string(c.AfterExpiry), "replay": string(c.Replay),
		"stores":    fmt.Sprint(c.StoresClientErrors, c.StoresServerErrors),
		"replayed":  fmt.Sprintf("{%s %s}", c.Replayed.Header, c.Replayed.Value),
		"echo":      c.Echo,
		"fail_open": fmt.Sprint(c.FailOpen),
		"advice":    fmt.Sprint(c.ShouldRetry),
		"transient": fmt.Sprintf("{%s %s}", c.Transient.Header, c.Transient.Value),
		"waits":     strings.Join(waits, " "),
		"min_delay": c.MinDelay.String(),
		"retry":     strings.Join(retried, " "),

		"errors_inside_200": fmt.Sprint(c.ErrorsInside200),
	}
	for name, list := range map[string][]Signal{
		"in_flight": c.InFlight, "mismatch": c.Mismatch, "already_done": c.AlreadyDone, "store_down": c.StoreDown,
	} {
		said := make([]said, len(list))
		for i, s := range list {
			said[i].Status, said[i].Code, said[i].At, said[i].Text = s.Status, s.Value, s.Pointer, s.Text
		}
		words[name] = fmt.Sprint(said)
	}
	return words
}

// TestProvidersDoNotOverlap: where a host, a path and a method are bound, they
// are bound to one value.
func TestProvidersDoNotOverlap(t *testing.T) {
	for _, c := range providers() {
		paths := c.Paths
		if paths == nil {
			paths = []string{"/any"}
		}
		for _, host := range c.Hosts {
			for _, path := range paths {
				target := "https://" + strings.Replace(host, "*", "x", 1) + strings.ReplaceAll(path, "*", "x")
				req, err := http.NewRequest(c.Methods[0], target, nil)
				require.NoError(t, err)
				for _, other := range providers() {
					if other != c {
						assert.Nil(t, other.Resolve(req), "%s and %s take %s", c.Name, other.Name, target)
					}
				}
				assert.Same(t, c, Known.Resolve(req), target)
			}
		}
	}
}

// TestProvidersAreValid: every value, the unbound ones once they are bound.
func TestProvidersAreValid(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range providers() {
		t.Run(c.Name, func(t *testing.T) {
			assert.False(t, seen[c.Name], "twice")
			seen[c.Name] = true
			require.NotNil(t, c.Hosts, "it would take every host")
			require.NotNil(t, c.Methods)
			bound := c
			if len(c.Hosts) == 0 {
				bound = c.At("h.example")
				require.ErrorContains(t, c.Validate(), "Hosts [] is an empty list, which takes nothing")
			}
			require.NoError(t, bound.Validate())
			if !c.NoKeys && c.Form != Issued {
				require.NoError(t, c.CheckKey(someUUID))
			}
		})
	}
}
