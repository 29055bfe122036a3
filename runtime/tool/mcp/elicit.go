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

// elicit asks a person, as a question of the job of the call. The action is accept for an answer,
// decline for the answer null, and cancel for an error.
func (s *Source) elicit(ctx context.Context, ob *observer, p *sdk.ElicitParams) (*sdk.ElicitResult, error) {
	if p.Mode == "url" {
		return &sdk.ElicitResult{Action: decline}, nil // the client does not offer the mode
	}
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		c = ob.soleCall()
	}
	if c == nil || c.job.IsZero() {
		s.warn("an MCP server asks something that names no job, and it is not asked: none or several of its tools run, a cancelled one may still run, or several principals have called it; give each principal its own entry of the server")
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	schema, err := nullableSchema(p.RequestedSchema)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the requested schema cannot be used"}
	}
	a, err := c.job.Ask(ctx, tool.InputRequest{Prompt: s.prompt(p.Message), Schema: schema})
	if err != nil {
		s.log.Debug().Err(err).Msg("a question of an MCP server was not answered")
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	return elicitResult(a.Value)
}

// warn logs a message about the server within the rate limit.
func (s *Source) warn(message string) {
	if s.logLimiter.Allow() {
		s.log.Warn().Msg(message)
	}
}

// tooManyQuestions returns the answer to a question above maxQuestions.
func (s *Source) tooManyQuestions() *sdk.ElicitResult {
	s.warn("an MCP server asks too many questions at once; those above the bound are not asked")
	return &sdk.ElicitResult{Action: cancel}
}

func (s *Source) prompt(message string) string {
	return clip.Ellipsis(message, maxPrompt) + "\n(asked by the MCP server " + s.cfg.Name + "; null declines)"
}

// elicitResult returns the answer to an elicitation for the value of a person.
func elicitResult(value arcp.Raw) (*sdk.ElicitResult, error) {
	if value.Kind() == 'n' {
		return &sdk.ElicitResult{Action: decline}, nil
	}
	content := map[string]any{}
	if err := arcp.Unmarshal(value, &content); err != nil {
		return &sdk.ElicitResult{Action: cancel}, nil
	}
	return &sdk.ElicitResult{Action: accept, Content: content}, nil
}

// nullableSchema returns the requested schema, which also allows null. MCP requires the schema of
// an object.
func nullableSchema(requested any) (arcp.Raw, error) {
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
