package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// TextOptions selects the content of WriteText.
type TextOptions struct {
	Color   bool // use ANSI colours
	Verbose bool // also list passed checks, and the transcripts of failed checks
}

// WriteText writes a report as text: failed and skipped checks with reasons, and a line of totals
// for each group.
func WriteText(w io.Writer, r *Report, opts TextOptions) error {
	p := &textPrinter{w: w, color: opts.Color}
	p.printf("%s %s at %s\n", orUnknown(r.Runtime.Kind), r.Runtime.Version, orUnknown(r.URL))
	width := 0
	for i := range r.Results {
		width = max(width, len(r.Results[i].ID))
	}
	for _, name := range r.groupNames() {
		p.group(r, name, width, opts.Verbose)
	}
	p.printf("\n%d passed, %d failed, %d skipped%s in %s\n", r.Count(Passed), r.Count(Failed), r.Count(Skipped),
		r.deviations(), time.Duration(r.Duration).Round(time.Millisecond))
	return p.err
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
			for _, e := range res.Transcript {
				p.printf("       %s\n", e)
			}
		}
	}
}

var statusColors = map[Status]string{Passed: "32", Failed: "31", Skipped: "33", KnownDeviation: "33", Stale: "31"}

func (p *textPrinter) result(res *Result, width int) {
	status := fmt.Sprintf("%-4s", map[Status]string{Passed: "ok", Failed: "FAIL", Skipped: "skip", KnownDeviation: "known", Stale: "stale"}[res.Status])
	if p.color {
		status = "\x1b[" + statusColors[res.Status] + "m" + status + "\x1b[0m"
	}
	p.printf("  %s %-*s  %-7s %s\n", status, width, res.ID, res.Level, res.Title)
	if res.Reason != "" {
		indent := strings.Repeat(" ", 7)
		p.printf("%s%s\n", indent, strings.ReplaceAll(res.Reason, "\n", "\n"+indent))
	}
	if res.Status == Failed {
		p.printf("       see %s\n", res.Section)
	}
}

// WriteJSON writes a report as one indented JSON object.
func WriteJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Stamp    string      `xml:"timestamp,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
	Skipped *junitSkipped `xml:"skipped"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes a report as JUnit XML with one suite for each group.
func WriteJUnit(w io.Writer, r *Report) error {
	all := junitSuites{Name: "arcp conformance", Tests: len(r.Results), Failures: r.Count(Failed),
		Skipped: r.Count(Skipped) + r.Count(KnownDeviation), Time: seconds(r.Duration)}
	for _, name := range r.groupNames() {
		all.Suites = append(all.Suites, junitGroup(r.ofGroup(name), name, r.Started))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitGroup(part *Report, name string, started time.Time) junitSuite {
	s := junitSuite{Name: name, Tests: len(part.Results), Failures: part.Count(Failed), Skipped: part.Count(Skipped) + part.Count(KnownDeviation),
		Time: seconds(part.Duration), Stamp: started.UTC().Format(time.RFC3339)}
	for _, res := range part.Results {
		s.Cases = append(s.Cases, junitResult(&res))
	}
	return s
}

func junitResult(res *Result) junitCase {
	c := junitCase{Name: res.ID + ": " + res.Title, Class: "arcp." + res.Dialect.String() + "." + res.Group, Time: seconds(res.Duration)}
	switch res.Status {
	case Failed:
		var b strings.Builder
		fmt.Fprintf(&b, "%s\nsee %s (%s)\n", res.Reason, res.Section, res.Level)
		for _, e := range res.Transcript {
			fmt.Fprintln(&b, e)
		}
		c.Failure = &junitFailure{Message: res.Reason, Type: string(res.Level), Text: b.String()}
	case Skipped, KnownDeviation:
		c.Skipped = &junitSkipped{Message: res.Reason}
	}
	return c
}

func seconds(m Millis) string { return fmt.Sprintf("%.6f", time.Duration(m).Seconds()) }
