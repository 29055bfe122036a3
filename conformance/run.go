package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Defaults of Options.
const (
	DefaultTimeout  = 10 * time.Second
	DefaultParallel = 4
	DefaultQuiet    = 300 * time.Millisecond
)

// Options selects checks and bounds their execution. An empty list of groups, ids or sections
// selects everything.
type Options struct {
	Groups []string
	IDs    []string
	Levels []Level // empty: ProtocolLevels, and the checks in IDs; House is chosen explicitly

	// Sections are sections of the specifications, as SectionMatches compares them.
	Sections []string

	Parallel int           // number of checks that run at the same time; zero or less: DefaultParallel
	Timeout  time.Duration // limit for one check; zero or less: DefaultTimeout

	// Quiet is the time within which nothing must come from a server that answers no ping. Zero
	// or less: DefaultQuiet. For other servers nothing comes before the answer to a ping.
	Quiet time.Duration

	// Seed shuffles the order in which the checks run; 0: the order of Checks.
	Seed uint64

	// OnResult receives each result when its check ends. Calls do not overlap. May be nil.
	OnResult func(Result)

	// OnRepeat receives each check that RunAgainst performs again, before it does. Calls overlap
	// neither with each other nor with OnResult. May be nil.
	OnRepeat func(Check)

	// StopAfter reports whether the run ends after a result. Checks that have not started are then
	// skipped, and those that run already are finished. Calls overlap neither with each other nor with OnResult. May be nil.
	StopAfter func(Result) bool
}

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"

	KnownDeviation Status = "known" // failed, and Mapping.Known has the check
	Stale          Status = "stale" // passed, and Mapping.Known has the check
)

// Millis is a duration that JSON shows in milliseconds.
type Millis time.Duration

// MarshalJSON writes milliseconds with three decimals.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(m).Microseconds())/1000, 'f', 3, 64), nil
}

// UnmarshalJSON reads milliseconds.
func (m *Millis) UnmarshalJSON(text []byte) error {
	ms, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("milliseconds: %w", err)
	}
	*m = Millis(time.Duration(ms * float64(time.Millisecond)).Round(time.Microsecond))
	return nil
}

// Result is the outcome of one check.
type Result struct {
	ID         string       `json:"id"`
	Title      string       `json:"title"`
	Group      string       `json:"group"`
	Dialect    arcp.Dialect `json:"dialect"`
	Section    string       `json:"section"`
	Level      Level        `json:"level"` // of the check; House if only a house step failed
	Status     Status       `json:"status"`
	Reason     string       `json:"reason,omitempty"` // why the check failed or was skipped
	Need       string       `json:"need,omitempty"`   // the missing precondition of a skipped check, as in Check.Needs
	Rule       string       `json:"rule,omitempty"`   // the violated rule, if it is not Title
	Sent       string       `json:"sent,omitempty"`   // type of the last message sent on the connection of the failure
	Got        string       `json:"got,omitempty"`    // what came instead, in one line
	During     string       `json:"during,omitempty"` // for a rule of frames: the check that received the first violation
	Duration   Millis       `json:"duration_ms"`
	Transcript []Entry      `json:"transcript,omitempty"` // only for a failed check

	timedOut bool // the check failed because no frame came in time
}

// Report is the result of a run. Results are in the order of Checks.
type Report struct {
	URL      string           `json:"url,omitempty"`
	Runtime  arcp.RuntimeInfo `json:"runtime"`
	Started  time.Time        `json:"started"`
	Duration Millis           `json:"duration_ms"`
	Dialect  arcp.Dialect     `json:"dialect"`
	Seed     uint64           `json:"seed,omitempty"`     // order in which the checks ran; 0: the order of Checks
	Habits   []string         `json:"habits,omitempty"`   // what was seen of the server before the checks
	Baseline *Comparison      `json:"baseline,omitempty"` // difference from an earlier report; nil: not compared
	Against  *Against         `json:"against,omitempty"`  // differences from a second server; nil: not compared
	Results  []Result         `json:"results"`
}

// Count returns the number of results with status s.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Status == s {
			n++
		}
	}
	return n
}

// Failures returns the results of the failed checks.
func (r *Report) Failures() []Result {
	var list []Result
	for _, res := range r.Results {
		if res.Status == Failed {
			list = append(list, res)
		}
	}
	return list
}

// ErrNoChecks is returned by Run if the options select no check.
var ErrNoChecks = errors.New("conformance: the options select no check")

// Run performs the selected checks against the target. An error means that no check could run, for
// example because the target cannot be reached, or a *RefusedError if it refuses Target.Token.
// Failed checks are not an error. Checks that have not started when ctx ends are reported as
// skipped.
func Run(ctx context.Context, target Target, opts Options) (Report, error) {
	return (&runner{target: &target, opts: &opts}).report(ctx)
}

