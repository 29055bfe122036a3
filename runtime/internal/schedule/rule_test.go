package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/teambition/rrule-go"
)

func parseFirst(text string, now time.Time) (*Rule, Occurrence, error) {
	r, err := Parse(text, now)
	if err != nil {
		return nil, Occurrence{}, err
	}
	first, err := r.first(now, &Budget{maxSteps})
	return r, first, err
}

func occurrences(t *testing.T, text string, now time.Time, n int) (list []time.Time) {
	t.Helper()
	r, o, err := parseFirst(text, now)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for ok := true; ok && len(list) < n; o, ok = r.next(o, &Budget{maxSteps}) {
		list = append(list, o.At)
	}
	return list
}

// next finds the occurrences that rrule-go finds, for rules that its iterator handles.
func TestNextFindsWhatTheLibraryFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2023, 11, 5, 7, 31, 17, 0, time.UTC)
	some := func(name string, chance, low, high int) string {
		if random.IntN(chance) > 0 {
			return ""
		}
		var values []string
		for range 1 + random.IntN(3) {
			if n := fmt.Sprint(low + random.IntN(high-low+1)); !slices.Contains(values, n) { // the library has a double one twice
				values = append(values, n)
			}
		}
		return ";" + name + "=" + strings.Join(values, ",")
	}
	compared := 0
	for range 2000 {
		freq := rrule.Frequency(random.IntN(7))
		text := "FREQ=" + freq.String()
		if freq < rrule.HOURLY {
			text += some("INTERVAL", 2, 1, 5)
			text = strings.Split(text, ",")[0]
			text += some("BYMONTH", 3, 1, 12) + some("BYMONTHDAY", 3, 1, 31) + some("BYMONTHDAY", 99, -31, -1)
		}
		if freq == rrule.YEARLY {
			text += some("BYYEARDAY", 4, 1, 366)
			if !strings.Contains(text, "BYMONTH") && !strings.Contains(text, "BYYEARDAY") {
				text += some("BYWEEKNO", 3, 2, 51)
			}
		}
		if random.IntN(2) == 0 || strings.Contains(text, "BYWEEKNO") { // alone, the library has all days of the week
			text += ";BYDAY=" + []string{"MO", "TU,SU", "FR,SA", "WE"}[random.IntN(4)]
		} else if freq == rrule.MONTHLY || freq == rrule.YEARLY {
			text += ";BYDAY=" + []string{"1MO", "-1SU", "2TU,-2WE", "3FR"}[random.IntN(4)] // the library joins SA and 3FR wrongly
		}
		text += some("BYHOUR", 3, 0, 23) + some("BYMINUTE", 3, 0, 59) + some("BYSECOND", 3, 0, 59)
		if freq < rrule.HOURLY && freq != rrule.WEEKLY && random.IntN(4) == 0 { // the library begins with a part of a week
			text += fmt.Sprintf(";BYSETPOS=%d", []int{1, 2, -1, -2}[random.IntN(4)])
		}
		if random.IntN(3) == 0 {
			text += ";WKST=" + []string{"SU", "TU", "SA"}[random.IntN(3)]
		}
		if strings.Count(text, "BYMONTHDAY") > 1 {
			continue
		}
		line := "DTSTART:" + start.Format(rrule.DateTimeFormat) + "\n" + text
		mine, first, err := parseFirst(line, start)
		if err != nil { // the library looks for an occurrence for long
			continue
		}
		theirs, err := rrule.StrToRRule(line)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		next := theirs.Iterator()
		want, _ := next()
		for range 20 {
			if !first.At.Equal(want) {
				t.Fatalf("%s: %v, want %v", text, first.At, want)
			}
			compared++
			want, _ = next()
			var ok bool
			if first, ok = mine.next(first, &Budget{maxSteps}); !ok || first.At.Year() > start.Year()+30 {
				break
			}
		}
	}
	t.Logf("%d occurrences compared", compared)
	if compared < 20_000 {
		t.Errorf("only %d occurrences compared", compared)
	}
}

// A wall clock time that does not exist is no occurrence, and one that comes twice is the first one.
func TestClockChanges(t *testing.T) {
	for _, test := range []struct{ name, rule, now, want string }{
		{"a gap is left out", "DTSTART;TZID=Europe/Berlin:20260328T023000 FREQ=DAILY", "2026-03-28T00:00:00Z",
			"2026-03-28T01:30:00Z 2026-03-30T00:30:00Z"},
		{"COUNT does not count a gap", "DTSTART;TZID=Europe/Berlin:20260328T023000 FREQ=DAILY;COUNT=2", "2026-03-28T00:00:00Z",
			"2026-03-28T01:30:00Z 2026-03-30T00:30:00Z"},
		{"a repeated time is the first one", "DTSTART;TZID=America/New_York:20261031T013000 FREQ=DAILY", "2026-10-31T00:00:00Z",
			"2026-10-31T05:30:00Z 2026-11-01T05:30:00Z 2026-11-02T06:30:00Z"},
		{"an hourly rule has the repeated hour once", "DTSTART;TZID=America/New_York:20261101T000000 FREQ=HOURLY", "2026-11-01T04:00:00Z",
			"2026-11-01T04:00:00Z 2026-11-01T05:00:00Z 2026-11-01T07:00:00Z"},
		{"a day that a zone has skipped", "DTSTART;TZID=Pacific/Apia:20111228T120000 FREQ=DAILY", "2011-12-28T00:00:00Z",
			"2011-12-28T22:00:00Z 2011-12-29T22:00:00Z 2011-12-30T22:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, test.now)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(test.want)
			var got []string
			for _, at := range occurrences(t, test.rule, now, len(want)) {
				got = append(got, at.Format(time.RFC3339))
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("occurrences %v, want %v", got, test.want)
			}
		})
	}
}

