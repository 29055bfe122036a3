package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// definition is the description of a tool by its server. Equal definitions make the same tool.
type definition struct {
	name        string
	description string
	input       string // JSON Schema as sent by the server; empty: anything
	output      string
	readOnly    bool
	idempotent  bool
}

// list returns the tools of a server, which it requests page by page.
func (s *Source) list(ctx context.Context, l *link) ([]definition, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("the list of tools did not come within %s", listTimeout))
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	c := l.observer.begin(tool.Job{})
	defer l.observer.end(c)
	var all []definition
	cursor, size := "", 0
	for range maxPages {
		page, next, err := l.page(ctx, c, cursor)
		if err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		for _, d := range page {
			size += len(d.name) + len(d.description) + len(d.input) + len(d.output)
		}
		all = append(all, page...)
		if len(all) > maxTools || size > maxListBytes {
			s.log.Warn().Int("most", maxTools).Msg("an MCP server has too many tools; the rest of its list is left out")
			return all[:min(len(all), maxTools)], nil
		}
		if next == "" || next == cursor {
			return all, nil
		}
		cursor = next
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

// page requests one page.
func (l *link) page(ctx context.Context, c *call, cursor string) (page []definition, next string, err error) {
	params := &sdk.ListToolsParams{Meta: sdk.Meta{"progressToken": c.token}, Cursor: cursor}
	type answer struct {
		res *sdk.ListToolsResult
		err error
	}
	got := make(chan answer, 1)
	ctx = context.WithValue(ctx, ofCall{}, c)
	go func() { // writing to a program does not end with ctx
		res, err := l.session.ListTools(ctx, params)
		got <- answer{res, err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			return nil, "", a.err
		}
		raw := schemasOf(l.observer.take(c))
		for _, t := range a.res.Tools {
			page = append(page, define(t, raw[t.Name]))
		}
		return page, a.res.NextCursor, nil
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// schemas are the schemas of a tool as sent by the server.
type schemas struct {
	Name   string   `json:"name"`
	Input  arcp.Raw `json:"inputSchema"`
	Output arcp.Raw `json:"outputSchema"`
}

func schemasOf(result arcp.Raw) map[string]*schemas {
	var page struct {
		Tools []schemas `json:"tools"`
	}
	if arcp.Unmarshal(result, &page) != nil {
		return nil
	}
	m := make(map[string]*schemas, len(page.Tools))
	for i := range page.Tools {
		m[page.Tools[i].Name] = &page.Tools[i]
	}
	return m
}

// define returns the definition of a tool, with its schemas as sent or, if the SDK has cached the list, as
// decoded by the SDK.
func define(t *sdk.Tool, raw *schemas) definition {
	d := definition{name: clipName(t.Name), description: clip.Ellipsis(cmp.Or(t.Description, t.Title), maxDescription)}
	if t.Annotations != nil {
		d.readOnly = t.Annotations.ReadOnlyHint
		d.idempotent = t.Annotations.IdempotentHint || d.readOnly
	}
	if raw != nil {
		d.input, d.output = string(raw.Input), string(raw.Output)
		return d
	}
	d.input, d.output = encoded(t.InputSchema), encoded(t.OutputSchema)
	return d
}

// clipName returns a name, cut to one byte more than names may have.
func clipName(name string) string {
	return strings.Clone(name[:min(len(name), maxName+1)])
}

func encoded(v any) string {
	if v == nil {
		return ""
	}
	raw, err := arcp.Marshal(v)
	if err != nil {
		return "false" // a schema that cannot be encoded allows nothing
	}
	return string(raw)
}

// made is a tool with its definition.
type made struct {
	from definition
	tool *tool.Tool
}

// tools returns the tools of a list. It keeps unchanged tools, and logs and leaves out tools with a fault.
func (s *Source) tools(list []definition) (out []*tool.Tool, faults int) {
	list = slices.DeleteFunc(list, func(d definition) bool { return !s.cfg.allows(d.name) })
	slices.SortStableFunc(list, func(a, b definition) int {
		return cmp.Or(s.rank(a.name)-s.rank(b.name), strings.Compare(a.name, b.name))
	})
	next := make(map[string]made, len(list))
	for _, d := range list {
		m, err := s.make(d, next)
		if err != nil {
			faults++
			s.leftOut(d.name, err)
			continue
		}
		next[m.tool.Name] = m
		out = append(out, m.tool)
	}
	s.made = next
	return out, faults
}

// rank sorts names that are published unchanged before others, so that they win a conflict.
func (s *Source) rank(name string) int {
	if p, err := published(s.cfg.Prefix, name); err == nil && p == s.cfg.Prefix+name {
		return 0
	}
	return 1
}

func (s *Source) make(d definition, taken map[string]made) (made, error) {
	name, err := published(s.cfg.Prefix, d.name)
	if err != nil {
		return made{}, err
	}
	if other, ok := taken[name]; ok {
		return made{}, fmt.Errorf("it would be named %s, as the server's tool %q is", name, clip.Ellipsis(other.from.name, maxName))
	}
	if old, ok := s.made[name]; ok && old.from == d {
		return old, nil
	}
	t, err := s.tool(name, d)
	return made{d, t}, err
}

// tool returns a tool. A schema that makes the compiler panic is an error.
func (s *Source) tool(name string, d definition) (t *tool.Tool, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("its schemas cannot be compiled")
		}
	}()
	recovery := tool.RecoveryFail
	if d.idempotent {
		recovery = tool.RecoveryRerun
	}
	return tool.NewRaw(tool.Capability{
		Name: name, Description: d.description, Source: tool.SourceMCP,
		InputSchema: schemaOf(d.input), OutputSchema: schemaOf(d.output),
		SideEffect: s.cfg.sideEffect(&d), Approval: s.cfg.approval(&d),
		Idempotent: &d.idempotent, Recovery: recovery,
		Limits: s.cfg.Limits,
	}, func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		return s.call(ctx, job, &d, args)
	})
}

