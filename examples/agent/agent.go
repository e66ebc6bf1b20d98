package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// turn is one entry of a run's transcript.
type turn struct {
	Text    string            `json:"text,omitempty"`
	Calls   []call            `json:"calls,omitempty"`   // that the model asks for
	Results map[string]string `json:"results,omitempty"` // of the calls of the turn before, by id
}

// call is a tool call as models ask for it. Its id is the model's: it is another
// one each time that the model is asked, even for the same thing.
type call struct {
	ID   string          `json:"id"`
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// agent goes through runs: it asks the model, runs the tools that it names, and
// tells it what they said, until the model has nothing more to do.
type agent struct {
	model func(transcript []turn) turn
	tools map[string]tool
	// effect names the effect of a call. nil leaves it to the tools to have it once.
	effect func(run string, c call) string
}

// tool is what the model can do. It knows nothing of idem: it passes its context
// on to an HTTP client, as an SDK does.
type tool func(ctx context.Context, args json.RawMessage) (string, error)

// run goes on with a run from its transcript, to its end. A turn is written down,
// synced, before its tools run: the ids of their calls have to be the same in the
// next process. What the tools said is written down once all of a turn have ended,
// so that a process that dies before has some of them called again.
func (a *agent) run(ctx context.Context, name, file string) error {
	t, err := openTranscript(file)
	if err != nil {
		return err
	}
	defer t.Close()
	for {
		last := turn{}
		if len(t.turns) > 0 {
			last = t.turns[len(t.turns)-1]
		}
		next := turn{}
		switch {
		case len(last.Calls) > 0:
			if next.Results, err = a.calls(ctx, name, last.Calls); err != nil {
				return err
			}
		case len(t.turns) > 0 && last.Results == nil:
			return nil // the model has said its last word
		default:
			next = a.model(t.turns)
		}
		if err := t.add(next); err != nil {
			return err
		}
	}
}

// calls runs the tools of one turn, side by side.
func (a *agent) calls(ctx context.Context, run string, calls []call) (map[string]string, error) {
	results, failures := make([]string, len(calls)), make([]error, len(calls))
	var running sync.WaitGroup
	for i, c := range calls {
		running.Go(func() { results[i], failures[i] = a.call(ctx, run, c) })
	}
	running.Wait()
	said := map[string]string{}
	for i, c := range calls {
		said[c.ID] = results[i]
	}
	return said, errors.Join(failures...)
}

// byID names an effect by its run and by the call's id: the same call again, in
// this process or in a later one, is the same effect; an equal call with another
// id is another one.
func byID(run string, c call) string { return run + "/" + c.ID }

// call runs one tool, until it is known how it ended.
func (a *agent) call(ctx context.Context, run string, c call) (string, error) {
	for {
		var result idem.Result
		own := ctx
		if a.effect != nil {
			own = idem.WithResult(idem.WithOperation(ctx, a.effect(run, c)), &result)
		}
		said, err := a.tools[c.Tool](own, c.Args)
		if open := result.Err(); open != nil { // whatever the tool made of it
			err = open
		}
		switch {
		case err == nil:
			return said, nil
		case errors.Is(err, idem.ErrHeld), errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrJournal):
			return "", err // a person must look at it
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", err
		}
	}
}

// posts is a tool that posts its arguments and gives the answer to the model.
func posts(client *http.Client, url string) tool {
	return func(ctx context.Context, args json.RawMessage) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(args))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		switch {
		case err != nil:
			return "", err
		case resp.StatusCode >= 500 || resp.StatusCode == http.StatusConflict:
			return "", fmt.Errorf("the tool answered %s", resp.Status)
		}
		return string(said), nil // a refusal too: the model may think of something else
	}
}

// transcript is the file of one run, a turn a line.
type transcript struct {
	*os.File
	turns []turn
}

// openTranscript reads what was written down, apart from a last line that a crash
// has cut.
func openTranscript(name string) (*transcript, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	t := &transcript{File: file}
	whole := int64(0)
	for r := bufio.NewReader(file); ; {
		line, err := r.ReadString('\n')
		if err != nil { // the end, or a part of a line
			break
		}
		var one turn
		if err := json.NewDecoder(strings.NewReader(line)).Decode(&one); err != nil {
			return nil, errors.Join(fmt.Errorf("transcript %s: %w", name, err), file.Close())
		}
		t.turns, whole = append(t.turns, one), whole+int64(len(line))
	}
	if err := errors.Join(file.Truncate(whole), seek(file, whole)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

func seek(file *os.File, at int64) error {
	_, err := file.Seek(at, io.SeekStart)
	return err
}

// add writes a turn down, synced.
func (t *transcript) add(next turn) error {
	line, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if _, err := t.Write(append(line, '\n')); err != nil {
		return err
	}
	t.turns = append(t.turns, next)
	return t.Sync()
}
