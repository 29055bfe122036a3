package conn

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rates are the limiters of a connection; nil: any number.
type rates struct {
	limiter  *rate.Limiter // of its frames
	share    *rate.Limiter // of the frames of all connections of its principal
	critical *rate.Limiter // of its submits with priority critical; nil: there was none yet
	paused   time.Time     // no frame is handled before; zero: not paused
}

// newLimiter bounds frames a minute; nil: any number.
func newLimiter(perMin int) *rate.Limiter {
	if perMin <= 0 {
		return nil
	}
	return rate.NewLimiter(perMinute(perMin), burst(perMin))
}

func perMinute(n int) rate.Limit { return rate.Limit(float64(n) / 60) }

func burst(perMin int) int { return perMin/60 + 1 }

// ratePerMin is what the limiter was made with.
func ratePerMin(l *rate.Limiter) int { return int(math.Round(60 * float64(l.Limit()))) }

// shares are the rates that the auth file gives to principals, each of which
// counts for all connections of the principal together. It knows those that have
// a connection. The zero value is ready for use, by any number of goroutines.
type shares struct {
	mu sync.Mutex
	of map[string]*share
}

type share struct {
	limiter *rate.Limiter
	conns   int
}

// join returns the limiter of a principal for one more of its connections; what
// is configured now then counts for the others, too.
func (s *shares) join(now time.Time, principal string, perMin int) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[principal]
	if p == nil {
		p = &share{limiter: newLimiter(perMin)}
		if s.of == nil {
			s.of = make(map[string]*share)
		}
		s.of[principal] = p
	}
	p.conns++
	if ratePerMin(p.limiter) != perMin {
		p.limiter.SetLimitAt(now, perMinute(perMin))
		p.limiter.SetBurstAt(now, burst(perMin))
	}
	return p.limiter
}

func (s *shares) leave(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[principal]
	if p.conns--; p.conns == 0 {
		delete(s.of, principal)
	}
}

// bound gives the connection its part of its principal's rate, if that has one.
func (c *conn) bound(now time.Time) {
	if n := c.principal.identity.Limits.RatePerMin; n > 0 {
		c.rates.share = c.srv.shares.join(now, c.principal.identity.Principal, n)
	}
}

func (c *conn) unbound() {
	if c.rates.share != nil {
		c.srv.shares.leave(c.principal.identity.Principal)
	}
}

// exceeded is the limiter that refuses one more frame; nil: none does.
func (c *conn) exceeded(now time.Time) *rate.Limiter {
	for _, l := range [...]*rate.Limiter{c.rates.limiter, c.rates.share} {
		if l != nil && !l.AllowN(now, 1) {
			return l
		}
	}
	return nil
}
