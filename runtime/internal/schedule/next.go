package schedule

import (
	"slices"
	"time"
)

// next returns the first occurrence after o. ok is false if there is none, if it is more than 100 years
// away, or if the budget is used up.
func (r *Rule) next(o Occurrence, b *Budget) (next Occurrence, ok bool) {
	if r.count > 0 && o.N >= r.count {
		return Occurrence{}, false
	}
	at, ok := r.find(o.At, b)
	if !ok || !r.until.IsZero() && at.After(r.until) {
		return Occurrence{}, false
	}
	next.At = at
	if r.count > 0 {
		next.N = o.N + 1
	}
	return next, true
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// search looks for the first time of a rule after an instant, without its COUNT and its UNTIL.
type search struct {
	*Rule
	*Budget
	after time.Time
	from  time.Time // the earliest wall clock time that can be an occurrence after that
}

// find returns the first time of the rule after an instant. It looks at one period after the other.
func (r *Rule) find(after time.Time, b *Budget) (time.Time, bool) {
	if !b.spend(searchStep) {
		return time.Time{}, false
	}
	s := search{r, b, after, latest(wallOf(after.In(r.zone)).Add(time.Second), r.start)}
	end := s.from.AddDate(horizon, 0, 0)
	for p := r.period(s.from); !p.After(end) && s.spend(periodStep); {
		if rest, ok := r.leftOut(p); ok {
			p = addSteps(p, rest.Unix()-p.Unix(), r.step(), true)
			continue
		}
		if at, ok := s.findIn(p); ok {
			return at, true
		}
		p = r.nextPeriod(p)
	}
	return time.Time{}, false
}

// findIn returns the first time in a period.
func (s *search) findIn(p time.Time) (at time.Time, ok bool) {
	var days [366]uint16
	if len(s.positions) > 0 {
		n := 0
		for d := range s.days(p, p) {
			days[n] = uint16(d.Sub(p) / day)
			n++
		}
		return s.firstOf(s.times(p, days[:n]))
	}
	for d := range s.days(p, s.from.Truncate(day)) {
		if at, ok = s.firstOf(s.times(d, days[:1])); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// firstOf returns the first one of the times that are in BYSETPOS.
func (s *search) firstOf(times timeSet) (at time.Time, ok bool) {
	first := times.index(s.from, s.Budget)
	for i := s.position(first, times.len()); i < times.len() && !s.empty(); i = s.position(i+1, times.len()) {
		if at, ok = s.instant(&times, i); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// position returns the first index of n, from i on, that is in BYSETPOS: k is the index k-1, and -k is the
// index n-k. It returns n if there is none.
func (s *search) position(i, n int) int {
	if len(s.positions) == 0 || !s.spend(positionStep) {
		return i
	}
	next := n
	if k, _ := slices.BinarySearch(s.positions, i+1); k < len(s.positions) {
		next = min(next, s.positions[k]-1)
	}
	if k, _ := slices.BinarySearch(s.positions, i-n); k < len(s.positions) && s.positions[k] < 0 {
		next = min(next, s.positions[k]+n)
	}
	return next
}

// instant returns the instant of the i-th time. ok is false if no clock shows it after s.after, or if the
// budget is used up.
func (s *search) instant(times *timeSet, i int) (at time.Time, ok bool) {
	if !s.spend(timeStep + instantStep) {
		return time.Time{}, false
	}
	if at, ok = instantOf(times.at(i), s.zone); !ok {
		s.spend(gapStep)
	}
	return at, ok && at.After(s.after)
}

func latest(t, u time.Time) time.Time {
	if t.After(u) {
		return t
	}
	return u
}
