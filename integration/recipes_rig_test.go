package integration

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
	"github.com/idem-go/idem/faultinjection"
)

// The files recipes_*_test.go hold the recipes of docs/recipes.md: what is copied
// from there stands first, and an Example that runs it comes after it.

// stage is what a recipe runs on: a provider on loopback that fails as planned.
type stage struct {
	ledger *faultinjection.Ledger
	server *faultinjection.Server
	host   string
	url    string
	dir    string
	close  func()
}

func setStage(c *contract.Contract, steps ...faultinjection.Step) *stage {
	ledger, err := faultinjection.OpenLedger("")
	must(err)
	s := &stage{ledger: ledger, server: faultinjection.NewServer(c, ledger)}
	s.server.Plan(steps...)
	s.server.Effect = says(http.StatusCreated, charge)
	listening := httptest.NewServer(s.server)
	s.url, s.host = listening.URL, strings.TrimPrefix(listening.URL, "http://")
	s.dir, err = os.MkdirTemp("", "idem")
	must(err)
	s.close = func() {
		s.server.Release()
		listening.CloseClientConnections()
		listening.Close()
		must(ledger.Close())
		must(os.RemoveAll(s.dir))
	}
	return s
}

// open makes a client over a journal of that name.
func (s *stage) open(journal string, api *contract.Contract) (*idem.Client, *idem.SQLiteJournal) {
	j, err := idem.Open(filepath.Join(s.dir, journal), nil)
	must(err)
	return idem.NewClient(&idem.Transport{
		Journal: j, Contracts: api.At(s.host), Retry: idem.RetryPolicy{MinBackoff: 10 * time.Millisecond},
	}), j
}

// tell prints what the provider has seen.
func (s *stage) tell() {
	counts, err := s.ledger.Counts()
	must(err)
	fmt.Println(counts.Arrivals, "arrivals,", counts.Effects, "effects")
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
