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

// list requests the list of tools, page by page.
func (s *Source) list(ctx context.Context, sess *session) ([]definition, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("the list of tools did not come within %s", listTimeout))
	defer cancel()
	defer context.AfterFunc(sess.ctx, cancel)()
	c := sess.observer.begin(tool.Job{})
	defer sess.observer.end(c)
	var all []definition
	cursor, size := "", 0
	for range maxPages {
		page, next, err := sess.page(ctx, c, cursor)
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
func (sess *session) page(ctx context.Context, c *call, cursor string) (page []definition, next string, err error) {
	params := &sdk.ListToolsParams{Meta: sdk.Meta{"progressToken": c.token}, Cursor: cursor}
	type answer struct {
		res *sdk.ListToolsResult
		err error
	}
	answers := make(chan answer, 1)
	ctx = context.WithValue(ctx, callKey{}, c)
	go func() { // a write to a program does not end with ctx
		res, err := sess.client.ListTools(ctx, params)
		answers <- answer{res: res, err: err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, "", a.err
		}
		raw := schemasOf(sess.observer.takeResult(c))
		for _, t := range a.res.Tools {
			page = append(page, define(t, raw[t.Name]))
		}
		return page, a.res.NextCursor, nil
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
}

// schemas holds the schemas of a tool in the bytes of the server.
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

// define returns the definition of a tool. The schemas are in the bytes of the server or, if the SDK
// has answered from its cache, encoded again.
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

// clipName returns at most maxName+1 bytes of a name: publishedName refuses a longer name.
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

// builtTool is a tool with the definition from which it was built.
type builtTool struct {
	from definition
	tool *tool.Tool
}

// tools returns the tools of a list and the number of faulty definitions, which it logs. It reuses the
// tools of unchanged definitions.
func (s *Source) tools(list []definition) (out []*tool.Tool, faults int) {
	list = slices.DeleteFunc(list, func(d definition) bool { return !s.cfg.allows(d.name) })
	slices.SortStableFunc(list, func(a, b definition) int {
		return cmp.Or(s.rank(a.name)-s.rank(b.name), strings.Compare(a.name, b.name))
	})
	next := make(map[string]builtTool, len(list))
	for _, d := range list {
		m, err := s.build(d, next)
		if err != nil {
			faults++
			s.logOmitted(d.name, err)
			continue
		}
		next[m.tool.Name] = m
		out = append(out, m.tool)
	}
	s.built = next
	return out, faults
}

// rank sorts names that are published unchanged first, so that they win a conflict.
func (s *Source) rank(name string) int {
	if p, err := publishedName(s.cfg.Prefix, name); err == nil && p == s.cfg.Prefix+name {
		return 0
	}
	return 1
}

func (s *Source) build(d definition, taken map[string]builtTool) (builtTool, error) {
	name, err := publishedName(s.cfg.Prefix, d.name)
	if err != nil {
		return builtTool{}, err
	}
	if other, ok := taken[name]; ok {
		return builtTool{}, fmt.Errorf("it would be named %s, as the server's tool %q is", name, clip.Ellipsis(other.from.name, maxName))
	}
	if old, ok := s.built[name]; ok && old.from == d {
		return old, nil
	}
	t, err := s.tool(name, d)
	return builtTool{from: d, tool: t}, err
}

// tool returns the tool of a definition. A panic of the schema compiler is an error.
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
		Idempotent: &d.idempotent, Recovery: recovery, Gate: s.gate,
		Limits: s.cfg.Limits,
	}, func(ctx context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
		return s.call(ctx, job, &d, args)
	})
}

// schemaOf returns a schema, or nil for "".
func schemaOf(s string) arcp.Raw {
	if s == "" {
		return nil
	}
	return arcp.Raw(s)
}

// maxFault bounds the text of a fault, in bytes.
const maxFault = 1 << 10

// logOmitted logs the fault of a tool that is not published, once for each fault.
func (s *Source) logOmitted(name string, err error) {
	name, text := clip.Ellipsis(name, maxName), clip.Ellipsis(err.Error(), maxFault)
	if s.faults[name] == text {
		return
	}
	if len(s.faults) < maxTools {
		s.faults[name] = text
	}
	s.log.Warn().Str("tool", name).Str("error", text).Msg("a tool of an MCP server is left out")
}

// maxTaken bounds the conflicts that publishFree resolves. More conflicts mean that two sources have
// the same prefix.
const maxTaken = 64

// publishAll publishes the tools whose names are free, unless the list is unchanged. It counts the
// faults and conflicts.
func (s *Source) publishAll(tools []*tool.Tool, faults int) error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if s.lastTools == nil || !slices.Equal(tools, s.lastTools) {
		taken, err := s.publishFree(slices.Clone(tools), s.logOmitted)
		if err != nil {
			return err
		}
		s.lastTools, s.conflicts, s.answered = tools, taken, true
	}
	s.cfg.Metrics.addOmitted(faults + s.conflicts - s.omitted)
	s.omitted = faults + s.conflicts
	return nil
}

// publishFree publishes the tools whose names are free, and returns the number of taken names, which it passes to
// omit.
func (s *Source) publishFree(tools []*tool.Tool, omit func(name string, err error)) (taken int, err error) {
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
		omit(tools[i].Name, err)
		tools = slices.Delete(tools, i, i+1)
	}
}
