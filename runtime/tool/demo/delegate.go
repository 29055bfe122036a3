package demo

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type delegateArgs struct {
	Tool      string   `json:"tool" jsonschema:"minLength=1,maxLength=256,description=name or name@version"`
	Arguments arcp.Raw `json:"arguments" jsonschema:"description=As the tool takes them."`
	Lease     arcp.Raw `json:"lease_request,omitzero" jsonschema:"description=What the child may do; without one nothing."`
	Detach    bool     `json:"detach,omitzero" jsonschema:"description=Whether the child continues after the end of this job."`
}

func newDelegate() (*tool.Tool, error) {
	return tool.New(capability("delegate", "Has another tool do it, as a child job, and returns what that returns."), delegate)
}

// delegate returns the outcome of its child. It is idempotent, because a repeated attempt finds the same child.
func delegate(ctx context.Context, job tool.Job, a delegateArgs) (arcp.Raw, error) {
	return job.Call(ctx, tool.Call{Tool: a.Tool, Arguments: a.Arguments, Lease: a.Lease, Delegate: true, Detach: a.Detach})
}
