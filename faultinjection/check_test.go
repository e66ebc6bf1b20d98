package faultinjection_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// row is one intent of a client that the test plays.
type row struct {
	operation, key, state string
	status                int
	body                  string // empty: not kept
}

type rows []row

func (r rows) Each(f func(operation, key, state string, status int, body []byte) error) error {
	for _, one := range r {
		var body []byte
		if one.body != "" {
			body = []byte(one.body)
		}
		if err := f(one.operation, one.key, one.state, one.status, body); err != nil {
			return err
		}
	}
	return nil
}

func rulesOf(found []faultinjection.Violation) []faultinjection.Rule {
	rules := []faultinjection.Rule{}
	for _, v := range found {
		rules = append(rules, v.Rule)
	}
	return rules
}

func TestCheck(t *testing.T) {
	type deeds func(b bench) (body string)
	charge := func(keys ...string) deeds {
		return func(b bench) (body string) {
			for _, key := range keys {
				body = b.post(key).body
			}
			return body
		}
	}
	for name, tt := range map[string]struct {
		do      deeds
		journal func(body string) faultinjection.Journal
		want    []faultinjection.Rule
	}{
		"right": {charge("k1", "k1"), func(body string) faultinjection.Journal {
			return rows{{"order-42", "k1", "succeeded", 201, body}}
		}, nil},
		"right, and in doubt": {charge("k1"), func(string) faultinjection.Journal {
			return rows{{"order-42", "k1", "unknown", 0, ""}, {"order-43", "k2", "pending", 0, ""}}
		}, nil},
		"no journal": {charge("k1", "k1"), nil, nil},
		"a key for each try": {charge("k1", "k2"), nil,
			[]faultinjection.Rule{faultinjection.OneEffect}},
		"three keys": {func(b bench) string {
			b.send(b.request("POST", "/charges", order, "k1"))
			b.send(b.request("POST", "/charges", order, "k2"))
			return b.send(b.request("POST", "/charges", order, "k3")).body
		}, nil, []faultinjection.Rule{faultinjection.OneEffect}},
		"another request": {func(b bench) string {
			b.post("k1")
			return b.send(b.request("POST", "/charges", order+" ", "k1")).body
		}, nil, []faultinjection.Rule{faultinjection.OneRequest}},
		"not journaled": {charge("k1"), func(string) faultinjection.Journal { return rows{} },
			[]faultinjection.Rule{faultinjection.JournaledFirst}},
		"success that was none": {charge("k1"), func(body string) faultinjection.Journal {
			return rows{{"order-42", "k1", "succeeded", 201, body}, {"order-43", "k2", "succeeded", 201, ""}}
		}, []faultinjection.Rule{faultinjection.TrueSuccess}},
		"another answer": {charge("k1"), func(string) faultinjection.Journal {
			return rows{{"order-42", "k1", "succeeded", 201, "cut"}}
		}, []faultinjection.Rule{faultinjection.TrueSuccess}},
		"failure that was none": {charge("k1"), func(string) faultinjection.Journal {
			return rows{{"order-42", "k1", "rejected", 402, ""}}
		}, []faultinjection.Rule{faultinjection.TrueFailure}},
		"given up, and executed": {charge("k1"), func(string) faultinjection.Journal {
			return rows{{"order-42", "k1", "withdrawn", 0, ""}}
		}, []faultinjection.Rule{faultinjection.TrueFailure}},
	} {
		t.Run(name, func(t *testing.T) {
			b := inMemory(t, keyed)
			body := tt.do(b)
			var journal faultinjection.Journal
			if tt.journal != nil {
				journal = tt.journal(body)
			}
			found, err := b.ledger.Check(journal)
			require.NoError(t, err)
			if tt.want == nil {
				tt.want = []faultinjection.Rule{}
			}
			assert.Equal(t, tt.want, rulesOf(found), "%v", found)
		})
	}
}

// Each broken server does what its name says to a client that makes no mistake,
// and Check sees what can be seen.
func TestBrokenServers(t *testing.T) {
	lost := faultinjection.DieAfterEffect
	t.Run("sound", func(t *testing.T) {
		b := inMemory(t, keyed)
		b.server.Plan(lost)
		require.Error(t, b.post("k1").err)
		require.Equal(t, 201, b.post("k1").status)
		assert.Equal(t, 1, b.effects())
	})
	t.Run("NoMemory", func(t *testing.T) {
		b := inMemory(t, keyed)
		b.server.Broken = faultinjection.NoMemory
		b.server.Plan(lost)
		require.Error(t, b.post("k1").err)
		require.Equal(t, 201, b.post("k1").status)
		found, err := b.ledger.Check(nil)
		require.NoError(t, err)
		assert.Equal(t, []faultinjection.Rule{faultinjection.OneEffect}, rulesOf(found))
	})
	t.Run("ForgetsOnRestart", func(t *testing.T) {
		b := inMemory(t, keyed)
		b.server.Broken = faultinjection.ForgetsOnRestart
		b.post("k1")
		require.Equal(t, "true", b.post("k1").header.Get("Idempotent-Replayed"), "not before")
		b.server = faultinjection.NewServer(keyed, b.ledger)
		b.server.Broken = faultinjection.ForgetsOnRestart
		b.client.Transport = b.server.Transport()
		require.Empty(t, b.post("k1").header.Get("Idempotent-Replayed"))
		found, err := b.ledger.Check(nil)
		require.NoError(t, err)
		assert.Equal(t, []faultinjection.Rule{faultinjection.OneEffect}, rulesOf(found))
	})
	t.Run("IgnoresPayload", func(t *testing.T) {
		b := inMemory(t, keyed)
		b.server.Broken = faultinjection.IgnoresPayload
		first := b.post("k1")
		other := b.send(b.request("POST", "/charges", order+" ", "k1"))
		assert.Equal(t, 201, other.status)
		assert.Equal(t, first.body, other.body)
	})
	t.Run("ReplaysOtherBody", func(t *testing.T) {
		b := inMemory(t, keyed)
		b.server.Broken = faultinjection.ReplaysOtherBody
		first := b.post("k1")
		require.Equal(t, first.body, b.post("k1").body, "there is no other")
		second := b.post("k2")
		wrong := b.post("k1")
		assert.Equal(t, second.body, wrong.body)
		found, err := b.ledger.Check(rows{{"order-42", "k1", "succeeded", 201, wrong.body}, {"order-43", "k2", "succeeded", 201, second.body}})
		require.NoError(t, err)
		assert.Contains(t, rulesOf(found), faultinjection.TrueSuccess)
	})
	t.Run("LeaksClaim", func(t *testing.T) {
		for name, step := range map[string]faultinjection.Step{
			"fails": faultinjection.Fail(500), "dies": faultinjection.DieBeforeEffect,
		} {
			t.Run(name, func(t *testing.T) {
				b := inMemory(t, keyed)
				b.server.Broken = faultinjection.LeaksClaim
				b.server.Plan(step)
				b.post("k1")
				for range 3 {
					require.Equal(t, 409, b.post("k1").status)
				}
				assert.Zero(t, b.effects())
			})
		}
	})
}
