package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// expressFolder holds the server, and what it is made from: package-lock.json
// pins every package by its digest.
const expressFolder = "testdata/express"

func init() {
	// What the middleware's source says (express-idempotency 1.0.6, read
	// 2026-11-30). In memory a key lives as long as the process.
	api := contract.Keyed("Idempotency-Key", 24*time.Hour)
	api.Name, api.Echo = "express-idempotency", "Idempotency-Key"
	api.Replayed = contract.Marker{}
	api.InFlight = []contract.Signal{{Status: http.StatusConflict, Text: "A previous request is still in progress"}}
	api.Mismatch = []contract.Signal{{Status: http.StatusExpectationFailed}}
	subjects["express"] = &subject{
		server: api, client: at(api), want: "201 Created ch_1",
		open: func(s site) (func(context.Context) (string, error), error) { return posts(s.http, s.url), nil },
	}
}

// expressInstalled has npm fetch the packages where they are not there yet.
var expressInstalled = sync.OnceValue(func() error {
	want, err := os.Stat(filepath.Join(expressFolder, "package-lock.json"))
	if err != nil {
		return err
	}
	have, err := os.Stat(filepath.Join(expressFolder, "node_modules", ".package-lock.json")) // npm writes it last
	if err == nil && !have.ModTime().Before(want.ModTime()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts")
	npm.Dir = expressFolder
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
})

// startExpress starts a server with express-idempotency, in Node.js.
func startExpress(t *testing.T) *thirdParty {
	require.NoError(t, expressInstalled())
	node := exec.Command("node", "server.js")
	node.Dir = expressFolder
	var failed bytes.Buffer
	node.Stderr = &failed
	stdin, err := node.StdinPipe() // it ends when this does, and so when we do
	require.NoError(t, err)
	stdout, err := node.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, node.Start())
	s := newThirdParty()
	listens, holds, gone := make(chan int, 1), make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(gone)
		s.hear(t, stdout, listens, holds)
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		timer := time.AfterFunc(patience, func() { _ = node.Process.Kill() })
		defer timer.Stop()
		<-gone
		assert.NoError(t, node.Wait())
		assert.Empty(t, failed.String())
	})
	select {
	case port := <-listens:
		s.address = fmt.Sprintf("127.0.0.1:%d", port)
	case <-gone:
		require.Fail(t, "the server has ended", "%s", &failed)
	case <-time.After(patience):
		require.Fail(t, "the server does not listen")
	}
	tell := func(word string) {
		_, err := io.WriteString(stdin, word+"\n")
		assert.NoError(t, err)
		assert.Equal(t, word == "hold", <-holds)
	}
	s.hold = func() func() {
		tell("hold")
		return func() { tell("go on") }
	}
	s.told = func() { tell("go on") } // it says one thing after the other
	return s
}

// hear listens to what the server says.
func (s *thirdParty) hear(t *testing.T, r io.Reader, listens chan<- int, holds chan<- bool) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var line struct {
			Port    int
			Arrived *string
			Working bool
			Effect  *string
			Holds   *bool
		}
		if !assert.NoError(t, json.Unmarshal(lines.Bytes(), &line), "%s", lines.Text()) {
			continue
		}
		switch {
		case line.Port != 0:
			listens <- line.Port
		case line.Arrived != nil:
			s.arrived(*line.Arrived)
		case line.Working:
			s.working <- struct{}{}
		case line.Effect != nil:
			s.effects.Add(1)
		case line.Holds != nil:
			holds <- *line.Holds
		}
	}
}

// Without Node.js nothing can be tried here. IDEM_INTEGRATION=full, as .ci/run
// has it, does not let that pass.
func TestExpress(t *testing.T) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("IDEM_INTEGRATION") != "full" {
			t.Skipf("%s is not on this machine: the server with express-idempotency is not tried", tool)
		}
	}
	testThirdParty(t, "express", startExpress)
}
