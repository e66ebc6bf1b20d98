package faultinjection

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// question is what the key store is asked about one arrival.
type question struct {
	read   bool   // a safe method
	keyed  bool   // false: every request executes
	badKey string // why the key is refused; empty: it is fine

	scope, key, fingerprint string

	forgetBefore time.Time // keys first claimed by then are new again; zero: none
	checkOnly    bool      // CheckThenInsert: look, claim nothing
	anyPayload   bool      // IgnoresPayload
	otherBody    bool      // ReplaysOtherBody
	leaks        bool      // LeaksClaim
}

// verdict is the store's reply. OutcomeUnfinished means: go ahead, execute.
type verdict struct {
	step    Step
	outcome Outcome
	stored  answer // of OutcomeReplayed
}

// execution is the end of one execution, stored in one transaction.
type execution struct {
	answer  answer
	outcome Outcome
	effect  bool // record an effect
	keep    bool // store the answer under the key; false: drop the claim
	at      time.Time
}

// errClaimGone ends an execution whose claim was dropped by a later life of the
// server: it must not take effect any more.
var errClaimGone = errors.New("the claim was dropped by a newer server")

const (
	sqlArrive = `INSERT INTO arrival (operation, keys, method, uri, host, header, body, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number`

	sqlSettleArrival = `UPDATE arrival SET step = ?, outcome = ? WHERE number = ?`

	// sqlClaim is the atomic claim. It returns a row to exactly one request per
	// key and retention; a finished claim that is too old counts as none.
	sqlClaim = `INSERT INTO claim (scope, key, fingerprint, arrival, state, claimed_at)
		VALUES (?, ?, ?, ?, 'in_flight', ?)
		ON CONFLICT (scope, key) DO UPDATE SET
			fingerprint = excluded.fingerprint, arrival = excluded.arrival, state = 'in_flight',
			status = NULL, header = NULL, body = NULL, finished_at = NULL, claimed_at = excluded.claimed_at
		WHERE claim.state = 'done' AND claim.claimed_at <= ?
		RETURNING arrival`

	sqlFind = `SELECT fingerprint, state, status, header, body, claimed_at FROM claim WHERE scope = ? AND key = ?`

	// sqlOther is the last answer under another key.
	sqlOther = `SELECT body FROM claim WHERE state = 'done' AND key <> ? ORDER BY finished_at DESC LIMIT 1`

	sqlEffect = `INSERT INTO effect (arrival, operation, key, body, at) VALUES (?, ?, ?, ?, ?)`

	// sqlFinish changes a row only while its own arrival still holds the claim.
	sqlFinish = `UPDATE claim SET state = 'done', status = ?, header = ?, body = ?, finished_at = ?
		WHERE scope = ? AND key = ? AND arrival = ? AND state = 'in_flight'`

	// sqlOverwrite is the second half of CheckThenInsert: the last one wins.
	sqlOverwrite = `INSERT OR REPLACE INTO claim
		(status, header, body, finished_at, scope, key, arrival, fingerprint, state, claimed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'done', ?)`

	sqlDrop           = `DELETE FROM claim WHERE arrival = ? AND state = 'in_flight'`
	sqlDropAll        = `DELETE FROM claim`
	sqlDropUnfinished = `DELETE FROM claim WHERE state = 'in_flight'`
)

// begin starts the life of a server. An effect and its stored answer are one
// transaction, so a claim that an earlier life left unfinished had no effect.
func (l *Ledger) begin() error {
	return l.atomically(func() error { return l.exec(sqlDropUnfinished) })
}

// forget drops every claim.
func (l *Ledger) forget() error {
	return l.atomically(func() error { return l.exec(sqlDropAll) })
}

// admit notes an arrival, asks next for its planned step, and judges it, in one
// transaction. next sees the arrivals in order and one at a time.
func (l *Ledger) admit(a *Arrival, q question, next func(Arrival) Step) (verdict, error) {
	keys, err := json.Marshal(a.Keys)
	if err != nil {
		return verdict{}, err
	}
	header, err := json.Marshal(a.Header)
	if err != nil {
		return verdict{}, err
	}
	var v verdict
	err = l.atomically(func() error {
		args := []any{a.Operation, string(keys), a.Method, a.URI, a.Host, string(header), blob(a.Body), a.At.UnixNano()}
		if err := l.row(sqlArrive, args, &a.Number); err != nil {
			return err
		}
		v.step = next(*a)
		if err := l.judge(a, q, &v); err != nil {
			return err
		}
		a.Step, a.Outcome = v.step.text(), v.outcome
		return l.exec(sqlSettleArrival, a.Step, string(a.Outcome), a.Number)
	})
	return v, err
}

