package idem

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// vectorException is a field in which DESIGN.md wins over a vector: want is the
// vector's, got is what this client does instead, which is asserted.
type vectorException struct {
	vectorDiff
	reading string // of vectorReadings
}

func vectorAction(want, got, reading string) vectorException {
	return vectorException{vectorDiff{"action", want, got}, reading}
}

func vectorAfter(want, got, reading string) vectorException {
	return vectorException{vectorDiff{"journal_state_after", want, got}, reading}
}

func vectorFlag(name string) []vectorException {
	return []vectorException{{vectorDiff{"to_caller", "response, flagged " + name, "response"}, "two flags"}}
}

func vectorDelay(want, got string) []vectorException {
	return []vectorException{{vectorDiff{"min_delay_s", want, got}, "own back-off"}}
}

// Two that many vectors have.
var (
	vectorNoIntent  = []vectorException{vectorAfter("withdrawn", "none", "no intent")}
	vectorUntouched = []vectorException{vectorAfter("held", "unknown", "untouched")}
)

// vectorExceptions are all of them, by vector.
var vectorExceptions = map[string][]vectorException{
	"CV017": vectorNoIntent,
	"CV027": vectorNoIntent,
	"CV029": vectorDelay("1s", "500ms"),
	"CV031": vectorDelay("5s", "500ms"),
	"CV032": vectorUntouched,
	"CV034": vectorNoIntent,
	"CV038": {vectorAfter("withdrawn", "none", "another's key")},
	"CV040": vectorDelay("5s", "1s"),
	"CV041": vectorDelay("1s", "500ms"),
	"CV052": vectorUntouched,
	"CV056": vectorUntouched,
	"CV068": vectorDelay("2s", "1s"),
	"CV069": vectorFlag("dedupe-not-guaranteed"),
	"CV072": vectorDelay("2s", "500ms"),
	"CV075": vectorNoIntent,
	"CV079": vectorFlag("key-not-acknowledged"),
	"CV098": vectorDelay("1s", "500ms"),
	"CV099": vectorNoIntent,
	"CV100": {vectorAction("HOLD", "RETRY_SAME_KEY", "one hour"), vectorAfter("held", "unknown", "one hour")},
	"CV107": vectorNoIntent,
	"CV116": vectorFlag("key-not-acknowledged"),
	"CV123": {vectorAction("HOLD", "RETRY_SAME_KEY", "stored bytes"), vectorAfter("held", "unknown", "stored bytes")},
	"CV137": vectorDelay("1s", "500ms"),
	"CV143": {vectorAction("HOLD", "RETRY_SAME_KEY", "clock margin"), vectorAfter("held", "unknown", "clock margin")},
	"CV149": vectorDelay("5m0s", "1s"),
	"CV151": vectorDelay("5s", "500ms"),
}

// vectorReading is a sentence of DESIGN.md that wins, and what it wins over.
type vectorReading struct {
	sentence string
	covers   func(v *vector, d vectorDiff) bool
}

