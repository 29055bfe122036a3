package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// WriteTable writes the results as a table: one line a row, with the value, the target and their ratio.
func WriteTable(w io.Writer, results []Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "MODE\tMEASURED\tTARGET\tRATIO\tSERVER CPU\tGENERATOR CPU\t  ROW")
	for _, r := range results {
		fmt.Fprintln(tw, line(r))
	}
	return tw.Flush()
}

func line(r Result) string {
	if r.Error != "" {
		return fmt.Sprintf("%s\tfailed\t%s\t\t\t\t  %s: %s", r.Mode, limit(r), r.Title, r.Error)
	}
	if r.Absent != "" {
		return fmt.Sprintf("%s\tabsent\t\t\t\t\t  %s: %s", r.Mode, r.Title, r.Absent)
	}
	reached := ""
	if r.Target != 0 {
		reached = strconv.FormatFloat(r.Ratio, 'f', 2, 64)
	}
	return fmt.Sprintf("%s\t%s %s\t%s\t%s\t%s\t%s\t  %s", r.Mode, figure(r.Value), r.Unit, limit(r), reached,
		share(r, "server_cpu"), share(r, "generator_cpu"), r.Title)
}

// limit returns the target of a row as a bound, or "".
func limit(r Result) string {
	if r.Target == 0 {
		return ""
	}
	for i := range rows {
		if rows[i].name == r.Row && rows[i].less {
			return "≤ " + figure(r.Target)
		}
	}
	return "≥ " + figure(r.Target)
}

// share returns a CPU share in percent, or "" without the share.
func share(r Result, name string) string {
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
