package conformance

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// TextOptions selects the content of WriteText.
type TextOptions struct {
	Color   bool // use ANSI colours
	Verbose bool // also list passed checks, and the reasons and transcripts of failed checks
}

// WriteText writes a report as text: the findings of failed checks, skipped checks with reasons, and
// a line of totals for each group.
func WriteText(w io.Writer, r *Report, opts TextOptions) error {
	p := &textPrinter{w: w, color: opts.Color}
	p.printf("%s at %s\n", runtimeName(r.Runtime), orUnknown(r.URL))
	p.printf("dialect: %s\n", r.Dialect)
	if r.Seed != 0 {
		p.printf("order of the checks: seed %d\n", r.Seed)
	}
	for _, habit := range r.Habits {
		p.printf("observed: %s\n", habit)
	}
	width := 0
	for i := range r.Results {
		width = max(width, len(r.Results[i].ID))
	}
	for _, name := range r.groupNames() {
		p.group(r, name, width, opts.Verbose)
	}
	p.printf("\n%d passed, %d failed, %d skipped%s in %s\n", r.Count(Passed), r.Count(Failed), r.Count(Skipped),
		r.deviations(), time.Duration(r.Duration).Round(time.Millisecond))
	p.comparison(r.Baseline)
	if r.Against != nil {
		p.printf("%s\n", r.Against)
		for _, line := range r.Against.lines() {
			p.printf("  differs %s\n", line)
		}
	}
	return p.err
}

// comparison prints the difference from a baseline.
func (p *textPrinter) comparison(c *Comparison) {
	if c == nil {
		return
	}
	p.printf("%s\n", c)
	for _, list := range c.lists() {
		for _, id := range list.ids {
			p.printf("  %-11s %s\n", list.name, id)
		}
	}
}

// runtimeName returns for example "arcp-go 1.2".
func runtimeName(r arcp.RuntimeInfo) string {
	return strings.TrimSpace(orUnknown(r.Kind) + " " + r.Version)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown server"
	}
	return s
}

// groupNames returns the groups that have results.
func (r *Report) groupNames() []string {
	var names []string
	for i := range r.Results {
		if g := r.Results[i].Group; len(names) == 0 || names[len(names)-1] != g {
			names = append(names, g)
		}
	}
	return names
}

// ofGroup returns the results of one group.
func (r *Report) ofGroup(group string) *Report {
	part := &Report{}
	for _, res := range r.Results {
		if res.Group == group {
			part.Results = append(part.Results, res)
			part.Duration += res.Duration
		}
	}
	return part
}

// textPrinter writes text until the first error, which it keeps.
type textPrinter struct {
	w     io.Writer
	color bool
	err   error
}

func (p *textPrinter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *textPrinter) group(r *Report, name string, width int, verbose bool) {
	part := r.ofGroup(name)
	p.printf("\n%-14s %3d passed %3d failed %3d skipped%s\n", name, part.Count(Passed), part.Count(Failed),
		part.Count(Skipped), part.deviations())
	for _, res := range part.Results {
		if res.Status == Passed && !verbose {
			continue
		}
		p.result(&res, width)
		if verbose {
			if res.Status == Failed {
				p.indented(res.Reason)
			}
			for _, e := range res.Transcript {
				p.printf("       %s\n", e)
			}
		}
	}
}

var statusColors = map[Status]string{Passed: "32", Failed: "31", Skipped: "33", KnownDeviation: "33", Stale: "31"}

func (p *textPrinter) status(s Status) string {
	status := fmt.Sprintf("%-4s", map[Status]string{Passed: "ok", Failed: "FAIL", Skipped: "skip", KnownDeviation: "known", Stale: "stale"}[s])
	if p.color {
		status = "\x1b[" + statusColors[s] + "m" + status + "\x1b[0m"
	}
	return status
}

// result prints a failed check as its finding, and any other as its title and reason.
func (p *textPrinter) result(res *Result, width int) {
	if res.Status == Failed {
		p.printf("  %s %s\n", p.status(res.Status), res.Finding())
		return
	}
	p.printf("  %s %-*s  %-7s %s\n", p.status(res.Status), width, res.ID, res.Level, res.Title)
	if res.Reason != "" {
		p.indented(res.Reason)
	}
}

// indented prints lines below a result.
func (p *textPrinter) indented(text string) {
	indent := strings.Repeat(" ", 7)
	p.printf("%s%s\n", indent, strings.ReplaceAll(text, "\n", "\n"+indent))
}
