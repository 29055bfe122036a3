package demo

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type chooseArgs struct {
	Prompt      string   `json:"prompt" jsonschema:"minLength=1,maxLength=16384"`
	Options     []option `json:"options" jsonschema:"minItems=1,maxItems=64"`
	ExpiresInMS millis   `json:"expires_in_ms,omitzero" jsonschema:"minimum=1,maximum=3600000,description=How long to wait for an answer."`
}

// option is an arcp.Option with its bounds.
type option struct {
	ID    string `json:"id" jsonschema:"minLength=1,maxLength=256"`
	Label string `json:"label" jsonschema:"maxLength=16384"`
}

type chooseResult struct {
	ChoiceID    string `json:"choice_id"`
	RespondedBy string `json:"responded_by"`
}

func newChoose() (*tool.Tool, error) {
	return tool.New(capability("choose", "Asks a person to choose and returns the choice."), choose)
}

func choose(ctx context.Context, job tool.Job, a chooseArgs) (chooseResult, error) {
	c := tool.ChoiceRequest{Prompt: a.Prompt, Expires: a.ExpiresInMS.duration()}
	for _, o := range a.Options {
		c.Options = append(c.Options, arcp.Option(o))
	}
	got, err := job.Choose(ctx, c)
	return chooseResult{got.ChoiceID, respondedBy(&got)}, err
}
