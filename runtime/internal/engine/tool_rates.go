package engine

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolRates limits the calls of tools per minute, by name and version. A tool that its source registers
// again keeps its count. It is guarded by Engine.mu.
type toolRates struct {
	limiters map[string]*rate.Limiter
	sweepAt  int // number of entries at which unused ones are removed
}

// minSweep is the least number of entries at which unused ones are removed.
const minSweep = 256

// check counts a call of a tool, or refuses it. The calls of a minute may arrive at once; later calls
// are paced.
func (r *toolRates) check(t *tool.Tool) *limitError {
	n := t.Limits.RatePerMin
	if n <= 0 {
		return nil
	}
	now := time.Now()
	l := r.limiter(t.Ref(), n, now)
	if l.AllowN(now, 1) {
		return nil
	}
	next := l.ReserveN(now, 1)
	wait := next.DelayFrom(now)
	next.CancelAt(now) // only the delay was needed
	return &limitError{"tool_rate", arcp.Errorf(arcp.CodeResourceExhausted, "%s is called more than %d times a minute", t.Name, n).
		RetryAfter(max(int(math.Ceil(wait.Seconds())), 1))}
}

func (r *toolRates) limiter(ref string, perMin int, now time.Time) *rate.Limiter {
	limit := rate.Limit(float64(perMin) / 60)
	l := r.limiters[ref]
	switch {
	case l == nil:
		r.removeUnused(now)
		l = rate.NewLimiter(limit, perMin)
		r.limiters[ref] = l
	case l.Burst() != perMin:
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, perMin)
	}
	return l
}

// removeUnused removes unused limiters each time that the number of limiters has doubled.
func (r *toolRates) removeUnused(now time.Time) {
	if r.limiters == nil {
		r.limiters = make(map[string]*rate.Limiter)
	}
	if len(r.limiters) < max(r.sweepAt, minSweep) {
		return
	}
	for ref, l := range r.limiters {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.limiters, ref)
		}
	}
	r.sweepAt = 2 * len(r.limiters)
}
