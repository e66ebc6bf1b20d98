package idem

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/sqlite"
)

// Export writes every row to w, oldest first, as one JSON object a line. It is
// for looking at a journal with other tools, and for saving what a damaged one
// still has. Nothing reads the lines back: it is no backup, which
// [SQLiteJournal.Backup] makes.
//
// What is written is in clear text, of a sealed journal too, as far as its
// Sealer has the keys: bodies of requests and answers are in it, in base64, as
// "body_encoding" beside them says. What was
// withheld from the journal, such as a header with credentials, is named in
// "withheld" and no more, and URLs are without user info and query, as [Intent]
// shows them. Instants are in RFC 3339 and UTC, and
// durations are nanoseconds; what is zero or empty is left out. A text that is
// not UTF-8 is an object with one member, "base64".
//
// A damaged row does not stop it. Its line has what can be read, and in
// "damaged" the parts that cannot, or are not what was written: "intent",
// "status", "request", "outcome" (the answer's status and header), "answer"
// (its body), "attempts". Where nothing tells which rows there were, one line
// has "rows" there, and the IDs "from" and "to"; without "to" nothing is known
// of what follows. What is sound as far as one can tell, and sealed under a key
// that the Sealer does not have, is named by the same words in "sealed" instead,
// and is no error. That there were damaged lines, and how many, is an error at the
// end, after all others were written; it matches [ErrJournal].
//
// Rows are read a few at a time, and between that nothing is locked, so w may
// be slow; a row that changes meanwhile is written as it was or as it is, once.
// w gets whole lines. An error of w ends it, and is returned. After Close the
// error matches [ErrClosed].
func (j *SQLiteJournal) Export(ctx context.Context, w io.Writer) error {
	lines := json.NewEncoder(w)
	var unwritten error
	err := j.store.Export(ctx, func(x *sqlite.Exported) error {
		unwritten = lines.Encode(lineOf(x))
		return unwritten
	})
	if unwritten != nil {
		return fmt.Errorf("idem: export: write: %w", unwritten)
	}
	return failure("export", err)
}

// exportLine is a row, or a stretch of rows of which nothing is known.
type exportLine struct {
	ID          string          `json:"id,omitempty"`
	Scope       exportText      `json:"scope,omitempty"`
	Operation   exportText      `json:"operation,omitempty"`
	Generation  int64           `json:"generation,omitempty"`
	Key         exportText      `json:"key,omitempty"`
	State       exportText      `json:"state,omitempty"`
	Doubt       bool            `json:"doubt,omitempty"`
	HoldReason  exportText      `json:"hold_reason,omitempty"`
	Name        exportText      `json:"name,omitempty"`
	Provider    exportText      `json:"provider,omitempty"`
	Method      exportText      `json:"method,omitempty"`
	URL         exportText      `json:"url,omitempty"`
	Attempts    int64           `json:"attempt_count,omitempty"`
	Deaths      int64           `json:"deaths,omitempty"`
	Resumes     int64           `json:"resumes,omitempty"`
	Created     time.Time       `json:"created,omitzero"`
	FirstSent   time.Time       `json:"first_sent,omitzero"`
	Due         time.Time       `json:"due,omitzero"`
	Wait        time.Duration   `json:"wait,omitempty"`
	Expires     time.Time       `json:"expires,omitzero"`
	Settled     time.Time       `json:"settled,omitzero"`
	By          exportText      `json:"by,omitempty"`
	Note        exportText      `json:"note,omitempty"`
	Version     int64           `json:"version,omitempty"`
	Fingerprint []byte          `json:"fingerprint_base64,omitempty"`
	Place       exportText      `json:"place,omitempty"`
	Retention   time.Duration   `json:"retention,omitempty"`
	Renews      exportText      `json:"renews,omitempty"`
	Prepared    bool            `json:"prepared,omitempty"`
	Notify      bool            `json:"notify,omitempty"`
	Withheld    []string        `json:"withheld,omitempty"`
	Request     *exportRequest  `json:"request,omitempty"`
	Outcome     *exportOutcome  `json:"outcome,omitempty"`
	Made        []exportAttempt `json:"attempts,omitempty"`
	From        string          `json:"from,omitempty"`
	To          string          `json:"to,omitempty"`
	Damaged     []string        `json:"damaged,omitempty"`
	Sealed      []string        `json:"sealed,omitempty"`
}

