package demo

import (
	"context"

	"github.com/arcpd/arcpd/runtime/tool"
)

type modelArgs struct {
	Model string `json:"model" jsonschema:"minLength=1,maxLength=256,description=The model's name."`
}

type modelResult struct {
	Model   string `json:"model"`
	Allowed bool   `json:"allowed"`
}

func newModel() (*tool.Tool, error) {
	return tool.New(capability("model", "Asks whether the job may use a model."),
		func(_ context.Context, job tool.Job, a modelArgs) (modelResult, error) {
			return modelResult{a.Model, true}, job.Authority().UseModel(a.Model)
		})
}
