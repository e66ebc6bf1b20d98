package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The vectors say what a right client does in one situation at one provider.
// Each goes through the code that calls and resumes go through: newExchange,
// admit, send, settle, conclude (vectors_more_test.go). IDEM_VECTORS=FILE runs
// another file of the same form:
//
//	IDEM_VECTORS=FILE go test ./... -run Vector

// vector is one of them.
type vector struct {
	ID, Contract, Class, Title string
	Given                      vectorGiven
	Expect                     vectorExpect
	Why, Source, Certainty     string

	seen    map[string]bool // conditions that were taken into account
	asks    bool            // the answer or the contract asks for a pause
	decided string          // what the attempt's end means
}

type vectorGiven struct {
	Method         string
	Path           string // empty: any that the contract takes
	Attempt        int
	Age            float64 `json:"key_age_s"`
	Before         string  `json:"journal_state_before"`
	Doubt          bool    `json:"earlier_attempt_outcome_unknown"`
	Response       *vectorResponse
	TransportError string `json:"transport_error"`
	Condition      map[string]any
}

type vectorResponse struct {
	Status  int
	Headers map[string]any
	Body    map[string]any `json:"body_facts"`
}

type vectorExpect struct {
	Action, Key string
	After       string  `json:"journal_state_after"`
	MinDelay    float64 `json:"min_delay_s"`
	ToCaller    string  `json:"to_caller"`
	Note        string
}

// The words of the vectors. Any other one is not understood.
var (
	vectorActions = []string{
		"SEND", "SEND_WITHOUT_KEY", "RETURN_FINAL", "RETURN_FINAL_FAILED", "RETRY_SAME_KEY", "HOLD", "RECONCILE",
		"FAIL_CLOSED", "RETURN_IN_DOUBT", "RETURN_NOT_SENT", "TRANSPORT_REPLAYS", "JOIN", "RETURN_RECORDED",
	}
	vectorStates = []string{"none", "pending", "unknown", "held", "succeeded", "rejected", "withdrawn"}
	vectorKeys   = []string{"same", "none"}
)

// vectorDeed is what this client does in a vector's situation.
type vectorDeed struct {
	actions  []string // the vectors' words for it
	after    string
	key      string
	silent   bool          // nothing more is sent, and no key goes out: the journaled one stays the same all the same
	wait     time.Duration // at least this long, before a resend
	in       Intent        // as recorded
	response bool          // handed over
	err      error         // of Do; of a response, Result.Err
	decision string
	result   Result
}

// vectorDiff is a field in which a deed is not what the vector expects.
type vectorDiff struct{ field, want, got string }

func (d vectorDiff) String() string {
	return fmt.Sprintf("%s: the vector says %q, this client does %q", d.field, d.want, d.got)
}

func vectorFile() (path string, own bool) {
	if path = os.Getenv("IDEM_VECTORS"); path != "" {
		return path, false
	}
	return "testdata/vectors.json", true
}

// loadVectors reads a file. What it says in words that are not known is an
// error of the vector's own subtest.
func loadVectors(tb testing.TB, path string) (ids []string, raw map[string]json.RawMessage) {
	tb.Helper()
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	var file struct {
		Schema  string
		Vectors []json.RawMessage
	}
	require.NoError(tb, json.Unmarshal(data, &file))
	require.Equal(tb, "idempotency-contract-vectors/1", file.Schema)
	require.NotEmpty(tb, file.Vectors)
	raw = map[string]json.RawMessage{}
	for _, one := range file.Vectors {
		var named struct{ ID string }
		require.NoError(tb, json.Unmarshal(one, &named))
		require.NotEmpty(tb, named.ID)
		require.NotContains(tb, raw, named.ID, "twice")
		ids, raw[named.ID] = append(ids, named.ID), one
	}
	return ids, raw
}

func mustVector(tb testing.TB, raw json.RawMessage) *vector {
	tb.Helper()
	v := &vector{seen: map[string]bool{}}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	require.NoError(tb, strict.Decode(v), "a field that is not understood")
	require.Contains(tb, vectorActions, v.Expect.Action)
	require.Contains(tb, vectorStates, v.Given.Before)
	require.Contains(tb, vectorStates, v.Expect.After)
	require.Contains(tb, vectorKeys, v.Expect.Key)
	require.Positive(tb, v.Given.Attempt)
	return v
}

