package sqlite

// Die ends the handle as kill -9 would end its process: what is posted and not
// yet in a transaction is lost, nothing is given up or flushed, and the owner is
// dead. It is for tests; the handle is of no use afterwards.
func (s *Store) Die() {
	s.mu.Lock()
	s.closing = true
	s.posted, s.postedLen = nil, 0
	s.idle = make(chan struct{})
	if !s.busy {
		close(s.idle)
	}
	idle := s.idle
	s.mu.Unlock()
	close(s.done)
	<-idle
	s.helpers.Wait()
	s.closeOnce.Do(func() {}) // Close does nothing any more
	_ = s.closeConns()
	_ = s.owner.Release(false)
}