// schemaOf returns a schema; nil: there is none.
func schemaOf(s string) arcp.Raw {
	if s == "" {
		return nil
	}
	return arcp.Raw(s)
}

// maxFault bounds the text of a fault, in bytes.
const maxFault = 1 << 10

// leftOut logs once why a tool is not published.
func (s *Source) leftOut(name string, err error) {
	name, text := clip.Ellipsis(name, maxName), clip.Ellipsis(err.Error(), maxFault)
	if s.faults[name] == text {
		return
	}
	if len(s.faults) < maxTools {
		s.faults[name] = text
	}
	s.log.Warn().Str("tool", name).Str("error", text).Msg("a tool of an MCP server is left out")
}

// maxTaken bounds the conflicts that publishFree resolves one after another; more mean that a prefix is
// used twice.
const maxTaken = 64

// publishAll publishes the tools whose names are free, unless they are published already. It counts the
// faults.
func (s *Source) publishAll(tools []*tool.Tool, faults int) error {
	if s.offered == nil || !slices.Equal(tools, s.offered) {
		taken, err := s.publishFree(slices.Clone(tools))
		if err != nil {
			return err
		}
		s.offered, s.taken = tools, taken
	}
	s.cfg.Metrics.left(faults + s.taken - s.faulty)
	s.faulty = faults + s.taken
	return nil
}

// publishFree publishes tools, and returns the number of names that were taken.
func (s *Source) publishFree(tools []*tool.Tool) (taken int, err error) {
	for ; ; taken++ {
		err := s.publish(tools)
		clash, ok := errors.AsType[*tool.TakenError](err)
		if !ok || taken == maxTaken {
			return taken, err
		}
		i := slices.IndexFunc(tools, func(t *tool.Tool) bool { return t.Ref() == clash.Ref })
		if i < 0 {
			return taken, err
		}
		s.leftOut(tools[i].Name, err)
		tools = slices.Delete(tools, i, i+1)
	}
}
