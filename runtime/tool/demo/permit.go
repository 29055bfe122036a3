package demo

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type permitArgs struct {
	Permission   string `json:"permission" jsonschema:"minLength=1,maxLength=256"`
	Resource     string `json:"resource" jsonschema:"minLength=1,maxLength=4096"`
	Operation    string `json:"operation" jsonschema:"minLength=1,maxLength=256"`
	LeaseSeconds int64  `json:"lease_seconds" jsonschema:"minimum=1,maximum=86400,description=For how long to ask."`
	HoldMS       millis `json:"hold_ms" jsonschema:"minimum=0,maximum=3600000,description=Until the permission is looked at again."`
	Reason       string `json:"reason,omitzero" jsonschema:"maxLength=16384"`
	ExpiresInMS  millis `json:"expires_in_ms,omitzero" jsonschema:"minimum=1,maximum=3600000,description=How long to wait for an answer."`
}

type permitResult struct {
	LeaseID    arcp.LeaseID `json:"lease_id"`
	Permission string       `json:"permission"`
	Resource   string       `json:"resource"`
	Operation  string       `json:"operation"`
	ExpiresAt  time.Time    `json:"expires_at"`
}

func newPermit() (*tool.Tool, error) {
	return tool.New(capability("permit", "Asks for a permission, holds it and looks whether it still has it."), permit)
}

func permit(ctx context.Context, job tool.Job, a permitArgs) (permitResult, error) {
	l, err := job.Permissions().Request(ctx, tool.PermissionRequest{
		Permission: a.Permission,
		Resource:   a.Resource,
		Operation:  a.Operation,
		Reason:     a.Reason,
		For:        time.Duration(a.LeaseSeconds) * time.Second,
		Expires:    a.ExpiresInMS.duration(),
	})
	if err != nil {
		return permitResult{}, err
	}
	if err := pause(ctx, a.HoldMS); err != nil {
		return permitResult{}, err
	}
	// The granted permission may be narrower than the requested one.
	if err := job.Permissions().Check(l.Permission, l.Resource, l.Operation); err != nil {
		return permitResult{}, err
	}
	return permitResult{l.ID, l.Permission, l.Resource, l.Operation, l.ExpiresAt.UTC()}, nil
}
