package conn

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// rates are the limiters of a connection. A nil limiter has no bound.
type rates struct {
	c          *conn
	connection *rate.Limiter // of its frames
	principal  *rate.Limiter // of the frames of all connections of its principal
	critical   *rate.Limiter // of its submits with priority critical; nil: there was none yet
	paused     time.Time     // until which no frame is handled; zero: not paused
}

// pause pauses the connection until a limiter admits the next frame, for a second at most.
func (r *rates) pause(now time.Time, l *rate.Limiter) {
	next := l.ReserveN(now, 1)
	r.paused = now.Add(min(time.Second, next.DelayFrom(now)))
	next.CancelAt(now) // only the delay is needed
}

// resume ends the pause if its time has passed.
func (r *rates) resume() {
	if !r.paused.IsZero() && !time.Now().Before(r.paused) {
		r.paused = time.Time{}
	}
}

// maxCritical bounds the submits with priority critical of a connection, a second.
const maxCritical = 10

// clampPriority lowers priority critical to high above maxCritical.
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

// refuse refuses a message above the rate of the connection or of its principal, and reports
// whether it does. It pauses the connection, so that the client has to wait.
func (r *rates) refuse(now time.Time, env *arcp.Envelope) bool {
	c := r.c
	if c.machine.Phase() != machine.Accepted || exemptFromRate(env.Type) {
		return false
	}
	limiter := r.exceeded(now)
	if limiter == nil {
		return false
	}
	c.srv.opts.Metrics.RateLimited.WithLabelValues("frames").Inc()
	c.nack(now, env.ID, arcp.Errorf(arcp.CodeResourceExhausted, "more than %d messages a minute", ratePerMin(limiter)).RetryAfter(1))
	r.pause(now, limiter)
	return true
}

// exemptFromRate reports whether a type does not count against the rate.
func exemptFromRate(t arcp.Type) bool {
	switch t {
	case arcp.Ping, arcp.Pong, arcp.SessionPing, arcp.SessionPong, arcp.SessionAck, arcp.Ack:
		return true
	}
	return false
}

// exceeded counts a frame, and returns the limiter that refuses it; nil: none.
func (r *rates) exceeded(now time.Time) *rate.Limiter {
	for _, l := range [...]*rate.Limiter{r.connection, r.principal} {
		if l != nil && !l.AllowN(now, 1) {
			return l
		}
	}
	return nil
}

// newLimiter returns a limiter of frames a minute; nil, which has no bound, unless perMin is
// positive.
func newLimiter(perMin int) *rate.Limiter {
	if perMin <= 0 {
		return nil
	}
	return rate.NewLimiter(perMinute(perMin), burst(perMin))
}

func perMinute(n int) rate.Limit { return rate.Limit(float64(n) / 60) }

func burst(perMin int) int { return perMin/60 + 1 }

// ratePerMin returns the bound of a limiter in frames a minute.
func ratePerMin(l *rate.Limiter) int { return int(math.Round(60 * float64(l.Limit()))) }

// principalLimiters has the limiters of the principals for which the auth file sets a rate. All
// connections of a principal share its limiter, which exists while there is a connection. Any
// goroutine may call its methods. The zero value is ready for use.
type principalLimiters struct {
	mu          sync.Mutex
	byPrincipal map[string]*principalLimiter
}

type principalLimiter struct {
	limiter *rate.Limiter
	conns   int
}

// join returns the limiter of a principal for a new connection. The rate also applies to the
// principal's other connections from now on.
func (pl *principalLimiters) join(now time.Time, principal string, perMin int) *rate.Limiter {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	p := pl.byPrincipal[principal]
	if p == nil {
		p = &principalLimiter{limiter: newLimiter(perMin)}
		if pl.byPrincipal == nil {
			pl.byPrincipal = make(map[string]*principalLimiter)
		}
		pl.byPrincipal[principal] = p
	}
	p.conns++
	if ratePerMin(p.limiter) != perMin {
		p.limiter.SetLimitAt(now, perMinute(perMin))
		p.limiter.SetBurstAt(now, burst(perMin))
	}
	return p.limiter
}

// leave removes a connection of a principal.
func (pl *principalLimiters) leave(principal string) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	p := pl.byPrincipal[principal]
	if p.conns--; p.conns == 0 {
		delete(pl.byPrincipal, principal)
	}
}
