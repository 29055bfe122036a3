package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// list is a command that lists rows of T.
type list[T any] struct {
	short, long string
	filters     []filter
	onePage     bool // the list has only one page
	newest      bool // the runtime lists the oldest rows first; text output has the newest rows, the newest first

	fetch    func(ctx context.Context, c *client.Client, q *query) (arcp.Page[T], error)
	match    func(*T) bool          // selects rows; nil: all
	document func(arcp.Page[T]) any // value for -o json; nil: the page
	columns  []column[T]
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
	limit   uint32
	cursor  string
	all     bool // also all following pages
}

// args returns the arguments of a list tool.
func (q *query) args() map[string]any {
	args := map[string]any{"limit": q.limit}
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

// newList returns the command ls.
func newList[T any](a *app, l list[T]) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: l.short, Long: l.long, Args: noArgs}
	t := addTarget(cmd)
	q := query{filters: l.filters}
	f := cmd.Flags()
	for i := range q.filters {
		f.StringVar(&q.filters[i].value, q.filters[i].name, "", q.filters[i].help())
	}
	limits := "1 to 1000"
	f.Uint32Var(&q.limit, "limit", 100, "largest number of rows, at most 1000")
	if !l.onePage {
		limits += ", or --all"
		f.StringVar(&q.cursor, "cursor", "", "continue after the previous page")
		f.BoolVar(&q.all, "all", false, "list all rows")
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if q.limit == 0 {
			return usagef("--limit 0: give %s", limits)
		}
		return q.check()
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		if l.newest && !a.json && q.cursor == "" {
			if q.all {
				q.limit = math.MaxInt32
			}
			return l.printNewest(ctx, a, c, q)
		}
		p, err := l.read(ctx, c, q)
		if err != nil {
			return err
		}
		return l.print(a, p)
	})
	return cmd
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

func (l *list[T]) read(ctx context.Context, c *client.Client, q query) (arcp.Page[T], error) {
	all := arcp.Page[T]{Items: []T{}}
	for {
		p, err := l.fetch(ctx, c, &q)
		if err != nil {
			return all, err
		}
		for i := range p.Items {
			if l.match == nil || l.match(&p.Items[i]) {
				all.Items = append(all.Items, p.Items[i])
			}
		}
		all.NextCursor = p.NextCursor
		if !q.all || p.NextCursor == "" {
			return all, nil
		}
		q.cursor = p.NextCursor
	}
}

// printNewest prints the last rows of a list that starts with the oldest, in reverse.
func (l *list[T]) printNewest(ctx context.Context, a *app, c *client.Client, q query) error {
	limit := int(q.limit)
	q.all, q.limit = false, maxRows
	last, older := arcp.Page[T]{}, 0
	for more := true; more; more = q.cursor != "" {
		p, err := l.read(ctx, c, q)
		if err != nil {
			return err
		}
		q.cursor = p.NextCursor
		last.Items = append(last.Items, p.Items...)
		if excess := len(last.Items) - limit; excess > 0 {
			last.Items = slices.Delete(last.Items, 0, excess)
			older += excess
		}
	}
	slices.Reverse(last.Items)
	if err := l.print(a, last); err != nil {
		return err
	}
	if older > 0 {
		fmt.Fprintf(a.stderr, "%d older rows are not shown; --all lists them, --limit sets the number\n", older)
	}
	return nil
}

func (l *list[T]) print(a *app, p arcp.Page[T]) error {
	switch {
	case a.json && l.document != nil:
		return a.printJSON(l.document(p))
	case a.json:
		return a.printJSON(p)
	}
	if err := table(a.stdout, l.columns, p.Items); err != nil {
		return err
	}
	if p.NextCursor != "" {
		fmt.Fprintln(a.stderr, "more rows follow: --all lists them, --cursor", p.NextCursor, "continues")
	}
	return nil
}
