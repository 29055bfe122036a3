package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// column is a column of a table of T: the title, and a function for the cell of a row.
type column[T any] struct {
	title string
	cell  func(*T) any
}

// table prints a table with one line for each row.
func table[T any](w io.Writer, columns []column[T], rows []T) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := make([]string, len(columns))
	for i, c := range columns {
		line[i] = c.title
	}
	fmt.Fprintln(tab, strings.Join(line, "\t"))
	for r := range rows {
		for i, c := range columns {
			line[i] = oneLine(fmt.Sprint(c.cell(&rows[r])))
		}
		fmt.Fprintln(tab, strings.Join(line, "\t"))
	}
	return tab.Flush()
}

// printProperties prints the properties that list passes to fact, one on each line. Empty properties are omitted.
func printProperties(w io.Writer, list func(fact func(name string, value any))) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	list(func(name string, value any) {
		if text := oneLine(fmt.Sprint(value)); text != "" {
			fmt.Fprintf(tab, "%s\t%s\n", name, text)
		}
	})
	return tab.Flush()
}

// orDash returns s, or "-" for an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
