package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// costNow is the time at which the rules of costlyRules are scheduled.
var costNow = time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)

// costlyRules are rules that make a search long, with a part of the error, if there is one.
var costlyRules = []struct{ name, text, refusal string }{
	{"count days of a century", "DTSTART;TZID=Europe/Berlin:19270101T120000\nFREQ=DAILY;COUNT=1000000", ""},
	{"count days", "DTSTART:19700101T000000Z\nFREQ=DAILY;COUNT=1000000", ""},
	{"count seconds", "DTSTART:00010101T000000Z\nFREQ=SECONDLY;COUNT=100000000", "give a later DTSTART"},
	{"count seconds in a zone", "DTSTART;TZID=Australia/Lord_Howe:20260101T000000\nFREQ=SECONDLY;COUNT=100000000", "give a later DTSTART"},
	{"count times of day", "DTSTART;TZID=Australia/Lord_Howe:20000101T000000\nFREQ=DAILY;COUNT=100000000;BYHOUR=1" + everySecond, "give a later DTSTART"},
	{"count positions of seconds", "DTSTART:20260101T000000Z\nFREQ=MINUTELY;COUNT=100000000;BYSECOND=" + numbersUpTo(59) + ";BYSETPOS=" + positions(1, 366),
		"give a later DTSTART"},
	{"count positions of days", "DTSTART:19700101T000000Z\nFREQ=YEARLY;COUNT=100000000" + everyDay + ";BYSETPOS=" + positions(1, 366), "give a later DTSTART"},
	{"count positions of days and seconds", "DTSTART:19700101T000000Z\nFREQ=YEARLY;COUNT=100000000" + everyDay + ";BYHOUR=1" + everySecond +
		";BYSETPOS=" + positions(1, 366), "give a later DTSTART"},
	{"days of all parts that never come", "FREQ=YEARLY;BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12;BYWEEKNO=" + positions(1, 53) + ";BYMONTHDAY=" + positions(1, 31) +
		";BYYEARDAY=" + numbersUpTo(364)[2:] + everyDay + ";BYSETPOS=365", "no occurrence"},
	{"count days of all parts", "DTSTART:19270101T000000Z\nFREQ=YEARLY;COUNT=100000000;BYMONTH=1,2,3,4,5,6,7,8,9,10,11,12;BYWEEKNO=" + positions(1, 53) +
		";BYMONTHDAY=" + positions(1, 31) + ";BYYEARDAY=" + positions(1, 200) + everyDay + ";BYSETPOS=" + numbersUpTo(200)[2:], "give a later DTSTART"},
	{"positions of seconds that never come", "FREQ=MINUTELY;BYSECOND=1;BYSETPOS=" + positions(61, 366), "too long"},
	{"positions of days that never come", "FREQ=YEARLY;BYMONTHDAY=1;BYSETPOS=" + positions(61, 366), "no occurrence"},
	{"a second position that never comes", "FREQ=SECONDLY;BYSETPOS=2", "too long"},
	{"times in a gap of the clocks", "DTSTART;TZID=Australia/Lord_Howe:20500101T000000\nFREQ=YEARLY;BYMONTH=10;BYDAY=1SU;BYHOUR=2;BYMINUTE=" +
		numbersUpTo(29) + ";BYSECOND=" + numbersUpTo(59), "too long"},
	{"seconds of an hour that never come", "DTSTART:20260101T000000Z\nFREQ=SECONDLY;INTERVAL=3600;BYMINUTE=" + numbersUpTo(59) + ";BYSECOND=1", "too long"},
	{"seconds of a minute that never come", "DTSTART:20260101T040000Z\nFREQ=SECONDLY;INTERVAL=60;BYSECOND=30", "too long"},
	{"hours that never come", "DTSTART:20260101T040000Z\nFREQ=HOURLY;INTERVAL=24;BYHOUR=5", "no occurrence"},
	{"February 30 of years", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "no occurrence"},
	{"February 30 of days", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "no occurrence"},
	{"February 30 of seconds", "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30" + everySecond, "no occurrence"},
	{"February 31 of minutes", "FREQ=MINUTELY;BYMONTHDAY=31;BYMONTH=2", "no occurrence"},
	{"a day of the year that never comes", "FREQ=YEARLY;BYYEARDAY=366;BYMONTHDAY=1;BYHOUR=0" + everySecond, "no occurrence"},
	{"a day of all weeks that never comes", "FREQ=YEARLY;BYWEEKNO=" + positions(1, 53) + ";BYYEARDAY=366;BYMONTHDAY=1", "no occurrence"},
	{"all weekdays of a day that never comes", "FREQ=YEARLY;BYMONTHDAY=1;BYYEARDAY=2;BYDAY=" + weekdaysUpTo(53), "no occurrence"},
}

