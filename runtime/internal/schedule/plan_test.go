package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arcpd/arcpd/arcp"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	every, _, refused := New(&arcp.When{Every: "FREQ=MINUTELY;INTERVAL=10;BYSECOND=0"}, noon)
	if refused != nil {
		t.Fatal(refused)
	}
	at := func(minutes int) Occurrence { return Occurrence{At: noon.Add(time.Duration(minutes) * time.Minute)} }
	for _, test := range []struct {
		name    string
		plan    Plan
		now     time.Duration // after noon
		running bool
		want    Decision
	}{
		{"it is not due", every, -time.Second, false, Decision{Action: Wait, Next: at(0)}},
		{"it is due", every, 0, false, Decision{Action: Fire, Due: at(0), InTime: true, Next: at(10)}},
		{"it is a little late", every, time.Minute, false, Decision{Action: Fire, Due: at(0), InTime: true, Next: at(10)}},
		{"it is late", every, 5 * time.Minute, false, Decision{Action: Fire, Due: at(0), Next: at(10)}},
		{"three are due", every, 25 * time.Minute, false, Decision{Action: Fire, Due: at(20), Next: at(30), Missed: 2}},
		{"the previous job runs", every, 25 * time.Minute, true, Decision{Action: Skip, Next: at(30), Missed: 2, Overlap: 1}},
		{"one time is due", Plan{}, 0, false, Decision{Action: Fire, Due: at(0), InTime: true}},
		{"one time is an hour late", Plan{}, time.Hour, false, Decision{Action: Fire, Due: at(0)}},
		{"one time is more than an hour late", Plan{}, time.Hour + 1, false, Decision{Action: Skip, Missed: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.plan.Decide(noon.Add(test.now), at(0), test.running)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := every.Decide(noon, Occurrence{}, true); got.Action != Finish {
		t.Errorf("without an occurrence the action is %v, want Finish", got.Action)
	}
}

// A long downtime is skipped in several decisions, and every occurrence is counted once.
func TestDecideCountsEveryOccurrence(t *testing.T) {
	p, next, refused := New(&arcp.When{Every: "FREQ=SECONDLY"}, noon)
	if refused != nil {
		t.Fatal(refused)
	}
	now := noon.Add(24 * time.Hour)
	late := 0
	for range 100 {
		d := p.Decide(now, next, false)
		late, next = late+d.Missed, d.Next
		if d.Action == Fire {
			if !d.Due.At.Equal(now) || late != 24*3600 {
				t.Fatalf("%v fires after %d skipped ones, want %v after %d", d.Due.At, late, now, 24*3600)
			}
			return
		}
	}
	t.Fatalf("nothing fires, %d are skipped", late)
}

// The clock is set back by any amount at any time: no occurrence fires twice.
func TestDecideAfterTheClockIsSetBack(t *testing.T) {
	p, next, refused := New(&arcp.When{Every: "FREQ=MINUTELY;BYSECOND=0"}, noon)
	if refused != nil {
		t.Fatal(refused)
	}
	fired := make(map[time.Time]bool)
	now := noon
	for step := range 500 {
		if now = now.Add(37 * time.Second); step%50 == 49 {
			now = now.Add(-20 * time.Minute)
		}
		d := p.Decide(now, next, false)
		if d.Action == Fire {
			if fired[d.Due.At] {
				t.Fatalf("%v fires again", d.Due.At)
			}
			fired[d.Due.At] = true
		}
		next = d.Next
	}
	if len(fired) < 50 {
		t.Errorf("only %d occurrences fired", len(fired))
	}
}

func TestNewRefuses(t *testing.T) {
	number := func(s string) *arcp.Number { return new(arcp.Number(s)) }
	for name, w := range map[string]*arcp.When{
		"nothing":        {},
		"two":            {At: noon.Add(time.Hour), After: number("1")},
		"the past":       {At: noon.Add(-time.Second)},
		"a negative one": {After: number("-1")},
		"a large one":    {After: number("1e300")},
		"a bad rule":     {Every: "FREQ=NEVER"},
	} {
		if _, o, err := New(w, noon); err == nil || err.Code != arcp.CodeInvalidArgument {
			t.Errorf("%s: %v, %v, want INVALID_ARGUMENT", name, o, err)
		}
	}
	if _, o, err := New(&arcp.When{After: number("1.5")}, noon); err != nil || !o.At.Equal(noon.Add(1500*time.Millisecond)) {
		t.Errorf("after 1.5: %v, %v", o.At, err)
	}
}

// Read makes the checks of New without a search, whose result is stored.
func TestRead(t *testing.T) {
	for _, every := range []string{"FREQ=MINUTELY;BYSECOND=30", "FREQ=DAILY;COUNT=3", "DTSTART;TZID=Europe/Berlin:20260101T120000\nFREQ=WEEKLY"} {
		w := &arcp.When{Every: every}
		made, first, refused := New(w, noon)
		if refused != nil {
			t.Fatal(refused)
		}
		read, refused := Read(w, noon)
		if refused != nil {
			t.Fatal(refused)
		}
		want := made.Upcoming(first, 10, NewBudget())
		if diff := cmp.Diff(want, read.Upcoming(first, 10, NewBudget())); diff != "" {
			t.Errorf("%s: occurrences of the plan that is read: %s", every, diff)
		}
	}
	if _, err := Read(&arcp.When{Every: "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, noon); err != nil {
		t.Errorf("a rule without an occurrence: %v, want no search", err)
	}
	if _, err := Read(&arcp.When{Every: "FREQ=NEVER"}, noon); err == nil || err.Code != arcp.CodeInvalidArgument {
		t.Errorf("a bad rule: %v, want INVALID_ARGUMENT", err)
	}
	if p, err := Read(&arcp.When{At: noon}, noon); err != nil || p.Repeats() {
		t.Errorf("one time: %v, repeats %v", err, p.Repeats())
	}
}
