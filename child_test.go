package idem

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	argsEnv  = "IDEM_TEST_ARGS"
	argsSep  = "\x1f"
	patience = 20 * time.Second // for what another process does
)

// child is this test binary as another process. It ends with the test, and by
// itself when the test process is gone.
type child struct {
	tb    testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
	done  chan struct{}
	err   *bytes.Buffer
}

func startChild(tb testing.TB, name string, args ...string) *child {
	tb.Helper()
	self, err := os.Executable()
	require.NoError(tb, err)
	c := &child{tb: tb, cmd: exec.Command(self), lines: make(chan string, 4096), done: make(chan struct{}), err: &bytes.Buffer{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+name, argsEnv+"="+strings.Join(args, argsSep))
	c.cmd.Stderr = c.err
	c.stdin, err = c.cmd.StdinPipe() // closed when this process ends
	require.NoError(tb, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, c.cmd.Start())
	go func() {
		defer close(c.done)
		defer close(c.lines)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			c.lines <- scanner.Text()
		}
		_ = c.cmd.Wait()
	}()
	tb.Cleanup(c.kill)
	return c
}

func (c *child) awaitLine(want string) {
	c.tb.Helper()
	c.patientLine(want, patience)
}

func (c *child) patientLine(want string, patience time.Duration) {
	c.tb.Helper()
	for {
		select {
		case line, ok := <-c.lines:
			require.True(c.tb, ok, "child ended without saying %q: %s", want, c.err)
			if line == want {
				return
			}
		case <-time.After(patience):
			require.FailNow(c.tb, "child did not say in time", want)
		}
	}
}

// kill ends the process without running any deferred code.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.stdin.Close() // for what it started
	<-c.done
}

// wait returns all that the child still says.
func (c *child) wait() []string {
	c.tb.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		require.FailNow(c.tb, "child does not end", c.err.String())
	}
	var all []string
	for line := range c.lines {
		all = append(all, line)
	}
	return all
}

// killed waits for a child that kills itself.
func (c *child) killed() {
	c.tb.Helper()
	c.wait()
	require.False(c.tb, c.cmd.ProcessState.Exited(), "the child ended by itself: %s", c.err)
}

func init() {
	children["hold-write-lock"] = childHoldsWriteLock
	children["call"] = func() { childCalls(nil) }
	children["call sealed"] = func() { childCalls(&SQLiteOptions{Sealer: orExit(NewAESGCM(sealKeys("a"), "a"))}) }
}

func childArgs() []string {
	go func() { // the parent is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	return strings.Split(os.Getenv(argsEnv), argsSep)
}

func orExit[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	return v
}

func childHoldsWriteLock() {
	db := orExit(sql.Open("sqlite", "file:"+childArgs()[0]))
	conn := orExit(db.Conn(context.Background()))
	orExit(conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"))
	fmt.Println("locked")
	select {}
}

// childCalls makes n calls of one operation at the same time and prints how
// each ended. die kills the process at a point: "recorded" (the intent is
// durable, nothing sent) or "answered" (the answer is here, not recorded), at
// the n-th pass.
func childCalls(opts *SQLiteOptions) {
	args := childArgs()
	path, server, operation, body, n, die := args[0], args[1], args[2], args[3], orExit(strconv.Atoi(args[4])), args[5]
	journal := orExit(Open(path, opts))
	t := &Transport{Journal: journal, Contracts: rigContract(), Retry: RetryPolicy{MinBackoff: 5 * time.Millisecond, MaxAttempts: 5, MaxDeaths: 100}}
	if die == "recorded" {
		t.Observer = &Observer{Recorded: func(context.Context, Intent) { dieNow() }}
	}
	t.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if die == "answered" && err == nil {
			_, _ = io.ReadAll(resp.Body)
			dieNow()
		}
		return resp, err
	})
	client := NewClient(t)
	fmt.Println("ready")
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			req := orExit(http.NewRequest(http.MethodPost, server+"/charges", io.NopCloser(strings.NewReader(body))))
			req.Header.Set("X-Call-Id", fmt.Sprintf("%d-%d", os.Getpid(), i))
			resp, err := client.Do(operation, req)
			fmt.Println(endOf(resp, err))
		})
	}
	calls.Wait()
	orExit(0, journal.Close())
}

func endOf(resp *http.Response, err error) string {
	switch {
	case errors.Is(err, ErrNotSent):
		return "not sent: " + err.Error()
	case errors.Is(err, ErrUnknownOutcome):
		return "unknown: " + err.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "broken: " + err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(text))
}

// dieNow ends this process as kill -9 does.
func dieNow() {
	self := orExit(os.FindProcess(os.Getpid()))
	orExit(0, self.Kill())
	select {}
}