func TestVectors(t *testing.T) {
	path, own := vectorFile()
	ids, raw := loadVectors(t, path)
	if own {
		require.Len(t, ids, 105)
		for id := range vectorExceptions {
			require.Contains(t, ids, id)
		}
	}
	for _, id := range ids {
		t.Run(id, func(t *testing.T) { checkVector(t, raw[id], own) })
	}
}

// checkVector compares what this client does with what a vector expects. Where
// the two differ, an exception names the vector and the field, or, in a file
// that is not our own, a sentence of the design is about that difference.
func checkVector(t *testing.T, raw json.RawMessage, own bool) {
	t.Helper()
	v := mustVector(t, raw)
	deeds := v.perform(t)
	for name := range v.Given.Condition {
		require.True(t, v.seen[name], "condition %q is not understood", name)
	}
	left := slices.Clone(vectorExceptions[v.ID])
	for _, d := range v.nearest(t, deeds) {
		i := slices.IndexFunc(left, func(e vectorException) bool { return e.vectorDiff == d })
		reading := ""
		switch {
		case i >= 0:
			reading = left[i].reading
			left = slices.Delete(left, i, i+1)
		case !own:
			reading = v.readingOf(d)
		}
		if reading == "" {
			t.Errorf("%s (%s): %s", v.Title, v.Class, d)
			continue
		}
		t.Logf("%s; DESIGN.md: %q", d, vectorReadings[reading].sentence)
		assert.True(t, vectorReadings[reading].covers(v, d), "the sentence is not about this")
	}
	if own {
		assert.Empty(t, left, "no exceptions any more")
		if slices.Contains([]string{"in_flight", "mismatch", "store_down"}, v.Class) {
			assert.Equal(t, v.Class, v.decided, "the attempt is journaled as something else")
		}
	}
}

// nearest are the differences to the deed that has the fewest.
func (v *vector) nearest(tb testing.TB, deeds []vectorDeed) []vectorDiff {
	tb.Helper()
	require.NotEmpty(tb, deeds)
	var least []vectorDiff
	for i, d := range deeds {
		if diffs := v.differences(tb, d); i == 0 || len(diffs) < len(least) {
			least = diffs
		}
	}
	return least
}

// differences compares a deed with what the vector expects.
func (v *vector) differences(tb testing.TB, d vectorDeed) (diffs []vectorDiff) {
	tb.Helper()
	differ := func(field, want, got string) {
		diffs = append(diffs, vectorDiff{field, want, got})
	}
	want := v.Expect
	if !slices.Contains(d.actions, want.Action) {
		differ("action", want.Action, d.actions[0])
	}
	after := d.after
	if want.Action == "RECONCILE" && after == "held" && slices.Contains(d.actions, "RECONCILE") {
		after = "unknown" // either is right without a verifier; TestVectorsVerify has one
	}
	if after != want.After {
		differ("journal_state_after", want.After, d.after)
	}
	if d.key != want.Key && !d.silent {
		differ("key", want.Key, d.key)
	}
	if least := time.Duration(want.MinDelay * float64(time.Second)); d.wait < least {
		differ("min_delay_s", least.String(), d.wait.String())
	}
	ends := len(diffs) == 0 || diffs[0].field != "action" || d.actions[0] != "RETRY_SAME_KEY" // else nobody is told anything yet
	if problem := d.told(tb, want.ToCaller); problem != "" && ends {
		differ("to_caller", want.ToCaller, problem)
	}
	return diffs
}

