package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// list is a command that lists rows of T.
type list[T any] struct {
	short, long string
	filters     []filter
	limit       uint32 // default of --limit; 0: 100
	onePage     bool   // the list has only one page
	noAll       bool   // --all has another meaning
	noCursor    bool   // a cursor is not valid for another command
	fitsWidth   bool   // on a terminal, lines end at its width

	fetch    func(ctx context.Context, c *client.Client, q *query) (arcp.Page[T], error)
	match    func(*T) bool                               // selects rows; nil: all
	document func(arcp.Page[T]) any                      // value for -o json and yaml; nil: the page
	columns  []column[T]                                 // the first column is the identifier of a row
	watch    func(*T) string                             // with --watch a row is printed again if this changes; nil: no --watch
	empty    func(ctx context.Context, c *client.Client) // called if there are no rows, before they are printed; may be nil
	target   *target                                     // set by newListOf
}

// filter is a flag that restricts a list, and the argument of the same name. The value is one of the choices. Without
// choices usage describes the value.
type filter struct {
	name    string
	choices []string
	usage   string
	value   string
}

// texts converts words to strings.
func texts[S ~string](words []S) []string {
	var list []string
	for _, w := range words {
		list = append(list, string(w))
	}
	return list
}

func (f *filter) help() string {
	if last := len(f.choices) - 1; last > 0 {
		return "only rows with the value " + strings.Join(f.choices[:last], ", ") + " or " + f.choices[last]
	}
	return f.usage
}

// query selects a page of a list.
type query struct {
	filters []filter
	limit   uint32 // rows; 0: all
	page    uint32 // rows of the page
	cursor  string
}

// args returns the arguments of a list tool.
func (q *query) args() map[string]any {
	args := map[string]any{"limit": q.page}
	if q.cursor != "" {
		args["cursor"] = q.cursor
	}
	for _, f := range q.filters {
		if f.value != "" {
			args[f.name] = f.value
		}
	}
	return args
}

// fromTool fetches pages from a built-in tool.
func fromTool[T any](tool string) func(context.Context, *client.Client, *query) (arcp.Page[T], error) {
	return func(ctx context.Context, c *client.Client, q *query) (arcp.Page[T], error) {
		return ask[arcp.Page[T]](ctx, c, tool, q.args())
	}
}

// maxRows is the largest number of rows of a page.
const maxRows = 1000

// listFlags are the flags of a list command.
type listFlags struct {
	query
	all, watch bool
}

// newList returns the command ls.
func newList[T any](a *app, l list[T]) *cobra.Command { return newListOf(a, &l) }

// newListOf returns the command ls. l may be changed until the command runs.
func newListOf[T any](a *app, l *list[T]) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: l.short, Long: l.long, Args: noArgs}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	t := addTarget(cmd)
	l.target = t
	lf := l.addFlags(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error { return lf.check() }
	open := a.session
	if l.watch != nil {
		open = a.reconnectingSession
	}
	cmd.RunE = open(t, func(ctx context.Context, c *client.Client, _ []string) error {
		if lf.all {
			lf.limit = 0
		}
		if lf.watch {
			return l.watchRows(ctx, a, c, lf.query)
		}
		p, err := l.read(ctx, c, lf.query)
		if err != nil {
			return err
		}
		if len(p.Items) == 0 && l.empty != nil {
			l.empty(ctx, c)
		}
		return l.print(a, p)
	})
	return cmd
}

