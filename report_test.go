package idem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// unwritable is a journal on a full disk: what was claimed cannot be ended.
type unwritable struct{ Journal }

func (unwritable) Update(context.Context, Intent, *Attempt, bool) (Intent, error) {
	return Intent{}, fmt.Errorf("%w: disk full", ErrJournal)
}

func (unwritable) ClaimDue(context.Context, time.Time, Filter) ([]Intent, time.Time, error) {
	return nil, time.Time{}, errors.New("disk full")
}

// refusing is a journal that takes nothing.
type refusing struct{ Journal }

func (refusing) Begin(context.Context, Intent) (Intent, bool, error) {
	return Intent{}, false, fmt.Errorf("%w: disk full", ErrJournal)
}

func TestAJournalThatTakesNothingIsReported(t *testing.T) {
	virtually(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t)
		r.transport.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.transport.Journal = refusing{r.transport.Journal}
		for i := range 25 {
			_, _, err := r.do(t.Context(), fmt.Sprintf("order-%d", i), orderBody(i))
			require.ErrorIs(t, err, ErrJournal)
			time.Sleep(100 * time.Millisecond)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := r.do(left, "order-0", orderBody(0))
		require.Error(t, err)
		assert.Equal(t, 3, strings.Count(log.String(), "could not be journaled"))
		assert.Contains(t, log.String(), "more=9")
		assert.Empty(t, r.arrivals())
	})
}

// A journal that fails for a while is told of once a second, with how often it
// failed meanwhile; each caller is told.
func TestAFailingJournalIsReportedOnceASecond(t *testing.T) {
	virtually(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, faultinjection.Step{})
		r.transport.Logger = slog.New(slog.NewTextHandler(&log, nil))
		r.transport.Journal = unwritable{r.transport.Journal}
		begun := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- r.client.Run(ctx) }()
		const calls = 350
		for i := range calls {
			operation := fmt.Sprintf("order-%d", i)
			req := mustRequest(t, t.Context(), rigURL, orderBody(i))
			resp, result, err := r.roundTrip(t.Context(), operation, req)
			require.NoError(t, err, "the answer is given")
			readAndClose(t, resp)
			require.False(t, result.Recorded)
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		require.NoError(t, <-ran)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		assert.LessOrEqual(t, len(lines), int(time.Since(begun)/time.Second)+1)
		told := len(lines)
		for _, line := range lines {
			assert.Regexp(t, "could not be recorded|nothing is resumed", line)
			if more := regexp.MustCompile(`more=(\d+)`).FindStringSubmatch(line); more != nil {
				n, err := strconv.Atoi(more[1])
				require.NoError(t, err)
				told += n
			}
		}
		assert.GreaterOrEqual(t, told+r.transport.reports.more, calls, "none is forgotten")
	})
}