const everyDay = ";BYDAY=MO,TU,WE,TH,FR,SA,SU"

var everySecond = ";BYMINUTE=" + numbersUpTo(59) + ";BYSECOND=" + numbersUpTo(59)

// numbersUpTo returns the list of the numbers 0 to n.
func numbersUpTo(n int) string {
	list := []string{"0"}
	for i := range n {
		list = append(list, fmt.Sprint(i+1))
	}
	return strings.Join(list, ",")
}

// positions returns the list of the numbers low to high, and of -low to -high.
func positions(low, high int) string {
	var list []string
	for i := low; i <= high; i++ {
		list = append(list, fmt.Sprint(i), fmt.Sprint(-i))
	}
	return strings.Join(list, ",")
}

// weekdaysUpTo returns the list of all weekdays with the numbers 1 to n.
func weekdaysUpTo(n int) string {
	var list []string
	for i := range n {
		for _, d := range []string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"} {
			list = append(list, fmt.Sprintf("%d%s", i+1, d))
		}
	}
	return strings.Join(list, ",")
}

func mustParse(t testing.TB, text string) *Rule {
	t.Helper()
	r, err := Parse(text, costNow)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func TestFirstOfCostlyRules(t *testing.T) {
	for _, rule := range costlyRules {
		t.Run(rule.name, func(t *testing.T) {
			r := mustParse(t, rule.text)
			b := Budget{maxSteps}
			_, err := r.first(costNow, &b)
			switch {
			case rule.refusal == "" && err != nil:
				t.Errorf("error %v, want none", err)
			case rule.refusal != "" && (err == nil || !strings.Contains(err.Error(), rule.refusal)):
				t.Errorf("error %v, want %q", err, rule.refusal)
			case b.left < 0:
				t.Errorf("%d steps more than the budget", -b.left)
			}
		})
	}
}

// Each loop of a search counts what it looks at.
func TestSteps(t *testing.T) {
	const candidate = timeStep + instantStep
	for _, test := range []struct {
		name, rule string
		want       int
	}{
		{"the time of today", "DTSTART:20200101T120000Z\nFREQ=DAILY", periodStep + timeStep + candidate},
		{"the time of tomorrow", "DTSTART:20200101T000000Z\nFREQ=DAILY", 2*(periodStep+timeStep) + candidate},
		{"the 2049th of 3600 times", "DTSTART:20200101T000000Z\nFREQ=DAILY;BYHOUR=4" + everySecond, periodStep + 12*timeStep + candidate},
		{"days of a month", "DTSTART:20200101T120000Z\nFREQ=MONTHLY;BYMONTHDAY=30", periodStep + 4*dayStep + timeStep + candidate},
		{"months and days of a year", "DTSTART:20200101T120000Z\nFREQ=YEARLY;BYMONTH=3;BYMONTHDAY=2",
			2*periodStep + (2+4)*dayStep + timeStep + candidate},
		{"periods left out", "DTSTART:20200101T000000Z\nFREQ=MINUTELY;BYMONTH=12;BYMONTHDAY=3;BYHOUR=2;BYMINUTE=4;BYSECOND=0",
			(1+2+2+4+1)*periodStep + timeStep + candidate},
		{"the last of the days of a month", "DTSTART:20200101T120000Z\nFREQ=MONTHLY;BYSETPOS=-1" + everyDay,
			periodStep + 30*dayStep + 5*timeStep + positionStep + candidate},
		{"a time in a gap of the clocks", "DTSTART;TZID=Europe/Berlin:20270328T000000\nFREQ=YEARLY;BYHOUR=2;BYMINUTE=30",
			2*periodStep + (4+9+2+28)*dayStep + 2*(timeStep+candidate) + gapStep},
		{"occurrences of the past", "DTSTART:20261124T040000Z\nFREQ=DAILY;COUNT=9",
			3*searchStep + 7*(periodStep+timeStep) + 4*candidate},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := mustParse(t, test.rule)
			b := Budget{maxSteps}
			if _, err := r.first(costNow, &b); err != nil {
				t.Fatal(err)
			}
			if got, want := maxSteps-b.left, searchStep+test.want; got != want {
				t.Errorf("%d steps, want %d", got, want)
			}
		})
	}
}

