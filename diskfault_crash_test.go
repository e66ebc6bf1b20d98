package idem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

const (
	crashEnv    = "IDEM_DISK_CHILD" // the arguments of childCrashes
	crashPoints = 170
)

// A test binary with arguments in the environment is such a process, and no
// test.
func init() {
	if args := os.Getenv(crashEnv); args != "" {
		if err := childCrashes(strings.Split(args, "\t")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(4)
		}
		os.Exit(0)
	}
}

// childCrashes opens a journal, calls operations and closes it, and is killed at
// a disk operation. It says what it promised, as marks are written.
func childCrashes(args []string) error {
	go func() { // the parent is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	path, url, within := args[0], args[1], args[3] == "within"
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	if _, err := diskfault.Register(); err != nil {
		return err
	}
	if err := diskfault.SetHook(path, diskfault.KillNth(n, within)); err != nil {
		return err
	}
	journal, err := idem.Open(path, nil)
	if err != nil {
		return err
	}
	say := func(words ...string) { fmt.Println(strings.Join(words, "\t")) }
	client := diskClient(journal, sayingTransport(func(operation, key string) { say("sent", operation, key) }))
	client.Transport.Observer = &idem.Observer{Recorded: func(_ context.Context, in idem.Intent) { say("begun", in.Operation, in.Key) }}
	for _, operation := range args[4:] {
		say("called", operation, "")
		end, err := diskDo(client, url, operation)
		if err != nil {
			return err
		}
		say(tellMark(operation, end)...)
	}
	return journal.Close()
}

// sayingTransport tells of each send before it goes.
type sayingTransport func(operation, key string)

func (s sayingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	operation := req.Header.Get(diskOperationHeader)
	s(operation, req.Header.Get("Idempotency-Key"))
	if strings.HasPrefix(operation, diskRefused) {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%w: connection refused", idem.ErrNotSent)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// crashRun is one journal whose processes are killed.
type crashRun struct {
	dir, url   string
	operations []string
	marks      []string // of all lives
}

// life runs a process until it is killed at its n-th disk operation, and reports
// whether it was.
func (r *crashRun) life(n int, within bool) (killed bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	args := append([]string{filepath.Join(r.dir, "journal.db"), r.url, strconv.Itoa(n), map[bool]string{true: "within"}[within]}, r.operations...)
	child.Env = append(os.Environ(), crashEnv+"="+strings.Join(args, "\t"))
	var out, said bytes.Buffer
	child.Stdout, child.Stderr = &out, &said
	stdin, err := child.StdinPipe() // closed when this process ends
	if err != nil {
		return false, err
	}
	defer stdin.Close()
	err = child.Run()
	for line := range strings.Lines(out.String()) {
		r.marks = append(r.marks, strings.TrimSuffix(line, "\n"))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || ctx.Err() != nil {
		return false, errors.Join(err, ctx.Err())
	}
	if code := exit.ExitCode(); code == 3 || code == 4 {
		return false, fmt.Errorf("a process ended by itself: %s", said.String())
	}
	return true, nil
}

// last is the last life, which nobody disturbs: what was promised is in the
// journal, what is due is resumed, and every operation is called again.
func (r *crashRun) last() (err error) {
	journal, err := idem.Open(filepath.Join(r.dir, "journal.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	for operation, want := range promised(r.marks) {
		if err := want.held(journal, operation); err != nil {
			return err
		}
	}
	client := diskClient(journal, sayingTransport(func(string, string) {}))
	client.Transport.Retry.ResumeAttempts = 3
	if err := resumeAll(client); err != nil {
		return err
	}
	for _, operation := range r.operations {
		end, err := diskDo(client, r.url, operation)
		if err != nil {
			return err
		}
		refused, rejected := strings.HasPrefix(operation, diskRefused), strings.HasPrefix(operation, diskReject)
		settled := end.word == endSucceeded || end.word == endRejected
		if !settled && !refused && (!rejected || !errors.Is(end.err, idem.ErrHeld)) {
			return fmt.Errorf("%s: called again: %w", operation, end.err)
		}
	}
	return nil
}

// A process dies before and within each of its disk operations, and so does the
// one after it. Every
// key that was sent, and every operation that was begun, is in the journal; each
// has one key and one effect.
func TestCrashAtEachDiskOperation(t *testing.T) {
	_, err := diskfault.Register()
	require.NoError(t, err)
	provider := newDiskProvider(t)
	running, err := provider.server.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Close()) })
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	from, root := template(t, provider), diskDir(t)

	var points, deaths, ids atomic.Int64
	var mu sync.Mutex
	var bad []error
	next := make(chan int)
	var over atomic.Bool
	var workers sync.WaitGroup
	start := time.Now()
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := range next {
				for _, within := range []bool{false, true} {
					r := &crashRun{dir: filepath.Join(root, fmt.Sprint(ids.Add(1))), url: running.URL}
					for i, kind := range []string{diskPlain, diskLost, diskReject, diskRefused} {
						r.operations = append(r.operations, fmt.Sprintf("%s-%d-%t-%d", kind, n, within, i))
					}
					killed, err := r.run(from, n, within, &deaths)
					if err != nil {
						mu.Lock()
						bad = append(bad, fmt.Errorf("operation %d, within %t: %w\n%s", n, within, err, strings.Join(r.marks, "\n")))
						mu.Unlock()
					}
					_ = os.RemoveAll(r.dir)
					if !killed {
						over.Store(true)
						break
					}
					points.Add(1)
				}
			}
		})
	}
	for n := 1 + rand.N(diskShare); !over.Load() && n < 1000; n += diskShare {
		next <- n
	}
	close(next)
	workers.Wait()
	for _, err := range bad[:min(len(bad), 5)] {
		t.Error(err)
	}
	provider.books(map[string]string{})
	t.Logf("%d points, %d deaths, %d bad; %s", points.Load(), deaths.Load(), len(bad), time.Since(start).Round(time.Millisecond))
	assert.Empty(t, len(bad))
	assert.GreaterOrEqual(t, int(points.Load()), crashPoints/diskShare)
}

// run is two lives that are killed, and one that is not.
func (r *crashRun) run(from string, n int, within bool, deaths *atomic.Int64) (killed bool, err error) {
	if err := os.CopyFS(r.dir, os.DirFS(from)); err != nil {
		return false, err
	}
	for life := range 2 {
		dead, err := r.life(n, within)
		if err != nil {
			return true, err
		}
		if dead {
			deaths.Add(1)
		}
		killed = killed || life == 0 && dead
	}
	return killed, r.last()
}
