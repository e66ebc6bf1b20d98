// Command mutants shows that the tests can fail: it builds deliberately broken
// variants of the project, one at a time, in a copy of the tree, and demands
// that the named tests catch each one.
//
//	go run ./internal/mutants
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mutant is one mistake.
type mutant struct {
	name     string
	promise  string
	file     string
	old, new string   // old stands exactly once in the file
	command  []string // must fail
	evidence string   // and say this
}

func test(run string) []string {
	return []string{"go", "test", "-count=1", "-timeout=3m", "-run", run, "."}
}

const failed = "--- FAIL"

var mutants = []mutant{
	{
		name: "mint in the loop", promise: "P2: one key", file: "build.go",
		old:     "x.now.key[0] = x.in.Place.Format(x.in.Key)",
		new:     "x.now.key[0] = x.in.Place.Format(mintKey())",
		command: test("O12|O15|O38|O55|EverySecondAnswerLost"), evidence: failed,
	},
	{
		name: "send before sync", promise: "P1: key before wire", file: "internal/sqlite/commit.go",
		old: "s.writer.level(full)", new: "s.writer.level(false)",
		command: []string{"go", "run", "./internal/tracecheck"}, evidence: "was sent before it was synced",
	},
	{
		name: "outcome before the body is whole", promise: "P6: a cut answer is a lost answer", file: "transport.go",
		old: "s.ending.body, s.cut = s.body, s.broken != nil", new: "s.ending.body, s.cut = s.body, false",
		command: test("CutAnswer"), evidence: failed,
	},
	{
		name: "resume past retention", promise: "P7: no late duplicate", file: "settle.go",
		old: "case in.Doubt && !now.Add(remaining(in, now)).Before(lastSend(in, c)):", new: "case false:",
		command: test("RetentionStop|TestAdmit"), evidence: failed,
	},
	{
		name: "no claim", promise: "P10: one sender", file: "internal/sqlite/transaction.go",
		old: "	dead, ok := t.dead[ownerID]\n	if ok {", new: "	dead, ok := true, true\n	if ok {",
		command: test("O11|AThousandCallers|OneSender"), evidence: failed,
	},
	{
		name: "doubt forgotten on a refusal", promise: "P6: doubt is sticky", file: "settle.go",
		old: "	if doubt {\n		return verdict{state: StateHeld, doubt: true, hold: HoldUnsettlingAnswer", new: "	if false {\n		return verdict{state: StateHeld, doubt: true, hold: HoldUnsettlingAnswer",
		command: test("TestSettle"), evidence: failed,
	},
	{
		name: "fresh bytes instead of the stored ones", promise: "P3: same bytes", file: "build.go",
		old: "t.body.Reset(stored.Body)", new: "t.body.Reset(append(append([]byte{}, stored.Body[1:]...), byte(x.in.Attempts)))",
		command: test("O15|O57"), evidence: failed,
	},
	{
		name: "send although the journal failed", promise: "P11: fail closed", file: "claim.go",
		old: "			return x.noClaim(err)\n		}\n		if claimed {", new: "			x.in, x.fresh = x.want, true\n			return nil\n		}\n		if claimed {",
		command: test("O16"), evidence: failed,
	},
	{
		name: "what a resume settles is told nobody", promise: "P5: never forgotten", file: "settled.go",
		old: "(x.resumed || next.Prepared)", new: "next.Prepared",
		command: test("TestOnSettled|TestRecoverySoak"), evidence: failed,
	},
	{
		name: "a poison intent among the others", promise: "P12: bounded", file: "sweep.go",
		old: "if !suspect(in) {", new: "if true {",
		command: test("TestRunSendsSuspects|O20"), evidence: failed,
	},
	{
		name: "no retry budget", promise: "P12: bounded", file: "gate.go",
		old: "	case g.budget < 1:", new: "	case false:",
		command: test("TestRunKeepsToTheRetryBudget"), evidence: failed,
	},
	{
		name: "a credential of the query is stored", promise: "P13: no secrets", file: "describe.go",
		old: `if target.RawQuery != "" && !t.seals() {`, new: "if false {",
		command: test("TestO03_Marks|TestWithheldQuery"), evidence: failed,
	},
	{
		name: "headers go along to another origin", promise: "P13: no secrets", file: "redirect.go",
		old: "away := req.URL == nil || origin(req.URL) != origin(first.URL)", new: "away := false",
		command: test("TestO03_Marks|TestRedirectsLeave"), evidence: failed,
	},
	{
		name: "a seal without its column", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: `"idem sealed 1", column, r.Scope`, new: `"idem sealed 1", r.Scope`,
		command: test("TestSealedValuesAreNotSwapped"), evidence: failed,
	},
	{
		name: "a plain row in a sealed journal", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: "if !sealed && r.ID <= g.since {", new: "if !sealed {",
		command: test("TestSealedAnswersAreNotChanged"), evidence: failed,
	},
	{
		name: "a digest to guess by", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: `return g.prints.Seal(nil, nil, r.Fingerprint, r.bound("fingerprint"))`, new: "return r.Fingerprint",
		command: test("TestSealedFingerprints"), evidence: failed,
	},
	{
		name: "a missing key taken for damage", promise: "P5: never forgotten", file: "internal/sqlite/seal.go",
		old: "errors.Is(err, ErrSealed) {\n		r.noKey = err\n	} else if err != nil", new: "err != nil",
		command: test("TestSealedUnderANewKey"), evidence: failed,
	},
	{
		name: "a restored request in clear text", promise: "P13: no secrets at rest", file: "internal/sqlite/kept.go",
		old: "q, err := t.stored(got, request)", new: "q, err := request, error(nil)",
		command: test("TestSealedUnderANewKey"), evidence: failed,
	},
	{
		name: "an empty body for one not kept", promise: "P3: same bytes", file: "internal/sqlite/due.go",
		old: `if reason == "" && r.lacksBody() {`, new: "if false {",
		command: test("TestKilledWithoutItsBody"), evidence: failed,
	},
	{
		name: "a backup with the folder's epoch", promise: "P4: at most one effect", file: "internal/sqlite/backup.go",
		old: `range []string{"epoch", "next"} {`, new: "range []string{} {",
		command: test("TestBackupIsNoticed"), evidence: failed,
	},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyTree(".", dir); err != nil {
		return err
	}
	var escaped []error
	for _, m := range mutants {
		begun := time.Now()
		if err := m.try(ctx, dir); err != nil {
			escaped = append(escaped, fmt.Errorf("%s (%s): %w", m.name, m.promise, err))
			continue
		}
		fmt.Printf("caught: %-40s %-36s %5.1fs\n", m.name, m.promise, time.Since(begun).Seconds())
	}
	return errors.Join(escaped...)
}

// try changes the tree, runs the command, and changes the tree back.
func (m mutant) try(ctx context.Context, dir string) error {
	path := filepath.Join(dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return fmt.Errorf("its place stands %d times in %s, want once", n, m.file)
	}
	changed := strings.Replace(string(text), m.old, m.new, 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return err
	}
	defer os.WriteFile(path, text, 0o644)
	cmd := exec.CommandContext(ctx, m.command[0], m.command[1:]...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return errors.New("not caught by " + strings.Join(m.command, " "))
	case !strings.Contains(string(output), m.evidence):
		return fmt.Errorf("%s failed for another reason: %s", strings.Join(m.command, " "), output)
	}
	return nil
}

// copyTree copies the files of the module, without what git keeps for itself.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, path), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o644)
	})
}