type exportRequest struct {
	Host    exportText   `json:"host,omitempty"`
	Header  exportHeader `json:"header,omitempty"`
	NotKept bool         `json:"body_not_kept,omitempty"`
	exportBody
}

type exportOutcome struct {
	StatusCode int64        `json:"status_code,omitempty"`
	RequestID  exportText   `json:"request_id,omitempty"`
	Replayed   bool         `json:"replayed,omitempty"`
	Complete   bool         `json:"complete,omitempty"`
	Header     exportHeader `json:"header,omitempty"`
	exportBody
}

// exportBody says how the body is written. Nil: there is none.
type exportBody struct {
	Encoding string  `json:"body_encoding,omitempty"`
	Body     *[]byte `json:"body,omitempty"`
}

type exportAttempt struct {
	Number     int64      `json:"number"`
	Started    time.Time  `json:"started,omitzero"`
	Ended      time.Time  `json:"ended,omitzero"`
	Phase      exportText `json:"phase,omitempty"`
	StatusCode int64      `json:"status_code,omitempty"`
	Decision   exportText `json:"decision,omitempty"`
	Error      exportText `json:"error,omitempty"`
}

type exportHeader map[string][]exportText

// exportText is written as it is, also where JSON has no text for it.
type exportText string

// MarshalJSON implements [json.Marshaler].
func (t exportText) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": []byte(t)})
}

func lineOf(x *sqlite.Exported) *exportLine {
	if x.Row == nil {
		line := &exportLine{From: strconv.FormatInt(x.From, 10), Damaged: x.Damaged}
		if x.To > 0 {
			line.To = strconv.FormatInt(x.To, 10)
		}
		return line
	}
	r := x.Row
	line := &exportLine{
		ID: strconv.FormatInt(r.ID, 10), Scope: exportText(r.Scope), Operation: exportText(r.Operation), Generation: r.Generation,
		Key: exportText(r.Key), State: exportText(r.State), Doubt: r.Doubt, HoldReason: exportText(r.HoldReason),
		Name: exportText(r.Name), Provider: exportText(r.Provider), Method: exportText(r.Method), URL: exportText(r.URL),
		Attempts: r.Attempts, Deaths: r.Deaths, Resumes: r.Resumes, Created: instant(r.Created), FirstSent: instant(r.FirstSent),
		Due: instant(r.Due), Wait: time.Duration(r.Wait), Expires: instant(r.Expires), Settled: instant(r.Settled),
		By: exportText(r.By), Note: exportText(r.Note), Version: r.Version, Fingerprint: r.Fingerprint,
		Place: exportText(r.Place), Retention: time.Duration(r.Retention), Renews: exportText(r.Renews),
		Prepared: r.Prepared, Notify: r.Notify, Damaged: x.Damaged, Sealed: x.Sealed,
	}
	if r.Withheld != "" { // the store has looked: it is a list of names
		_ = json.Unmarshal([]byte(r.Withheld), &line.Withheld)
	}
	if q := r.Request; q != nil {
		line.Request = &exportRequest{Host: exportText(q.Host), Header: headerOf(q.Header), NotKept: q.BodyNotKept}
		if !q.BodyNotKept {
			line.Request.exportBody = bodyOf(q.Body)
		}
	}
	if o := r.Outcome; o != nil {
		line.Outcome = &exportOutcome{
			StatusCode: o.StatusCode, RequestID: exportText(o.RequestID), Replayed: o.Replayed, Complete: o.Complete,
			Header: headerOf(o.Header), exportBody: bodyOf(o.Body),
		}
	}
	for _, a := range x.Attempts {
		line.Made = append(line.Made, exportAttempt{
			Number: a.Number, Started: instant(a.Started), Ended: instant(a.Ended), Phase: exportText(a.Phase),
			StatusCode: a.StatusCode, Decision: exportText(a.Decision), Error: exportText(a.Error),
		})
	}
	return line
}

// headerOf reads a stored header. The store has looked whether it can be read.
func headerOf(stored []byte) exportHeader {
	h, err := sqlite.DecodeHeader(stored)
	if err != nil || len(h) == 0 {
		return nil
	}
	texts := make(exportHeader, len(h))
	for name, values := range h {
		for _, v := range values {
			texts[name] = append(texts[name], exportText(v))
		}
	}
	return texts
}

func bodyOf(b []byte) exportBody {
	if b == nil {
		return exportBody{}
	}
	return exportBody{Encoding: "base64", Body: &b}
}
