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

	// horizon is the number of years in which Next looks for an occurrence. The rarest date that
	// people schedule, February 29 on a given weekday, comes at least every 40 years.
	horizon = 100

	// maxSteps is the number of days, or of periods shorter than a day, that Next looks at: those of
	// a daily rule up to the horizon, and several times the seconds of a day.
	maxSteps = 250_000

	// maxTimes is the number of times of day of a rule: every second of an hour, or every minute of a day.
	maxTimes = 3600

	// maxPast is the number of occurrences before the scheduling time that COUNT may count.
	maxPast = 10_000
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

	months, monthDays, yearDays, weekNumbers []int
	weekdays                                 []weekday
	hours, minutes, seconds                  []int // ascending; nil: any, at frequencies that step over them
	positions                                []int // BYSETPOS
}

// weekday is an element of BYDAY.
type weekday struct {
	day time.Weekday
	n   int // the nth one of the month or of the year, from the end if negative; 0: each
}

// Occurrence is a time at which a rule is due.
type Occurrence struct {
	At time.Time // in UTC
	N  uint64    // its number in the rule from DTSTART on, if the rule has a COUNT, else 0
}

// Parse parses a rule and finds its first occurrence at or after now. Without DTSTART the rule starts at
// now, rounded up to a full second. The error says why a rule is refused: it is malformed, it has no
// occurrence after now, or it costs too much to evaluate.
func Parse(text string, now time.Time) (*Rule, Occurrence, error) {
	r, err := parse(text, now)
	if err != nil {
		return nil, Occurrence{}, err
	}
	first, err := r.first(now)
	return r, first, err
}

func parse(text string, now time.Time) (*Rule, error) {
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
	var found []string
	for part := range strings.SplitSeq(line, ";") {
		name, _, _ := strings.Cut(part, "=")
		switch {
		case name == "DTSTART", name == "BYEASTER":
			return fmt.Errorf("a rule has no part %s", name)
		case slices.Contains(found, name):
			return fmt.Errorf("the part %s comes twice", name)
		}
		found = append(found, name)
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
		months:      ascending(o.Bymonth),
		monthDays:   ascending(o.Bymonthday),
		yearDays:    ascending(o.Byyearday),
		weekNumbers: ascending(o.Byweekno),
		hours:       ascending(o.Byhour),
		minutes:     ascending(o.Byminute),
		seconds:     ascending(o.Bysecond),
		positions:   ascending(o.Bysetpos),
	}
	for _, d := range o.Byweekday {
		r.weekdays = append(r.weekdays, weekday{dayOf(&d), d.N()})
	}
	switch {
	case o.Count < 0 || o.Interval < 0 || o.Interval > 1_000_000:
		return nil, errors.New("COUNT and INTERVAL must be at least 1, and INTERVAL at most 1000000")
	case o.Count > 0 && !o.Until.IsZero():
		return nil, errors.New("a rule has COUNT or UNTIL, not both")
	case len(r.weekNumbers) > 0 && r.freq != rrule.YEARLY:
		return nil, errors.New("BYWEEKNO needs FREQ=YEARLY")
	case r.numbersWeekdays() && (r.freq > rrule.MONTHLY || len(r.weekNumbers) > 0):
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
	numbers := make([]int, len(o.Byweekday))
	for i := range o.Byweekday {
		numbers[i] = max(o.Byweekday[i].N(), -o.Byweekday[i].N())
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
		{"BYDAY", numbers, 0, 53, false},
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

func (r *Rule) numbersWeekdays() bool {
	return slices.ContainsFunc(r.weekdays, func(d weekday) bool { return d.n != 0 })
}

// addDefaults adds the parts that DTSTART implies (RFC 5545 §3.3.10).
func (r *Rule) addDefaults() {
	if len(r.monthDays)+len(r.yearDays)+len(r.weekNumbers)+len(r.weekdays) == 0 {
		switch r.freq {
		case rrule.YEARLY:
			r.monthDays = []int{r.start.Day()}
			if len(r.months) == 0 {
				r.months = []int{int(r.start.Month())}
			}
		case rrule.MONTHLY:
			r.monthDays = []int{r.start.Day()}
		case rrule.WEEKLY:
			r.weekdays = []weekday{{day: r.start.Weekday()}}
		}
	} else if len(r.weekNumbers) > 0 && len(r.monthDays)+len(r.yearDays)+len(r.weekdays) == 0 {
		r.weekdays = []weekday{{day: r.start.Weekday()}}
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

// first returns the first occurrence at or after now.
func (r *Rule) first(now time.Time) (Occurrence, error) {
	o := Occurrence{At: ceilSecond(now.UTC()).Add(-time.Second)}
	if r.count > 0 {
		o = Occurrence{At: instantBefore(r)}
	}
	steps := 4 * maxSteps
	for range maxPast {
		next, ok := r.next(o, &steps)
		switch {
		case !ok:
			return o, errors.New("the rule has no occurrence after the present, or its next one is too far away")
		case !next.At.Before(now):
			return next, nil
		}
		o = next
	}
	return o, fmt.Errorf("the rule counts more than %d occurrences of the past", maxPast)
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
