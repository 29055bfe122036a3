package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp/client"
)

// watchInterval is the time between two reads of a list that is watched.
const watchInterval = time.Second

// watchRows reads a list again and again until ctx ends.
func (l *list[T]) watchRows(ctx context.Context, a *app, c *client.Client, q query) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	show := l.changedRows
	if a.format == formatText && redraws(a.stdout) {
		show = l.redraw
	}
	for printed := map[string]string(nil); ; {
		p, err := l.read(ctx, c, q)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if printed, err = show(a, p.Items, printed); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// redraw replaces the content of the terminal.
func (l *list[T]) redraw(a *app, rows []T, printed map[string]string) (map[string]string, error) {
	var b bytes.Buffer
	b.WriteString("\x1b[H\x1b[2J")
	if err := tableWithin(&b, terminalWidth(a.stdout), l.columns, rows); err != nil {
		return printed, err
	}
	_, err := a.stdout.Write(b.Bytes())
	return printed, err
}

// changedRows prints the rows that are new or changed, the first row of the list last. printed has the
// versions of the rows of the list before; nil: there was none.
func (l *list[T]) changedRows(a *app, rows []T, printed map[string]string) (map[string]string, error) {
	if printed == nil && a.format == formatText {
		if err := printLine(a.stdout, titles(l.columns)); err != nil {
			return nil, err
		}
	}
	versions := make(map[string]string, len(rows))
	for i := range slices.Backward(rows) {
		row := &rows[i]
		id, version := fmt.Sprint(l.columns[0].cell(row)), l.watch(row)
		versions[id] = version
		if before, found := printed[id]; found && before == version {
			continue
		}
		var err error
		if a.format == formatText {
			err = printLine(a.stdout, cells(l.columns, row))
		} else {
			err = l.printRow(a, row)
		}
		if err != nil {
			return nil, err
		}
	}
	return versions, nil
}

// printLine prints cells on a line.
func printLine(w io.Writer, line []string) error {
	_, err := fmt.Fprintln(w, strings.Join(line, "  "))
	return err
}
