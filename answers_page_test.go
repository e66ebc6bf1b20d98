package idem

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// docs/answers.md says what the code does, of every status that it names.
func TestAnswersPage(t *testing.T) {
	page, err := os.ReadFile("docs/answers.md")
	require.NoError(t, err)
	c := contract.Keyed("Idempotency-Key", 24*time.Hour)
	said := func(in Intent, e ending) string {
		v := settle(in, c, e)
		text := string(v.state)
		if v.state == StateHeld {
			text += ": " + string(v.hold)
		}
		text = "`" + text + "`"
		if v.again {
			text += ", sent again"
		}
		return text
	}
	fresh := Intent{State: StateInFlight, Attempts: 1, Place: c.Key, Retention: 24 * time.Hour}
	doubted := fresh
	doubted.Attempts, doubted.Doubt = 2, true
	compared := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[1], "-") || strings.Contains(cells[0], "status") {
			continue
		}
		var endings []ending
		for status := range strings.FieldsSeq(cells[0]) {
			n, err := strconv.Atoi(strings.ReplaceAll(status, "xx", "01"))
			if err == nil {
				endings = append(endings, ending{status: n, phase: phaseAnswered})
			}
		}
		if endings == nil {
			endings = []ending{{phase: phaseMaybeSent}, {status: 200, phase: phaseAnswered, cut: true}, {status: 402, phase: phaseAnswered, cut: true}}
		}
		for _, e := range endings {
			assert.Equal(t, strings.TrimSpace(cells[1]), said(fresh, e), "%v, first", e.status)
			assert.Equal(t, strings.TrimSpace(cells[2]), said(doubted, e), "%v, in doubt", e.status)
			compared++
		}
	}
	assert.Greater(t, compared, 50)
}