// judge decides what becomes of an arrival, and claims its key if it may run.
func (l *Ledger) judge(a *Arrival, q question, v *verdict) error {
	switch {
	case v.step.front() != OutcomeUnfinished:
		v.outcome = v.step.front()
		return nil
	case q.read:
		v.outcome = OutcomeRead
		return nil
	case !q.keyed:
		return nil
	case q.badKey != "":
		v.outcome = OutcomeBadKey
		return nil
	}
	if !q.checkOnly {
		var holder int64
		args := []any{q.scope, q.key, q.fingerprint, a.Number, a.At.UnixNano(), nanos(q.forgetBefore)}
		err := l.row(sqlClaim, args, &holder)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return l.recall(q, v)
}

// recall reads what the store knows about a key; nothing known leaves v as it is.
func (l *Ledger) recall(q question, v *verdict) error {
	var fingerprint, state string
	var status sql.NullInt64
	var header sql.NullString
	var claimed int64
	err := l.row(sqlFind, []any{q.scope, q.key}, &fingerprint, &state, &status, &header, &v.stored.body, &claimed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case state == "done" && claimed <= nanos(q.forgetBefore):
		v.stored = answer{}
	case fingerprint != q.fingerprint && !q.anyPayload:
		v.outcome = OutcomeMismatch
	case state == "in_flight":
		v.outcome = OutcomeInFlight
	default:
		v.outcome = OutcomeReplayed
		v.stored.status = int(status.Int64)
		if err := json.Unmarshal([]byte(header.String), &v.stored.header); err != nil || !q.otherBody {
			return err
		}
		err := l.row(sqlOther, []any{q.key}, &v.stored.body)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	}
	return nil
}

// finish stores the effect, the answer and the arrival's outcome: all or none.
func (l *Ledger) finish(a *Arrival, q question, x execution) error {
	header, err := json.Marshal(x.answer.header)
	if err != nil {
		return err
	}
	return l.atomically(func() error {
		if q.keyed {
			if err := l.settleClaim(a, q, x, string(header)); err != nil {
				return err
			}
		}
		if x.effect {
			if err := l.exec(sqlEffect, a.Number, a.Operation, q.key, blob(a.Body), x.at.UnixNano()); err != nil {
				return err
			}
		}
		return l.exec(sqlSettleArrival, a.Step, string(x.outcome), a.Number)
	})
}

func (l *Ledger) settleClaim(a *Arrival, q question, x execution, header string) error {
	done := []any{x.answer.status, header, blob(x.answer.body), x.at.UnixNano(), q.scope, q.key, a.Number}
	var n int64
	var err error
	switch {
	case !x.keep && (q.checkOnly || q.leaks):
		return nil
	case !x.keep:
		n, err = l.changed(sqlDrop, a.Number)
	case q.checkOnly:
		n, err = l.changed(sqlOverwrite, append(done, q.fingerprint, a.At.UnixNano())...)
	default:
		n, err = l.changed(sqlFinish, done...)
	}
	if err == nil && n == 0 {
		err = errClaimGone
	}
	return err
}

// abandon takes back the claim of an execution that died before its effect.
// A server that leaks claims keeps it.
func (l *Ledger) abandon(a *Arrival, leaks bool) error {
	return l.atomically(func() error {
		if !leaks {
			if err := l.exec(sqlDrop, a.Number); err != nil {
				return err
			}
		}
		return l.exec(sqlSettleArrival, a.Step, string(OutcomeDied), a.Number)
	})
}

// answer is a response as it is stored and sent.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the answer of a server that has nothing better to say (RFC 9457).
func problem(status int, format string, args ...any) answer {
	body, _ := json.Marshal(map[string]any{ // strings and a number always encode
		"type": "about:blank", "title": http.StatusText(status), "status": status,
		"detail": fmt.Sprintf(format, args...),
	})
	return answer{status, http.Header{"Content-Type": {"application/problem+json"}}, append(body, '\n')}
}

// blob keeps an empty body from becoming NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// nanos is t as the ledger stores it; the zero time is before every other.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 62
	}
	return t.UnixNano()
}
