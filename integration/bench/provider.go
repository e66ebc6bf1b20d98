package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// api is what the provider keeps to: a key in this header, for a day.
var api = contract.Keyed(keyHeader, 24*time.Hour)

// newServer is the provider: the reference server with a working time.
func newServer(ledger *faultinjection.Ledger, work time.Duration) *faultinjection.Server {
	server := faultinjection.NewServer(api, ledger)
	server.Work = work
	server.Operation = func(_ *http.Request, body []byte) string { return orderOf(body) }
	var made atomic.Int64
	server.Effect = func(r *http.Request, body []byte) (int, http.Header, []byte) {
		header := http.Header{"Content-Type": {"application/json"}}
		n := made.Add(1)
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			return http.StatusOK, header, fmt.Appendf(nil, `{"id":"pi_%d","object":"payment_intent","amount":4200,"currency":"eur"}`, n)
		}
		return http.StatusCreated, header, fmt.Appendf(nil, `{"id":"ch_%d","amount":4200,"order":%q}`, n, orderOf(body))
	}
	return server
}

var orderMember = regexp.MustCompile(`"order":"([^"]*)"`)

// orderOf finds the order in a body, in JSON or as stripe-go encodes it.
func orderOf(body []byte) string {
	if m := orderMember.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	form, _ := url.ParseQuery(string(body))
	return form.Get("metadata[order]")
}

// fault draws what becomes of the n-th arrival of an order. It depends on nothing
// else, so that all meet the same faults.
func fault(seed uint64, share float64, order string, n int) faultinjection.Step {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", order, n)
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	if random.Float64() >= share {
		return faultinjection.Run
	}
	return []faultinjection.Step{
		faultinjection.LoseRequest,     // the request never arrives
		faultinjection.DieBeforeEffect, // the server dies, nothing was charged
		faultinjection.DieAfterEffect,  // the charge is there, its answer is lost
		faultinjection.CutAnswer,       // half an answer
		faultinjection.Unavailable(),   // 503 from a gateway in front
	}[random.IntN(5)]
}

// provider is a server without faults, in a process of its own.
type provider struct {
	url     string
	command *exec.Cmd
	input   io.Closer
}

const (
	providerEnv = "IDEM_COMPARE_PROVIDER" // its value is where the ledger is made
	workEnv     = "IDEM_COMPARE_WORK"
)

func startProvider(dir string, work time.Duration) (*provider, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &provider{command: exec.Command(self)}
	p.command.Env = append(os.Environ(), providerEnv+"="+dir, workEnv+"="+work.String())
	p.command.Stderr = os.Stderr
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.url = strings.TrimSpace(line)
	return p, nil
}

func (p *provider) close() error {
	return errors.Join(p.input.Close(), p.command.Wait())
}

// serve is the provider's process. It ends when its standard input does.
func serve(dir string) error {
	work, err := time.ParseDuration(os.Getenv(workEnv))
	if err != nil {
		return err
	}
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	running, err := newServer(ledger, work).Listen()
	if err != nil {
		return errors.Join(err, ledger.Close())
	}
	fmt.Println(running.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return errors.Join(running.Close(), ledger.Close())
}