// A minute is an occurrence of a rule if the clock of the zone shows one of its times, for the first
// time: this walks through two years of five zones minute by minute.
func TestNextFollowsTheClocks(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca"} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Date(2017, 9, 1, 0, 0, 0, 0, time.UTC)
			rule := "DTSTART;TZID=" + name + ":20170101T000000\nFREQ=DAILY;BYHOUR=0,1,2,3;BYMINUTE=0,15,30,45"
			r, o, err := parseFirst(rule, begin)
			if err != nil {
				t.Fatal(err)
			}
			shown := make(map[string]bool)
			for at := begin.AddDate(0, 0, -1); at.Before(begin.AddDate(2, 0, 0)); at = at.Add(time.Minute) {
				wall := at.In(zone)
				if wall.Hour() > 3 || wall.Minute()%15 != 0 {
					continue
				}
				key := wall.Format("20060102T1504")
				if shown[key] {
					continue
				}
				shown[key] = true
				if at.Before(begin) {
					continue
				}
				if !o.At.Equal(at) {
					t.Fatalf("the next occurrence is %v, want %v, when the clock shows %v", o.At, at, wall)
				}
				o, _ = r.next(o, &Budget{maxSteps})
			}
		})
	}
}

func TestFirst(t *testing.T) {
	now := costNow
	many := strings.TrimSuffix(strings.Repeat("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,", 20), ",")
	for _, text := range []string{
		"FREQ=YEARLY;INTERVAL=1000000;BYWEEKNO=53;BYDAY=MO;BYSETPOS=-5",
		"DTSTART:20200101T000000Z\nFREQ=DAILY;UNTIL=20210101T000000Z",
		"DTSTART:20200101T000000Z\nFREQ=DAILY;COUNT=366",
		"FREQ=DAILY;BYHOUR=" + many + ";BYMINUTE=" + many + ";BYSECOND=" + many + ",16,17,18,19,20",
	} {
		if r, o, err := parseFirst(text, now); err == nil {
			t.Errorf("%s: accepted, first at %v, %v", text, o, r)
		}
	}
	for _, text := range []string{
		"DTSTART:19000101T000000Z\nFREQ=SECONDLY", // the library counts from DTSTART
		"FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
		"DTSTART:19000101T000000Z\nFREQ=DAILY;BYHOUR=5;BYSETPOS=1",
	} {
		if _, _, err := parseFirst(text, now); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	now := time.Date(2026, 11, 27, 4, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"", "FREQ=", "FREQ=DAILY;FREQ=DAILY", "INTERVAL=2", "FREQ=DAILY;X=1", "FREQ=DAILY;BYEASTER=1", "FREQ=DAILY;DTSTART=20260101T000000Z",
		"FREQ=MONTHLY;BYDAY=-54MO", "FREQ=WEEKLY;BYDAY=1MO", "FREQ=DAILY;COUNT=1;UNTIL=20270101T000000Z", "FREQ=DAILY;COUNT=-1",
		"FREQ=DAILY;INTERVAL=-1", "FREQ=DAILY;BYMONTHDAY=0", "FREQ=DAILY;BYSECOND=60", "FREQ=MONTHLY;BYWEEKNO=1", "FREQ=DAILY;BYHOUR=24",
		"DTSTART;TZID=Local:20270101T000000\nFREQ=DAILY", "DTSTART;TZID=No/Such:20270101T000000\nFREQ=DAILY", "DTSTART\nFREQ=DAILY",
		"X:20270101T000000\nFREQ=DAILY", "DTSTART:20270101T000000Z\nFREQ=DAILY\nFREQ=DAILY", "FREQ=DAILY;BYHOUR=1" + strings.Repeat(",1", MaxRule),
	} {
		if _, o, err := parseFirst(text, now); err == nil {
			t.Errorf("%q is accepted, first at %v", text, o.At)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"FREQ=DAILY", "DTSTART;TZID=Europe/Berlin:20260328T023000\nRRULE:FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;COUNT=3",
		"FREQ=YEARLY;BYWEEKNO=1,53;BYDAY=MO,SU;BYSETPOS=-1;WKST=SU", "FREQ=SECONDLY;INTERVAL=7;BYSECOND=3;BYMINUTE=1,2;UNTIL=20300101T000000Z"} {
		f.Add(text)
	}
	for _, rule := range costlyRules {
		f.Add(rule.text)
	}
	now := costNow
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text, now)
		if err != nil {
			return
		}
		b := Budget{maxSteps}
		o, err := r.first(now, &b)
		if b.left < 0 {
			t.Fatalf("%q: %d steps more than the budget", text, -b.left)
		}
		if err != nil {
			return
		}
		if o.At.Before(now) {
			t.Fatalf("%q: first at %v, before %v", text, o.At, now)
		}
		b = Budget{maxSteps}
		list := Plan{r}.Upcoming(o, 5, &b)
		if b.left < 0 {
			t.Fatalf("%q: %d steps more than the budget", text, -b.left)
		}
		for i, at := range list {
			if !at.Equal(o.At) {
				t.Fatalf("%q: upcoming %v, want %v", text, list, o.At)
			}
			next, ok := r.next(o, &Budget{maxSteps})
			if ok && next.At.Sub(o.At) < time.Second {
				t.Fatalf("%q: %v after %v", text, next.At, o.At)
			}
			if ok && i == len(list)-1 && i < 4 && !b.empty() {
				t.Fatalf("%q: upcoming %v, without %v", text, list, next.At)
			}
			o = next
		}
	})
}
