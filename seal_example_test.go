package idem_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/idem-go/idem"
)

// A journal whose requests and answers are sealed, and what becomes of it
// without the key.
func ExampleNewAESGCM() {
	path, remove := tempFile("payments.db")
	defer remove()
	key := []byte("32 random bytes, of your secrets") // never in the source

	sealer, err := idem.NewAESGCM(map[string][]byte{"2026-11": key}, "2026-11")
	if err != nil {
		log.Fatal(err)
	}
	journal, err := idem.Open(path, &idem.SQLiteOptions{Sealer: sealer})
	if err != nil {
		log.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = idem.Open(path, nil)
	fmt.Println(errors.Is(err, idem.ErrSealed))
	// Output: true
}