// told says what of the vector's words to the caller is not so; empty: nothing.
// Only the words before a comma or a parenthesis are looked up; what stands
// behind them is looked up too where it says something of its own.
func (d vectorDeed) told(tb testing.TB, words string) string {
	tb.Helper()
	if words == "" {
		return ""
	}
	if first, other, either := strings.Cut(words, ") else "); either { // "X (if the journal says so) else Y"
		name, _, _ := strings.Cut(first, " (if ")
		if d.told(tb, name) == "" {
			return ""
		}
		return d.told(tb, other)
	}
	words, remark, _ := strings.Cut(words, " (")
	remark = strings.TrimSuffix(remark, ")")
	words, flag, _ := strings.Cut(words, ", ")
	for word := range strings.SplitSeq(words, " + ") {
		is, known := vectorTold[word]
		require.True(tb, known, "to_caller %q is not understood", word)
		if !is(d) {
			return fmt.Sprintf("not %q: %s", word, d.summary())
		}
	}
	if words == "response" && d.err != nil && d.in.Doubt {
		return "an error as well: " + d.err.Error()
	}
	switch flag {
	case "":
		if words == "response" && remark == "" && d.result.FromProvider {
			return "flagged replayed"
		}
	case "flagged replayed":
		if !d.result.FromProvider {
			return "not replayed"
		}
	case "not replayed":
		if d.result.FromProvider {
			return "flagged replayed"
		}
	case "flagged from-journal":
		if !d.result.FromJournal {
			return "not from the journal"
		}
	case "flagged key-not-acknowledged", "flagged dedupe-not-guaranteed":
		return "response"
	default:
		require.Fail(tb, "not understood", "to_caller flag %q", flag)
	}
	require.Contains(tb, []string{"", "treat as success"}, remark, "to_caller remark is not understood")
	if remark != "" && d.in.State != StateSucceeded {
		return "not as a success"
	}
	return ""
}

func (d vectorDeed) summary() string {
	return fmt.Sprintf("response %t, %s (%s), decision %q, error %v", d.response, d.in.State, d.in.HoldReason, d.decision, d.err)
}

func (d vectorDeed) is(target error) bool { return errors.Is(d.err, target) }

// held reports an outcome that is not known and not sent again, for the reason.
func (d vectorDeed) held(why HoldReason) bool {
	var failure *OperationError
	return d.is(ErrUnknownOutcome) && d.is(ErrHeld) && errors.As(d.err, &failure) && failure.HoldReason == why
}

// final reports an answer that settled the operation as failed: the answer
// itself says why, and there is no error.
func (d vectorDeed) refused() bool { return d.response && d.err == nil && d.in.State == StateRejected }

// vectorTold are the vectors' words for what the caller gets, in our terms. A
// final answer is never an error, so that its kind is the attempt's decision.
var vectorTold = map[string]func(vectorDeed) bool{
	"response":            func(d vectorDeed) bool { return d.response },
	"recorded response":   func(d vectorDeed) bool { return d.response && d.result.FromJournal },
	"error":               func(d vectorDeed) bool { return d.err != nil && !d.response },
	"ctx error":           func(d vectorDeed) bool { return d.is(errVectorLeft) },
	"ErrOutcomeUnknown":   func(d vectorDeed) bool { return d.is(ErrUnknownOutcome) },
	"ErrNotSent":          func(d vectorDeed) bool { return d.is(ErrNotSent) },
	"ErrNoDedupe":         func(d vectorDeed) bool { return d.held(HoldNoContract) },
	"ErrRetentionOver":    func(d vectorDeed) bool { return d.held(HoldExpired) },
	"ErrClockSkew":        func(d vectorDeed) bool { return d.held(HoldClock) || d.refused() },
	"ErrKeyMismatch":      func(d vectorDeed) bool { return d.decision == "mismatch" },
	"ErrKeyNotSupported":  func(d vectorDeed) bool { return d.refused() },
	"disable endpoint":    func(d vectorDeed) bool { return d.refused() },
	"hint new-operation":  func(d vectorDeed) bool { return d.refused() }, // WithRenewal takes it
	"ErrKeyFormat":        func(d vectorDeed) bool { return d.is(ErrNotSent) && d.in.State == "" },
	"ErrBodyChanged":      func(d vectorDeed) bool { return d.is(ErrMismatch) },
	"ErrHostPinned":       func(d vectorDeed) bool { return d.is(ErrMismatch) },
	"ErrCredentialPinned": func(d vectorDeed) bool { return d.is(ErrMismatch) },
	"ErrKeyReuse":         func(d vectorDeed) bool { return d.is(ErrMismatch) },
	"ErrJournal":          func(d vectorDeed) bool { return d.is(ErrJournal) && d.is(ErrNotSent) },
}
