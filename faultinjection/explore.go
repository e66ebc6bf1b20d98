package faultinjection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idem-go/idem/contract"
)

// Explorer runs a client through every script of a few answers, killed at every
// point of every one of them, on its true code and a true disk.
//
// A run is one operation over some lives. What a life leaves in its folder at the
// moment of its death is what the next one finds, as after kill -9; what it does
// after that moment reaches nothing any more, apart from a request that was on its
// way. The last life is left in peace and must come to an end; then Check looks.
//
// It is quick in a [testing/synctest] bubble, with Dir on a RAM disk.
type Explorer struct {
	// Contract is the server's. nil means contract.Keyed("Idempotency-Key",
	// 24 hours).
	Contract *contract.Contract
	// Answers are what an attempt may meet, each at each place of a script.
	Answers []Fault
	// Attempts is the length of the longest script; what follows passes. Zero
	// means 3.
	Attempts int
	// Crashes is how many lives of a run are killed, one after the other. Zero
	// means 1, and less none; runs with fewer are run too.
	Crashes int
	// Dir is where the folders of the lives are made. Empty means the temporary
	// folder.
	Dir string
	// Broken is the server's, to see the check fail.
	Broken Broken
	// Life opens the client's journal in l.Dir, takes its operation a step
	// further with l.Transport and l.CrashPoint, and closes what it opened. An
	// error of a life that is killed counts for nothing. It is required.
	Life func(l *Life) error
	// Check looks at a run after its last life: an error is what is wrong. nil
	// means that one effect of l.Operation is what there must be.
	Check func(l *Life) error
}

// Life is one life of the client in a run.
type Life struct {
	Dir       string // its folder, with what the life before has left
	Number    int    // 1, 2, ...
	Operation string // of this run; the server names effects by it: see Server.Operation
	Transport http.RoundTripper
	// Context ends when the life is killed. What a life does after that counts
	// for nothing: one that then comes to its end at once makes the exploration
	// quicker.
	Context context.Context
	// CrashPoint is to be called at each point where the client may be killed.
	CrashPoint func(point string)
	Script     *Script // what was sent in this run
	Ledger     *Ledger // of all runs
}

// Explored is what an Explorer has done.
type Explored struct {
	Scripts, Runs int
	Failures      []Failure // the first 20
}

// Failure is a run that is not as it should be.
type Failure struct {
	Token string   // for Explorer.Replay
	Trace []string // attempts and crashes, in order
	Err   error
}

func (f Failure) String() string {
	return fmt.Sprintf("%v\n  replay %q\n  %s", f.Err, f.Token, strings.Join(f.Trace, "\n  "))
}

const maxFailures = 20

// Run explores everything. The error is not about the client: a folder that
// cannot be made, a Life that fails without faults, the end of ctx.
func (e Explorer) Run(ctx context.Context) (Explored, error) {
	x, err := e.begin(ctx)
	if err != nil {
		return Explored{}, err
	}
	defer x.ledger.Close()
	for length := range x.Attempts + 1 {
		if err := x.scripts(make([]int, 0, length), length); err != nil {
			return x.done, fmt.Errorf("faultinjection: explore: %w", err)
		}
	}
	return x.done, nil
}

// Replay runs one run again, and returns what is wrong with it.
func (e Explorer) Replay(ctx context.Context, token string) error {
	x, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer x.ledger.Close()
	script, crashes, err := x.read(token)
	if err != nil {
		return err
	}
	_, failure, err := x.run(script, crashes)
	if failure != nil {
		err = errors.Join(errors.New(failure.String()), err)
	}
	return err
}

// exploration is an Explorer at work.
type exploration struct {
	Explorer
	ctx    context.Context
	ledger *Ledger
	server *Server
	done   Explored
}

func (e Explorer) begin(ctx context.Context) (*exploration, error) {
	if e.Life == nil {
		return nil, errors.New("faultinjection: explore: Explorer.Life is nil")
	}
	if e.Attempts == 0 {
		e.Attempts = 3
	}
	if e.Crashes == 0 {
		e.Crashes = 1
	}
	if e.Contract == nil {
		e.Contract = contract.Keyed("Idempotency-Key", 24*time.Hour)
	}
	ledger, err := OpenLedger("")
	if err != nil {
		return nil, err
	}
	x := &exploration{Explorer: e, ctx: ctx, ledger: ledger, server: NewServer(e.Contract, ledger)}
	x.server.Broken = e.Broken
	return x, nil
}

// scripts explores all scripts of a length that begin with prefix.
func (x *exploration) scripts(prefix []int, length int) error {
	if len(prefix) == length {
		x.done.Scripts++
		return x.crashes(prefix, nil)
	}
	for i := range x.Answers {
		if err := x.scripts(append(prefix, i), length); err != nil {
			return err
		}
	}
	return nil
}

