package mcpserve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// The errors of elicit. The question stays open for other sessions.
var (
	errOtherJob      = errors.New("the question is not of a job that an MCP client asked for")
	errNoElicitation = errors.New("the MCP client cannot be asked")
	errNoAnswer      = errors.New("the MCP client gave no answer")
	errBadAnswer     = errors.New("the MCP client's answer cannot be read")
)

// elicit asks the MCP client whose call runs the job. ok is false if the client declines.
func (s *Server) elicit(ctx context.Context, q *client.Question, message string, schema map[string]any) (content map[string]any, ok bool, err error) {
	c := s.running.callOf(ctx, q.JobID)
	if c == nil {
		return nil, false, errOtherJob
	}
	if init := c.session.InitializeParams(); init == nil || init.Capabilities == nil || init.Capabilities.Elicitation == nil {
		return nil, false, errNoElicitation
	}
	if q.Refused != nil {
		message += "\n(the last answer was refused: " + q.Refused.Message + ")"
	}
	// With the context of the call, the SDK sends the question on the stream of the call.
	callCtx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := c.session.Elicit(callCtx, &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: schema})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", errNoElicitation, err)
	case res.Action == "accept":
		return res.Content, true, nil
	case res.Action == "decline":
		return nil, false, nil
	}
	return nil, false, errNoAnswer
}

func (s *Server) input(ctx context.Context, q client.InputRequest) (any, error) {
	f := newForm(q.ResponseSchema)
	content, ok, err := s.elicit(ctx, &q.Question, q.Prompt, f.schema)
	switch {
	case err != nil:
		return nil, err
	case !ok && f.nullable:
		return nil, nil // the schema allows null, which stands for decline
	case !ok:
		return nil, errNoAnswer
	}
	return f.value(content)
}

func (s *Server) choice(ctx context.Context, q client.ChoiceRequest) (string, error) {
	var ids, labels []any
	for _, o := range q.Options {
		ids, labels = append(ids, o.ID), append(labels, o.Label)
	}
	content, ok, err := s.elicit(ctx, &q.Question, q.Prompt, object(map[string]any{
		"choice": map[string]any{"type": "string", "title": "Choice", "enum": ids, "enumNames": labels}}, "choice"))
	if err != nil {
		return "", err
	}
	id, _ := content["choice"].(string)
	if !ok || id == "" {
		return "", errNoAnswer
	}
	return id, nil
}

func (s *Server) permission(ctx context.Context, q client.PermissionRequest) (client.PermissionAnswer, error) {
	message := fmt.Sprintf("The job %s asks for the permission %s: %s of %s.", q.JobID, q.Permission, q.Operation, q.Resource)
	if q.Reason != "" {
		message += "\n" + q.Reason
	}
	content, ok, err := s.elicit(ctx, &q.Question, message, object(map[string]any{
		"grant": map[string]any{"type": "boolean", "title": "Grant it"}}, "grant"))
	if err != nil {
		return client.PermissionAnswer{}, err
	}
	grant, _ := content["grant"].(bool)
	return client.PermissionAnswer{Grant: ok && grant}, nil
}

// form is a question in the form that MCP supports: an object whose members are strings, numbers or booleans.
type form struct {
	schema   map[string]any
	nullable bool                                      // the schema of the question allows null
	value    func(content map[string]any) (any, error) // returns the answer in the content of the form
}

// newForm returns the form of a question with any schema. An object of plain members is the form itself. A plain value becomes
// a member. Any other value becomes a member for JSON text. The runtime checks the answer with the schema.
func newForm(raw arcp.Raw) form {
	var s map[string]any
	if raw.Kind() == '{' {
		_ = arcp.Unmarshal(raw, &s) // an invalid schema allows any value
	}
	kind, nullable := typeOf(s)
	if kind == "object" {
		if members, ok := plainMembers(s); ok {
			required, _ := s["required"].([]any)
			schema := object(members)
			if len(required) > 0 {
				schema["required"] = required
			}
			return form{schema, nullable, func(content map[string]any) (any, error) { return content, nil }}
		}
	}
	if member, ok := plain(s); ok {
		return form{object(map[string]any{"value": member}, "value"), nullable, func(content map[string]any) (any, error) {
			return content["value"], nil
		}}
	}
	ask := map[string]any{"type": "string", "title": "Answer", "description": "JSON that satisfies " + string(raw)}
	return form{object(map[string]any{"value": ask}, "value"), nullable, fromText}
}

// fromText returns the value of JSON text, or other text as a string.
func fromText(content map[string]any) (any, error) {
	text, ok := content["value"].(string)
	if !ok {
		return nil, errBadAnswer
	}
	if raw := arcp.Raw(text); raw.IsValid() {
		return raw, nil
	}
	return text, nil
}

func object(properties map[string]any, required ...string) map[string]any {
	o := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

// typeOf returns the type of a schema and whether the schema also allows null. Several types are "".
func typeOf(s map[string]any) (kind string, nullable bool) {
	switch t := s["type"].(type) {
	case string:
		return t, false
	case []any:
		for _, v := range t {
			if v == "null" {
				nullable = true
			} else if name, ok := v.(string); ok && kind == "" {
				kind = name
			} else {
				return "", false
			}
		}
	}
	return kind, nullable
}

func plainMembers(s map[string]any) (map[string]any, bool) {
	properties, _ := s["properties"].(map[string]any)
	out := make(map[string]any, len(properties))
	for name, v := range properties {
		member, _ := v.(map[string]any)
		p, ok := plain(member)
		if !ok {
			return nil, false
		}
		out[name] = p
	}
	return out, len(out) > 0
}

// keywords are the keywords that MCP supports for a plain member, by type.
var keywords = map[string][]string{
	"string":  {"title", "description", "enum", "enumNames", "minLength", "maxLength"},
	"number":  {"title", "description", "minimum", "maximum"},
	"integer": {"title", "description", "minimum", "maximum"},
	"boolean": {"title", "description"},
}

// formats are the string formats that MCP supports.
var formats = []any{"email", "uri", "date", "date-time"}

// plain returns the schema of a member with the keywords that MCP supports. ok is false for an object, a list and
// several types.
func plain(s map[string]any) (member map[string]any, ok bool) {
	kind, _ := typeOf(s)
	known, ok := keywords[kind]
	if !ok {
		return nil, false
	}
	out := map[string]any{"type": kind}
	for _, k := range known {
		if v, ok := s[k]; ok {
			out[k] = v
		}
	}
	if f := s["format"]; kind == "string" && slices.Contains(formats, f) {
		out["format"] = f
	}
	return out, true
}
