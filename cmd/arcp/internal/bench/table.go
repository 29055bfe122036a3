package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the results as a table: one line a row, with the value, the target and their ratio. If a result is
// compared with an earlier one, the table has the earlier values and the ratios to them.
func WriteTable(w io.Writer, results []Result) error {
	compared := slices.ContainsFunc(results, func(r Result) bool { return r.Earlier != nil })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, line(compared, "MODE", "MEASURED", "TARGET", "RATIO", "SERVER CPU", "GENERATOR CPU", "EARLIER", "RATIO TO EARLIER", "ROW"))
	for i := range results {
		fmt.Fprintln(tw, resultLine(compared, &results[i]))
	}
	return tw.Flush()
}

// line joins the cells of a line. Without a comparison the line has no cells for the earlier value and its ratio.
func line(compared bool, mode, value, target, reached, server, generator, earlier, change, title string) string {
	cells := []string{mode, value, target, reached, server, generator}
	if compared {
		cells = append(cells, earlier, change)
	}
	return strings.Join(append(cells, "  "+title), "\t")
}

func resultLine(compared bool, r *Result) string {
	if r.Error != "" {
		return line(compared, r.Mode, "failed", limit(r), "", "", "", "", "", r.Title+": "+r.Error)
	}
	if r.Absent != "" {
		return line(compared, r.Mode, "absent", "", "", "", "", "", "", r.Title+": "+r.Absent)
	}
	reached := ""
	if r.Target != 0 {
		reached = quotient(r.Ratio)
	}
	earlier, change, title := "", "", r.Title
	if e := r.Earlier; e != nil && e.Absent != "" {
		title += ": " + e.Absent
	} else if e != nil {
		earlier, change = figure(e.Value), quotient(e.Ratio)
	}
	return line(compared, r.Mode, figure(r.Value)+" "+r.Unit, limit(r), reached, share(r, "server_cpu"), share(r, "generator_cpu"),
		earlier, change, title)
}

func quotient(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }

// limit returns the target of a row as a bound, or "".
func limit(r *Result) string {
	if r.Target == 0 {
		return ""
	}
	if known := lookupRow(r.Row); known != nil && known.less {
		return "≤ " + figure(r.Target)
	}
	return "≥ " + figure(r.Target)
}

// share returns a CPU share in percent, or "" without the share.
func share(r *Result, name string) string {
	v, ok := r.Details[name]
	if !ok {
		return ""
	}
	return strconv.Itoa(int(math.Round(v*100))) + "%"
}

// figure returns a number with three significant digits or, from 1000, with groups of thousands.
func figure(f float64) string {
	switch {
	case f < 1:
		return strconv.FormatFloat(f, 'f', 3, 64)
	case f < 1000:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	s := strconv.FormatInt(int64(math.Round(f)), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
