package chaos

import "testing"

func TestOutcomeIsOneLine(t *testing.T) {
	o := Outcome{Seed: 7, Sessions: 64, Draft: 32, Jobs: 12345, Common: 1011, Children: 2000, Effects: 300, Events: 1234567, Kills: 87, Cuts: 3210}
	if got, want := o.String(), "chaos: ok: 64 sessions (32 draft), 12,345 jobs (1,011 in both dialects), 2,000 children, 300 effects, 1,234,567 events, 87 kills, 3,210 cuts"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.Findings = []Finding{{RuleGap, "alice/01", "event_seq 3 comes where 2 belongs"}, {}}
	want := "chaos: FAILED: gap: alice/01: event_seq 3 comes where 2 belongs and 1 more (seed 7, " +
		"after 64 sessions (32 draft), 12,345 jobs (1,011 in both dialects), 2,000 children, 300 effects, 1,234,567 events, 87 kills, 3,210 cuts)"
	if got := o.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
