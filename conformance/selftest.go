package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/transport"
)

// soundTimeout bounds a check without a fault, which should pass however slow the
// target is.
const soundTimeout = time.Minute

// silentTimeout bounds a check behind a fault that shows itself by nothing
// coming.
const silentTimeout = 2 * time.Second

// SelfTest shows that checks can fail: for every fault of package proxy it
// puts the fault between the checks and the target and wants at least one
// check to fail that passes without it. The error names every fault that went
// unnoticed or could not be tried. The target itself should pass.
func SelfTest(ctx context.Context, target Target) error {
	return selfTest(ctx, target, proxy.Faults())
}

func selfTest(ctx context.Context, target Target, faults []proxy.Fault) error {
	r := &runner{target: &target, opts: &Options{Timeout: soundTimeout}}
	checks := detecting(faults)
	r.server = r.probe(ctx, checks)
	if r.server.err != "" {
		return errors.New("conformance: " + r.server.err)
	}
	sound := passedChecks(checks, r.run(ctx, checks))
	errs := make([]error, len(faults))
	var trials sync.WaitGroup
	slots := make(chan struct{}, parallelTrials)
	for i, f := range faults {
		slots <- struct{}{}
		trials.Go(func() {
			errs[i] = r.trial(ctx, f, sound)
			<-slots
		})
	}
	trials.Wait()
	return errors.Join(errs...)
}

// parallelTrials is how many faults are tried at the same time: most of the time
// of those that are noticed by nothing coming is waiting.
const parallelTrials = 8

// detecting returns the checks that show any of the faults.
func detecting(faults []proxy.Fault) []Check {
	var ids []string
	for _, f := range faults {
		ids = append(ids, f.Checks...)
	}
	return slices.DeleteFunc(Checks(), func(c Check) bool { return !slices.Contains(ids, c.ID) })
}

// passedChecks returns the checks whose results are passed.
func passedChecks(checks []Check, results []Result) []Check {
	var list []Check
	for i, c := range checks {
		if results[i].Status == Passed {
			list = append(list, c)
		}
	}
	return list
}

// trial puts one fault before the target. It asks nothing of the server behind
// it again: the fault would be in the answers.
func (r *runner) trial(ctx context.Context, f proxy.Fault, sound []Check) error {
	var checks []Check
	for _, c := range sound {
		if slices.Contains(f.Checks, c.ID) {
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return fmt.Errorf("fault %q cannot be tested: none of %v passes without the fault", f.Defect, f.Checks)
	}
	opts := *r.opts
	opts.Timeout = DefaultTimeout
	if f.Silent {
		opts.Timeout = silentTimeout
	}
	for i := range checks {
		faulty := &runner{target: r.target.behind(f.Begin()), opts: &opts, server: r.server}
		if faulty.runOne(ctx, &checks[i]).Status == Failed {
			return nil
		}
	}
	return fmt.Errorf("none of %v detects the fault %q", f.Checks, f.Defect)
}

// behind is the target with something put into its connections.
func (tg *Target) behind(wrap func(transport.Conn) transport.Conn) *Target {
	other := *tg
	other.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := tg.dial(ctx)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return &other
}
