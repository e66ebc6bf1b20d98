package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// stop ends a process in order: nothing new comes in, what is open comes to its
// end, what was recorded is synced, and the file is closed. What takes longer than
// ctx is left to the next process, as after a crash.
func stop(ctx context.Context, server *http.Server, client *idem.Client, journal *idem.SQLiteJournal) error {
	return errors.Join(
		server.Shutdown(ctx), // no new requests of others
		client.Shutdown(ctx), // no new calls, and no Run; it waits for the open ones
		journal.Close(),      // last: the open calls write to it
	)
}

func Example_gracefulShutdown() {
	s := setStage(keyed(), faultinjection.Hold)
	defer s.close()
	client, journal := s.open("payments.db", keyed())
	ran := make(chan error, 1)
	go func() { ran <- client.Run(context.Background()) }()
	open := make(chan string, 1)
	go func() {
		said, err := charges(context.Background(), client, s.url, "order-42", 4200)
		open <- fmt.Sprint(said, " ", err)
	}()
	must(s.server.AwaitHeld(context.Background(), 1)) // the provider works on it

	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		stopped <- stop(ctx, &http.Server{}, client, journal)
	}()
	fmt.Println("Run:", <-ran) // the shutdown has begun
	_, err := charges(context.Background(), client, s.url, "order-43", 4200)
	fmt.Println("new call:", errors.Is(err, idem.ErrNotSent), errors.Is(err, idem.ErrClosed))
	s.server.Release()
	fmt.Println("open call:", <-open)
	fmt.Println("stopped:", <-stopped)
	// Output:
	// Run: <nil>
	// new call: true true
	// open call: charged <nil>
	// stopped: <nil>
}

// openPod opens the journal of one pod on its own volume. first is true in the
// rollout that brings a new, empty volume, and at no other time: a volume that was
// not mounted is then an error, and not a journal that has forgotten everything.
func openPod(volume, pod string, first bool) (*idem.SQLiteJournal, error) {
	return idem.Open(filepath.Join(volume, pod+".db"), &idem.SQLiteOptions{MustExist: !first})
}

func Example_kubernetes() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	client := func(journal *idem.SQLiteJournal) *idem.Client {
		c := newWorker(journal, "shop", s.host, []byte("of all pods")) // a message may be delivered to another pod
		c.Transport.Retry.MaxAttempts = 1
		return c
	}
	journal, err := openPod(s.dir, "shop-0", true)
	must(err)
	said, _ := charges(context.Background(), client(journal), s.url, "order-42", 4200)
	fmt.Println(said)
	must(journal.Close()) // the pod is gone

	_, err = openPod(filepath.Join(s.dir, "not-mounted"), "shop-0", false)
	fmt.Println("no volume:", errors.Is(err, idem.ErrJournal))

	time.Sleep(20 * time.Millisecond)
	journal, err = openPod(s.dir, "shop-0", false) // the pod is back, with its volume
	must(err)
	report, err := client(journal).Resume(context.Background()) // Run does it all the time
	fmt.Println(report.Settled, "settled", err)
	must(journal.Close())
	s.tell()
	// Output:
	// pending
	// no volume: true
	// 1 settled <nil>
	// 2 arrivals, 1 effects
}
