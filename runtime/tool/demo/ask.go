package demo

import (
	"cmp"
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type askArgs struct {
	Prompt         string   `json:"prompt" jsonschema:"minLength=1,maxLength=16384"`
	ResponseSchema arcp.Raw `json:"response_schema,omitzero" jsonschema:"description=JSON Schema of the answer; without one it may be anything."`
	Default        arcp.Raw `json:"default,omitzero" jsonschema:"description=The answer when there is none in time."`
	ExpiresInMS    millis   `json:"expires_in_ms,omitzero" jsonschema:"minimum=1,maximum=3600000,description=How long to wait for an answer."`
}

type askResult struct {
	Value       arcp.Raw `json:"value"`
	RespondedBy string   `json:"responded_by"`
}

func newAsk() (*tool.Tool, error) {
	return tool.New(capability("ask", "Asks a person for a value and returns it."), ask)
}

func ask(ctx context.Context, job tool.Job, a askArgs) (askResult, error) {
	got, err := job.Ask(ctx, tool.InputRequest{Prompt: a.Prompt, Schema: a.ResponseSchema, Default: a.Default, Expires: a.ExpiresInMS.duration()})
	return askResult{got.Value, respondedBy(&got)}, err
}

// respondedBy returns Answer.RespondedBy or, if that is empty, the principal.
func respondedBy(a *tool.Answer) string { return cmp.Or(a.RespondedBy, a.ResolvedBy) }