var vectorReadings = map[string]vectorReading{
	// The vectors write the refused re-call into the journal.
	"untouched": {
		sentence: "A refused re-call never changes state.",
		covers: func(v *vector, d vectorDiff) bool {
			return v.Expect.Action == "FAIL_CLOSED" && d == vectorDiff{"journal_state_after", "held", "unknown"}
		},
	},
	// The vectors withdraw what we never make.
	"no intent": {
		sentence: "Bad caller-supplied keys are refused before an intent exists.",
		covers: func(v *vector, d vectorDiff) bool {
			_, key := v.Given.Condition["key"]
			_, length := v.Given.Condition["key_length"]
			return v.Expect.Action == "FAIL_CLOSED" && (key || length) && d == vectorDiff{"journal_state_after", "withdrawn", "none"}
		},
	},
	"another's key": {
		sentence: "A key that another operation holds: `ErrMismatch` before any send.",
		covers: func(v *vector, d vectorDiff) bool {
			return v.Expect.Action == "FAIL_CLOSED" && v.Given.Condition["key_already_used_on"] != nil &&
				d == vectorDiff{"journal_state_after", "withdrawn", "none"}
		},
	},
	// The vectors know of two more flags of a response.
	"two flags": {
		sentence: "FromJournal, FromProvider bool // a replay by our journal / by the provider",
		covers: func(_ *vector, d vectorDiff) bool {
			return d.field == "to_caller" && d.got == "response" &&
				slices.Contains([]string{"response, flagged dedupe-not-guaranteed", "response, flagged key-not-acknowledged"}, d.want)
		},
	},
	// The vectors trust a key of unknown life for no time at all after a restart.
	"one hour": {
		sentence: "Unknown retention: at most one hour, restarts included.",
		covers: func(v *vector, d vectorDiff) bool {
			c := vectorContracts()[v.Contract]
			unknown := v.Contract == "ietf_draft" || c != nil && !c.NoKeys && c.Retention == 0
			return unknown && v.Given.Response == nil && v.Given.Age < maxUnknownRetention.Seconds() && vectorGoesOn(d)
		},
	},
	// The vectors ask for pauses that neither the answer nor the contract asks for.
	"own back-off": {
		sentence: "MinBackoff time.Duration // zero: 500 ms",
		covers: func(v *vector, d vectorDiff) bool {
			least := min(defaultMinBackoff<<min(v.Given.Attempt-1, 6), defaultMaxBackoff/2)
			got, err := time.ParseDuration(d.got)
			return d.field == "min_delay_s" && !v.asks && err == nil && got >= least
		},
	},
	// The vectors bind a named operation to the credential of its first send.
	"fresh credentials": {
		sentence: "Every attempt under one key sends the same method, URL (redirect hops aside), body bytes and headers, except credentials and per-attempt companions.",
		covers: func(v *vector, d vectorDiff) bool {
			return v.Given.Condition["credential"] != nil && (d == vectorDiff{"action", "FAIL_CLOSED", "RETRY_SAME_KEY"} ||
				d == vectorDiff{"journal_state_after", "held", "unknown"})
		},
	},
	// The vectors hold at once what a pause outlives.
	"parked": {
		sentence: "The state is what the answer gave: no doubt → withdrawn (direct) or pending (prepared); doubt → unknown",
		covers: func(v *vector, d vectorDiff) bool {
			return v.asks && v.Expect.Action == "HOLD" && v.Expect.After == "held" &&
				(vectorGoesOn(d) || d.field == "to_caller" && strings.Contains(d.want, "ErrRetentionOver"))
		},
	},
	// The vectors read what the provider has said already.
	"already done": {
		sentence: "Order of judgement in settle: the contract's body and status signals (already done, in flight, mismatch, store down)",
		covers: func(v *vector, d vectorDiff) bool {
			return v.decided == "already_done" && v.Expect.Action == "RECONCILE" && v.Expect.After == "unknown" && (d == vectorDiff{"action", "RECONCILE", "RETURN_FINAL"} ||
				d == vectorDiff{"journal_state_after", "unknown", "succeeded"})
		},
	},
	// The vectors end an operation whose credentials were refused.
	"credentials": {
		sentence: "401 403 407 without doubt: withdrawn (prepared: held: credentials), same key with the next call's credentials.",
		covers: func(v *vector, d vectorDiff) bool {
			return v.decided == "credentials_refused" && v.Expect.Action == "RETURN_FINAL_FAILED" && v.Expect.After == "rejected" && (d == vectorDiff{"action", "RETURN_FINAL_FAILED", "RETURN_NOT_SENT"} ||
				d == vectorDiff{"journal_state_after", "rejected", "withdrawn"})
		},
	},
	// The vectors know of requests whose body is not kept.
	"stored bytes": {
		sentence: "No byte of a journaled request leaves before its intent, with key and request, is on stable storage",
		covers: func(v *vector, d vectorDiff) bool {
			return (v.Given.Condition["body_spooled"] == false || v.Given.Condition["get_body"] == false) && vectorGoesOn(d)
		},
	},
	// The vectors trust no clock that is behind, by however little.
	"clock margin": {
		sentence: "a wall clock behind it by more than the margin makes every unknown intent held: clock",
		covers: func(v *vector, d vectorDiff) bool {
			behind := time.Duration(math.Max(0, -v.Given.Age) * float64(time.Second))
			return v.Given.Condition["clock"] != nil && behind < margin(24*time.Hour) && vectorGoesOn(d)
		},
	},
}

// vectorGoesOn is a difference of what is held by the vector and goes on here.
func vectorGoesOn(d vectorDiff) bool {
	switch d.field {
	case "action":
		return d.want == "HOLD" && (d.got == "RETRY_SAME_KEY" || d.got == "RETURN_IN_DOUBT")
	case "journal_state_after":
		return d.want == "held" && d.got == "unknown"
	}
	return false
}

// readingOf is the reading that covers a difference, for vectors of another
// file; empty: none does.
func (v *vector) readingOf(d vectorDiff) string {
	for name, reading := range vectorReadings {
		if reading.covers(v, d) {
			return name
		}
	}
	return ""
}

// vectorWords are the words that may be said of one deed.
var vectorWords = [][]string{
	{"HOLD", "RETURN_IN_DOUBT", "RECONCILE"},
	{"RETURN_FINAL", "SEND_WITHOUT_KEY"},
	{"RETRY_SAME_KEY", "TRANSPORT_REPLAYS", "RECONCILE"},
}

