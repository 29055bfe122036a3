package schedule

import (
	"time"

	"github.com/teambition/rrule-go"
)

// date is a day of the calendar.
type date struct {
	year    int
	month   time.Month
	day     int // of the month
	yearDay int
	weekday time.Weekday
}

func dateOf(wall time.Time) date {
	year, month, day := wall.Date()
	return date{year, month, day, wall.YearDay(), wall.Weekday()}
}

// nextMonth returns the start of the month after d.
func (d *date) nextMonth() time.Time {
	return time.Date(d.year, d.month+1, 1, 0, 0, 0, 0, time.UTC)
}

func (r *Rule) matchesMonth(d *date) bool {
	return !r.months.some || r.months.has(int(d.month), 12)
}

// matchesDay reports whether a day, in a month of the rule, is in the rule.
func (r *Rule) matchesDay(d *date) bool {
	return (!r.byDay || r.matchesWeekday(d)) &&
		(!r.monthDays.some || r.monthDays.has(d.day, daysIn(d.year, d.month))) &&
		(!r.yearDays.some || r.yearDays.has(d.yearDay, daysOf(d.year))) &&
		(!r.weekNumbers.some || r.matchesWeek(d))
}

// matchesWeekday reports whether a day is in BYDAY. The numbers of weekdays count those of the month, or
// those of the year in a yearly rule without BYMONTH.
func (r *Rule) matchesWeekday(d *date) bool {
	w := &r.weekdays[d.weekday]
	if w.each || !w.nth.some {
		return w.each
	}
	n, of := d.day, daysIn(d.year, d.month)
	if r.freq == rrule.YEARLY && !r.months.some {
		n, of = d.yearDay, daysOf(d.year)
	}
	before, after := (n-1)/7, (of-n)/7
	return w.nth.has(before+1, before+1+after)
}

// matchesWeek reports whether the week of a day is in BYWEEKNO. A week belongs to the year that has four
// of its days.
func (r *Rule) matchesWeek(d *date) bool {
	fourth := d.yearDay + 3 - int(d.weekday-r.wkst+7)%7 // its day of the year
	of := daysOf(d.year)
	switch {
	case fourth < 1:
		of = daysOf(d.year - 1)
		fourth += of
	case fourth > of:
		fourth -= of
		of = daysOf(d.year + 1)
	}
	before, after := (fourth-1)/7, (of-fourth)/7
	return r.weekNumbers.has(before+1, before+1+after)
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		return daysOf(year) - 337
	}
	return 31
}

func daysOf(year int) int {
	if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 366
	}
	return 365
}
