package contract_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/contract"
)

func TestValidatePlace(t *testing.T) {
	place := func(p contract.Place) func(*c) { return func(c *c) { c.Key = p } }
	checkChanges(t, []change{
		{"pointer", place(contract.Place{Pointer: "/variables/input/key"}), ""},
		{"param", place(contract.Place{Param: "ClientToken"}), ""},
		{"two places", place(contract.Place{Header: "K", Pointer: "/k"}), `Key.Header "K" stands beside "/k": the key has one place`},
		{"two other places", place(contract.Place{Param: "k", Pointer: "/k"}), `Key.Param "k" stands beside Pointer "/k"`},
		{"pointer without a slash", place(contract.Place{Pointer: "k"}), `Key.Pointer "k" is not a JSON pointer`},
		{"pointer with a bad escape", place(contract.Place{Pointer: "/k~"}), `Key.Pointer "/k~" is not a JSON pointer`},
		{"pointer with a star", place(contract.Place{Pointer: "/a/*/k"}), `Key.Pointer "/a/*/k" has a *`},
		{"param with a line break", place(contract.Place{Param: "a\nb"}), `Key.Param "a\nb" has a character`},
		{"quoted pointer", place(contract.Place{Pointer: "/k", Encoding: contract.Quoted}), `Key.Encoding "quoted" is for a header`},

		{"min negative", func(c *c) { c.MinLength = -1 }, `MinLength -1 is negative`},
		{"min above a UUID", func(c *c) { c.MinLength = 37 }, `MinLength 37 is more than the 36 bytes of a minted UUID`},
		{"min above max", func(c *c) { c.Form, c.MinLength, c.MaxLength = contract.Issued, 12, 10 }, `MinLength 12 is more than MaxLength 10`},
		{"short and issued", func(c *c) { c.Form, c.MaxLength = contract.Issued, 10 }, ""},
		{"echo", func(c *c) { c.Echo = "a b" }, `Echo "a b" is not a header name`},
		{"exact without paths", func(c *c) { c.ExactPaths = true }, `ExactPaths true is about Paths`},
	})
}

func TestValidateCompanions(t *testing.T) {
	companion := func(header string, value contract.CompanionValue) func(*c) {
		return func(c *c) { c.Companions = []contract.Companion{{Header: header, Value: value}} }
	}
	checkChanges(t, []change{
		{"good", companion("X-First-Sent", contract.HTTPDate), ""},
		{"no header", companion("", contract.HTTPDate), `Companions[0].Header "" is not a header name`},
		{"reserved", companion("date", contract.HTTPDate), `Companions[0].Header "date" has another meaning in HTTP`},
		{"the key", companion("idempotency-key", contract.UnixTime), `Companions[0].Header "idempotency-key" is Key.Header too`},
		{"no value", companion("X", ""), `Companions[0].Value "" is neither HTTPDate nor UnixTime`},
		{"twice", func(c *c) {
			c.Companions = []contract.Companion{{Header: "X", Value: "unix"}, {Header: "x", Value: "unix"}}
		}, `Companions[1].Header "x" is listed twice`},
		{"scope", func(c *c) {
			c.Companions, c.ScopeHeaders = []contract.Companion{{Header: "X", Value: "unix"}}, []string{"x"}
		}, `ScopeHeaders[0] "x" is a companion too`},
	})
}

func TestValidateMemory(t *testing.T) {
	signals := func(s ...contract.Signal) []contract.Signal { return s }
	checkChanges(t, []change{
		{"expiry", func(c *c) { c.AfterExpiry = "later" }, `AfterExpiry "later" is neither`},
		{"replay", func(c *c) { c.Replay = "later" }, `Replay "later" is neither`},
		{"conflict without a sign", func(c *c) { c.Replay = contract.ReplayConflict }, `Replay "conflict" needs AlreadyDone`},
		{"never and a figure", func(c *c) { c.AfterExpiry = contract.NeverExpires }, `AfterExpiry "never expires" contradicts Retention 24h0m0s`},
		{"never", func(c *c) { c.AfterExpiry, c.Retention = contract.NeverExpires, 0 }, ""},
		{"pinned and not", func(c *c) { c.RotatingCredentials, c.CredentialPinned = true, true }, `CredentialPinned true contradicts RotatingCredentials`},
		{"text beside a value", func(c *c) { c.Mismatch = signals(contract.Signal{Pointer: "/a", Value: "x", Text: "x"}) }, `Mismatch[0].Text "x" stands beside Value "x"`},
		{"text of a success", func(c *c) { c.Mismatch = signals(contract.Signal{Status: 200, Text: "x"}) }, `Mismatch[0].Text "x" with Status 200 is never looked at`},
		{"also", func(c *c) { c.Mismatch = signals(contract.Signal{Pointer: "/a", Also: "b"}) }, `Mismatch[0].Also "b" is not a JSON pointer`},
		{"proof by text", func(c *c) { c.Proven = signals(contract.Signal{Status: 402, Text: "declined"}) }, ""},
		{"hidden text", func(c *c) {
			c.AlreadyDone, c.Mismatch = signals(contract.Signal{Text: "ab"}), signals(contract.Signal{Text: "cabd"})
		}, `Mismatch[0] {Status:0 Pointer: Value: Text:cabd Also: Header:{Header: Value: Param:}} never counts: AlreadyDone[0]`},
		{"not hidden text", func(c *c) {
			c.AlreadyDone, c.Mismatch = signals(contract.Signal{Text: "ab", Also: "/a"}), signals(contract.Signal{Text: "ab"})
		}, ""},
		{"hidden overlap", func(c *c) {
			c.Mismatch, c.Overlap = signals(contract.Signal{Status: 422}), signals(contract.Signal{Status: 422, Text: "x"})
		}, `Overlap[0] {Status:422 Pointer: Value: Text:x Also: Header:{Header: Value: Param:}} never counts: Mismatch[0]`},
		{"retry a redirect", func(c *c) { c.RetryStatuses = []int{302, 400} }, ""},
		{"retry a 307", func(c *c) { c.RetryStatuses = []int{307} }, `RetryStatuses[0] 307 is a redirect with a meaning of its own`},
		{"when", func(c *c) {
			c.Waits = []contract.Wait{{Header: "X", When: contract.Marker{Header: "a b"}}}
		}, `Waits[0].When.Header "a b" is not a header name`},
		{"short retention", func(c *c) { c.Retention, c.MinDelay = time.Minute, time.Minute }, `MinDelay 1m0s is not less than Retention`},
	})
}
