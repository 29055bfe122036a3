package engine

// signal tells goroutines that something has happened. The channel is made when the first one waits. A
// lock guards the signal.
type signal struct {
	sent bool
	c    chan struct{} // closed when sent; nil: nobody has waited
}

func (s *signal) send() {
	if s.sent = true; s.c != nil {
		close(s.c)
	}
}

// channel returns a channel that is closed when the signal is sent.
func (s *signal) channel() <-chan struct{} {
	if s.c == nil {
		if s.c = make(chan struct{}); s.sent {
			close(s.c)
		}
	}
	return s.c
}

// change wakes the goroutines that wait for a state to change. Unlike a signal it is used again and again.
// A lock guards it.
type change struct {
	c chan struct{} // closed by the next notify; nil: no goroutine waits
}

func (ch *change) notify() {
	if ch.c != nil {
		close(ch.c)
		ch.c = nil
	}
}

// channel returns a channel that is closed by the next notify.
func (ch *change) channel() <-chan struct{} {
	if ch.c == nil {
		ch.c = make(chan struct{})
	}
	return ch.c
}
