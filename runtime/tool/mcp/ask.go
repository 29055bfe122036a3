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

// Actions of an answer to an elicitation.
const (
	accept  = "accept"
	decline = "decline"
	cancel  = "cancel"
)

// maxPrompt bounds the message of an elicitation, in bytes.
const maxPrompt = 8 << 10

// elicit asks a person, as a question of the job of the call. The action is accept for an answer that
// fits the schema, decline for null, and cancel without an answer or after an error.
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

// complain logs an error of the server, within the rate limit.
func (s *Source) complain(message string) {
	if s.logged.Allow() {
		s.log.Warn().Msg(message)
	}
}

// tooManyAsks returns the answer to a question above maxAsks.
func (s *Source) tooManyAsks() *sdk.ElicitResult {
	s.complain("an MCP server asks too many questions at once; those above the bound are not asked")
	return &sdk.ElicitResult{Action: cancel}
}

func (s *Source) prompt(message string) string {
	return clip.Ellipsis(message, maxPrompt) + "\n(asked by the MCP server " + s.cfg.Name + "; null declines)"
}

// answered returns the answer to an elicitation.
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

// orNull returns the requested schema, with null allowed. The protocol requires the schema of an
// object.
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
