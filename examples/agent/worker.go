package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

const (
	workerEnv = "AGENT_WORKER" // its value is the assignment

	modeNaive     = "naive"
	modeIdem      = "idem"
	modeByContent = "by content" // idem with names that say what is asked for, which is wrong

	journalFile = "journal.db"
	pause       = 50 * time.Millisecond // before a tool is called again
	exitFailed  = 3                     // unlike what a killed process exits with
)

// assignment is what the agent's process is told by its parent.
type assignment struct {
	Mode, Dir, URL string
	Runs           int
}

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// deaths are where the lives of the process end, in turn: what was done is not
// written down then. (What a random kill hits depends on the machine.)
var deaths = []string{"answered:2", "send:2", "answered:1", "answered:3", "send:3"}

func (a assignment) command(self string, life int) *exec.Cmd {
	told, _ := json.Marshal(a) // strings and a number
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(told), "FAULTINJECTION_CRASH="+deaths[life%len(deaths)])
	_, _ = cmd.StdinPipe() // stays open as long as we live: see endWithParent. It fails only where there is one
	return cmd
}

func runName(n int) string { return fmt.Sprintf("run-%d", n) }

func (a assignment) transcript(n int) string { return filepath.Join(a.Dir, runName(n)+".jsonl") }

// workerMain is main of the agent's process. It returns the exit status: 0 once
// every run has come to its end.
func workerMain() int {
	go endWithParent()
	var a assignment
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &a)
	if err == nil {
		err = a.work(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}

// work goes through all runs, those of an earlier process too.
func (a assignment) work(ctx context.Context) (err error) {
	die := faultinjection.HookFromEnv()
	tools := &http.Client{Transport: minting{die}}
	names := map[string]func(string, call) string{modeIdem: byID, modeByContent: byContent}
	if a.Mode != modeNaive {
		journal, err := idem.Open(filepath.Join(a.Dir, journalFile), nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, journal.Close()) }()
		client := newClient(journal, a.URL)
		client.Transport.CrashPoint = die
		tools = client.HTTPClient()
	}
	for n := 1; n <= a.Runs; n++ {
		one := &agent{model: plays(fmt.Sprintf("order-%d", n)), tools: map[string]tool{}, effect: names[a.Mode]}
		for name := range meant {
			one.tools[name] = posts(tools, a.URL+"/"+name)
		}
		if err := one.run(ctx, runName(n), a.transcript(n)); err != nil {
			return err
		}
	}
	return nil
}

// byContent takes two equal calls for one.
func byContent(run string, c call) string { return run + "/" + c.Tool + string(c.Args) }

func newClient(journal idem.Journal, provider string) *idem.Client {
	return idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: api.At(strings.TrimPrefix(provider, "http://")),
		// For a provider on loopback that fails on purpose, and a process that is
		// killed all the time: leave it out elsewhere.
		Retry: idem.RetryPolicy{MinBackoff: 5 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, MaxDeaths: 1000},
	})
}

// minting is what many an SDK does: a new key for each call.
type minting struct{ die func(point string) }

func (m minting) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(api.Key.Header, uuid.NewString())
	if m.die != nil {
		m.die("send")
		defer m.die("answered")
	}
	return http.DefaultTransport.RoundTrip(req)
}

// endWithParent ends the process when its parent is gone, however that went: the
// parent holds the other end of stdin.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
	os.Exit(exitFailed)
}
