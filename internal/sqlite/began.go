package sqlite

// begins is the instant of an attempt that begins now. No two attempts of a
// handle begin at once, and none before an earlier one, whatever the wall clock
// does: after a death the order of these instants says whom to suspect.
func (s *Store) begins() int64 {
	for {
		last := s.began.Load()
		now := max(s.Clock.Now().UnixNano(), last+1)
		if s.began.CompareAndSwap(last, now) {
			return now
		}
	}
}
