package conformance

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestJSONIsReadAgain(t *testing.T) {
	before := sample()
	before.Seed, before.Habits = 7, []string{"a pong repeats the nonce: no"}
	var b bytes.Buffer
	if err := WriteJSON(&b, before); err != nil {
		t.Fatal(err)
	}
	after, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the report is %+v after it was written and read, want %+v", after, before)
	}
	for _, text := range []string{"", "{", "[]", "{}", `{"results":[{}]}`, `{"results":[{"id":"a","status":"odd"}]}`,
		`{"results":[{"id":"a","status":"passed","duration_ms":"x"}]}`, `{"results":[{"id":"a","status":"passed","dialect":"x"}]}`} {
		if _, err := ReadJSON(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "not a JSON report") {
			t.Errorf("ReadJSON(%s): error is %v", text, err)
		}
	}
}

func TestCompare(t *testing.T) {
	before := &Report{Results: []Result{{ID: "pp", Status: Passed}, {ID: "pf", Status: Passed}, {ID: "ps", Status: Passed},
		{ID: "ff", Status: Failed}, {ID: "fp", Status: Failed}, {ID: "fs", Status: Failed},
		{ID: "sf", Status: Skipped}, {ID: "sp", Status: Skipped}, {ID: "gone", Status: Passed},
		{ID: "kf", Status: KnownDeviation}, {ID: "kp", Status: KnownDeviation}, {ID: "fk", Status: Failed}, {ID: "pk", Status: Passed}}}
	now := &Report{Results: []Result{{ID: "pp", Status: Passed}, {ID: "pf", Status: Failed}, {ID: "ps", Status: Skipped},
		{ID: "ff", Status: Failed}, {ID: "fp", Status: Passed}, {ID: "fs", Status: Skipped},
		{ID: "sf", Status: Failed}, {ID: "sp", Status: Passed}, {ID: "nf", Status: Failed}, {ID: "np", Status: Passed},
		{ID: "kf", Status: Failed}, {ID: "kp", Status: Stale}, {ID: "fk", Status: KnownDeviation}, {ID: "pk", Status: KnownDeviation}}}
	got := NewBaseline(before).Compare(now)
	want := &Comparison{Regressions: []string{"pf", "sf", "nf"}, Known: []string{"ff", "kf", "fk", "pk"}, Mended: []string{"fp", "kp"}, Lost: []string{"ps"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Compare = %+v, want %+v", got, want)
	}
	now.Baseline = got
	var b bytes.Buffer
	if err := WriteText(&b, now, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 regressions, 2 mended, 4 known failures, 1 no longer judged", "  regression  nf\n", "  mended      fp\n", "  not judged  ps\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report is\n%s, want %q in it", b.String(), want)
		}
	}
	for _, f := range []Format{FormatHTML, FormatMarkdown, FormatJSON} {
		if text := written(t, f, now); !strings.Contains(text, "nf") || !strings.Contains(text, "mended") {
			t.Errorf("%s does not show the comparison:\n%s", f, text)
		}
	}
}

func TestLevelsAreOrdered(t *testing.T) {
	for _, c := range []struct {
		level, weakest Level
		want           bool
	}{{Must, Must, true}, {Should, Must, false}, {Should, Should, true}, {House, May, false}, {May, House, true}, {"runtime", Must, true}} {
		if got := c.level.AtLeast(c.weakest); got != c.want {
			t.Errorf("%s.AtLeast(%s) = %v, want %v", c.level, c.weakest, got, c.want)
		}
	}
}
