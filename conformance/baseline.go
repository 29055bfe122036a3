package conformance

import (
	"fmt"
	"slices"
)

// Comparison lists the checks whose results differ from an earlier report, by id.
type Comparison struct {
	Regressions []string `json:"regressions"` // failed, and did not fail before
	Known       []string `json:"known"`       // failed in both, or known deviations
	Mended      []string `json:"mended"`      // passed, and failed before
	Lost        []string `json:"lost"`        // skipped, and passed before
}

// Baseline has the status of each check of an earlier report, by id.
type Baseline map[string]Status

// NewBaseline returns the statuses of a report. A known deviation is Failed, and a stale one Passed.
func NewBaseline(r *Report) Baseline {
	b := Baseline{}
	for i := range r.Results {
		b[r.Results[i].ID] = r.Results[i].Status.outcome()
	}
	return b
}

// outcome returns Passed, Failed or Skipped: what came of the check without the mapping.
func (s Status) outcome() Status {
	switch s {
	case KnownDeviation:
		return Failed
	case Stale:
		return Passed
	}
	return s
}

// Regressed reports whether a result is a failure that the baseline does not have: the check passed,
// was skipped or did not exist.
func (b Baseline) Regressed(res *Result) bool { return res.Status == Failed && b[res.ID] != Failed }

// Compare returns the difference of a report from the baseline.
func (b Baseline) Compare(now *Report) *Comparison {
	c := &Comparison{Regressions: []string{}, Known: []string{}, Mended: []string{}, Lost: []string{}}
	for i := range now.Results {
		res := &now.Results[i]
		switch before, status := b[res.ID], res.Status.outcome(); {
		case b.Regressed(res):
			c.Regressions = append(c.Regressions, res.ID)
		case status == Failed:
			c.Known = append(c.Known, res.ID)
		case status == Passed && before == Failed:
			c.Mended = append(c.Mended, res.ID)
		case status == Skipped && before == Passed:
			c.Lost = append(c.Lost, res.ID)
		}
	}
	return c
}

// String counts the differences.
func (c *Comparison) String() string {
	return fmt.Sprintf("compared with the baseline: %d regressions, %d mended, %d known failures, %d no longer judged",
		len(c.Regressions), len(c.Mended), len(c.Known), len(c.Lost))
}

// namedIDs are ids with what they have in common.
type namedIDs struct {
	name string
	ids  []string
}

// lists returns the differences that reports list. Known failures are among the failed checks.
func (c *Comparison) lists() []namedIDs {
	return []namedIDs{{"regression", c.Regressions}, {"mended", c.Mended}, {"not judged", c.Lost}}
}

// AtLeast reports whether l is weakest or a stronger level, in the order of Levels. An unknown level
// is as strong as Must.
func (l Level) AtLeast(weakest Level) bool {
	return slices.Index(Levels, l) <= slices.Index(Levels, weakest)
}
