package schedule

import (
	"sort"
	"time"

	"github.com/teambition/rrule-go"
)

// times returns the times of the rule on some of its days, which count from start on.
func (r *Rule) times(start time.Time, days []uint16) timeSet {
	s := timeSet{start, days, r.hours, r.minutes, r.seconds}
	if r.freq >= rrule.HOURLY {
		s.hours = none
	}
	if r.freq >= rrule.MINUTELY {
		s.minutes = none
	}
	if r.freq >= rrule.SECONDLY {
		s.seconds = none
	}
	return s
}

// timeSet is the product of days, hours, minutes and seconds, in order.
type timeSet struct {
	start                   time.Time
	days                    []uint16 // after start
	hours, minutes, seconds []int
}

// none is a part of a timeSet that its start has already.
var none = []int{0}

func (s *timeSet) perDay() int { return len(s.hours) * len(s.minutes) * len(s.seconds) }

func (s *timeSet) len() int { return len(s.days) * s.perDay() }

// at returns the i-th time.
func (s *timeSet) at(i int) time.Time {
	days := int64(s.days[i/s.perDay()])
	second := s.seconds[i%len(s.seconds)]
	i /= len(s.seconds)
	minute := s.minutes[i%len(s.minutes)]
	hour := s.hours[i/len(s.minutes)%len(s.hours)]
	return time.Unix(s.start.Unix()+86400*days+int64(3600*hour+60*minute+second), 0).UTC()
}

// index returns the index of the first time that is not before from.
func (s *timeSet) index(from time.Time, b *Budget) int {
	return sort.Search(s.len(), func(i int) bool { return !b.spend(timeStep) || !s.at(i).Before(from) })
}
