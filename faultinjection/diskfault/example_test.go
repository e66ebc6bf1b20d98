package diskfault_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection/diskfault"
)

// A journal whose disk is full says so when it is opened; once there is room it
// opens.
func Example() {
	if _, err := diskfault.Register(); err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "diskfault")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "payments.db")
	if err := diskfault.SetHook(path, diskfault.FailNth(diskfault.Write, 1, diskfault.DiskFull, true)); err != nil {
		log.Fatal(err)
	}
	_, err = idem.Open(path, nil)
	fmt.Println(errors.Is(err, idem.ErrJournal))

	if err := diskfault.SetHook(path, nil); err != nil {
		log.Fatal(err)
	}
	journal, err := idem.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(journal.Close())
	// Output:
	// true
	// <nil>
}
