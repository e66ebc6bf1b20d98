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

	pairOperations = 260 // of each of two processes
	pairSends      = 500
	pairStates     = 5000
)

func main() {
	run := func() error { return errors.Join(check(os.Stdout), checkPair(os.Stdout)) }
	if server := os.Getenv(childEnv); server != "" {
		run = func() error { return send(server, os.Args[1], os.Args[2:]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tracecheck:", err)
		os.Exit(1)
	}
}

// check runs the child under strace and judges what it did.
func check(out io.Writer) error {
	dir, err := os.MkdirTemp("", "tracecheck")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	calls, err := trace(dir, "order")
	if err != nil {
		return err
	}
	return report(out, calls)
}

// trace returns the system calls of a child that sends the operations of each of
// the names, each in a process of its own, over one journal in dir.
func trace(dir string, names ...string) ([]call, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return nil, fmt.Errorf("strace is needed: %w", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	file := filepath.Join(dir, "trace")
	args := []string{"-f", "-y", "-xx", "-s", "1000000", "-o", file,
		"-e", "trace=open,openat,pwrite64,write,writev,sendto,sendmsg,fsync,fdatasync,ftruncate,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat",
		self, filepath.Join(dir, "journal.db")}
	cmd := exec.CommandContext(ctx, strace, append(args, names...)...)
	cmd.Env = append(os.Environ(), childEnv+"="+server.URL)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("traced child: %w: %s", err, output)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(string(text)), nil
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

// send is the child: named operations, one after another. Of several names, each
// but the first has a process of its own.
func send(server, path string, names []string) (err error) {
	for _, name := range names[1:] {
		other := exec.Command(os.Args[0], path, name)
		if err := other.Start(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, other.Wait()) }()
	}
	n := operations
	if names[0] != "order" {
		n = pairOperations
	}
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	defer journal.Close()
	client := idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: contract.Keyed("Idempotency-Key", 24*time.Hour),
	})
	for i := range n {
		req, err := http.NewRequest("POST", server+"/charges", strings.NewReader(`{"amount":4200}`))
		if err != nil {
			return err
		}
		resp, err := client.Do(fmt.Sprintf("%s-%d/charge", names[0], i), req)
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
