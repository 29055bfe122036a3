package schedule

import (
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/teambition/rrule-go"
)

// Next returns the first occurrence after o. ok is false if there is none, if it is more than 100 years
// away, or if it is not found with a bounded number of steps.
func (r *Rule) Next(o Occurrence) (next Occurrence, ok bool) {
	steps := maxSteps
	return r.next(o, &steps)
}

// next is Next with the number of steps that are left.
func (r *Rule) next(o Occurrence, steps *int) (next Occurrence, ok bool) {
	if r.count > 0 && o.N >= r.count {
		return Occurrence{}, false
	}
	at, ok := r.find(o.At, steps)
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

// find returns the first time of the rule after an instant, without its COUNT and its UNTIL. It looks at
// one period after the other.
func (r *Rule) find(after time.Time, steps *int) (time.Time, bool) {
	from := wallOf(after.In(r.zone))
	if from.Before(r.start) {
		from = r.start
	}
	end := from.AddDate(horizon, 0, 0)
	for p := r.period(from); !p.After(end) && *steps > 0; {
		if unit := r.mismatch(p); unit > 0 {
			*steps--
			p = r.skip(p, unit)
			continue
		}
		times := r.expand(p, steps)
		for i := range times.indexes(from, r.positions) {
			wall := times.at(i)
			if at, ok := instantOf(wall, r.zone); ok && at.After(after) && !wall.Before(r.start) {
				return at, true
			}
		}
		p = r.nextPeriod(p)
	}
	return time.Time{}, false
}

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

// mismatch returns the unit at p, a day, an hour, a minute or a second, that a rule with periods shorter
// than a day leaves out; 0: none.
func (r *Rule) mismatch(p time.Time) time.Duration {
	leftOut := func(part []int, n int) bool { return len(part) > 0 && !slices.Contains(part, n) }
	switch {
	case r.freq < rrule.HOURLY:
		return 0
	case !r.matchesDay(p):
		return day
	case leftOut(r.hours, p.Hour()):
		return time.Hour
	case r.freq >= rrule.MINUTELY && leftOut(r.minutes, p.Minute()):
		return time.Minute
	case r.freq >= rrule.SECONDLY && leftOut(r.seconds, p.Second()):
		return time.Second
	}
	return 0
}

// skip returns the first period that begins after the unit at p.
func (r *Rule) skip(p time.Time, unit time.Duration) time.Time {
	end := p.Truncate(unit).Add(unit)
	return addSteps(p, end.Unix()-p.Unix(), r.step(), true)
}

// expand returns the wall clock times of the rule in a period. Each day that it looks at is a step.
func (r *Rule) expand(p time.Time, steps *int) timeSet {
	switch r.freq {
	case rrule.SECONDLY:
		*steps--
		return timeSet{[]time.Time{p}, none, none, none}
	case rrule.MINUTELY:
		*steps--
		return timeSet{[]time.Time{p}, none, none, r.seconds}
	case rrule.HOURLY:
		*steps--
		return timeSet{[]time.Time{p}, none, r.minutes, r.seconds}
	}
	end := p.Add(day)
	switch r.freq {
	case rrule.YEARLY:
		end = p.AddDate(1, 0, 0)
	case rrule.MONTHLY:
		end = p.AddDate(0, 1, 0)
	case rrule.WEEKLY:
		end = p.Add(week)
	}
	var days []time.Time
	for d := p; d.Before(end); d = d.Add(day) {
		*steps--
		if r.matchesDay(d) {
			days = append(days, d)
		}
	}
	return timeSet{days, r.hours, r.minutes, r.seconds}
}

// timeSet is the product of days, hours, minutes and seconds, in order.
type timeSet struct {
	days                    []time.Time
	hours, minutes, seconds []int
}

// none is the part of a timeSet that the days contain already.
var none = []int{0}

func (s *timeSet) perDay() int { return len(s.hours) * len(s.minutes) * len(s.seconds) }

// at returns the i-th time.
func (s *timeSet) at(i int) time.Time {
	d := s.days[i/s.perDay()]
	second := s.seconds[i%len(s.seconds)]
	i /= len(s.seconds)
	minute := s.minutes[i%len(s.minutes)]
	hour := s.hours[i/len(s.minutes)%len(s.hours)]
	return d.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second)
}

// indexes returns the indexes of the times at some positions, from 1 on or from the end if negative, in
// order. Without positions it returns all indexes but those of the days before from.
func (s *timeSet) indexes(from time.Time, positions []int) iter.Seq[int] {
	n := len(s.days) * s.perDay()
	return func(yield func(int) bool) {
		if len(positions) == 0 {
			first := sort.Search(len(s.days), func(i int) bool { return s.days[i].Add(day).After(from) })
			for i := first * s.perDay(); i < n && yield(i); i++ {
			}
			return
		}
		var chosen []int
		for _, pos := range positions {
			if pos < 0 {
				pos += n + 1
			}
			if pos >= 1 && pos <= n {
				chosen = append(chosen, pos-1)
			}
		}
		for _, i := range ascending(chosen) {
			if !yield(i) {
				return
			}
		}
	}
}

// matchesDay reports whether the day of a wall clock time is in the rule.
func (r *Rule) matchesDay(d time.Time) bool {
	year, month, dayOfMonth := d.Date()
	return (len(r.months) == 0 || slices.Contains(r.months, int(month))) &&
		matchesNumber(r.monthDays, dayOfMonth, daysIn(year, month)) &&
		matchesNumber(r.yearDays, d.YearDay(), daysOf(year)) &&
		(len(r.weekNumbers) == 0 || r.matchesWeek(d)) &&
		(len(r.weekdays) == 0 || slices.ContainsFunc(r.weekdays, func(w weekday) bool { return r.matchesWeekday(w, d) }))
}

// matchesNumber reports whether the n-th of a number of days is in a part, which counts negative numbers
// from the end.
func matchesNumber(part []int, n, of int) bool {
	return len(part) == 0 || slices.Contains(part, n) || slices.Contains(part, n-of-1)
}

// matchesWeekday reports whether a day is the weekday w of its month, or of its year in a yearly rule
// without BYMONTH.
func (r *Rule) matchesWeekday(w weekday, d time.Time) bool {
	if d.Weekday() != w.day || w.n == 0 {
		return d.Weekday() == w.day
	}
	n, of := d.Day(), daysIn(d.Year(), d.Month())
	if r.freq == rrule.YEARLY && len(r.months) == 0 {
		n, of = d.YearDay(), daysOf(d.Year())
	}
	if w.n > 0 {
		return (n-1)/7+1 == w.n
	}
	return -((of-n)/7 + 1) == w.n
}

// matchesWeek reports whether the week of a day is in BYWEEKNO. Week 1 of a year is the first one with
// at least four days in the year.
func (r *Rule) matchesWeek(d time.Time) bool {
	middle := r.middle(d)
	last := r.middle(time.Date(middle.Year(), time.December, 31, 0, 0, 0, 0, time.UTC))
	if last.Year() != middle.Year() {
		last = last.Add(-week)
	}
	return matchesNumber(r.weekNumbers, (middle.YearDay()-1)/7+1, (last.YearDay()-1)/7+1)
}

// middle returns the fourth day of the week of a day.
func (r *Rule) middle(d time.Time) time.Time {
	return d.Add(day * time.Duration(3-(d.Weekday()-r.wkst+7)%7))
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func daysOf(year int) int { return time.Date(year, time.December, 31, 0, 0, 0, 0, time.UTC).YearDay() }
