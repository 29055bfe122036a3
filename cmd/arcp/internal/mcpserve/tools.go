package mcpserve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// Tool is a tool of the catalog. A result of tools.list has only some of the members.
type Tool struct{ arcp.ToolView }

// same reports whether MCP clients receive equal descriptions of two tools.
func (tl Tool) same(o Tool) bool {
	return tl.Name == o.Name && tl.Description == o.Description && tl.SideEffect == o.SideEffect && tl.Idempotent == o.Idempotent &&
		bytes.Equal(tl.InputSchema, o.InputSchema) && bytes.Equal(tl.OutputSchema, o.OutputSchema)
}

// catalog returns the tools of the runtime. For a runtime without tools.list it returns only names and versions.
func catalog(ctx context.Context, c *client.Client) ([]Tool, error) {
	var all []Tool
	for cursor := ""; ; {
		var page arcp.Page[Tool]
		args := map[string]any{}
		if cursor != "" {
			args["cursor"] = cursor
		}
		err := callBuiltin(ctx, c, "tools.list", args, &page)
		if isNotFound(err) {
			return agentsOf(c), nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" || page.NextCursor == cursor || len(all) > maxTools {
			return firstVersions(all), nil
		}
		cursor = page.NextCursor
	}
}

// firstVersions returns the first version of each name, which is the newest one.
func firstVersions(all []Tool) []Tool {
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(tl Tool) bool {
		older := seen[tl.Name]
		seen[tl.Name] = true
		return older
	})
}

// maxDescribes bounds the concurrent calls of tools.describe.
const maxDescribes = 16

// describeAll adds the members that tools.list omits. It deletes tools that no longer exist.
func describeAll(ctx context.Context, c *client.Client, tools map[string]Tool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxDescribes)
	var mu sync.Mutex
	for name, t := range maps.Clone(tools) {
		g.Go(func() error {
			var full Tool
			err := callBuiltin(ctx, c, "tools.describe", map[string]any{"name": t.Name}, &full)
			mu.Lock()
			defer mu.Unlock()
			if isNotFound(err) {
				delete(tools, name)
				return nil
			}
			tools[name] = full
			return err
		})
	}
	return g.Wait()
}

func isNotFound(err error) bool {
	e, ok := errors.AsType[*client.RemoteError](err)
	return ok && (e.Code == arcp.CodeAgentNotAvailable || e.Code == arcp.CodeNotFound)
}

// agentsOf returns the tools of session.accepted.
func agentsOf(c *client.Client) (list []Tool) {
	for _, a := range c.Session().Capabilities.Agents {
		list = append(list, Tool{arcp.ToolView{Name: a.Name, Version: a.Default}})
	}
	return list
}

// callBuiltin calls a built-in tool and decodes its result.
func callBuiltin(ctx context.Context, c *client.Client, tool string, args any, result any) error {
	job, err := c.Invoke(ctx, client.InvokeParams{Tool: tool, Arguments: args})
	if err != nil {
		return err
	}
	value, err := outcome(ctx, job, func(*arcp.Envelope) {})
	if err != nil {
		return err
	}
	return arcp.Unmarshal(value, result)
}

// describe returns the tool as an MCP tool with a name.
func (tl Tool) describe(name string) *sdk.Tool {
	readOnly := tl.SideEffect == "none" || tl.SideEffect == "read"
	d := &sdk.Tool{Name: name, Description: tl.Description, InputSchema: json.RawMessage(objectSchema(tl.InputSchema)),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: readOnly, IdempotentHint: readOnly || tl.Idempotent}}
	if name != tl.Name {
		d.Title = tl.Name
	}
	if out := tl.OutputSchema; isObjectSchema(out) {
		d.OutputSchema = json.RawMessage(out)
	}
	if tl.SideEffect == "none" {
		d.Annotations.OpenWorldHint = new(false)
	}
	return d
}

// objectSchema returns a schema with type object, which MCP requires. Arguments are always objects.
func objectSchema(raw arcp.Raw) arcp.Raw {
	if isObjectSchema(raw) {
		return raw
	}
	members := map[string]arcp.Raw{}
	if raw.Kind() == 'f' {
		members["not"] = arcp.Raw("{}")
	} else if raw.Kind() == '{' {
		_ = arcp.Unmarshal(raw, &members) // a valid object always decodes
	}
	members["type"] = arcp.Raw(`"object"`)
	out, err := arcp.Marshal(members)
	if err != nil {
		return arcp.Raw(`{"type":"object"}`)
	}
	return out
}

func isObjectSchema(raw arcp.Raw) bool {
	var s struct {
		Type arcp.Raw `json:"type"`
	}
	return raw.Kind() == '{' && arcp.Unmarshal(raw, &s) == nil && string(s.Type) == `"object"`
}

// Bounds of MCP names. MCP allows letters, digits, dots, dashes and underscores: every ARCP name that is short enough.
const (
	maxName     = 128
	maxFlatName = 64
	hashBytes   = 4
)

// name returns the MCP name of a tool. Flat names have no dots and are shorter, for clients that are stricter
// than the protocol.
func (s *Server) name(name string) string {
	limit := maxName
	if s.cfg.Flat {
		name, limit = strings.ReplaceAll(name, ".", "_"), maxFlatName
	}
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:limit-1-2*hashBytes] + "-" + hex.EncodeToString(sum[:hashBytes])
}
