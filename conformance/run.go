package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Defaults of Options.
const (
	DefaultTimeout  = 10 * time.Second
	DefaultParallel = 4
)

// Options chooses checks and says how they are run. An empty list chooses
// everything.
type Options struct {
	Groups []string
	IDs    []string
	Levels []Level

	Parallel int           // checks at the same time; default DefaultParallel
	Timeout  time.Duration // of one check; default DefaultTimeout

	// OnResult is told each result as it comes, one at a time.
	OnResult func(Result)
}

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Millis is a duration that is written as a number of milliseconds.
type Millis time.Duration

// MarshalJSON writes milliseconds with three decimals.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(m).Microseconds())/1000, 'f', 3, 64), nil
}

// Result is the outcome of one check.
type Result struct {
	ID         string  `json:"id"`
	Title      string  `json:"title"`
	Group      string  `json:"group"`
	Dialect    string  `json:"dialect"`
	Section    string  `json:"section"`
	Level      Level   `json:"level"`
	Status     Status  `json:"status"`
	Reason     string  `json:"reason,omitempty"` // of a failure or of being skipped
	Duration   Millis  `json:"duration_ms"`
	Transcript []Entry `json:"transcript,omitempty"` // of a failure
}

// Report is the outcome of a run. Results are in the order of Checks.
type Report struct {
	URL      string           `json:"url,omitempty"`
	Runtime  arcp.RuntimeInfo `json:"runtime"`
	Started  time.Time        `json:"started"`
	Duration Millis           `json:"duration_ms"`
	Results  []Result         `json:"results"`
}

// Count returns the number of results with the status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Status == s {
			n++
		}
	}
	return n
}

// Failures returns the results of the checks that failed.
func (r *Report) Failures() []Result {
	var list []Result
	for _, res := range r.Results {
		if res.Status == Failed {
			list = append(list, res)
		}
	}
	return list
}

// ErrNoChecks is returned by Run when the options choose nothing.
var ErrNoChecks = errors.New("conformance: no check is chosen")

// Run plays the chosen checks against the target and reports what they found.
// The error says that the run itself could not be made, never that a check
// failed. When ctx ends, what has not run is reported as skipped.
func Run(ctx context.Context, target Target, opts Options) (Report, error) {
	checks := opts.choose()
	report := Report{URL: target.URL, Started: time.Now()}
	if len(checks) == 0 {
		return report, ErrNoChecks
	}
	conn, err := target.dial(ctx)
	if err != nil {
		return report, fmt.Errorf("conformance: connect: %w", err)
	}
	_ = conn.Abort() // only whether there is a server was of interest

	r := &runner{target: &target, opts: &opts}
	r.server = r.probe(ctx, checks)
	report.Runtime = r.server.accepted.Runtime
	report.Results = r.run(ctx, checks)
	report.Duration = Millis(time.Since(report.Started))
	return report, nil
}

func (o *Options) choose() []Check {
	var list []Check
	for _, c := range Checks() {
		if o.selects(&c) {
			list = append(list, c)
		}
	}
	return list
}

// runner plays checks. After the probe only its lock and what it guards
// change.
type runner struct {
	target *Target
	opts   *Options
	server *server

	mu sync.Mutex // held while OnResult runs
}

func (r *runner) timeout() time.Duration {
	if r.opts.Timeout <= 0 {
		return DefaultTimeout
	}
	return r.opts.Timeout
}

func (r *runner) parallel() int {
	if r.opts.Parallel <= 0 {
		return DefaultParallel
	}
	return r.opts.Parallel
}

// probe asks the server what it has. A server that accepts no session has
// nothing: what needs something of it is skipped, the rest is run.
func (r *runner) probe(ctx context.Context, checks []Check) *server {
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	s := &server{}
	t := newT(ctx, r.target, s)
	t.play(func(_ context.Context, t *T) { probe(t, checks, s) })
	if t.failure != "" {
		s.err = "the server accepts no session: " + t.failure
	}
	return s
}

// run plays the checks and returns their results in the same order. Those that
// start the server again are played one by one when the others have been.
func (r *runner) run(ctx context.Context, checks []Check) []Result {
	results := make([]Result, len(checks))
	var alone []int
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.parallel() {
		workers.Go(func() {
			for i := range next {
				results[i] = r.runOne(ctx, &checks[i])
				r.tell(results[i])
			}
		})
	}
	for i := range checks {
		if slices.Contains(checks[i].Needs, NeedRestart) {
			alone = append(alone, i)
			continue
		}
		next <- i
	}
	close(next)
	workers.Wait()
	for _, i := range alone {
		results[i] = r.runOne(ctx, &checks[i])
		r.tell(results[i])
	}
	return results
}

func (r *runner) tell(res Result) {
	if r.opts.OnResult == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opts.OnResult(res)
}

func (r *runner) runOne(ctx context.Context, c *Check) Result {
	res := Result{ID: c.ID, Title: c.Title, Group: c.Group(), Dialect: c.Dialect, Section: c.Section,
		Level: c.Level, Status: Skipped}
	if res.Reason = r.skipReason(ctx, c); res.Reason != "" {
		return res
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	t := newT(ctx, r.target, r.server)
	t.play(c.Run)
	res.Duration = Millis(time.Since(t.tr.start))
	switch {
	case t.failure != "":
		res.Status, res.Reason, res.Transcript = Failed, t.failure, t.tr.entries()
	case t.skip != "":
		res.Reason = t.skip
	default:
		res.Status = Passed
	}
	return res
}

// skipReason says why a check cannot run, or "".
func (r *runner) skipReason(ctx context.Context, c *Check) string {
	if ctx.Err() != nil {
		return "the run was ended"
	}
	for _, need := range c.Needs {
		if why := r.server.missing(r.target, need); why != "" {
			return why
		}
	}
	return ""
}
