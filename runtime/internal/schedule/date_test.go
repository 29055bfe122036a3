package schedule

import (
	"testing"
	"time"
)

func TestWeeksAreThoseOfISO8601(t *testing.T) {
	for d := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2030; d = d.Add(day) {
		date := dateOf(d)
		year, want := d.ISOWeek()
		yearOfNext, _ := d.Add(week).ISOWeek()
		for n := 1; n <= 53; n++ {
			r := Rule{wkst: time.Monday, weekNumbers: newNumbers([]int{n})}
			if got := r.matchesWeek(&date); got != (n == want) {
				t.Fatalf("%v: in week %d is %v, want week %d", d, n, got, want)
			}
		}
		r := Rule{wkst: time.Monday, weekNumbers: newNumbers([]int{-1})}
		if got := r.matchesWeek(&date); got != (yearOfNext > year) {
			t.Fatalf("%v: in the last week is %v, want %v", d, got, !got)
		}
	}
}

func TestDaysIn(t *testing.T) {
	for _, year := range []int{1900, 2000, 2026, 2028} {
		for month := time.January; month <= time.December; month++ {
			if got, want := daysIn(year, month), time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day(); got != want {
				t.Errorf("%v %d has %d days, want %d", month, year, got, want)
			}
		}
	}
}
