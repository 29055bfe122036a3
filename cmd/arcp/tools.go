package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newTools(a *app) *cobra.Command {
	cmd := newGroup("tools", "List and show tools")
	cmd.AddCommand(newToolsList(a), newToolsShow(a))
	return cmd
}

// Sources of tools, as in the results of tools.list.
const (
	sourceGo      = "go"
	sourceBuiltin = "builtin"
	sourceWorker  = "worker"
)

// toolSources are the values of --source.
var toolSources = []string{sourceGo, "exec", "mcp", sourceWorker, sourceBuiltin}

// toolList has the flags of `arcp tools ls`.
type toolList struct {
	all        bool
	source     string
	generation uint64 // generation of the last page
}

func newToolsList(a *app) *cobra.Command {
	tl := new(toolList)
	cmd := newList(a, list[arcp.ToolEntry]{
		short:     "List the tools of your session",
		long:      "Lists the tools of your session. --all also lists the tools of the runtime itself.",
		filters:   []filter{{name: "prefix", usage: "only tools whose names have this prefix, for example demo."}},
		limit:     maxRows,
		noAll:     true,
		fitsWidth: true,
		fetch:     tl.fetch,
		match:     tl.matches,
		document: func(p arcp.Page[arcp.ToolEntry]) any {
			return arcp.ToolPage{Page: p, Generation: tl.generation}
		},
		columns: []column[arcp.ToolEntry]{
			{"TOOL", func(t *arcp.ToolEntry) any { return t.Name }},
			{"VERSION", func(t *arcp.ToolEntry) any { return versionOf(t) }},
			{"SIDE EFFECT", func(t *arcp.ToolEntry) any { return t.SideEffect }},
			{"SOURCE", func(t *arcp.ToolEntry) any { return t.Source }},
			{"WORKERS", func(t *arcp.ToolEntry) any { return workersOf(t) }},
			{"APPROVAL", func(t *arcp.ToolEntry) any { return approvalWord(t.Approval) }},
			{"DESCRIPTION", func(t *arcp.ToolEntry) any { return t.Description }},
		},
	})
	f := cmd.Flags()
	f.BoolVar(&tl.all, "all", false, "also list the tools of the runtime itself")
	f.StringVar(&tl.source, "source", "", "only tools of this source: "+strings.Join(toolSources, ", "))
	completeWords(cmd, "source", toolSources...)
	checked := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if tl.source != "" {
			if err := oneOf("source", tl.source, toolSources...); err != nil {
				return err
			}
		}
		return checked(cmd, args)
	}
	return cmd
}

func (tl *toolList) fetch(ctx context.Context, c *client.Client, q *query) (arcp.Page[arcp.ToolEntry], error) {
	p, err := ask[arcp.ToolPage](ctx, c, "tools.list", q.args())
	tl.generation = p.Generation
	return p.Page, err
}

// matches selects the tools of --source, or all tools but those of the runtime itself.
func (tl *toolList) matches(t *arcp.ToolEntry) bool {
	if tl.source != "" {
		return t.Source == tl.source
	}
	return tl.all || t.Source != sourceBuiltin
}

// workersOf returns the number of connected workers of a tool, or "-" for a tool that is not executed by
// workers.
func workersOf(t *arcp.ToolEntry) string {
	if t.Workers == nil {
		return "-"
	}
	return fmt.Sprint(*t.Workers)
}

func versionOf(t *arcp.ToolEntry) string {
	if n := len(t.Versions); n > 1 {
		return fmt.Sprintf("%s (of %d)", t.Version, n)
	}
	return t.Version
}

// policyView is an approval policy with members.
type policyView struct {
	Manual *approverView `json:"manual"`
	Auto   *approverView `json:"auto"`
}

type approverView struct {
	Rule       string `json:"rule"`
	Quorum     int    `json:"quorum"`
	EscalateMS int64  `json:"escalate_after_ms"`
}

