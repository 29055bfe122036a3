package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// Earlier relates a result to the result of the same row, dialect and mode in an earlier report.
type Earlier struct {
	Value  float64 `json:"value"`
	Ratio  float64 `json:"ratio"`           // of the new value and the earlier value; above 1: better than earlier
	Absent string  `json:"absent,omitzero"` // why there is no ratio; then the other members are 0
}

// ReadReport returns the rows of a report of `arcp bench -o json`. It ignores members that it does not know.
func ReadReport(text []byte) ([]Result, error) {
	var report struct {
		Rows []Result `json:"rows"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("not a report of arcp bench -o json: %w", err)
	}
	if len(report.Rows) == 0 {
		return nil, errors.New("not a report of arcp bench -o json: it has no rows")
	}
	for i, r := range report.Rows {
		if r.Row == "" || r.Mode == "" || r.Unit == "" {
			return nil, fmt.Errorf("not a report of arcp bench -o json: rows[%d] lacks row, mode or unit", i)
		}
	}
	return report.Rows, nil
}

// resultKey identifies the results that Compare relates.
type resultKey struct{ row, dialect, mode string }

// key returns the key of a result. Reports without dialects are of the RFC dialect.
func (r *Result) key() resultKey {
	return resultKey{r.Row, cmp.Or(r.Dialect, RFC), r.Mode}
}

func (k resultKey) String() string { return k.mode + " " + k.row + ", dialect " + k.dialect }

// Compare sets Earlier of each measured result. It returns a sentence for each row of the earlier report that has no
// counterpart in the results.
func Compare(results, earlier []Result) (unmatched []string) {
	before := make(map[resultKey]*Result)
	for i := range earlier {
		before[earlier[i].key()] = &earlier[i]
	}
	measured := make(map[resultKey]bool)
	for i := range results {
		r := &results[i]
		measured[r.key()] = true
		if r.Error == "" && r.Absent == "" {
			r.Earlier = r.compare(before[r.key()])
		}
	}
	for i := range earlier {
		switch k := earlier[i].key(); {
		case lookupRow(k.row) == nil:
			unmatched = append(unmatched, k.String()+": this build does not have the row")
		case !measured[k]:
			unmatched = append(unmatched, k.String()+": not measured in this run")
		}
	}
	return unmatched
}

// compare relates a measured result to an earlier result; nil: there is none.
func (r *Result) compare(before *Result) *Earlier {
	switch {
	case before == nil:
		return &Earlier{Absent: "the earlier report does not have the row"}
	case before.Error != "":
		return &Earlier{Absent: "the earlier measurement failed"}
	case before.Absent != "":
		return &Earlier{Absent: "not measured in the earlier report"}
	case before.Unit != r.Unit:
		return &Earlier{Absent: "the earlier unit is " + before.Unit}
	case before.Value <= 0 || r.Value <= 0:
		return &Earlier{Absent: fmt.Sprintf("no ratio of %g and %g", r.Value, before.Value)}
	}
	for _, name := range parameters {
		if was, is := before.Details[name], r.Details[name]; was > 0 && is > 0 && was != is {
			return &Earlier{Absent: fmt.Sprintf("the earlier %s is %g", name, was)}
		}
	}
	return &Earlier{Value: before.Value, Ratio: ratio(lookupRow(r.Row).less, r.Value, before.Value)}
}

// Details that say how a row was measured.
const (
	inFlight     = "in_flight"     // jobs in flight in each session
	idleSessions = "sessions"      // of the row idle
	finishedJobs = "finished_jobs" // of the row finished
)

// parameters has the details that must be equal in comparable results. Earlier builds did not write all of them.
var parameters = []string{inFlight, idleSessions, finishedJobs}
