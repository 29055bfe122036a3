package agent

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
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

// describeTool is the tool of a runtime that describes others.
const describeTool = "tools.describe"

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
	describes := slices.ContainsFunc(caps.Agents, func(a arcp.Agent) bool { return a.Name == describeTool })
	l := lister{s: s, durable: caps.Has(arcp.FeatureDurableJobs)}
	defer l.sum()
	var tools []*tool.Tool
	tried := 0
	for a, version := range s.offered(caps.Agents) {
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
		if t := l.make(a, version, &d); t != nil {
			tools = append(tools, t)
		}
	}
	return tools, nil
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
		l.s.cfg.Log.Warn().Str("error", brief(err.Error())).Str("source", l.s.Name()).Str("tool", brief(ref)).Msg(what)
	}
}

// sum logs how many complaints were not.
func (l *lister) sum() {
	if more := l.complaints - maxComplaints; more > 0 {
		l.s.cfg.Log.Warn().Str("source", l.s.Name()).Int("more", more).Msg("there is more to complain of in the program's tools")
	}
}

func brief(text string) string {
	if len(text) <= maxComplaint {
		return text
	}
	return strings.ToValidUTF8(text[:maxComplaint], "") + "…"
}

func reference(name, version string) string {
	return arcp.AgentRef{Name: name, Version: version}.String()
}

// describe asks what there is to know of a tool. One that is not described is
// offered all the same: the program refuses what does not fit.
func (l *lister) describe(ctx context.Context, c *client.Client, ref string) (d description) {
	job, err := c.Invoke(ctx, client.InvokeRequest{Tool: describeTool, Arguments: map[string]string{"name": ref}, DiscardEvents: true,
		Options: arcp.SubmitOptions{Direct: true}})
	var result client.Result
	if err == nil {
		defer job.Release() // if it is waited for no longer
		result, err = job.Wait(ctx)
	}
	if err == nil {
		err = arcp.Unmarshal(result.Value, &d)
	}
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