// crashes runs a script with the crashes given, and then, with one crash more, at
// every point of what was the last life.
func (x *exploration) crashes(script, at []int) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	points, failure, err := x.run(script, at)
	if err != nil {
		return err
	}
	x.done.Runs++
	if failure != nil && len(x.done.Failures) < maxFailures {
		x.done.Failures = append(x.done.Failures, *failure)
	}
	if len(at) >= x.Crashes {
		return nil
	}
	for n := 1; n <= points; n++ {
		if err := x.crashes(script, append(append([]int(nil), at...), n)); err != nil {
			return err
		}
	}
	return nil
}

// run is one run: a life for each crash, and a last one. It returns how many
// points the last one passed.
func (x *exploration) run(script, crashes []int) (points int, failure *Failure, err error) {
	root, err := os.MkdirTemp(x.Dir, "explore-")
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	faults := make([]Fault, len(script))
	for i, answer := range script {
		faults[i] = x.Answers[answer]
	}
	r := &explored{
		x: x, root: root, name: filepath.Base(root),
		script: NewScript(x.Contract, faults...),
	}
	if points, err = r.lives(crashes); r.broken != nil {
		return points, nil, r.broken
	}
	if err == nil {
		if err = r.check(len(crashes) + 1); err == nil {
			return points, nil, nil
		}
	}
	return points, &Failure{Token: token(script, crashes), Trace: r.trace(), Err: err}, nil
}

// explored is one run.
type explored struct {
	x      *exploration
	root   string
	name   string // of the operation
	script *Script
	killed []string // where
	broken error    // the exploration cannot go on
}

func (r *explored) lives(crashes []int) (points int, err error) {
	for i, n := range append(append([]int(nil), crashes...), 0) {
		points, err = r.live(i+1, n)
		if r.broken != nil || err != nil && n == 0 {
			return points, err
		}
	}
	return points, nil
}

// live is one life, which is killed at its n-th point; zero: it is left in peace.
func (r *explored) live(number, n int) (points int, err error) {
	here, next := r.dir(number), r.dir(number+1)
	if number == 1 {
		if r.broken = os.Mkdir(here, 0o700); r.broken != nil {
			return 0, r.broken
		}
	}
	var passed, dead atomic.Int64
	l := r.life(number)
	var kill context.CancelFunc
	l.Context, kill = context.WithCancel(r.x.ctx)
	defer kill()
	l.Transport = mortal{&dead, r.script.Wrap(r.x.server.Transport())}
	l.CrashPoint = func(point string) {
		if at := passed.Add(1); dead.Load() == 0 && at == int64(n) {
			dead.Store(1)
			r.killed = append(r.killed, fmt.Sprintf("life %d killed at its point %d, %s", number, n, point))
			r.broken = snapshot(here, next)
			kill()
		}
	}
	err = r.x.Life(l)
	if dead.Load() == 0 && n > 0 && r.broken == nil { // it came to its end before
		r.broken = snapshot(here, next)
	}
	return int(passed.Load()), err
}

func (r *explored) dir(number int) string { return filepath.Join(r.root, strconv.Itoa(number)) }

func (r *explored) life(number int) *Life {
	return &Life{
		Dir: r.dir(number), Number: number, Operation: r.name, Context: r.x.ctx, Script: r.script, Ledger: r.x.ledger,
		Transport: r.script.Wrap(r.x.server.Transport()), CrashPoint: func(string) {},
	}
}

func (r *explored) check(lives int) error {
	if r.x.Check != nil {
		return r.x.Check(r.life(lives))
	}
	effects, err := r.x.ledger.EffectsOf(r.name)
	if err == nil && effects != 1 {
		err = fmt.Errorf("%d effects, not one", effects)
	}
	return err
}

func (r *explored) trace() []string {
	trace := append([]string(nil), r.killed...)
	for i, a := range r.script.Attempts() {
		trace = append(trace, fmt.Sprintf("attempt %d, key %s: %s, status %d", i+1, a.Key, a.Fault, a.Status))
	}
	return trace
}

// mortal is a life's way to the server, which ends with the life.
type mortal struct {
	dead *atomic.Int64
	next http.RoundTripper
}

func (m mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.dead.Load() != 0 {
		if req.Body != nil {
			_ = req.Body.Close() // nothing reads it
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return m.next.RoundTrip(req)
}

// snapshot copies what a killed process leaves: all files but SQLite's shared
// memory, which is made anew.
func snapshot(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case strings.HasSuffix(path, "-shm"):
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o600)
	})
}

// token writes a run down: the script's answers by number, and the crashes.
func token(script, crashes []int) string { return join(script) + "/" + join(crashes) }

func join(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ".")
}

func (x *exploration) read(token string) (script, crashes []int, err error) {
	left, right, ok := strings.Cut(token, "/")
	bad := fmt.Errorf("faultinjection: explore: %q is no token", token)
	if !ok {
		return nil, nil, bad
	}
	for i, part := range []string{left, right} {
		for text := range strings.SplitSeq(part, ".") {
			if part == "" {
				continue
			}
			n, err := strconv.Atoi(text)
			switch {
			case err != nil || n < 0 || i == 0 && n >= len(x.Answers):
				return nil, nil, bad
			case i == 0:
				script = append(script, n)
			default:
				crashes = append(crashes, n)
			}
		}
	}
	return script, crashes, nil
}