func (l *list[T]) addFlags(cmd *cobra.Command) *listFlags {
	lf := &listFlags{query: query{filters: l.filters}}
	f := cmd.Flags()
	for i := range lf.filters {
		filter := &lf.filters[i]
		f.StringVar(&filter.value, filter.name, "", filter.help())
		if filter.choices != nil {
			completeWords(cmd, filter.name, filter.choices...)
		}
	}
	if !l.onePage {
		f.Uint32Var(&lf.limit, "limit", cmp.Or(l.limit, 100), "largest number of rows; 0: all rows")
		f.StringVar(&lf.cursor, "cursor", "", "continue after the previous page")
	}
	if !l.onePage && !l.noAll {
		f.BoolVar(&lf.all, "all", false, "list all rows, as --limit 0")
	}
	if l.watch != nil {
		f.BoolVar(&lf.watch, "watch", false, "list the rows again and again until SIGINT: a terminal is redrawn, elsewhere new and changed rows are printed")
		exclude(cmd, "watch", "cursor")
	}
	return lf
}

func (q *query) check() error {
	for _, f := range q.filters {
		if f.choices == nil || f.value == "" {
			continue
		}
		if err := oneOf(f.name, f.value, f.choices...); err != nil {
			return err
		}
	}
	return nil
}

// read reads pages until it has q.limit rows.
func (l *list[T]) read(ctx context.Context, c *client.Client, q query) (arcp.Page[T], error) {
	got := arcp.Page[T]{Items: []T{}}
	for {
		p, err := l.readPage(ctx, c, q, len(got.Items))
		if err != nil {
			return got, err
		}
		got.Items = append(got.Items, p.Items...)
		got.NextCursor, q.cursor = p.NextCursor, p.NextCursor
		if p.NextCursor == "" || q.limit > 0 && len(got.Items) >= int(q.limit) {
			return got, nil
		}
	}
}

// readPage reads one page after a number of rows. A page with too many rows that match is read again with fewer
// rows, so that its cursor is behind the last row of the list.
func (l *list[T]) readPage(ctx context.Context, c *client.Client, q query, before int) (arcp.Page[T], error) {
	q.page = maxRows
	if q.limit > 0 && l.match == nil {
		q.page = min(q.limit-uint32(before), maxRows)
	}
	for {
		p, err := l.fetch(ctx, c, &q)
		if err != nil {
			return p, err
		}
		limit := -1
		if q.limit > 0 {
			limit = int(q.limit) - before
		}
		items, read := l.matching(p.Items, limit)
		if read == len(p.Items) || len(p.Items) > int(q.page) { // a runtime may ignore the limit
			p.Items = items
			return p, nil
		}
		q.page = uint32(read)
	}
}

// matching returns the first rows that match, and how many rows it has looked at. limit bounds the rows; a
// negative limit does not.
func (l *list[T]) matching(rows []T, limit int) (items []T, read int) {
	for i := range rows {
		if l.match != nil && !l.match(&rows[i]) {
			continue
		}
		if len(items) == limit {
			return items, i
		}
		items = append(items, rows[i])
	}
	return items, len(rows)
}

// print prints the rows.
func (l *list[T]) print(a *app, p arcp.Page[T]) error {
	if a.format == formatJSON || a.format == formatYAML {
		if l.document != nil {
			return a.printJSON(l.document(p))
		}
		return a.printJSON(p)
	}
	if err := l.printRows(a, p.Items); err != nil {
		return err
	}
	switch {
	case p.NextCursor == "":
	case l.noCursor:
		fmt.Fprintln(a.stderr, "more rows follow: --limit 0 lists all")
	default:
		fmt.Fprintln(a.stderr, "more rows follow: --limit 0 lists all, --cursor", p.NextCursor, "continues")
	}
	return nil
}

// printRows prints rows as text, jsonl or name.
func (l *list[T]) printRows(a *app, rows []T) error {
	if a.format == formatText {
		width := 0
		if l.fitsWidth {
			width = terminalWidth(a.stdout)
		}
		return tableWithin(a.stdout, width, l.columns, rows)
	}
	for i := range rows {
		if err := l.printRow(a, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// printRow prints a row by itself.
func (l *list[T]) printRow(a *app, row *T) error {
	if a.format == formatName {
		return printName(a.stdout, l.columns[0].cell(row))
	}
	raw, err := arcp.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return printItem(a, raw)
}
