package idem_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

const (
	powerResumeEvery = 40 // of so many states one is resumed to its end
	powerSoundEvery  = 8  // and one is looked through by SQLite
)

func mustMkdir(dir string) string {
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	return dir
}

// promise is what the world outside knows of an operation.
type promise struct {
	key    string
	sends  int
	word   string // how the last call ended; empty: it has not
	answer string
	synced bool // so that the journal must say so too

	copied, wasCopied bool // the journal may take itself for a copy, and did
}

// promised reads the marks that came before a power cut: of the operations that
// were begun.
func promised(marks []string) map[string]*promise {
	all := map[string]*promise{}
	for _, m := range marks {
		words := strings.Split(m, "\t")
		if words[0] == "flushed" {
			for _, p := range all {
				p.synced = true
			}
		}
		if len(words) < 3 {
			continue
		}
		p := all[words[1]]
		if p == nil {
			p = &promise{}
			all[words[1]] = p
		}
		switch words[0] {
		case "called":
			if p.word == endNotSent || p.word == endUnknown {
				p.word = "" // whatever it was told before, this call may end otherwise
			}
		case "begun":
			p.key = words[2]
		case "sent":
			p.key = words[2]
			p.sends++
		case "told":
			p.word, p.synced, p.answer = words[2], words[3] == "" && words[2] != endUnknown, words[4]
		}
	}
	maps.DeleteFunc(all, func(_ string, p *promise) bool { return p.key == "" })
	return all
}

// check holds one state against what was promised before it.
func (p *power) check(dir string, n int, s diskfault.State) error {
	_, err := p.promises(dir, s, false)
	if err == nil && n%powerSoundEvery == 0 {
		err = sound(filepath.Join(dir, "journal.db"))
	}
	if err == nil && n%powerResumeEvery == 0 {
		err = p.resume(dir, s)
	}
	return err
}

// promises opens the journal of a state. Where it may take the file for a copy,
// it returns how many intents it holds for that.
func (p *power) promises(dir string, s diskfault.State, copied bool) (held int, err error) {
	journal, err := idem.Open(filepath.Join(dir, "journal.db"), nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	for operation, want := range promised(s.Marks) {
		want.copied = copied
		if err := want.held(journal, operation); err != nil {
			return held, err
		}
		if want.wasCopied {
			held++
		}
	}
	return held, nil
}

// held looks whether the journal holds what was promised of an operation.
func (p *promise) held(journal idem.Journal, operation string) error {
	in, err := journal.Lookup(context.Background(), "", operation)
	if errors.Is(err, idem.ErrNotFound) {
		return fmt.Errorf("%s: %s, and not in the journal", operation, map[bool]string{true: "sent", false: "begun"}[p.sends > 0])
	}
	if err != nil {
		return err
	}
	if p.copied && in.State == idem.StateHeld && in.HoldReason == idem.HoldCopied {
		p.wasCopied = true
		in.State = idem.StateUnknown
	}
	if err := p.kept(in); err != nil {
		return fmt.Errorf("%s (%+v): it is %s %s, doubt %t, %d attempts, outcome %s: %w",
			operation, *p, in.State, in.HoldReason, in.Doubt, in.Attempts, answerText(in), err)
	}
	return nil
}

// kept reports how the intent breaks the promise.
func (p *promise) kept(in idem.Intent) error {
	kind, _, _ := strings.Cut(in.Operation, "-")
	final := map[string]idem.State{
		diskPlain: idem.StateSucceeded, diskLost: idem.StateSucceeded, diskBusy: idem.StateSucceeded,
		diskReject: idem.StateRejected, diskRefused: idem.StateWithdrawn,
	}[kind]
	switch {
	case in.Key != p.key:
		return errors.New("another key")
	case in.Attempts < p.sends:
		return errors.New("attempts that were made are not counted")
	case kind == diskReject && in.Attempts > 1 && in.HoldReason == idem.HoldUnsettlingAnswer && !p.synced:
		return nil // a refusal that is not stored settles nothing once in doubt
	case in.State == idem.StateHeld:
		return errors.New("held")
	case (in.State.Final() || in.State == idem.StateWithdrawn) && in.State != final:
		return errors.New("an end that it never had")
	case p.sends > 0 && kind != diskRefused && in.State == idem.StatePending && !in.Prepared:
		return errors.New("sent, and taken for never sent")
	case p.word == "", p.word == endUnknown:
		return nil
	case p.synced && in.State != final:
		return errors.New("the caller was told its end")
	case in.State.Final() && answerText(in) != p.answer:
		return errors.New("the caller was given another answer")
	}
	return nil
}

// sound is what SQLite itself says of the file.
func sound(path string) error {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return err
	}
	defer db.Close()
	var found string
	if err = db.QueryRow(`PRAGMA quick_check`).Scan(&found); err == nil && found != "ok" {
		err = fmt.Errorf("quick_check: %s", found)
	}
	return err
}

// resume is the program's next life: it resumes what is due, and calls every
// operation again. The provider's books tell afterwards whether that made
// another key or a second effect.
func (p *power) resume(dir string, s diskfault.State) (err error) {
	journal, err := idem.Open(filepath.Join(dir, "journal.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	p.resuming.Lock()
	defer p.resuming.Unlock()
	client := p.provider.client(journal)
	client.Transport.Retry.ResumeAttempts = 5 // what never connects is held then
	if err := resumeAll(client); err != nil {
		return err
	}
	for operation, want := range promised(s.Marks) {
		end, err := diskDo(client, "http://provider.example", operation)
		if err != nil {
			return err
		}
		settled := end.word == endSucceeded || end.word == endRejected
		if settled && want.answer != "" && end.answer != want.answer {
			return fmt.Errorf("%s: called again it gives %q, and before %q", operation, end.answer, want.answer)
		}
		if settled || strings.HasPrefix(operation, diskRefused) {
			continue
		}
		// A refusal that the provider does not keep settles nothing once in doubt.
		if !strings.HasPrefix(operation, diskReject) || !errors.Is(end.err, idem.ErrHeld) || want.synced {
			return fmt.Errorf("%s: called again: %w", operation, end.err)
		}
	}
	return nil
}
