package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The agent's process is this very executable: here, this test binary.
func TestMain(m *testing.M) {
	if isWorker() {
		os.Exit(workerMain())
	}
	os.Exit(m.Run())
}

func small() config {
	return config{runs: 3, lives: 6, seed: 17, limit: time.Minute}
}

func TestAgent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := small()
	r, err := run(t.Context(), c, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	assert.Empty(t, r.wrong)
	assert.Equal(t, 12, r.idem.effects)
	assert.Equal(t, 3, r.idem.vouchers)
	assert.Positive(t, r.naive.duplicates)
	assert.Equal(t, c.lives, r.idem.kills)

	t.Run("check finds what is wrong", func(t *testing.T) {
		good := r
		require.Empty(t, check(c, good))
		for name, test := range map[string]struct {
			spoil func(r *report)
			says  string
		}{
			"duplicate":   {func(r *report) { r.idem.effects++; r.idem.duplicates++ }, "idem: 13 effects for 12 calls"},
			"lost":        {func(r *report) { r.idem.lost++ }, "1 lost"},
			"one voucher": {func(r *report) { r.idem.vouchers-- }, "two vouchers in 2 of 3 runs"},
			"not ended":   {func(r *report) { r.idem.ended-- }, "2 of 3 runs have come to their end"},
			"kind":        {func(r *report) { r.naive.duplicates = 0 }, "too kind"},
			"no kills":    {func(r *report) { r.idem.kills = 0 }, "no restart was tested"},
			"no restart":  {func(r *report) { r.idem.again = 0 }, "no restart was tested"},
		} {
			t.Run(name, func(t *testing.T) {
				bad := good
				test.spoil(&bad)
				bad.wrong = check(c, bad)
				require.Contains(t, strings.Join(bad.wrong, "\n"), test.says)
				var out bytes.Buffer
				bad.print(&out, c)
				assert.Contains(t, out.String(), "\nFAILED:\n")
				assert.NotContains(t, out.String(), "\nok:")
			})
		}
	})
}

// Names that say what is asked for take two equal calls for one.
func TestNamesByContentLoseWhatIsMeantTwice(t *testing.T) {
	t.Parallel()
	c := small()
	c.lives = 1
	got, err := work(t.Context(), c, modeByContent, filepath.Join(t.TempDir(), "work"))
	require.NoError(t, err)
	assert.Equal(t, 3, got.ended)
	assert.Equal(t, 3, got.lost)
	assert.Zero(t, got.vouchers)
	assert.Zero(t, got.duplicates)
}

// A turn that a crash has cut is taken off, and the ids that were written down
// come back.
func TestTranscript(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.jsonl")
	first, err := openTranscript(file)
	require.NoError(t, err)
	asked := plays("order-1")(nil)
	require.NoError(t, first.add(asked))
	_, err = first.WriteString(`{"results":{"call_`)
	require.NoError(t, err)
	require.NoError(t, first.Close())

	second, err := openTranscript(file)
	require.NoError(t, err)
	assert.Equal(t, []turn{asked}, second.turns)
	require.NoError(t, second.add(turn{Results: map[string]string{"a": "b"}}))
	require.NoError(t, second.Close())
	third, err := openTranscript(file)
	require.NoError(t, err)
	assert.Len(t, third.turns, 2)
	require.NoError(t, third.Close())

	require.NoError(t, os.WriteFile(file, []byte("{\n"), 0o600))
	_, err = openTranscript(file)
	assert.ErrorContains(t, err, "run.jsonl")
}
