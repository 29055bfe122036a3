package conformance

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var htmlText string

var htmlPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"upper":   func(l Level) string { return strings.ToUpper(string(l)) },
	"elapsed": func(m Millis) string { return time.Duration(m).Round(time.Millisecond).String() },
	"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).Parse(htmlText))

// htmlReport is the data of the page.
type htmlReport struct {
	*Report
	Server     string
	Deviations string
	Levels     []levelCount
	Defects    []defect
	Sections   []*htmlGroup
	Lists      []htmlList
}

// htmlGroup is a group of checks on the page.
type htmlGroup struct {
	Name                    string
	Passed, Failed, Skipped int
	Results                 []Result
}

// htmlList is one of the lists of a comparison.
type htmlList struct {
	Name string
	IDs  []string
}

// WriteHTML writes a report as one HTML page without scripts and without references to other files.
// Failed checks are grouped by defect and have their transcripts.
func WriteHTML(w io.Writer, r *Report) error {
	page := htmlReport{Report: r, Server: strings.TrimSpace(orUnknown(r.Runtime.Kind) + " " + r.Runtime.Version),
		Deviations: r.deviations(), Levels: r.levelCounts(), Defects: r.defects()}
	for _, name := range r.groupNames() {
		part := r.ofGroup(name)
		page.Sections = append(page.Sections, &htmlGroup{Name: name, Passed: part.Count(Passed), Failed: part.Count(Failed),
			Skipped: part.Count(Skipped), Results: part.Results})
	}
	if r.Baseline != nil {
		for _, list := range r.Baseline.lists() {
			page.Lists = append(page.Lists, htmlList{list.name, list.ids})
		}
	}
	return htmlPage.Execute(w, page)
}
