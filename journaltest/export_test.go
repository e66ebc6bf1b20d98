package journaltest

import "github.com/idem-go/idem"

// Memory is a store in memory with any number of handles.
func Memory() Store {
	s := newStore()
	return Store{
		Open: func() (idem.Journal, error) { return s.open(), nil },
		Kill: func(j idem.Journal) { j.(*handle).kill() },
	}
}
