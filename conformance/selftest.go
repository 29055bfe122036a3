package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/transport"
)

// muteTimeout bounds a check behind a fault that shows itself by nothing
// coming.
const muteTimeout = 2 * time.Second

// SelfTest shows that checks can fail: for every fault of package proxy it
// puts the fault between the checks and the target and wants at least one
// check to fail that passes without it. The error names every fault that went
// unnoticed or could not be tried. The target itself should pass.
func SelfTest(ctx context.Context, target Target) error {
	faults := proxy.Faults()
	r := &runner{target: &target, opts: &Options{}}
	checks := shownBy(faults)
	r.server = r.probe(ctx, checks)
	if r.server.err != "" {
		return errors.New("conformance: " + r.server.err)
	}
	sound := passing(checks, r.run(ctx, checks))
	var errs []error
	for _, f := range faults {
		errs = append(errs, r.trial(ctx, f, sound))
	}
	return errors.Join(errs...)
}

// shownBy returns the checks that show any of the faults.
func shownBy(faults []proxy.Fault) []Check {
	var ids []string
	for _, f := range faults {
		ids = append(ids, f.Shows...)
	}
	return slices.DeleteFunc(Checks(), func(c Check) bool { return !slices.Contains(ids, c.ID) })
}

// passing returns the checks whose results are passed.
func passing(checks []Check, results []Result) []Check {
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
		if slices.Contains(f.Shows, c.ID) {
			checks = append(checks, c)
		}
	}
	if len(checks) == 0 {
		return fmt.Errorf("fault %q cannot be tried: none of %v passes without it", f.Name, f.Shows)
	}
	target := *r.target
	target.Dial = func(ctx context.Context) (transport.Conn, error) {
		conn, err := r.target.dial(ctx)
		if err != nil {
			return nil, err
		}
		return proxy.Wrap(conn, f), nil
	}
	opts := *r.opts
	if f.Mute {
		opts.Timeout = muteTimeout
	}
	faulty := &runner{target: &target, opts: &opts, server: r.server}
	for i := range checks {
		if faulty.runOne(ctx, &checks[i]).Status == Failed {
			return nil
		}
	}
	return fmt.Errorf("fault %q (%s) goes unnoticed by %v", f.Name, f.Says, f.Shows)
}
