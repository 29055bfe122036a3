package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/teambition/rrule-go"
)

// Bounds of a rule.
const (
	MaxRule = 4 << 10 // bytes of its text

	// horizon is the number of years in which a search looks for an occurrence. The rarest date that
	// people schedule, February 29 on a given weekday, comes at least every 40 years.
	horizon = 100

	// maxTimes is the number of times of day of a rule: every second of an hour, or every minute of a day.
	maxTimes = 3600
)

// Rule is a parsed recurrence rule.
type Rule struct {
	start    time.Time // wall clock time of DTSTART
	zone     *time.Location
	freq     rrule.Frequency
	interval int
	count    uint64    // occurrences; 0: no bound
	until    time.Time // instant of the last possible occurrence; zero: no bound
	wkst     time.Weekday

	months, monthDays, yearDays, weekNumbers numbers
	byDay                                    bool       // the rule has BYDAY
	weekdays                                 [7]weekday // those in BYDAY
	hours, minutes, seconds                  []int      // ascending; nil: any, at frequencies that step over them
	positions                                []int      // BYSETPOS
}

// weekday has the elements of BYDAY for a day of the week.
type weekday struct {
	each bool
	nth  numbers // of the month or of the year
}

// Occurrence is a time at which a rule is due.
type Occurrence struct {
	At time.Time // in UTC
	N  uint64    // its number in the rule from DTSTART on, if the rule has a COUNT, else 0
}

// Parse parses a rule that is scheduled at a time. Without DTSTART the rule starts at that time, rounded up
// to a full second. The error says why the rule is refused. A rule that is not refused may have no
// occurrence.
func Parse(text string, now time.Time) (*Rule, error) {
	if len(text) > MaxRule {
		return nil, fmt.Errorf("the rule has %d bytes; the limit is %d", len(text), MaxRule)
	}
	lines := strings.Fields(text) // no part of a rule has white space
	start := ceilSecond(now.UTC())
	if len(lines) == 2 {
		value, ok := strings.CutPrefix(lines[0], "DTSTART")
		if !ok || len(value) < 2 {
			return nil, errors.New("the line before the rule must be DTSTART")
		}
		var err error
		if start, err = rrule.StrToDtStart(value[1:], time.UTC); err != nil {
			return nil, fmt.Errorf("DTSTART: %w", err)
		}
	} else if len(lines) != 1 {
		return nil, errors.New("a rule is a line RRULE, with a line DTSTART before it at most")
	}
	line := strings.TrimPrefix(lines[len(lines)-1], "RRULE:")
	if err := checkParts(line); err != nil {
		return nil, err
	}
	if start.Location() == time.Local || start.Year() < 1 || start.Year() > 9000 {
		return nil, errors.New("DTSTART needs a zone of the time zone database, or UTC, and a year up to 9000")
	}
	o, err := rrule.StrToROptionInLocation(line, start.Location())
	if err != nil {
		return nil, err
	}
	return newRule(o, start)
}

// checkParts refuses the parts of a line that the parser accepts and RFC 5545 does not know, and parts
// that come twice.
func checkParts(line string) error {
	found := make(map[string]bool)
	for part := range strings.SplitSeq(line, ";") {
		name, _, _ := strings.Cut(part, "=")
		switch {
		case name == "DTSTART", name == "BYEASTER":
			return fmt.Errorf("a rule has no part %s", name)
		case found[name]:
			return fmt.Errorf("the part %s comes twice", name)
		}
		found[name] = true
	}
	return nil
}

// newRule checks the parts of a rule and fills in those that DTSTART implies.
func newRule(o *rrule.ROption, start time.Time) (*Rule, error) {
	if err := checkBounds(o); err != nil {
		return nil, err
	}
	r := &Rule{
		start:       wallOf(start),
		zone:        start.Location(),
		freq:        o.Freq,
		interval:    max(o.Interval, 1),
		until:       o.Until.UTC(),
		wkst:        dayOf(&o.Wkst),
		months:      newNumbers(o.Bymonth),
		monthDays:   newNumbers(o.Bymonthday),
		yearDays:    newNumbers(o.Byyearday),
		weekNumbers: newNumbers(o.Byweekno),
		hours:       ascending(o.Byhour),
		minutes:     ascending(o.Byminute),
		seconds:     ascending(o.Bysecond),
		positions:   ascending(o.Bysetpos),
	}
	numbered := false
	for _, d := range o.Byweekday {
		r.addWeekday(dayOf(&d), d.N())
		numbered = numbered || d.N() != 0
	}
	switch {
	case o.Count < 0 || o.Interval < 0 || o.Interval > 1_000_000:
		return nil, errors.New("COUNT and INTERVAL must be at least 1, and INTERVAL at most 1000000")
	case o.Count > 0 && !o.Until.IsZero():
		return nil, errors.New("a rule has COUNT or UNTIL, not both")
	case r.weekNumbers.some && r.freq != rrule.YEARLY:
		return nil, errors.New("BYWEEKNO needs FREQ=YEARLY")
	case numbered && (r.freq > rrule.MONTHLY || r.weekNumbers.some):
		return nil, errors.New("a number in BYDAY needs FREQ=MONTHLY, or FREQ=YEARLY without BYWEEKNO")
	}
	r.count = uint64(o.Count)
	r.addDefaults()
	if len(r.hours)*len(r.minutes)*len(r.seconds) > maxTimes {
		return nil, fmt.Errorf("the rule has more than %d times of day", maxTimes)
	}
	return r, nil
}

