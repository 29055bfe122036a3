package engine

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// rates are the tools that may be called so often a minute, by name and version:
// one that its source lists anew goes on with what it has used. Guarded by
// Engine.mu.
type rates struct {
	of    map[string]*rate.Limiter
	sweep int // entries at which those that nobody uses are forgotten
}

// minSweep is how many entries there are before any is forgotten.
const minSweep = 256

// overRate refuses a call too many of a tool. A minute's calls may come at once;
// then they are paced. Called with e.mu.
func (e *Engine) overRate(t *tool.Tool) *arcp.Error {
	n := t.Limits.RatePerMin
	if n <= 0 {
		return nil
	}
	now := time.Now()
	l := e.rates.limiter(t.Ref(), n, now)
	if l.AllowN(now, 1) {
		return nil
	}
	e.cfg.Metrics.RateLimited.WithLabelValues("tool_rate").Inc()
	next := l.ReserveN(now, 1)
	wait := next.DelayFrom(now)
	next.CancelAt(now) // it was only asked when
	return arcp.Errorf(arcp.CodeResourceExhausted, "%s is called more than %d times a minute", t.Name, n).
		RetryAfter(max(int(math.Ceil(wait.Seconds())), 1))
}

func (r *rates) limiter(ref string, perMin int, now time.Time) *rate.Limiter {
	limit := rate.Limit(float64(perMin) / 60)
	l := r.of[ref]
	switch {
	case l == nil:
		r.tidy(now)
		l = rate.NewLimiter(limit, perMin)
		r.of[ref] = l
	case l.Burst() != perMin:
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, perMin)
	}
	return l
}

// tidy forgets what has been used so little that it does not matter, each time
// that there are twice as many as were left.
func (r *rates) tidy(now time.Time) {
	if r.of == nil {
		r.of = make(map[string]*rate.Limiter)
	}
	if len(r.of) < max(r.sweep, minSweep) {
		return
	}
	for ref, l := range r.of {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.of, ref)
		}
	}
	r.sweep = 2 * len(r.of)
}
