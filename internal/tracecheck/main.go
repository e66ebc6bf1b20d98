// Command tracecheck proves by a system-call trace (strace, Linux only) that
// no byte of a journaled request leaves before its key is on stable storage,
// and that this takes one sync per operation.
//
//	go run ./internal/tracecheck
//
// It runs itself as the traced child: a client that sends named operations to
// a loopback server of the parent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

const (
	childEnv   = "IDEM_TRACECHECK_SERVER" // the server's URL: this process is the child
	operations = 20
	limit      = 2 * time.Minute
)

func main() {
	run := func() error { return check(os.Stdout) }
	if server := os.Getenv(childEnv); server != "" {
		run = func() error { return send(server, os.Args[1]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tracecheck:", err)
		os.Exit(1)
	}
}

// check runs the child under strace and judges what it did.
func check(out io.Writer) error {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("strace is needed: %w", err)
	}
	dir, err := os.MkdirTemp("", "tracecheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	file := filepath.Join(dir, "trace")
	cmd := exec.CommandContext(ctx, strace, "-f", "-y", "-s", "65536", "-o", file,
		"-e", "trace=pwrite64,write,writev,sendto,sendmsg,fsync,fdatasync",
		self, filepath.Join(dir, "journal.db"))
	cmd.Env = append(os.Environ(), childEnv+"="+server.URL)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("traced child: %w: %s", err, output)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return report(out, parse(string(text)))
}

func report(out io.Writer, calls []call) error {
	sends, violations := judge(calls)
	if len(violations) > 0 {
		return errors.New(strings.Join(violations, "\n"))
	}
	if len(sends) < operations {
		return fmt.Errorf("%d sends in the trace, want %d", len(sends), operations)
	}
	for i, s := range sends[1:] { // the first one warms the journal up
		if s.syncs != 1 {
			return fmt.Errorf("operation %d: %d syncs before the send, want 1", i+2, s.syncs)
		}
	}
	if !flushed(calls) {
		return errors.New("the last outcome was not synced before Shutdown returned")
	}
	if _, unsynced := judge(without(calls, "fsync", "fdatasync")); len(unsynced) < len(sends) {
		return errors.New("control failed: a trace without syncs was not flagged")
	}
	fmt.Fprintf(out, "%d operations: each key was synced to the -wal before its first byte left, with one sync per operation; Shutdown synced the outcomes\n", len(sends))
	return nil
}

// send is the child: named operations, one after another.
func send(server, path string) error {
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	defer journal.Close()
	client := idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour),
	})
	for i := range operations {
		req, err := http.NewRequest("POST", server+"/charges", strings.NewReader(`{"amount":4200}`))
		if err != nil {
			return err
		}
		resp, err := client.Do(fmt.Sprintf("order-%d/charge", i), req)
		if err != nil {
			return err
		}
		resp.Body.Close()
	}
	if err := client.Shutdown(context.Background()); err != nil {
		return err
	}
	fmt.Println(flushMark)
	return journal.Close()
}
