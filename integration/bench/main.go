// Command bench compares idem with what one would take in its place: http.Client
// alone, go-retryablehttp, failsafehttp, stripe-go's own retries, DBOS and River.
//
//	go run .                  # both tables, some four minutes
//	go run . -rounds 7 -callers 1,64 -kills 40
//
// The first table is speed, as a ratio to http.Client in interleaved rounds. The
// second is what comes of it when the process is killed at random moments and
// the provider fails: charges made twice, and orders that were lost.
// docs/comparison.md has the last tables, and how to read them.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// run is one run of the command.
type run struct {
	ctx      context.Context
	out      io.Writer
	dir      string // on the disk to be measured
	rounds   int
	round    time.Duration
	work     time.Duration // of the provider, while speed is measured
	provider *provider
	only     string // part of the names of what is compared; empty: all
}

func main() {
	beChild()
	r := &run{out: os.Stdout}
	k := kills{atOnce: 4, limit: 4 * time.Minute}
	var callers, dir string
	flag.StringVar(&callers, "callers", "1,16,64", "numbers of callers, separated by commas; none leaves the first table out")
	flag.IntVar(&r.rounds, "rounds", 5, "rounds of each number of callers")
	flag.DurationVar(&r.round, "round", time.Second, "time of each thing in a round")
	flag.DurationVar(&r.work, "work", 2*time.Millisecond, "how long the provider works on a request in the first table")
	flag.IntVar(&k.kills, "kills", 20, "kills of each worker; 0 leaves the second table out")
	flag.IntVar(&k.orders, "orders", 200, "orders in the second table")
	flag.IntVar(&k.callers, "at-a-time", 4, "orders that a worker has at a time in the second table")
	flag.DurationVar(&k.minLife, "min-life", 50*time.Millisecond, "shortest life of a worker, from when it takes orders")
	flag.DurationVar(&k.maxLife, "max-life", 250*time.Millisecond, "longest life of a worker")
	flag.DurationVar(&k.work, "kill-work", 40*time.Millisecond, "how long the provider works on a request in the second table")
	flag.Float64Var(&k.faults, "faults", 0.2, "share of arrivals that fail in the second table")
	flag.Uint64Var(&k.seed, "seed", 17, "of faults and lives in the second table")
	flag.StringVar(&r.only, "only", "", "compare only what has this in its name (and http.Client in the first table)")
	flag.StringVar(&dir, "dir", "", "where files are made (a temporary folder if empty)")
	flag.Parse()
	var stop context.CancelFunc
	r.ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.all(callers, dir, k); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// beChild is main of a process that another one has started for a part of the
// work, and returns in the others.
func beChild() {
	switch dir := os.Getenv(providerEnv); {
	case os.Getenv(workerEnv) != "":
		os.Exit(workerMain())
	case dir != "":
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, "provider:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func (r *run) all(callers, dir string, k kills) error {
	var err error
	if r.dir, err = os.MkdirTemp(dir, "idem-compare-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	if err := r.head(); err != nil {
		return err
	}
	if err := r.speedTables(callers); err != nil {
		return err
	}
	if k.kills > 0 {
		rows, err := r.kill(k, chosen(func(k kind) bool { return k.kills && strings.Contains(k.name, r.only) }))
		if err != nil {
			return err
		}
		r.printKills(k, rows)
	}
	fmt.Fprintf(r.out, "\nload average at the end: %s\n", loadAverage())
	return nil
}

func (r *run) speedTables(callers string) (err error) {
	for _, text := range strings.FieldsFunc(callers, func(c rune) bool { return c == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1024 {
			return fmt.Errorf("%q is no number of callers", text)
		}
		if err := r.speedTable(n); err != nil {
			return err
		}
	}
	return nil
}

// speedTable has a provider and databases of its own.
func (r *run) speedTable(callers int) error {
	outer := r.dir
	defer func() { r.dir = outer }()
	var err error
	if r.dir, err = os.MkdirTemp(outer, "callers-"); err != nil {
		return err
	}
	if r.provider, err = startProvider(r.dir, r.work); err != nil {
		return err
	}
	rows, err := r.speeds(callers, chosen(func(k kind) bool {
		return k.speed && (strings.Contains(k.name, r.only) || k.name == kinds[0].name)
	}))
	if end := r.provider.close(); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	r.printSpeeds(callers, rows)
	return nil
}

func chosen(by func(kind) bool) []kind {
	var out []kind
	for _, k := range kinds {
		if by(k) {
			out = append(out, k)
		}
	}
	return out
}

// head says where and what is measured.
func (r *run) head() error {
	sync, err := syncTime(r.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s/%s, %d CPUs, %s, %s, load average %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		runtime.Version(), time.Now().UTC().Format(time.DateOnly), loadAverage())
	fmt.Fprintf(r.out, "%d rounds of %v, the provider works %v, a sync takes %v\n", r.rounds, r.round, r.work, sync.Round(10*time.Microsecond))
	told := map[string]bool{"": true}
	for _, k := range kinds {
		if !told[k.module] {
			told[k.module] = true
			fmt.Fprintf(r.out, "%s %s\n", k.module, version(k.module))
		}
	}
	return nil
}

// loadAverage is what the system says, where it says so.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
