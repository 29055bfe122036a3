package conn

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
)

// rates are the limiters of a connection; nil: any number.
type rates struct {
	limiter  *rate.Limiter // of its frames
	share    *rate.Limiter // of the frames of all connections of its principal
	critical *rate.Limiter // of its submits with priority critical; nil: there was none yet
	paused   time.Time     // no frame is handled until then; zero: not paused
}

// pause makes the loop handle no frame until a limiter admits the next one, but for a second at
// most.
func (r *rates) pause(now time.Time, l *rate.Limiter) {
	next := l.ReserveN(now, 1)
	r.paused = now.Add(min(time.Second, next.DelayFrom(now)))
	next.CancelAt(now) // only the delay is needed
}

// resume ends a pause that is over.
func (r *rates) resume() {
	if !r.paused.IsZero() && !time.Now().Before(r.paused) {
		r.paused = time.Time{}
	}
}

// maxCritical bounds the submits of a connection a second with priority critical.
const maxCritical = 10

// clampPriority lowers priority critical to high above maxCritical submits a second.
func (r *rates) clampPriority(now time.Time, env *arcp.Envelope) {
	if env.Priority != arcp.PriorityCritical {
		return
	}
	if r.critical == nil {
		r.critical = rate.NewLimiter(maxCritical, maxCritical)
	}
	if !r.critical.AllowN(now, 1) {
		env.Priority = arcp.PriorityHigh
	}
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

// ratePerMin returns the frames a minute for which a limiter was made.
func ratePerMin(l *rate.Limiter) int { return int(math.Round(60 * float64(l.Limit()))) }

// shares are the limiters of principals for which the auth file sets a rate. A limiter is shared by
// all connections of its principal, and exists while there is one. Its methods may be called
// by any number of goroutines. The zero value is ready for use.
type shares struct {
	mu sync.Mutex
	of map[string]*share
}

type share struct {
	limiter *rate.Limiter
	conns   int
}

// join returns the limiter of a principal for one more of its connections. The rate applies to
// its other connections from now on, too.
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

// leave drops a connection of a principal.
func (s *shares) leave(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of[principal]
	if p.conns--; p.conns == 0 {
		delete(s.of, principal)
	}
}

// exceeded returns the limiter that refuses one more frame; nil: none does.
func (r *rates) exceeded(now time.Time) *rate.Limiter {
	for _, l := range [...]*rate.Limiter{r.limiter, r.share} {
		if l != nil && !l.AllowN(now, 1) {
			return l
		}
	}
	return nil
}
