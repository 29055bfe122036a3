package schedule

import (
	"iter"
	"slices"
	"time"

	"github.com/teambition/rrule-go"
)

// units has the length of a period; 0: it differs.
var units = [...]time.Duration{
	rrule.YEARLY: 0, rrule.MONTHLY: 0,
	rrule.WEEKLY: week, rrule.DAILY: day, rrule.HOURLY: time.Hour, rrule.MINUTELY: time.Minute, rrule.SECONDLY: time.Second,
}

// step returns the length of a period with its interval; 0 for months and years.
func (r *Rule) step() time.Duration {
	return units[r.freq] * time.Duration(r.interval)
}

// origin returns the start of the period of DTSTART.
func (r *Rule) origin() time.Time {
	y, m, d := r.start.Date()
	switch r.freq {
	case rrule.YEARLY:
		return time.Date(y, time.January, 1, 0, 0, 0, 0, time.UTC)
	case rrule.MONTHLY:
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case rrule.WEEKLY:
		return time.Date(y, m, d-int(r.start.Weekday()-r.wkst+7)%7, 0, 0, 0, 0, time.UTC)
	case rrule.DAILY:
		return r.start.Truncate(day)
	case rrule.HOURLY:
		return r.start.Truncate(time.Hour)
	case rrule.MINUTELY:
		return r.start.Truncate(time.Minute)
	}
	return r.start
}

// period returns the start of the last period of the rule that begins at or before a wall clock time,
// which is not before DTSTART.
func (r *Rule) period(wall time.Time) time.Time {
	origin := r.origin()
	if step := r.step(); step > 0 {
		return addSteps(origin, wall.Unix()-origin.Unix(), step, false)
	}
	months := 12*(wall.Year()-origin.Year()) + int(wall.Month()-origin.Month())
	every := r.monthsEach()
	return origin.AddDate(0, months/every*every, 0)
}

func (r *Rule) nextPeriod(p time.Time) time.Time {
	if step := r.step(); step > 0 {
		return p.Add(step)
	}
	return p.AddDate(0, r.monthsEach(), 0)
}

func (r *Rule) monthsEach() int {
	if r.freq == rrule.YEARLY {
		return 12 * r.interval
	}
	return r.interval
}

// addSteps adds the steps that fit into a number of seconds, or one more with up if they leave a rest.
func addSteps(from time.Time, seconds int64, step time.Duration, up bool) time.Time {
	each := int64(step / time.Second)
	n := seconds / each
	if up && seconds%each > 0 {
		n++
	}
	return time.Unix(from.Unix()+n*each, 0).UTC()
}

// leftOut returns the end of the month, day, hour, minute or second at p that a rule with periods of at
// most a day leaves out.
func (r *Rule) leftOut(p time.Time) (end time.Time, ok bool) {
	misses := func(part []int, n int) bool {
		_, found := slices.BinarySearch(part, n)
		return len(part) > 0 && !found
	}
	if r.freq < rrule.DAILY {
		return time.Time{}, false
	}
	unit := time.Duration(0)
	switch d := dateOf(p); {
	case !r.matchesMonth(&d):
		return d.nextMonth(), true
	case !r.matchesDay(&d):
		unit = day
	case r.freq >= rrule.HOURLY && misses(r.hours, p.Hour()):
		unit = time.Hour
	case r.freq >= rrule.MINUTELY && misses(r.minutes, p.Minute()):
		unit = time.Minute
	case r.freq >= rrule.SECONDLY && misses(r.seconds, p.Second()):
		unit = time.Second
	}
	return p.Truncate(unit).Add(unit), unit > 0
}

// days returns the days of the rule in a period, from a day on. A period of at most a day is one day.
func (s *search) days(p, from time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if s.freq >= rrule.DAILY {
			yield(p)
			return
		}
		for t, end := latest(p, from), s.end(p); t.Before(end) && s.spend(dayStep); {
			d := dateOf(t)
			if !s.matchesMonth(&d) {
				t = d.nextMonth()
				continue
			}
			if s.matchesDay(&d) && !yield(t) {
				return
			}
			t = t.Add(day)
		}
	}
}

// end returns the end of a period of more than a day.
func (r *Rule) end(p time.Time) time.Time {
	switch r.freq {
	case rrule.YEARLY:
		return p.AddDate(1, 0, 0)
	case rrule.MONTHLY:
		return p.AddDate(0, 1, 0)
	}
	return p.Add(week)
}
