package main

import (
	"bytes"
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
	return tableWithin(w, 0, columns, rows)
}

// tableWithin prints a table with lines of at most width characters; 0: of any width.
func tableWithin[T any](w io.Writer, width int, columns []column[T], rows []T) error {
	var b bytes.Buffer
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, strings.Join(titles(columns), "\t"))
	for r := range rows {
		fmt.Fprintln(tab, strings.Join(cells(columns, &rows[r]), "\t"))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	text := b.Bytes()
	if width > 0 {
		text = cutLines(text, width)
	}
	_, err := w.Write(text)
	return err
}

// titles returns the titles of columns.
func titles[T any](columns []column[T]) (line []string) {
	for _, c := range columns {
		line = append(line, c.title)
	}
	return line
}

// cells returns the cells of a row.
func cells[T any](columns []column[T], row *T) (line []string) {
	for _, c := range columns {
		line = append(line, oneLine(fmt.Sprint(c.cell(row))))
	}
	return line
}

// cutLines shortens the lines of a text to a number of characters.
func cutLines(text []byte, width int) []byte {
	var short []byte
	for line := range bytes.Lines(text) {
		if runes := []rune(strings.TrimSuffix(string(line), "\n")); len(runes) > width {
			line = append([]byte(string(runes[:width-1])), "…\n"...)
		}
		short = append(short, line...)
	}
	return short
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
