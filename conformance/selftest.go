package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
)

// soundTimeout bounds a check without a fault. Such a check should pass on a slow server too.
const soundTimeout = time.Minute

// attempts bounds how often a check runs behind one fault. A fault of one connection can be hidden by the
// moment at which another connection is served.
const attempts = 3

// A check behind a silent fault has silentFactor times the time that it took without the fault, and at least
// silentTimeout: on a slow machine a check that still passes must not run into the limit.
const (
	silentTimeout = 2 * time.Second
	silentFactor  = 2
)

// SelfTest proves that the checks can fail. For each fault of package proxy it puts the fault
// between the checks and the target. At least one of the fault's checks that passes without the
// fault must then fail, or receive a frame that violates a rule; in the draft dialect each of them
// must. A second pass judges only ProtocolLevels: one of the checks must detect each fault but those
// marked as House. The error names every fault that no check detected, that lacks this mark, or that
// could not be tested. The target itself should pass all checks.
func SelfTest(ctx context.Context, target Target) error {
	var faults []proxy.Fault
	for _, f := range proxy.Faults() {
		if strings.HasPrefix(f.Checks[0], draftPrefix) == (target.Dialect == arcp.DialectDraft) {
			faults = append(faults, f)
		}
	}
	return selfTest(ctx, target, faults)
}

func selfTest(ctx context.Context, target Target, faults []proxy.Fault) error {
	r := &runner{target: &target, opts: &Options{Levels: Levels, Timeout: soundTimeout}}
	checks := detecting(target.Dialect, faults)
	r.server = r.probe(ctx, checks)
	if r.server.err != "" {
		return errors.New("conformance: " + r.server.err)
	}
	passing := passedChecks(checks, r.soundRun(ctx, checks))
	errs := make([]error, len(faults))
	var trials sync.WaitGroup
	slots := make(chan struct{}, parallelTrials)
	var alone []int // faults of checks that restart the server
	for i, f := range faults {
		if slices.ContainsFunc(passing, func(c soundCheck) bool {
			return slices.Contains(f.Checks, c.ID) && slices.Contains(c.Needs, NeedRestart)
		}) {
			alone = append(alone, i)
			continue
		}
		slots <- struct{}{}
		trials.Go(func() {
			errs[i] = r.trial(ctx, f, passing)
			<-slots
		})
	}
	trials.Wait()
	for _, i := range alone {
		errs[i] = r.trial(ctx, faults[i], passing)
	}
	return errors.Join(errs...)
}

// soundRun runs the checks without a fault. A check that fails beside the others is repeated alone: a slow machine
// may have ended its session.
func (r *runner) soundRun(ctx context.Context, checks []Check) []Result {
	results := r.run(ctx, checks)
	for i := range results {
		for n := 1; n < attempts && results[i].Status == Failed; n++ {
			results[i] = r.runOne(ctx, &checks[i])
		}
	}
	return results
}

// parallelTrials is the number of faults tested at the same time. Most of the time is waiting for
// the timeouts of silent faults.
const parallelTrials = 8

// detecting returns the checks that detect any of the faults.
func detecting(d arcp.Dialect, faults []proxy.Fault) []Check {
	var ids []string
	for _, f := range faults {
		ids = append(ids, f.Checks...)
	}
	return slices.DeleteFunc(Checks(d), func(c Check) bool { return !slices.Contains(ids, c.ID) })
}

// soundCheck is a check that passes without a fault.
type soundCheck struct {
	Check
	took time.Duration
}

// passedChecks returns the checks whose results are passed.
func passedChecks(checks []Check, results []Result) []soundCheck {
	var list []soundCheck
	for i, c := range checks {
		if results[i].Status == Passed {
			list = append(list, soundCheck{Check: c, took: time.Duration(results[i].Duration)})
		}
	}
	return list
}

// trial tests one fault. It does not probe the server again, because the fault would change the
// answers.
func (r *runner) trial(ctx context.Context, f proxy.Fault, passing []soundCheck) error {
	var checks []soundCheck
	for _, c := range passing {
		if slices.Contains(f.Checks, c.ID) {
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return fmt.Errorf("fault %q cannot be tested: none of %v passes without the fault", f.Defect, f.Checks)
	}
	var missed []string
	for i := range checks {
		switch {
		case !r.detects(ctx, &f, &checks[i], Levels):
			missed = append(missed, checks[i].ID)
		case r.target.Dialect != arcp.DialectDraft:
			return r.protocolTrial(ctx, f, checks)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("%v do not detect the fault %q", missed, f.Defect)
	}
	return r.protocolTrial(ctx, f, checks)
}

// protocolTrial tests one fault with the rules of the protocol only. It leaves out faults of House: whether the
// protocol shows them may depend on the order of frames of several jobs.
func (r *runner) protocolTrial(ctx context.Context, f proxy.Fault, checks []soundCheck) error {
	if f.House {
		return nil
	}
	for i := range checks {
		if c := &checks[i]; c.Level != House && r.detects(ctx, &f, c, ProtocolLevels) {
			return nil
		}
	}
	return fmt.Errorf("none of %v detects the fault %q without the rules of the level house: mark it as House", f.Checks, f.Defect)
}

// detectionTimeout returns the limit for a check that should fail behind a fault.
func (c *soundCheck) detectionTimeout(f *proxy.Fault) time.Duration {
	if f.Silent {
		return max(silentTimeout, silentFactor*c.took)
	}
	return soundTimeout
}

// detects reports whether the check fails behind the fault, or receives a frame that violates a rule
// of the levels, in one of the attempts. An attempt ends at the first such frame: the check could wait for
// another one up to its limit.
func (r *runner) detects(ctx context.Context, f *proxy.Fault, c *soundCheck, levels []Level) bool {
	opts := *r.opts
	opts.Levels, opts.Timeout = levels, c.detectionTimeout(f)
	for range attempts {
		attempt, end := context.WithCancel(ctx)
		faulty := &runner{target: r.target.behind(f), opts: &opts, server: r.server, findings: findings{first: end}}
		res := faulty.runOne(attempt, &c.Check)
		end()
		if faulty.findings.any() || counts(f, &res) {
			return true
		}
	}
	return false
}

// counts reports whether a result is a detection of the fault. That no frame came in time is one of silent faults only.
func counts(f *proxy.Fault, res *Result) bool {
	return res.Status == Failed && (f.Silent || !res.timedOut)
}

// behind returns the target with the fault in each connection and each request for a link.
func (tg *Target) behind(f *proxy.Fault) *Target {
	other := *tg
	other.plant = f.Begin()
	other.links = f.Links(cmp.Or(tg.linkTransport(), http.DefaultTransport))
	return &other
}
