package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// Against is the result of RunAgainst about the second server.
type Against struct {
	URL         string           `json:"url,omitempty"`
	Runtime     arcp.RuntimeInfo `json:"runtime"`
	Differences []Difference     `json:"differences"` // in the order of Checks
}

// Difference is one difference between two servers.
type Difference struct {
	Checks      []string   `json:"checks"`      // ids of the checks that show it
	Aspect      string     `json:"aspect"`      // "outcome", or a type with the path of a member, for example "job.failed payload.code"
	Servers     [2]string  `json:"servers"`     // what each server has
	Transcripts [2][]Entry `json:"transcripts"` // of the first check, with each server
}

// outcomeDiffers is Difference.Aspect of a check with two outcomes.
const outcomeDiffers = "outcome"

// String returns the difference in one line.
func (d Difference) String() string {
	more := ""
	if n := len(d.Checks) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("%s%s: %s: %s / %s", d.Checks[0], more, d.Aspect, d.Servers[0], d.Servers[1])
}

// repeats is how often a check that shows a difference is performed again with each server. A
// difference that does not repeat is not reported.
const repeats = 2

// RunAgainst performs the selected checks against two servers, one after the other, and returns the
// report of the first one. Report.Against has the differences:
//
//   - an outcome: the status of a check, or the violated rule
//   - where the outcome is the same, the members of the frames that the servers sent: which types
//     and members come, their JSON types, and the values of booleans and of enumerated members
//
// The order and the number of frames, texts, numbers, ids, cursors and the content of tools are not
// compared. A difference is one that each repetition of the check shows. Outcomes and values differ
// only if the servers have none in common. Options.StopAfter is not used, and
// Options.OnResult receives the results of both servers, and Options.OnRepeat the checks that are
// repeated. An error means that no check could run with one of the servers, or that the second one
// does not answer in the dialect.
func RunAgainst(ctx context.Context, first, second Target, opts Options) (Report, error) {
	opts.StopAfter = nil
	var sides [2]*side
	for i, target := range []*Target{&first, &second} {
		r := &runner{target: target, opts: &opts, captured: &captures{}}
		var report Report
		var err error
		if i == 1 {
			err = r.answers(ctx)
		}
		if err == nil {
			report, err = r.report(ctx)
		}
		if err != nil && i == 1 && !errors.Is(err, ErrNoChecks) {
			err = fmt.Errorf("the second server: %w", err)
		}
		if err != nil {
			return report, err
		}
		sides[i] = &side{r, report}
	}
	report := sides[0].report
	if ctx.Err() != nil { // checks that were not run would differ
		return report, nil
	}
	report.Against = &Against{URL: second.URL, Runtime: sides[1].report.Runtime, Differences: differences(ctx, sides)}
	return report, nil
}

// side is one of the two servers.
type side struct {
	runner *runner
	report Report
}

// differences compares the results of the checks. The differences of one member are one, with the values of all
// checks.
func differences(ctx context.Context, sides [2]*side) []Difference {
	list := []Difference{}
	index := map[string]int{} // of differences between frames, by Aspect
	for _, c := range sides[0].runner.opts.Selected(sides[0].runner.target.Dialect) {
		for _, d := range compareCheck(ctx, &c, sides) {
			if i, known := index[d.Aspect]; known && d.Aspect != outcomeDiffers {
				list[i].merge(&d)
				continue
			}
			index[d.Aspect] = len(list)
			list = append(list, d)
		}
	}
	return list
}

// merge adds the difference that another check shows of the same member.
func (d *Difference) merge(other *Difference) {
	d.Checks = append(d.Checks, other.Checks...)
	for i := range d.Servers {
		values := slices.Concat(strings.Split(d.Servers[i], valueSeparator), strings.Split(other.Servers[i], valueSeparator))
		slices.Sort(values)
		d.Servers[i] = strings.Join(slices.Compact(values), valueSeparator)
	}
}

// trials are the runs of one check with one server.
type trials struct {
	outcomes   []string
	shapes     []shapes
	transcript []Entry // of the first run
}

// compareCheck returns the differences that one check shows. It repeats the check if there are any.
func compareCheck(ctx context.Context, c *Check, sides [2]*side) []Difference {
	var runs [2]*trials
	for i, s := range sides {
		if runs[i] = s.firstRun(c.ID); runs[i] == nil {
			return nil // the check was not performed
		}
	}
	found := compareTrials(c, runs)
	for range repeats {
		if len(found) == 0 || c.frames || ctx.Err() != nil {
			break
		}
		if repeat := sides[0].runner.opts.OnRepeat; repeat != nil {
			repeat(*c)
		}
		for i, s := range sides {
			res := s.runner.runOne(ctx, c)
			runs[i].add(&res, s.runner.captured.of(c.ID))
		}
		found = compareTrials(c, runs)
	}
	return found
}

// firstRun returns the outcome of a check in the report; nil if there is none.
func (s *side) firstRun(id string) *trials {
	for i := range s.report.Results {
		if res := &s.report.Results[i]; res.ID == id {
			run := &trials{transcript: res.Transcript}
			captured := s.runner.captured.of(id)
			if captured.transcript != nil {
				run.transcript = captured.transcript
			}
			run.add(res, captured)
			return run
		}
	}
	return nil
}

func (t *trials) add(res *Result, c capture) {
	t.outcomes, t.shapes = append(t.outcomes, res.outcome()), append(t.shapes, c.shapes)
}

// outcome returns what is compared of a result.
func (res *Result) outcome() string {
	switch res.Status {
	case Failed:
		return "failed: " + res.rule()
	case Skipped:
		return "skipped: " + res.Reason
	}
	return string(res.Status)
}

// compareTrials returns the differences between the runs with two servers.
func compareTrials(c *Check, runs [2]*trials) []Difference {
	a, b := runs[0], runs[1]
	both := [2][]Entry{a.transcript, b.transcript}
	if !slices.ContainsFunc(a.outcomes, func(o string) bool { return slices.Contains(b.outcomes, o) }) {
		return []Difference{{[]string{c.ID}, outcomeDiffers, [2]string{a.outcomes[0], b.outcomes[0]}, both}}
	}
	var list []Difference
	for _, d := range compareShapes(a.shapes, b.shapes) {
		list = append(list, Difference{[]string{c.ID}, d.aspect, d.values, both})
	}
	return list
}

// captures are the frames of the last run of each check. It is safe for concurrent use.
type captures struct {
	mu     sync.Mutex
	checks map[string]capture // by id
}

// capture has the frames that one run of a check received.
type capture struct {
	transcript []Entry
	shapes     shapes
}

func (c *captures) add(t *checkRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checks == nil {
		c.checks = map[string]capture{}
	}
	c.checks[t.id] = capture{t.tr.entries(), t.shapes}
}

func (c *captures) of(id string) capture {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks[id]
}

// lines returns the differences as lines.
func (a *Against) lines() []string {
	lines := make([]string, len(a.Differences))
	for i := range a.Differences {
		lines[i] = a.Differences[i].String()
	}
	return lines
}

// String returns for example "1 difference from arcp-go 1.2 at ws://HOST/PATH".
func (a *Against) String() string {
	count := fmt.Sprintf("%d differences", len(a.Differences))
	switch len(a.Differences) {
	case 0:
		count = "no difference"
	case 1:
		count = "1 difference"
	}
	return fmt.Sprintf("%s from %s at %s", count, runtimeName(a.Runtime), orUnknown(a.URL))
}
