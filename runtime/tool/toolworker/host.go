package toolworker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// host is the tool.Host of a job that a worker runs.
type host struct {
	ctx  context.Context // of the attempt
	call *client.WorkerCall
	log  *slog.Logger

	result *resultHost
}

func (h host) ID() arcp.JobID     { return h.call.JobID }
func (h host) Attempt() uint32    { return h.call.Attempt }
func (h host) TraceID() string    { return h.call.TraceID }
func (h host) SpanID() string     { return h.call.SpanID }
func (h host) Restored() arcp.Raw { return h.call.Restored }

// maxEvent bounds the payload of an event in bytes, as in the runtime.
const maxEvent = 512 << 10

func (h host) Emit(t arcp.Type, payload any) error {
	if err := checkSize(t, payload); err != nil {
		return err
	}
	return wireError(h.call.Event(t, payload))
}

// checkSize returns the error of a payload that is too large for an event, or that cannot be encoded.
func checkSize(t arcp.Type, payload any) error {
	raw, err := arcp.Marshal(payload)
	switch {
	case err != nil:
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s cannot be encoded as JSON: %s", t, err)
	case len(raw) > maxEvent:
		return arcp.Errorf(arcp.CodeResourceExhausted, "%s of %d bytes: an event may have at most %d", t, len(raw), maxEvent)
	}
	return nil
}

func (h host) Checkpoint(label string, data arcp.Raw) error {
	return wireError(h.call.Checkpoint(h.ctx, label, data))
}

func (h host) CheckpointWanted() <-chan struct{} { return nil }

func (h host) Yield(ctx context.Context) (string, error) { return h.call.Yield(ctx) }
func (h host) Interrupted() <-chan struct{}              { return h.call.Interrupted() }
func (h host) ManualHeartbeat()                          { h.call.ManualHeartbeat() }
func (h host) Heartbeat()                                { h.call.Heartbeat() }

func (h host) Ask(ctx context.Context, req tool.InputRequest) (tool.Answer, error) {
	p, err := h.call.Ask(ctx, arcp.HumanInputRequestPayload{
		Prompt:         req.Prompt,
		ResponseSchema: req.Schema,
		Default:        req.Default,
		ExpiresAt:      expiry(req.Expires),
	})
	return tool.Answer{Value: p.Value, RespondedBy: p.RespondedBy, At: p.RespondedAt}, wireError(err)
}

func (h host) Choose(ctx context.Context, req tool.ChoiceRequest) (tool.Answer, error) {
	p, err := h.call.Choose(ctx, arcp.HumanChoiceRequestPayload{Prompt: req.Prompt, Options: req.Options, ExpiresAt: expiry(req.Expires)})
	return tool.Answer{ChoiceID: p.ChoiceID, RespondedBy: p.RespondedBy, At: p.RespondedAt}, wireError(err)
}

func (h host) Call(ctx context.Context, c tool.Call) (arcp.Raw, error) {
	if c.Delegate {
		return nil, unoffered("delegate to an agent")
	}
	if c.Key != "" || c.MaxRuntime != 0 || c.FindOnly {
		return nil, unoffered("call a tool with a key or a maximum runtime, or find a call")
	}
	r := client.InvokeParams{Tool: c.Tool, Options: arcp.SubmitOptions{LeaseRequest: c.Lease, LeaseConstraints: c.Constraints,
		CostBudget: c.CostBudget, Detach: c.Detach}}
	if len(c.Arguments) > 0 {
		r.Arguments = c.Arguments
	}
	child, err := h.call.Invoke(ctx, r)
	if err != nil {
		return nil, wireError(err)
	}
	if c.OnChild != nil {
		c.OnChild(child.ID())
	}
	result, err := child.Wait(ctx)
	return result.Value, wireError(err)
}

func (h host) Permit(ctx context.Context, req tool.PermissionRequest) (tool.PermissionLease, error) {
	request := arcp.PermissionRequestPayload{Permission: req.Permission, Resource: req.Resource, Operation: req.Operation, Reason: req.Reason}
	if req.For > 0 {
		request.RequestedLeaseSeconds = new(uint64((req.For + time.Second - 1) / time.Second))
	}
	if req.Expires > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.Expires, arcp.Errorf(arcp.CodePermissionDenied, "nobody answered in time"))
		defer cancel()
	}
	g, err := h.call.Permit(ctx, request)
	if err != nil {
		return tool.PermissionLease{}, wireError(err)
	}
	return tool.PermissionLease{Permission: g.Permission, Resource: g.Resource, Operation: g.Operation,
		ExpiresAt: time.Now().Add(time.Duration(g.LeaseSeconds) * time.Second)}, nil
}

// unoffered returns the error of an operation that the protocol does not offer to workers.
func unoffered(operation string) error {
	return arcp.Errorf(arcp.CodeUnimplemented, "a worker cannot %s: run the tool in the process of the runtime", operation)
}

func (h host) Allow(namespace, _ string) error { return unoffered("check the lease for " + namespace) }
func (h host) UseModel(string) error {
	return unoffered("check the lease for " + arcp.NamespaceModelUse)
}
func (h host) Files() *access.Files     { return access.NewFiles(h.Allow) }
func (h host) Fetcher() *access.Fetcher { return access.NewFetcher(h.Allow, access.FetchOptions{}) }

func (h host) Charge(string, string, arcp.Number) error {
	return unoffered("charge the budget before a cost is incurred")
}

func (h host) Permitted(string, string, string) error { return unoffered("check permissions") }

func (h host) Extend(context.Context, arcp.LeaseID, time.Duration) (time.Time, error) {
	return time.Time{}, unoffered("extend permissions")
}

func (h host) Lease(context.Context, tool.ResourceRequest) (tool.ResourceLease, error) {
	return nil, unoffered("lease resources")
}

func (h host) LeaseDirectory(context.Context, tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	return "", nil, unoffered("lease directories")
}

func (h host) PutArtifact(ctx context.Context, n tool.NewArtifact) (arcp.ArtifactObject, error) {
	object, err := h.call.PutArtifact(ctx, client.PutArtifactParams{MediaType: n.MediaType, Content: n.Content, Retain: n.Retain})
	return object, wireError(err)
}

// OpenArtifact opens an artifact. The description has no URI and no expiry.
func (h host) OpenArtifact(ctx context.Context, id arcp.ArtifactID) (arcp.ArtifactObject, io.ReadSeekCloser, error) {
	a, err := h.call.OpenArtifact(ctx, id)
	if err != nil {
		return arcp.ArtifactObject{}, nil, wireError(err)
	}
	return a.ArtifactObject, a, nil
}

func (h host) Failed(err error) {
	if p, ok := errors.AsType[*tool.PanicError](err); ok {
		h.log.Error("tool panicked", "job_id", h.call.JobID, "tool", h.call.Tool, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
}
