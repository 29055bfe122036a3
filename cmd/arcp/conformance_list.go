package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance"
)

// checkView is a check as `arcp conformance list -o json` prints it.
type checkView struct {
	ID      string       `json:"id"`
	Title   string       `json:"title"`
	Group   string       `json:"group"`
	Dialect arcp.Dialect `json:"dialect"`
	Section string       `json:"section"`
	Level   string       `json:"level"`
	Needs   []string     `json:"needs,omitempty"`
}

func viewOfCheck(c *conformance.Check) checkView {
	return checkView{ID: c.ID, Title: c.Title, Group: c.Group(), Dialect: c.Dialect, Section: c.Section, Level: string(c.Level), Needs: c.Needs}
}

// checkFilter holds the flags that select checks.
type checkFilter struct {
	groups, ids, sections, levels []string
}

// allLevels is the value of --level for all levels.
const allLevels = "all"

// addTo adds --group, --level and --section to a command.
func (s *checkFilter) addTo(cmd *cobra.Command, levels string) {
	f := cmd.Flags()
	f.StringSliceVar(&s.groups, "group", nil, "only these groups")
	f.StringSliceVar(&s.levels, "level", nil, "only checks of these levels: "+strings.Join(levelNames(), ", ")+" (default "+levels+")")
	f.StringArrayVar(&s.sections, "section", nil, "only checks of this `SECTION` and its parts, for example \"RFC §6.4\" or 6.4; may be repeated")
	completeLists(cmd, "group", allGroups()...)
	completeLists(cmd, "level", levelNames()...)
}

// allGroups returns the groups of both dialects, each once.
func allGroups() []string {
	all := slices.Concat(conformance.Groups(arcp.DialectRFC), conformance.Groups(arcp.DialectDraft))
	slices.Sort(all)
	return slices.Compact(all)
}

// levelNames are the values of --level.
func levelNames() []string { return append(texts(conformance.Levels), allLevels) }

// options returns the options that select the checks of a dialect. It refuses words that select nothing.
func (s *checkFilter) options(groups []string, levels []conformance.Level) (o conformance.Options, err error) {
	for _, g := range s.groups {
		if err := oneOf("group", g, groups...); err != nil {
			return o, &exitError{exitUsage, err}
		}
	}
	for _, id := range s.ids {
		if _, ok := conformance.FindCheck(id); !ok {
			return o, usagef("--check: there is no check %q; `arcp conformance list` lists the checks", id)
		}
	}
	for _, l := range s.levels {
		if err := oneOf("level", l, levelNames()...); err != nil {
			return o, &exitError{exitUsage, err}
		}
		if levels = append(levels, conformance.Level(l)); l == allLevels {
			levels = conformance.Levels
			break
		}
	}
	return conformance.Options{Groups: s.groups, IDs: s.ids, Sections: s.sections, Levels: levels}, nil
}

func newConformanceList(a *app) *cobra.Command {
	var filter checkFilter
	var dialect string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the conformance checks",
		Long:    "Lists the checks of `arcp conformance run` with their levels and sections. It needs no runtime.",
		Example: "  arcp conformance list --group cancel\n  arcp conformance list --section \"RFC §6.4\" --level must",
		Args:    noArgs,
	}
	output := addOutput(cmd, formatText, formatJSON, formatYAML, formatName)
	cmd.Flags().StringVar(&dialect, "dialect", "", "only checks of this dialect: rfc or draft")
	completeWords(cmd, "dialect", "rfc", "draft")
	filter.addTo(cmd, "all")
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		list, err := filter.list(dialect)
		if err != nil {
			return err
		}
		return printChecks(a, list)
	})
	return cmd
}

// list returns the selected checks of one dialect, or of both if dialect is empty.
func (s *checkFilter) list(dialect string) (list []checkView, err error) {
	dialects := []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft}
	if dialect != "" {
		if err := oneOf("dialect", dialect, "rfc", "draft"); err != nil {
			return nil, &exitError{exitUsage, err}
		}
		dialects = slices.DeleteFunc(dialects, func(d arcp.Dialect) bool { return d.String() != dialect })
	}
	var groups []string
	for _, d := range dialects {
		groups = append(groups, conformance.Groups(d)...)
	}
	opts, err := s.options(groups, nil)
	if err != nil {
		return nil, err
	}
	if len(opts.Levels) == 0 {
		opts.Levels = conformance.Levels
	}
	for _, d := range dialects {
		for _, c := range opts.Selected(d) {
			list = append(list, viewOfCheck(&c))
		}
	}
	return list, nil
}

func printChecks(a *app, list []checkView) error {
	switch {
	case a.format == formatName:
		for _, v := range list {
			if err := printName(a.stdout, v.ID); err != nil {
				return err
			}
		}
		return nil
	case a.json:
		return a.printJSON(arcp.Page[checkView]{Items: append([]checkView{}, list...)})
	}
	return table(a.stdout, []column[checkView]{
		{"CHECK", func(v *checkView) any { return v.ID }},
		{"LEVEL", func(v *checkView) any { return v.Level }},
		{"SECTION", func(v *checkView) any { return v.Section }},
		{"RULE", func(v *checkView) any { return v.Title }},
	}, list)
}

func newConformanceShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show CHECK",
		Short: "Print the script of a conformance check",
		Long: "Prints the script of a check as it is in its file, with its section, its level, what it needs,\n" +
			"the requirements that it judges and the macros that it uses. A check that is a Go function\n" +
			"has no script. The command needs no runtime.",
		Example: "  arcp conformance show cancel.running",
		Args:    argsBetween(1, 1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return checkIDs(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	output := addOutput(cmd, formatText, formatJSON, formatYAML)
	cmd.RunE = action(func(_ *cobra.Command, args []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		c, ok := conformance.FindCheck(args[0])
		if !ok {
			return usagef("there is no check %q; `arcp conformance list` lists the checks", args[0])
		}
		if a.json {
			return a.printJSON(struct {
				checkView
				conformance.Source
				Requirements []conformance.Requirement `json:"requirements,omitempty"`
			}{viewOfCheck(&c), c.Source(), c.Requirements()})
		}
		return printCheck(a.stdout, &c)
	})
	return cmd
}

// checkIDs returns the ids of all checks.
func checkIDs() (ids []string) {
	for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		for _, c := range conformance.Checks(d) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// printCheck prints a check as text.
func printCheck(w io.Writer, c *conformance.Check) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n  level    %s\n  section  %s\n  dialect  %s\n", c.ID, c.Title, c.Level, c.Section, c.Dialect)
	if len(c.Needs) > 0 {
		fmt.Fprintf(&b, "  needs    %s\n", strings.Join(c.Needs, ", "))
	}
	for _, r := range c.Requirements() {
		fmt.Fprintf(&b, "\n  %s  %s (%s)\n        %s\n", r.ID, r.Section, r.Level, r.Text)
	}
	src := c.Source()
	switch {
	case src.Frames:
		b.WriteString("\nThe check is a rule of every frame that the other checks receive. It fails if one frame violates it.\n")
	case src.Function != "":
		fmt.Fprintf(&b, "\nThe check is in Go: the function %s of the package conformance.\n", src.Function)
	default:
		fmt.Fprintf(&b, "\n# %s, line %d\n%s\n", src.File, src.Line, src.Script)
	}
	for _, m := range src.Macros {
		fmt.Fprintf(&b, "\n# %s, line %d\n%s\n", m.File, m.Line, m.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
