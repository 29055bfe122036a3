package conformance

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Requirement is a normative statement of RFC 0001 or of ARCP draft 1.1, in the words of this project.
type Requirement struct {
	ID      string   `yaml:"id" json:"id"`           // R and a number, or D and a number in the draft
	Section string   `yaml:"section" json:"section"` // as Check.Section
	Level   string   `yaml:"level" json:"level"`     // MUST, MUST NOT, SHOULD or MAY
	Text    string   `yaml:"text" json:"text"`
	Checks  []string `yaml:"checks" json:"-"` // ids of the checks that judge it
	Exempt  string   `yaml:"exempt" json:"-"` // why no check can judge it
}

// Mandatory reports whether the requirement is a MUST or a MUST NOT.
func (r *Requirement) Mandatory() bool { return strings.HasPrefix(r.Level, "MUST") }

//go:embed requirements.yaml
var requirementsYAML []byte

// Requirements returns the requirements of both documents, in the order of their sections.
func Requirements() []Requirement { return slices.Clone(requirements()) }

var requirements = sync.OnceValue(func() []Requirement {
	var list []Requirement
	d := yaml.NewDecoder(bytes.NewReader(requirementsYAML))
	d.KnownFields(true)
	if err := d.Decode(&list); err != nil {
		panic(fmt.Sprintf("requirements.yaml: %v", err)) // the file is part of the program
	}
	return list
})

// Requirements returns the requirements that the check judges.
func (c *Check) Requirements() []Requirement {
	return slices.DeleteFunc(slices.Clone(requirements()), func(r Requirement) bool { return !slices.Contains(r.Checks, c.ID) })
}

// coverageCount counts the requirements of a document and a level.
type coverageCount struct {
	document, level       string
	checked, exempt, open int
}

// countCoverage counts the requirements by document and level, MUST NOT with MUST.
func countCoverage(list []Requirement) []*coverageCount {
	var counts []*coverageCount
	find := func(document, level string) *coverageCount {
		for _, c := range counts {
			if c.document == document && c.level == level {
				return c
			}
		}
		counts = append(counts, &coverageCount{document: document, level: level})
		return counts[len(counts)-1]
	}
	for _, document := range []string{"RFC", draftDocument} {
		for _, level := range []string{"MUST", "SHOULD", "MAY"} {
			find(document, level)
		}
	}
	for i := range list {
		r := &list[i]
		level, _, _ := strings.Cut(r.Level, " ")
		c := find(documentOf(r.Section), level)
		switch {
		case len(r.Checks) > 0:
			c.checked++
		case r.Exempt != "":
			c.exempt++
		default:
			c.open++
		}
	}
	return counts
}

// WriteCoverage writes the requirements and their checks as a Markdown document.
func WriteCoverage(w io.Writer, list []Requirement) error {
	var b strings.Builder
	b.WriteString(`# Requirements and their checks

The normative statements of RFC 0001 and of ARCP draft 1.1, in our own words, and the checks of
` + "`arcp conformance run`" + ` that judge them. [conformance.md](conformance.md) explains the checks. This
page is made from ` + "`conformance/requirements.yaml`" + `.

| document | level | with checks | cannot be checked | without checks |
|---|---|---|---|---|
`)
	for _, c := range countCoverage(list) {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", c.document, c.level, c.checked, c.exempt, c.open)
	}
	document := ""
	for i := range list {
		r := &list[i]
		if d := documentOf(r.Section); d != document {
			document = d
			fmt.Fprintf(&b, "\n## %s\n\n| id | § | level | requirement | checks |\n|---|---|---|---|---|\n", d)
		}
		_, number, _ := strings.Cut(r.Section, "§")
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.ID, number, r.Level, tableCell(r.Text), r.coverage())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// coverage returns the cell with the checks of a requirement.
func (r *Requirement) coverage() string {
	switch {
	case len(r.Checks) > 0:
		return "`" + strings.Join(r.Checks, "`, `") + "`"
	case r.Exempt != "":
		return "none: " + tableCell(r.Exempt)
	}
	return "none yet"
}

// tableCell returns a text for a cell of a Markdown table.
func tableCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
