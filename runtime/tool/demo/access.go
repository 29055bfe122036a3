package demo

import (
	"context"

	"github.com/arcpd/arcpd/runtime/tool"
)

type accessArgs struct {
	Namespace string `json:"namespace" jsonschema:"minLength=1,maxLength=256,description=Of the lease: fs.read, net.fetch, tool.call or any other."`
	Target    string `json:"target" jsonschema:"minLength=1,description=A path, a URL or a name, as the namespace has them."`
}

type accessResult struct {
	Allowed bool `json:"allowed"`
}

func newAccess() (*tool.Tool, error) {
	return tool.New(capability("access", "Asks whether the job may do something, and does not do it."),
		func(_ context.Context, job tool.Job, a accessArgs) (accessResult, error) {
			return accessResult{true}, job.Authority().Allow(a.Namespace, a.Target)
		})
}