// Lists that share a budget are bounded together. Each has its first occurrence at least.
func TestUpcomingSharesItsBudget(t *testing.T) {
	const schedules = 1000
	upcoming := func(text string, schedules int, b *Budget) (list [][]time.Time) {
		p := Plan{mustParse(t, text)}
		first, err := p.rule.first(costNow, &Budget{maxSteps})
		if err != nil {
			t.Fatal(err)
		}
		for range schedules {
			list = append(list, p.Upcoming(first, 100, b))
		}
		return list
	}
	for _, text := range []string{"FREQ=DAILY", "FREQ=WEEKLY;BYDAY=FR", "DTSTART;TZID=Europe/Berlin:19700101T120000\nFREQ=SECONDLY"} {
		for i, times := range upcoming(text, schedules, NewBudget()) {
			if len(times) != 100 {
				t.Fatalf("%s: schedule %d has %d times, want 100", text, i, len(times))
			}
		}
	}
	costly := "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR=1" + everySecond + ";BYSETPOS=-1"
	b := NewBudget()
	list := upcoming(costly, schedules, b)
	if b.left != 0 {
		t.Errorf("%d steps are left, want 0", b.left)
	}
	all := upcoming(costly, 1, &Budget{1 << 40})[0]
	for i, times := range list {
		if len(times) == 0 || !slices.Equal(times, all[:len(times)]) {
			t.Fatalf("schedule %d has %v, want the first of %v", i, times, all)
		}
	}
	if len(list[0]) != len(all) || len(list[schedules-1]) != 1 {
		t.Errorf("%d and %d times, want %d and 1", len(list[0]), len(list[schedules-1]), len(all))
	}
}

// A decision ends when the next search could exceed its budget. The decisions after it skip the rest.
func TestDecideIsBounded(t *testing.T) {
	p := Plan{mustParse(t, "DTSTART:20270101T000000Z\nFREQ=SECONDLY;INTERVAL=7199;BYHOUR=0;BYMINUTE=0;BYSECOND=0")}
	next, err := p.rule.first(costNow, &Budget{maxSteps})
	if err != nil {
		t.Fatal(err)
	}
	now := next.At.AddDate(60, 0, 0)
	for i := range 4 { // one every 20 years
		d := p.Decide(now, next, false)
		if d.Action != Skip || d.Missed != 1 {
			t.Fatalf("decision %d: %+v, want one that is skipped", i, d)
		}
		next = d.Next
	}
	if !next.At.After(now) {
		t.Errorf("the next occurrence is %v, want one after %v", next.At, now)
	}
}

func BenchmarkFirst(b *testing.B) {
	for _, rule := range costlyRules {
		b.Run(rule.name, func(b *testing.B) {
			r := mustParse(b, rule.text)
			benchmarkSteps(b, maxSteps, func(budget *Budget) { r.first(costNow, budget) })
		})
	}
}

// BenchmarkUpcoming lists 1,000 schedules with 100 times each.
func BenchmarkUpcoming(b *testing.B) {
	for _, text := range []string{
		"FREQ=DAILY",
		"DTSTART;TZID=Australia/Lord_Howe:20270101T010000\nFREQ=DAILY",
		"DTSTART;TZID=Australia/Lord_Howe:21000101T010000\nFREQ=SECONDLY",
		"FREQ=MONTHLY",
		"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
		"FREQ=YEARLY;BYYEARDAY=-1;BYSETPOS=-1",
		"DTSTART:20270101T000000Z\nFREQ=SECONDLY;INTERVAL=7199;BYHOUR=0;BYMINUTE=0;BYSECOND=0",
		"DTSTART:20270101T000000Z\nFREQ=MINUTELY;INTERVAL=1439;BYHOUR=0;BYMINUTE=0;BYSECOND=0;BYSETPOS=1",
	} {
		b.Run(strings.ReplaceAll(text, "\n", " "), func(b *testing.B) {
			p := Plan{mustParse(b, text)}
			first, err := p.rule.first(costNow, &Budget{maxSteps})
			if err != nil {
				b.Fatal(err)
			}
			benchmarkSteps(b, listSteps, func(budget *Budget) {
				for range 1000 {
					p.Upcoming(first, 100, budget)
				}
			})
		})
	}
}

// benchmarkSteps reports the steps of a function that has a budget of some steps.
func benchmarkSteps(b *testing.B, steps int, f func(*Budget)) {
	used := 0
	for b.Loop() {
		budget := Budget{steps}
		f(&budget)
		used += steps - budget.left
	}
	b.ReportMetric(float64(used)/float64(b.N), "steps/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(used), "ns/step")
}
