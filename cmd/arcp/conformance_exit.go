package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/conformance"
)

// failurePolicy says which failed checks make the exit code 1.
type failurePolicy struct {
	failOn       string // weakest level that counts
	strict       bool
	failFast     bool
	baselineFile string

	weakest  conformance.Level
	before   *conformance.Report  // the report in baselineFile; nil: none
	baseline conformance.Baseline // of before; nil: none
}

func (p *failurePolicy) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.failOn, "fail-on", string(conformance.Must), "weakest level whose failed checks make the exit code 1: must, should, may or house")
	f.BoolVar(&p.strict, "strict", false, "exit code 1 if any check fails; the same as --fail-on house")
	f.BoolVar(&p.failFast, "fail-fast", false, "start no check after the first one that makes the exit code 1; checks that run already, see --parallel, are finished")
	f.StringVar(&p.baselineFile, "baseline", "", "only failures that this JSON report does not have make the exit code 1")
	exclude(cmd, "fail-on", "strict")
	completeWords(cmd, "fail-on", texts(conformance.Levels)...)
}

// read checks the flags and reads the baseline.
func (p *failurePolicy) read() (err error) {
	if err := oneOf("fail-on", p.failOn, texts(conformance.Levels)...); err != nil {
		return &exitError{exitUsage, err}
	}
	p.weakest = conformance.Level(p.failOn)
	if p.strict {
		p.weakest = conformance.House
	}
	if p.baselineFile == "" {
		return nil
	}
	if p.before, err = readReport("baseline", p.baselineFile); err == nil {
		p.baseline = conformance.NewBaseline(p.before)
	}
	return err
}

// counts reports whether a result makes the exit code 1.
func (p *failurePolicy) counts(res *conformance.Result) bool {
	return res.Status == conformance.Failed && res.Level.AtLeast(p.weakest) && p.baseline.Regressed(res)
}

// stopAfter returns the function that ends the run, or nil.
func (p *failurePolicy) stopAfter() func(conformance.Result) bool {
	if !p.failFast {
		return nil
	}
	return func(res conformance.Result) bool { return p.counts(&res) }
}

// compare adds the difference from the baseline to a report.
func (p *failurePolicy) compare(report *conformance.Report) {
	if p.baseline != nil {
		report.Baseline = p.baseline.Compare(report)
	}
}

// exit returns the exit code of a report as an error. The report has named the failed checks. A run
// that judged nothing is an error, so that a CI job with a wrong setting does not succeed.
func (p *failurePolicy) exit(a *app, report *conformance.Report) error {
	if n := len(report.Results); n > 0 && report.Count(conformance.Skipped) == n {
		return failf("no check was judged: %d of %d are skipped, and the report says what each needs", n, n)
	}
	failed := report.Failures()
	for i := range failed {
		if p.counts(&failed[i]) {
			return &exitError{code: exitFailed}
		}
	}
	if len(failed) > 0 && !a.json {
		_, err := fmt.Fprintln(a.stdout, "exit code 0: "+p.reason())
		return err
	}
	return nil
}

// reason says why failed checks do not make the exit code 1.
func (p *failurePolicy) reason() string {
	if p.baseline != nil {
		return fmt.Sprintf("no check of the level %s or a stronger one fails that does not fail in %s", p.weakest, p.baselineFile)
	}
	return fmt.Sprintf("no check of the level %s or a stronger one fails; --strict counts every check", p.weakest)
}