// checkBounds refuses numbers that RFC 5545 does not allow.
func checkBounds(o *rrule.ROption) error {
	nth := make([]int, len(o.Byweekday))
	for i := range o.Byweekday {
		nth[i] = max(o.Byweekday[i].N(), -o.Byweekday[i].N())
	}
	for _, part := range [...]struct {
		name      string
		list      []int
		low, high int
		fromEnd   bool // negative numbers count from the end
	}{
		{"BYSECOND", o.Bysecond, 0, 59, false},
		{"BYMINUTE", o.Byminute, 0, 59, false},
		{"BYHOUR", o.Byhour, 0, 23, false},
		{"BYDAY", nth, 0, 53, false},
		{"BYMONTHDAY", o.Bymonthday, 1, 31, true},
		{"BYYEARDAY", o.Byyearday, 1, 366, true},
		{"BYWEEKNO", o.Byweekno, 1, 53, true},
		{"BYMONTH", o.Bymonth, 1, 12, false},
		{"BYSETPOS", o.Bysetpos, 1, 366, true},
	} {
		for _, n := range part.list {
			if part.fromEnd && n < 0 {
				n = -n
			}
			if n < part.low || n > part.high {
				return fmt.Errorf("the numbers of %s are %d to %d", part.name, part.low, part.high)
			}
		}
	}
	return nil
}

// addWeekday adds the n-th ones of a weekday, or each one with 0.
func (r *Rule) addWeekday(d time.Weekday, n int) {
	r.byDay = true
	if n == 0 {
		r.weekdays[d].each = true
	} else {
		r.weekdays[d].nth.add(n)
	}
}

// addDefaults adds the parts that DTSTART implies (RFC 5545 §3.3.10).
func (r *Rule) addDefaults() {
	if !r.monthDays.some && !r.yearDays.some && !r.byDay {
		switch {
		case r.weekNumbers.some, r.freq == rrule.WEEKLY:
			r.addWeekday(r.start.Weekday(), 0)
		case r.freq == rrule.YEARLY && !r.months.some:
			r.months.add(int(r.start.Month()))
			r.monthDays.add(r.start.Day())
		case r.freq <= rrule.MONTHLY:
			r.monthDays.add(r.start.Day())
		}
	}
	implied := func(part *[]int, below rrule.Frequency, n int) {
		if len(*part) == 0 && r.freq < below {
			*part = []int{n}
		}
	}
	implied(&r.hours, rrule.HOURLY, r.start.Hour())
	implied(&r.minutes, rrule.MINUTELY, r.start.Minute())
	implied(&r.seconds, rrule.SECONDLY, r.start.Second())
}

// first returns the first occurrence at or after now. COUNT counts the occurrences before it. The error
// says that there is none in the next 100 years, or that the budget is used up.
func (r *Rule) first(now time.Time, b *Budget) (Occurrence, error) {
	o := Occurrence{At: ceilSecond(now.UTC()).Add(-time.Second)}
	if r.count > 0 {
		o = Occurrence{At: instantBefore(r)}
	}
	for {
		next, ok := r.next(o, b)
		switch {
		case ok && !next.At.Before(now):
			return next, nil
		case b.empty() && o.N > 0:
			return o, errors.New("COUNT takes too long to count the occurrences of the past; give a later DTSTART")
		case b.empty():
			return o, errors.New("the rule takes too long to evaluate")
		case !ok:
			return o, errors.New("the rule has no occurrence after the present, or its next one is too far away")
		}
		o = next
	}
}

// instantBefore returns an instant before the first occurrence of a rule.
func instantBefore(r *Rule) time.Time { return r.start.Add(-maxOffset) }

func ascending(list []int) []int {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

func dayOf(d *rrule.Weekday) time.Weekday { return time.Weekday((d.Day() + 1) % 7) }

func ceilSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		return whole.Add(time.Second)
	}
	return t.Truncate(time.Second)
}
