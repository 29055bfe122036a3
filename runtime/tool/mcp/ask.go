package mcp

import (
	"context"
	"errors"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/runtime/tool"
)

// What a server is told about a question.
const (
	accept  = "accept"
	decline = "decline"
	cancel  = "cancel"
)

// maxPrompt bounds what a server may ask in bytes.
const maxPrompt = 8 << 10

// elicit asks a person what the server asks, as a question of the job that it is
// about: an answer that the schema allows is accept, null is decline, and none is
// cancel. Whatever goes wrong is no answer.
func (s *Source) elicit(ctx context.Context, t *observer, p *sdk.ElicitParams) (*sdk.ElicitResult, error) {
	if p.Mode == "url" {
		return &sdk.ElicitResult{Action: decline}, nil // it was not offered
	}
	c, _ := ctx.Value(ofCall{}).(*call)
	if c == nil {
		c = t.only()
	}
	if c == nil || c.job.IsZero() {
		s.complain("an MCP server asks something while none or several of its tools run, or one runs on that was cancelled; nobody knows for which job, and it is not asked")
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	schema, err := orNull(p.RequestedSchema)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the requested schema cannot be used"}
	}
	a, err := c.job.Ask(ctx, tool.InputAsk{Prompt: s.prompt(p.Message), Schema: schema})
	if err != nil {
		s.log.Debug().Err(err).Msg("a question of an MCP server was not answered")
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	return answered(a.Value)
}

// complain logs what a server does wrong, which may be without an end.
func (s *Source) complain(message string) {
	if s.noise.Allow() {
		s.log.Warn().Msg(message)
	}
}

// tooManyAsks is the answer to a question above maxAsks.
func (s *Source) tooManyAsks() *sdk.ElicitResult {
	s.complain("an MCP server asks too many questions at once; those above the bound are not asked")
	return &sdk.ElicitResult{Action: cancel}
}

func (s *Source) prompt(message string) string {
	return clip.Ellipsis(message, maxPrompt) + "\n(asked by the MCP server " + s.cfg.Name + "; null declines)"
}

// answered is what the server is told.
func answered(value arcp.Raw) (*sdk.ElicitResult, error) {
	if value.Kind() == 'n' {
		return &sdk.ElicitResult{Action: decline}, nil
	}
	content := map[string]any{}
	if err := arcp.Unmarshal(value, &content); err != nil {
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	return &sdk.ElicitResult{Action: accept, Content: content}, nil
}

// orNull is the schema that a server asks for, which null satisfies too. It must
// be of an object, as the protocol says.
func orNull(requested any) (arcp.Raw, error) {
	members := map[string]any{}
	if requested != nil {
		m, ok := requested.(map[string]any)
		if !ok {
			return nil, errors.New("it is no object")
		}
		maps.Copy(members, m)
	}
	members["type"] = []string{"object", "null"}
	raw, err := arcp.Marshal(members)
	if err != nil {
		return nil, err
	}
	if e := tool.CheckSchema(raw); e != nil {
		return nil, e
	}
	return raw, nil
}
