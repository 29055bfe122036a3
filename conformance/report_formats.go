package conformance

import (
	"fmt"
	"io"
	"regexp"
	"slices"
)

// A Format is a format of a report file.
type Format string

// The formats.
const (
	FormatJSON     Format = "json"
	FormatJUnit    Format = "junit"
	FormatMarkdown Format = "markdown"
	FormatHTML     Format = "html"
	FormatSARIF    Format = "sarif"
	FormatBadge    Format = "badge"
)

// Formats are all formats.
var Formats = []Format{FormatJSON, FormatJUnit, FormatMarkdown, FormatHTML, FormatSARIF, FormatBadge}

// Write writes a report in a format.
func Write(w io.Writer, f Format, r *Report) error {
	switch f {
	case FormatJSON:
		return WriteJSON(w, r)
	case FormatJUnit:
		return WriteJUnit(w, r)
	case FormatMarkdown:
		return WriteMarkdown(w, r)
	case FormatHTML:
		return WriteHTML(w, r)
	case FormatSARIF:
		return WriteSARIF(w, r)
	case FormatBadge:
		return WriteBadge(w, r)
	}
	return fmt.Errorf("there is no report format %q; the formats are %v", f, Formats)
}

// defect has the failed checks with the same rule and the same observation.
type defect struct {
	Rule, Got string
	Level     Level // the strongest of the checks
	Results   []*Result
}

// messageID matches the random part of ids in observations.
var messageID = regexp.MustCompile(`\b([a-z]+)_[0-9A-HJKMNP-TV-Z]{26}\b`)

// defects groups the failed checks of a report: the strongest level first, then in the order of the
// results. Ids in observations are ignored.
func (r *Report) defects() []defect {
	var list []defect
	index := map[[2]string]int{}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Status != Failed {
			continue
		}
		key := [2]string{res.rule(), messageID.ReplaceAllString(res.observation(), "${1}_…")}
		n, known := index[key]
		if !known {
			n = len(list)
			index[key] = n
			list = append(list, defect{Rule: key[0], Got: key[1], Level: res.Level})
		}
		list[n].Results = append(list[n].Results, res)
		if res.Level.AtLeast(list[n].Level) {
			list[n].Level = res.Level
		}
	}
	slices.SortStableFunc(list, func(a, b defect) int { return slices.Index(Levels, a.Level) - slices.Index(Levels, b.Level) })
	return list
}

// levelCount counts the results of one level.
type levelCount struct {
	Level                          Level
	Passed, Failed, Skipped, Known int // Known deviations are not failed
}

// levelCounts counts the results of each level that has any.
func (r *Report) levelCounts() []levelCount {
	var list []levelCount
	for _, l := range Levels {
		c := levelCount{Level: l}
		for i := range r.Results {
			if res := &r.Results[i]; res.Level == l {
				switch res.Status {
				case Passed, Stale:
					c.Passed++
				case Failed:
					c.Failed++
				case Skipped:
					c.Skipped++
				case KnownDeviation:
					c.Known++
				}
			}
		}
		if c.Passed+c.Failed+c.Skipped+c.Known > 0 {
			list = append(list, c)
		}
	}
	return list
}
