package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

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
