package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestReadReportRefusesOtherFormats(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "not a report",
		"jobs 1 2 3":                  "not a report",
		`[{"row":"jobs"}]`:            "not a report",
		`{"name":"other"}`:            "it has no rows",
		`{"rows":[]}`:                 "it has no rows",
		`{"rows":["jobs"]}`:           "not a report",
		`{"rows":[{"row":"jobs"}]}`:   "rows[0] lacks row, mode or unit",
		`{"rows":[{"name":"jobs"}]}`:  "rows[0] lacks row, mode or unit",
		`{"rows":[{"row":"jobs"}]} x`: "not a report",
	} {
		if rows, err := ReadReport([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: rows = %+v, %v, want an error with %q", text, rows, err, want)
		}
	}
	rows, err := ReadReport([]byte(`{"build":{},"later":1,"rows":[{"row":"jobs","mode":"memory","unit":"jobs/s","value":5,"later":2}]}`))
	if err != nil || len(rows) != 1 || rows[0].Row != "jobs" || rows[0].Value != 5 {
		t.Errorf("rows = %+v, %v, want one, without the unknown members", rows, err)
	}
}

func TestCompareRelatesTheSameRowModeAndDialect(t *testing.T) {
	jobs := func(dialect, mode string, value float64) Result {
		return Result{Row: "jobs", Dialect: dialect, Mode: mode, Value: value, Unit: "jobs/s"}
	}
	results := []Result{jobs(RFC, Memory, 200), jobs(RFC, Durable, 90), jobs(Draft, Memory, 30),
		{Row: "roundtrip", Dialect: RFC, Mode: Memory, Value: 2, Unit: "ms"}}
	// Results without a dialect are in reports of builds that had one dialect.
	unmatched := Compare(results, []Result{jobs("", Memory, 100), jobs(RFC, Durable, 180), jobs(Draft, Memory, 10),
		{Row: "roundtrip", Mode: Memory, Value: 4, Unit: "ms"}})
	if len(unmatched) != 0 {
		t.Errorf("unmatched = %q, want none", unmatched)
	}
	for i, want := range []Earlier{{100, 2, ""}, {180, 0.5, ""}, {10, 3, ""}, {4, 2, ""}} {
		if r := results[i]; r.Earlier == nil || *r.Earlier != want {
			t.Errorf("%s %s: earlier = %+v, want %+v", r.Mode, r.Row, r.Earlier, want)
		}
	}
}

func TestCompareSaysWhyThereIsNoRatio(t *testing.T) {
	jobs := func(value float64) Result {
		return Result{Row: "jobs", Mode: Memory, Value: value, Unit: "jobs/s", Details: map[string]float64{inFlight: 16}}
	}
	with := func(r Result, change func(*Result)) []Result {
		change(&r)
		return []Result{r}
	}
	for want, before := range map[string][]Result{
		"does not have the row": nil,
		"failed":                with(jobs(1), func(r *Result) { r.Error = "refused" }),
		"not measured":          with(jobs(0), func(r *Result) { r.Absent = "no filters" }),
		"unit is jobs":          with(jobs(1), func(r *Result) { r.Unit = "jobs" }),
		"in_flight is 4":        with(jobs(1), func(r *Result) { r.Details = map[string]float64{inFlight: 4} }),
		"no ratio of 1 and 0":   {jobs(0)},
	} {
		results := []Result{jobs(1)}
		Compare(results, before)
		if e := results[0].Earlier; e == nil || e.Ratio != 0 || !strings.Contains(e.Absent, want) {
			t.Errorf("earlier = %+v, want no ratio because %q", e, want)
		}
	}
	failed := with(jobs(0), func(r *Result) { r.Error = "refused" })
	if Compare(failed, []Result{jobs(1)}); failed[0].Earlier != nil {
		t.Errorf("earlier = %+v of a failed row, want none", failed[0].Earlier)
	}
}

func TestCompareSaysWhichEarlierRowsAreNotMeasured(t *testing.T) {
	earlier := []Result{{Row: "jobs", Mode: Memory}, {Row: "jobs", Mode: Durable}, {Row: "jobs", Dialect: Draft, Mode: Memory}, {Row: "gone", Mode: Memory}}
	got := Compare([]Result{{Row: "jobs", Dialect: RFC, Mode: Memory}}, earlier)
	want := []string{
		"durable jobs, dialect rfc: not measured in this run",
		"memory jobs, dialect draft: not measured in this run",
		"memory gone, dialect rfc: this build does not have the row",
	}
	if !slices.Equal(got, want) {
		t.Errorf("unmatched = %q, want %q", got, want)
	}
}

func TestTableShowsEarlierValues(t *testing.T) {
	var b strings.Builder
	err := WriteTable(&b, []Result{
		{Row: "jobs", Mode: Memory, Title: "echo jobs/s", Value: 51234.6, Unit: "jobs/s", Earlier: &Earlier{Value: 40_000, Ratio: 1.28}},
		{Row: "roundtrip", Mode: Memory, Title: "round trip", Value: 0.3456, Unit: "ms", Target: 0.6, Ratio: 1.74,
			Earlier: &Earlier{Absent: "the earlier measurement failed"}},
		{Row: "idle", Mode: Memory, Title: "RSS an idle session", Error: "connection lost"},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "compared.txt", b.String())
}
