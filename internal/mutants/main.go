// Command mutants shows that the tests can fail: it builds a copy of the tree that
// has deliberate mistakes in it, switches one on at a time, and demands that the
// named tests catch each one, and that they find nothing where none is on.
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
	"regexp"
	"strings"
	"time"
)

// mutant is one mistake.
type mutant struct {
	name     string
	promise  string
	file     string
	old, new string   // old stands exactly once in the file; ON in new tells whether the mistake is on, OLD is old
	command  []string // of what was built; must fail
	evidence string   // and say this
}

// variable has the name of the mistake that is on.
const variable = "IDEM_MUTANT"

// What is built of the changed tree, once for all mistakes: one after the other
// would cost as many builds of all tests.
const (
	tests      = "./mutated.test"
	traceCheck = "./mutated.trace"
)

func test(run string) []string { return []string{tests, "-test.timeout=3m", "-test.run", run} }

const failed = "--- FAIL"

var mutants = []mutant{
	{
		name: "mint in the loop", promise: "P2: one key", file: "build.go",
		old:     "x.now.key[0] = x.in.Place.Format(x.in.Key)",
		new:     "OLD\n	if ON {\n		x.now.key[0] = x.in.Place.Format(mintKey())\n	}",
		command: test("O12|O15|O38|O55|EverySecondAnswerLost"), evidence: failed,
	},
	{
		name: "send before sync", promise: "P1: key before wire", file: "internal/sqlite/commit.go",
		old: "s.writer.level(full)", new: "s.writer.level(full && !ON)",
		command: []string{traceCheck}, evidence: "was sent before it was synced",
	},
	{
		name: "outcome before the body is whole", promise: "P6: a cut answer is a lost answer", file: "transport.go",
		old: "s.ending.body, s.cut = s.body, s.broken != nil", new: "OLD && !ON",
		command: test("CutAnswer"), evidence: failed,
	},
	{
		name: "resume past retention", promise: "P7: no late duplicate", file: "settle.go",
		old: "case in.Doubt && !now.Add(remaining(in, now)).Before(lastSend(in, c)):", new: "case !ON && in.Doubt && !now.Add(remaining(in, now)).Before(lastSend(in, c)):",
		command: test("RetentionStop|TestAdmit"), evidence: failed,
	},
	{
		name: "no claim", promise: "P10: one sender", file: "internal/sqlite/transaction.go",
		old: "	dead, ok := t.dead[ownerID]\n	if ok {", new: "	dead, ok := t.dead[ownerID]\n	if ON {\n		dead, ok = true, true\n	}\n	if ok {",
		command: test("O11|AThousandCallers|OneSender"), evidence: failed,
	},
	{
		name: "doubt forgotten on a refusal", promise: "P6: doubt is sticky", file: "settle.go",
		old: "	if doubt {\n		return verdict{state: StateHeld, doubt: true, hold: HoldUnsettlingAnswer", new: "	if doubt && !ON {\n		return verdict{state: StateHeld, doubt: true, hold: HoldUnsettlingAnswer",
		command: test("TestSettle"), evidence: failed,
	},
	{
		name: "fresh bytes instead of the stored ones", promise: "P3: same bytes", file: "build.go",
		old: "t.body.Reset(stored.Body)", new: "OLD\n	if ON {\n		t.body.Reset(append(append([]byte{}, stored.Body[1:]...), byte(x.in.Attempts)))\n	}",
		command: test("O15|O57"), evidence: failed,
	},
	{
		name: "send although the journal failed", promise: "P11: fail closed", file: "claim.go",
		old: "			return x.noClaim(err)\n		}\n		if claimed {", new: "			if ON {\n				x.in, x.fresh = x.want, true\n				return nil\n			}\nOLD",
		command: test("O16"), evidence: failed,
	},
	{
		name: "what a resume settles is told nobody", promise: "P5: never forgotten", file: "settled.go",
		old: "(x.resumed || next.Prepared)", new: "(x.resumed && !ON || next.Prepared)",
		command: test("TestOnSettled|TestRecoverySoak"), evidence: failed,
	},
	{
		name: "a poison intent among the others", promise: "P12: bounded", file: "sweep.go",
		old: "if !suspect(in) {", new: "if ON || !suspect(in) {",
		command: test("TestRunSendsSuspects|O20"), evidence: failed,
	},
	{
		name: "no retry budget", promise: "P12: bounded", file: "gate.go",
		old: "	case g.budget < 1:", new: "	case !ON && g.budget < 1:",
		command: test("TestRunKeepsToTheRetryBudget"), evidence: failed,
	},
	{
		name: "a credential of the query is stored", promise: "P13: no secrets", file: "describe.go",
		old: `if target.RawQuery != "" && !t.seals() {`, new: `if !ON && target.RawQuery != "" && !t.seals() {`,
		command: test("TestO03_Marks|TestWithheldQuery"), evidence: failed,
	},
	{
		name: "headers go along to another origin", promise: "P13: no secrets", file: "redirect.go",
		old: "away := req.URL == nil || origin(req.URL) != origin(first.URL)", new: "away := !ON && (req.URL == nil || origin(req.URL) != origin(first.URL))",
		command: test("TestO03_Marks|TestRedirectsLeave"), evidence: failed,
	},
	{
		name: "a seal without its column", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: `"idem sealed 1", column, r.Scope`, new: `"idem sealed 1", map[bool]string{false: column}[ON], r.Scope`,
		command: test("TestSealedValuesAreNotSwapped"), evidence: failed,
	},
	{
		name: "a plain row in a sealed journal", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: "if !sealed && r.ID <= g.since {", new: "if !sealed && (ON || r.ID <= g.since) {",
		command: test("TestSealedAnswersAreNotChanged"), evidence: failed,
	},
	{
		name: "a digest to guess by", promise: "P13: no secrets at rest", file: "internal/sqlite/seal.go",
		old: `return g.prints.Seal(nil, nil, r.Fingerprint, r.bound("fingerprint"))`, new: "if ON {\n		return r.Fingerprint\n	}\n	OLD",
		command: test("TestSealedFingerprints"), evidence: failed,
	},
	{
		name: "a missing key taken for damage", promise: "P5: never forgotten", file: "internal/sqlite/seal.go",
		old: "errors.Is(err, ErrSealed) {\n		r.noKey = err\n	} else if err != nil", new: "!ON && OLD",
		command: test("TestSealedUnderANewKey"), evidence: failed,
	},
	{
		name: "a restored request in clear text", promise: "P13: no secrets at rest", file: "internal/sqlite/kept.go",
		old: "q, err := t.stored(got, request)", new: "OLD\n	if ON {\n		q, err = request, nil\n	}",
		command: test("TestSealedUnderANewKey"), evidence: failed,
	},
	{
		name: "an empty body for one not kept", promise: "P3: same bytes", file: "internal/sqlite/due.go",
		old: `if reason == "" && r.lacksBody() {`, new: `if !ON && reason == "" && r.lacksBody() {`,
		command: test("TestKilledWithoutItsBody"), evidence: failed,
	},
	{
		name: "a backup with the folder's epoch", promise: "P4: at most one effect", file: "internal/sqlite/backup.go",
		old: `range []string{"epoch", "next"} {`, new: `range map[bool][]string{false: {"epoch", "next"}}[ON] {`,
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
	for _, m := range mutants {
		if err := m.plant(dir); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for _, build := range [][]string{{"test", "-c", "-o", tests, "."}, {"build", "-o", traceCheck, "./internal/tracecheck"}} {
		if output, err := command(ctx, dir, "", append([]string{"go"}, build...)); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(build, " "), err, output)
		}
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

// plant writes the mistake into the tree, switched off.
func (m mutant) plant(dir string) error {
	path := filepath.Join(dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return fmt.Errorf("its place stands %d times in %s, want once", n, m.file)
	}
	planted := strings.NewReplacer("OLD", m.old, "ON", fmt.Sprintf("(mistakeOn == %q)", m.name)).Replace(m.new)
	changed := strings.Replace(string(text), m.old, planted, 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		return err
	}
	clause := packageClause.FindString(changed)
	return os.WriteFile(filepath.Join(filepath.Dir(path), "mistake_on.go"),
		fmt.Appendf(nil, "%s\n\nimport \"os\"\n\nvar mistakeOn = os.Getenv(%q)\n", clause, variable), 0o644)
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// try demands that the command finds nothing, and that it does with the mistake.
func (m mutant) try(ctx context.Context, dir string) error {
	if m.command[0] == tests { // what the other one finds in the project itself is a step of its own in ci
		if output, err := command(ctx, dir, "", m.command); err != nil {
			return fmt.Errorf("%s fails where no mistake is on: %w\n%s", strings.Join(m.command, " "), err, output)
		}
	}
	output, err := command(ctx, dir, m.name, m.command)
	switch {
	case err == nil:
		return errors.New("not caught by " + strings.Join(m.command, " "))
	case !strings.Contains(output, m.evidence):
		return fmt.Errorf("%s failed for another reason: %s", strings.Join(m.command, " "), output)
	}
	return nil
}

// command runs one in the tree, with a mistake on.
func command(ctx context.Context, dir, mistake string, args []string) (output string, err error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), variable+"="+mistake)
	text, err := cmd.CombinedOutput()
	return string(text), err
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
