package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

const (
	// maxTools bounds the tools of a program, each version counted, also of those
	// that cannot be offered.
	maxTools = 1000

	// maxComplaints are logged of one list in full; the others are counted.
	maxComplaints = 10

	// maxComplaint bounds the text of one: it has names that the program has chosen.
	maxComplaint = 500
)

// The tools of a runtime that tell of others.
const (
	listTool     = "tools.list"
	describeTool = "tools.describe"
)

// description is what it says, as far as it is of use here.
type description struct {
	Description  string   `json:"description"`
	InputSchema  arcp.Raw `json:"input_schema"`
	OutputSchema arcp.Raw `json:"output_schema"`
	SideEffect   string   `json:"side_effect"`
}

// list makes tools of what the program offers.
func (s *Source) list(ctx context.Context, c *client.Client) ([]*tool.Tool, error) {
	caps := c.Session().Capabilities
	has := func(name string) bool {
		return slices.ContainsFunc(caps.Agents, func(a arcp.Agent) bool { return a.Name == name })
	}
	describes := has(describeTool)
	l := lister{s: s, durable: caps.Has(arcp.FeatureDurableJobs)}
	defer l.sum()
	agents := caps.Agents // as of the begin of the session
	if has(listTool) {
		now, err := inventory(ctx, c)
		switch {
		case err == nil:
			agents, s.listed = now, true
		case s.listed || ctx.Err() != nil:
			return nil, fmt.Errorf("%s: %w", listTool, err)
		default: // it may be a tool of that name that does something else
			l.complain(listTool, err, "the tools are not listed; those that the session began with are offered")
		}
	}
	var tools []*tool.Tool
	made := make(map[string]*tool.Tool)
	tried := 0
	for a, version := range s.offered(agents) {
		if tried++; tried > maxTools {
			return nil, fmt.Errorf("it has more than %d tools: name those to offer in allow", maxTools)
		}
		var d description
		if describes {
			d = l.describe(ctx, c, reference(a.Name, version))
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		t := l.make(a, version, &d)
		if t == nil {
			continue
		}
		if old := s.made[t.Ref()]; old != nil && reflect.DeepEqual(old.Capability, t.Capability) {
			t = old // what runs and waits goes on to count
		}
		made[t.Ref()] = t
		tools = append(tools, t)
	}
	s.made = made
	return tools, nil
}

// maxListed bounds what is read of a list: the runtime's own tools are in it, too.
const maxListed = 10 * maxTools

// inventory asks the program what there is now.
func inventory(ctx context.Context, c *client.Client) (agents []arcp.Agent, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("it has not listed its tools within %s", listTimeout))
	defer cancel()
	type query struct {
		Limit  int    `json:"limit"`
		Cursor string `json:"cursor,omitzero"`
	}
	for q := (query{Limit: maxTools}); ; {
		page, err := ask[arcp.ToolPage](ctx, c, listTool, q)
		if err != nil {
			return nil, err
		}
		if page.Items == nil {
			return nil, errors.New("the answer has no items")
		}
		for _, t := range page.Items {
			if t.Name == "" {
				return nil, errors.New("an item has no name")
			}
			agents = append(agents, arcp.Agent{Name: t.Name, Versions: t.Versions, Default: t.Version})
		}
		if page.NextCursor == "" || page.NextCursor == q.Cursor || len(agents) > maxListed {
			return agents, nil
		}
		q.Cursor = page.NextCursor
	}
}

// ask runs one of the other runtime's own tools.
func ask[T any](ctx context.Context, c *client.Client, name string, args any) (got T, err error) {
	job, err := c.Invoke(ctx, client.InvokeRequest{Tool: name, Arguments: args, DiscardEvents: true, Options: arcp.SubmitOptions{Direct: true}})
	if err != nil {
		return got, err
	}
	defer job.Release() // if it is waited for no longer
	result, err := job.Wait(ctx)
	if err == nil {
		err = arcp.Unmarshal(result.Value, &got)
	}
	return got, err
}

// offered are the versions of the tools that are to be offered here.
func (s *Source) offered(agents []arcp.Agent) iter.Seq2[*arcp.Agent, string] {
	return func(yield func(*arcp.Agent, string) bool) {
		for i := range agents {
			a := &agents[i]
			if own(a.Name) || s.cfg.Allows != nil && !s.cfg.Allows(a.Name) {
				continue
			}
			versions := a.Versions
			if len(versions) == 0 {
				versions = []string{""}
			}
			for _, version := range versions {
				if !yield(a, version) {
					return
				}
			}
		}
	}
}

// lister makes the tools of one list.
type lister struct {
	s          *Source
	durable    bool // the program keeps its jobs
	complaints int
}

// complain logs what is wrong with a tool, the first few times.
func (l *lister) complain(ref string, err error, what string) {
	if l.complaints++; l.complaints <= maxComplaints {
		l.s.cfg.Log.Warn().Str("error", clip.Ellipsis(err.Error(), maxComplaint)).Str("source", l.s.Name()).Str("tool", clip.Ellipsis(ref, maxComplaint)).Msg(what)
	}
}

// sum logs how many complaints were not.
func (l *lister) sum() {
	if more := l.complaints - maxComplaints; more > 0 {
		l.s.cfg.Log.Warn().Str("source", l.s.Name()).Int("more", more).Msg("there is more to complain of in the program's tools")
	}
}

func reference(name, version string) string {
	return arcp.AgentRef{Name: name, Version: version}.String()
}

// describe asks what there is to know of a tool. One that is not described is
// offered all the same: the program refuses what does not fit.
func (l *lister) describe(ctx context.Context, c *client.Client, ref string) description {
	d, err := ask[description](ctx, c, describeTool, map[string]string{"name": ref})
	if err != nil {
		l.complain(ref, err, "the tool is not described")
		return description{}
	}
	return d
}

// make makes a tool; nil if it cannot be one here. Its limits are kept there. A job
// that a restart interrupted is asked for again if the program keeps its jobs: it
// is the same one then.
func (l *lister) make(a *arcp.Agent, version string, d *description) *tool.Tool {
	effect := tool.SideEffect(d.SideEffect)
	if !slices.Contains(tool.SideEffects, effect) {
		effect = tool.DefaultSideEffect
	}
	recovery := tool.RecoveryFail
	if l.durable {
		recovery = tool.RecoveryRerun
	}
	capability := tool.Capability{
		Name: l.s.cfg.Prefix + a.Name, Version: version, Default: version != "" && version == a.Default && len(a.Versions) > 1,
		Description: d.Description, InputSchema: d.InputSchema, OutputSchema: d.OutputSchema, SideEffect: effect,
		Limits:     tool.Limits{Timeout: -1, MaxRequestBytes: -1, MaxResponseBytes: -1},
		Idempotent: new(false), Recovery: recovery, Source: tool.SourceAgent,
	}
	ref := reference(a.Name, version)
	run := func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		return l.s.call(ctx, job, ref, args)
	}
	t, err := tool.NewRaw(capability, run)
	if err != nil && (d.InputSchema != nil || d.OutputSchema != nil) {
		l.complain(ref, err, "a tool is offered without its schemas")
		capability.InputSchema, capability.OutputSchema = nil, nil
		t, err = tool.NewRaw(capability, run)
	}
	if err != nil {
		l.complain(ref, err, "a tool is not offered")
		return nil
	}
	return t
}