// report performs the selected checks.
func (r *runner) report(ctx context.Context) (Report, error) {
	checks := r.opts.Selected(r.target.Dialect)
	report := Report{URL: r.target.URL, Started: time.Now(), Dialect: r.target.Dialect, Seed: r.opts.Seed}
	if len(checks) == 0 {
		return report, ErrNoChecks
	}
	if err := r.reach(ctx); err != nil {
		return report, err
	}
	r.server = r.probe(ctx, checks)
	if r.server.refused != nil {
		return report, r.server.refused
	}
	report.Runtime, report.Habits = r.server.accepted.Runtime, r.server.habits
	report.Results = append(r.runChosen(ctx, checks), r.frameResults(r.target.Dialect, checks)...)
	report.Duration = Millis(time.Since(report.Started))
	return report, nil
}

// Selected returns the checks that the options select, in the order of Checks.
func (o *Options) Selected(d arcp.Dialect) []Check {
	var list []Check
	for _, c := range Checks(d) {
		if o.selects(&c) {
			list = append(list, c)
		}
	}
	return list
}

// performed leaves out the checks of the group frames.
func performed(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.frames })
}

// runChosen performs the checks that are not of the group frames and returns their results. Without
// any, the frames of all checks are judged, and no result is returned or published.
func (r *runner) runChosen(ctx context.Context, checks []Check) []Result {
	if chosen := performed(checks); len(chosen) > 0 {
		return r.run(ctx, chosen)
	}
	all := Options{Levels: r.opts.Levels}
	r.unpublished = true
	r.run(ctx, performed(all.Selected(r.target.Dialect)))
	r.unpublished = false
	return nil
}

// runner performs checks. After the probe only findings, mu and the data behind it change.
type runner struct {
	target   *Target
	opts     *Options
	server   *server
	findings findings
	opens    opens
	captured *captures // frames of the checks; nil: not needed

	mu      sync.Mutex // held while OnResult and StopAfter run
	stopped atomic.Bool

	unpublished bool // results are not published; only changed while no check runs
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

// run performs the checks and returns their results in the same order. Checks that restart the
// server run one by one after the others.
func (r *runner) run(ctx context.Context, checks []Check) []Result {
	results := make([]Result, len(checks))
	var alone []int
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.parallel() {
		workers.Go(func() {
			for i := range next {
				results[i] = r.runOne(ctx, &checks[i])
				r.publish(results[i])
			}
		})
	}
	for _, i := range r.order(len(checks)) {
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
		r.publish(results[i])
	}
	return results
}

// order returns the indexes of n checks in the order in which they run.
func (r *runner) order(n int) []int {
	if r.opts.Seed != 0 {
		return rand.New(rand.NewPCG(r.opts.Seed, 0)).Perm(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func (r *runner) publish(res Result) {
	if r.unpublished {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opts.OnResult != nil {
		r.opts.OnResult(res)
	}
	if r.opts.StopAfter != nil && !r.stopped.Load() {
		r.stopped.Store(r.opts.StopAfter(res))
	}
}

func (r *runner) runOne(ctx context.Context, c *Check) Result {
	res := c.result(Skipped)
	if res.Reason = r.endReason(ctx); res.Reason != "" {
		return res
	}
	for _, need := range c.Needs {
		if res.Reason = r.server.missing(r.target, need); res.Reason != "" {
			res.Need = need
			return res
		}
	}
	if res.Reason = r.opens.refusing(); res.Reason != "" {
		return res
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	t := newCheckRun(ctx, r.target, r.server)
	t.id, t.levels, t.findings = c.ID, r.opts.levels(), &r.findings
	if r.captured != nil {
		t.shapes = shapes{}
	}
	t.execute(c.run)
	r.opens.add(t)
	if r.captured != nil {
		r.captured.add(t)
	}
	res.Duration = Millis(time.Since(t.tr.start))
	switch {
	case t.failure != "" && t.optional && t.closed && r.server.hangsUp:
		res.Reason, res.Need = r.server.missing(r.target, NeedUnknown), NeedUnknown
	case t.failure != "":
		res.Status, res.Reason, res.Transcript, res.timedOut = Failed, t.failure, t.tr.entries(), t.timedOut
		res.setFinding(t)
		res.Level = cmp.Or(t.broke, c.Level)
	case t.skip != "":
		res.Reason, res.Need = t.skip, t.need
	default:
		res.Status = Passed
	}
	r.target.Mapping.judge(&res)
	return res
}

// endReason returns why no more checks run, or "".
func (r *runner) endReason(ctx context.Context) string {
	if ctx.Err() != nil {
		return "the run was cancelled"
	}
	if r.stopped.Load() {
		return "the run ended before this check"
	}
	return ""
}