// approvalWord returns the approval policy as one word.
func approvalWord(policy arcp.Raw) string {
	var word string
	var p policyView
	switch {
	case arcp.Unmarshal(policy, &word) == nil:
		return oneLine(word)
	case arcp.Unmarshal(policy, &p) == nil && p.Manual != nil:
		return "manual"
	}
	return "rule"
}

func newToolsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show TOOL", Aliases: []string{"describe"}, Short: "Show a tool in full, name or name@version", Args: argsBetween(1, 1)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeTools(a, t)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		raw, err := callTool(ctx, c, "tools.describe", map[string]string{"name": args[0]})
		if err != nil {
			return err
		}
		var d arcp.ToolView
		if err := arcp.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read the description: %w", err)
		}
		return a.printView(d.Name+"@"+d.Version, raw, func() error { return printDescription(a.stdout, &d) })
	})
	return cmd
}

func printDescription(w io.Writer, d *arcp.ToolView) error {
	return printProperties(w, func(fact func(string, any)) {
		fact("tool", d.Name+"@"+d.Version)
		fact("versions", strings.Join(d.Versions, " "))
		fact("description", d.Description)
		fact("source", d.Source)
		fact("side effect", d.SideEffect)
		fact("approval", policyLine(d.Approval))
		fact("min trust", d.MinTrust)
		fact("recovery", d.Recovery)
		if n := attemptsOf(d.Retry); n > 1 {
			fact("attempts", n)
		}
		fact("idempotent", d.Idempotent)
		fact("interruptible", d.Interruptible)
		fact("reads streams", d.ReadsStreams)
		l := &d.Limits
		fact("timeout", orNone(l.TimeoutMS, milliseconds))
		if d.Source == sourceWorker {
			fact("start timeout", startTimeoutOf(l))
		}
		fact("request", orNone(l.MaxRequestBytes, withUnit(" bytes")))
		fact("response", orNone(l.MaxResponseBytes, withUnit(" bytes")))
		fact("at once", orNone(l.Concurrency, withUnit("")))
		fact("rate", orNone(l.RatePerMin, withUnit(" a minute")))
		fact("input", compact(d.InputSchema))
		fact("output", compact(d.OutputSchema))
	})
}

func milliseconds(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// startTimeoutOf returns how long a job waits for a connected worker.
func startTimeoutOf(l *arcp.ToolLimits) string {
	if l.StartTimeoutMS == nil {
		return "the setting start-timeout of the server"
	}
	return milliseconds(*l.StartTimeoutMS)
}

// attemptsOf returns the number of attempts of a retry policy; 0 without a policy.
func attemptsOf(policy arcp.Raw) int {
	var p struct {
		MaxAttempts int `json:"max_attempts"`
	}
	_ = arcp.Unmarshal(policy, &p) // a policy of another form has 0 attempts
	return p.MaxAttempts
}

func policyLine(policy arcp.Raw) string {
	var p policyView
	if arcp.Unmarshal(policy, &p) != nil || p.Auto == nil && p.Manual == nil {
		return approvalWord(policy)
	}
	line, policyOf := "manual", p.Manual
	if p.Auto != nil {
		line, policyOf = "unless "+p.Auto.Rule, p.Auto
	}
	if policyOf.Quorum > 1 {
		line += fmt.Sprintf("; %d must approve", policyOf.Quorum)
	}
	if policyOf.EscalateMS > 0 {
		line += fmt.Sprintf("; admins of other principals are asked after %v", time.Duration(policyOf.EscalateMS)*time.Millisecond)
	}
	return line
}

// orNone returns a limit as text.
func orNone(limit *int64, text func(int64) string) string {
	if limit == nil {
		return "no limit"
	}
	return text(*limit)
}

// withUnit returns a function that formats a number with its unit.
func withUnit(unit string) func(int64) string {
	return func(n int64) string { return fmt.Sprint(n, unit) }
}