// TestVectorsAreStrict: what expects anything else fails, and no reading covers
// that, except for what an exception says that this client does.
func TestVectorsAreStrict(t *testing.T) {
	ids, raw := loadVectors(t, "testdata/vectors.json")
	for _, id := range ids {
		t.Run(id, func(t *testing.T) {
			v := mustVector(t, raw[id])
			deeds, was := v.perform(t), v.Expect
			passes := func(field, word string, expect vectorExpect) {
				v.Expect = expect
				for _, d := range v.nearest(t, deeds) {
					if v.readingOf(d) == "" {
						return
					}
				}
				named := slices.ContainsFunc(vectorExceptions[id], func(e vectorException) bool { return e.field == field && e.got == word })
				same := slices.ContainsFunc(vectorWords, func(words []string) bool {
					return slices.Contains(words, word) && slices.Contains(words, was.Action)
				})
				assert.True(t, named || same || field == "key" && deeds[0].silent, "%s %q passes as well", field, word)
			}
			for _, word := range vectorWordsBut(vectorActions, was.Action) {
				other := was
				other.Action = word
				passes("action", word, other)
			}
			for _, state := range vectorWordsBut(vectorStates, was.After) {
				other := was
				other.After = state
				passes("journal_state_after", state, other)
			}
			for _, key := range vectorWordsBut(vectorKeys, was.Key) {
				other := was
				other.Key = key
				passes("key", key, other)
			}
		})
	}
}

// TestVectorReadings: situations and sentences that none of our own vectors has.
func TestVectorReadings(t *testing.T) {
	for _, test := range []struct{ reading, vector string }{
		{"already done", `{"id": "already done", "contract": "gocardless", "given": {"method": "POST", "path": "/payments", "attempt": 2, "key_age_s": 30,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": true, "response": {"status": 409, "body_facts": {
			"/error/errors/0/reason": "idempotent_creation_conflict", "/error/errors/0/links/conflicting_resource_id": "PM1"}}},
			"expect": {"action": "RECONCILE", "key": "same", "journal_state_after": "unknown"}}`},
		{"credentials", `{"id": "credentials", "contract": "generic", "given": {"method": "POST", "attempt": 1, "key_age_s": 1,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": false, "response": {"status": 401}},
			"expect": {"action": "RETURN_FINAL_FAILED", "key": "same", "journal_state_after": "rejected", "to_caller": "response"}}`},
		{"", `{"id": "a redirect within the origin", "contract": "generic", "given": {"method": "POST", "attempt": 2, "key_age_s": 1,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": true, "response": {"status": 308, "headers": {"Location": "/v2"}}},
			"expect": {"action": "RETRY_SAME_KEY", "key": "same", "journal_state_after": "unknown"}}`},
		{"", `{"id": "a redirect out of it", "contract": "generic", "given": {"method": "POST", "attempt": 1, "key_age_s": 1,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": false, "response": {"status": 307, "headers": {"Location": "https://other.example/"}}},
			"expect": {"action": "RETURN_NOT_SENT", "key": "same", "journal_state_after": "withdrawn", "to_caller": "error"}}`},
		{"", `{"id": "a wait that the caller does not sit out", "contract": "generic", "given": {"method": "POST", "attempt": 2, "key_age_s": 5,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": true, "response": {"status": 503, "headers": {"Retry-After": "120"}}},
			"expect": {"action": "RETRY_SAME_KEY", "key": "same", "journal_state_after": "unknown", "min_delay_s": 120}}`},
		{"parked", `{"id": "a pause that outlives the key", "contract": "generic", "given": {"method": "POST", "attempt": 2, "key_age_s": 5,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": true, "response": {"status": 503, "headers": {"Retry-After": "86400"}}},
			"expect": {"action": "HOLD", "key": "same", "journal_state_after": "held", "to_caller": "response + ErrRetentionOver"}}`},
		{"", `{"id": "a clock that is far behind", "contract": "generic", "given": {"method": "POST", "attempt": 2, "key_age_s": -900,
			"journal_state_before": "unknown", "earlier_attempt_outcome_unknown": true, "condition": {"restart": true, "clock": "before the journaled first send"}},
			"expect": {"action": "HOLD", "key": "same", "journal_state_after": "held", "to_caller": "ErrClockSkew"}}`},
		{"", `{"id": "two processes", "contract": "generic", "given": {"method": "POST", "attempt": 1, "key_age_s": 0,
			"journal_state_before": "pending", "earlier_attempt_outcome_unknown": false, "condition": {"second_process": true}},
			"expect": {"action": "JOIN", "key": "same", "journal_state_after": "unknown"}}`},
	} {
		v := mustVector(t, json.RawMessage(test.vector))
		t.Run(v.ID, func(t *testing.T) {
			diffs := v.nearest(t, v.perform(t))
			assert.Equal(t, test.reading != "", len(diffs) > 0, diffs)
			for _, d := range diffs {
				assert.Equal(t, test.reading, v.readingOf(d), d)
			}
		})
	}
}

func vectorWordsBut(words []string, word string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == word })
}
