// Stripe is a shop's checkout with stripe-go over idem, whose process is killed
// at bad moments and whose network loses answers: the first card of every third
// customer is declined, who then pays with another one, and double clicks.
//
//	go run ./examples/stripe
//
// It speaks to a reference server on loopback that keeps keys as Stripe's v1 API
// does, and exits with 0 only if every customer was charged once.
//
// The part to copy is shop.go. This file is the story and the other side.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

const (
	workerEnv   = "STRIPE_WORKER" // its value is the assignment
	journalFile = "payments.db"
	exitFailed  = 3 // unlike what a killed process exits with
)

// config is what a run depends on.
type config struct {
	customers int
	lives     int           // of the shop's process, before the one that nobody disturbs
	maxLife   time.Duration // until it is killed, if it has not died before; zero: it is not
	seed      uint64        // of faults and kills
	limit     time.Duration // for everything
}

// deaths are where the lives of the process end, in turn. (What a random kill hits
// depends on the machine.)
var deaths = []string{"answered:2", "send:2", "answered:1", "written:3", "answered:3", "recorded:2"}

// assignment is what the shop's process is told.
type assignment struct {
	Dir, URL  string
	Customers int
}

// books are what is there in the end.
type books struct {
	kills, arrivals, effects int
	wrong                    []string // empty: all is well
}

func main() {
	if os.Getenv(workerEnv) != "" { // the parent started this process to be the shop
		os.Exit(workerMain())
	}
	c := config{customers: 12, lives: 12, maxLife: time.Second, limit: 2 * time.Minute}
	flag.Uint64Var(&c.seed, "seed", 17, "seed of the faults and the kills")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b, err := run(ctx, c, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stripe:", err)
	}
	if err != nil || len(b.wrong) > 0 {
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, c config, out io.Writer) (b books, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("not done after %v", c.limit))
	defer cancel()
	dir, err := os.MkdirTemp("", "stripe-")
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ledger, err := faultinjection.OpenLedger(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	running, err := bank(ledger, c.seed).Listen()
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, running.Close()) }()
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	told, err := json.Marshal(assignment{Dir: dir, URL: running.URL, Customers: c.customers})
	if err != nil {
		return b, err
	}
	lives, err := faultinjection.CrashLoop{
		Command: func(life int) *exec.Cmd {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), workerEnv+"="+string(told), "FAULTINJECTION_CRASH="+deaths[life%len(deaths)])
			_, _ = cmd.StdinPipe() // stays open as long as we live; it fails only where there is one
			return cmd
		},
		Lives: c.lives, MaxLife: c.maxLife, Seed: c.seed + 1,
		Check: func(last bool) error {
			b, err = look(ctx, c, dir, ledger, last)
			return err
		},
	}.Run(ctx)
	if err != nil {
		return b, err
	}
	b.kills = lives.Killed
	fmt.Fprintf(out, "%d customers, a third of them with a declined card first, seed %d\n", c.customers, c.seed)
	fmt.Fprintf(out, "%d kills, %d arrivals, %d charges\n", b.kills, b.arrivals, b.effects)
	if len(b.wrong) > 0 {
		fmt.Fprintf(out, "FAILED:\n  %s\n", strings.Join(b.wrong, "\n  "))
		return b, nil
	}
	fmt.Fprintf(out, "ok: every customer was charged once\n")
	return b, nil
}

// bank is the other side: it keeps keys as Stripe's v1 API does, declines one card,
// and its network loses requests and answers.
func bank(ledger *faultinjection.Ledger, seed uint64) *faultinjection.Server {
	server := faultinjection.NewServer(contract.StripeV1, ledger)
	server.Work = 10 * time.Millisecond
	server.Operation = func(_ *http.Request, body []byte) string {
		form, _ := url.ParseQuery(string(body)) // the SDK writes it
		return form.Get("metadata[order]") + "/" + form.Get("payment_method")
	}
	server.Effect = func(_ *http.Request, body []byte) (int, http.Header, []byte) {
		header := http.Header{"Content-Type": {"application/json"}}
		if bytes.Contains(body, []byte(declinedCard)) {
			return http.StatusPaymentRequired, header, []byte(`{"error":{"type":"card_error","code":"card_declined","message":"Your card was declined."}}`)
		}
		return http.StatusOK, header, fmt.Appendf(nil, `{"id":"pi_%016x","object":"payment_intent","amount":4200,"currency":"eur","status":"succeeded"}`, rand.Uint64())
	}
	random := rand.New(rand.NewPCG(seed, 0))
	faults := []faultinjection.Step{
		faultinjection.LoseRequest, faultinjection.DieBeforeEffect, faultinjection.DieAfterEffect, faultinjection.CutAnswer,
	}
	server.Each(func(faultinjection.Arrival) faultinjection.Step { // called one at a time
		if random.Float64() < 0.6 {
			return faultinjection.Run
		}
		return faults[random.IntN(len(faults))]
	})
	return server
}

// look compares the journal with the bank's books.
func look(ctx context.Context, c config, dir string, ledger *faultinjection.Ledger, last bool) (b books, err error) {
	journal, err := idem.Open(filepath.Join(dir, journalFile), nil)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	counts, err := ledger.Counts()
	if err != nil {
		return b, err
	}
	b.arrivals, b.effects = counts.Arrivals, counts.Effects
	effects, err := ledger.Effects()
	if err != nil {
		return b, err
	}
	charged := map[string]int{}
	for _, e := range effects {
		order, _, _ := strings.Cut(e.Operation, "/")
		charged[order]++
	}
	for n := range c.customers {
		order := orderName(n)
		if got := charged[order]; got > 1 || last && got == 0 {
			b.wrong = append(b.wrong, fmt.Sprintf("%s was charged %d times", order, got))
		}
		if !last {
			continue
		}
		in, err := journal.Lookup(ctx, "", order+"/charge")
		if err != nil {
			return b, err
		}
		generations := 1
		if declined(n) {
			generations = 2
		}
		if in.State != idem.StateSucceeded || in.Generation != generations {
			b.wrong = append(b.wrong, fmt.Sprintf("%s is %s in generation %d", order, in.State, in.Generation))
		}
	}
	if len(b.wrong) > 0 && !last {
		return b, errors.New(strings.Join(b.wrong, "; "))
	}
	return b, nil
}

// workerMain is main of the shop's process. It returns the exit status.
func workerMain() int {
	go func() { // the parent is gone: it holds the other end of stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitFailed)
	}()
	var a assignment
	err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &a)
	if err == nil {
		err = open(context.Background(), a)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}
