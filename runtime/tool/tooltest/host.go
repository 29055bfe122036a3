package tooltest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// host is the tool.Host of a Job.
type host struct{ j *Job }

func (h host) ID() arcp.JobID     { return h.j.script.ID }
func (h host) Attempt() uint32    { return h.j.script.Attempt }
func (h host) TraceID() string    { return h.j.script.TraceID }
func (h host) SpanID() string     { return h.j.script.SpanID }
func (h host) Restored() arcp.Raw { return h.j.script.Restored }

// update changes the record under Job.mu.
func (h host) update(change func(*Record)) {
	h.j.mu.Lock()
	defer h.j.mu.Unlock()
	change(&h.j.record)
}

// accept returns the error of Script.Emit for an event.
func (h host) accept(t arcp.Type, payload any) error {
	if h.j.script.Emit == nil {
		return nil
	}
	return h.j.script.Emit(t, payload)
}

func (h host) Emit(t arcp.Type, payload any) error {
	if err := h.accept(t, payload); err != nil {
		return err
	}
	h.update(func(r *Record) { h.j.add(r, payload) })
	return nil
}

// add records an event. A cost debits the budget. The caller holds Job.mu.
func (j *Job) add(r *Record, payload any) {
	switch p := payload.(type) {
	case arcp.LogPayload:
		p.Attributes = slices.Clone(p.Attributes)
		r.Logs = append(r.Logs, p)
	case arcp.JobProgressPayload:
		r.Progress = append(r.Progress, p)
	case arcp.MetricPayload:
		r.Metrics = append(r.Metrics, p)
		if name, ok := strings.CutPrefix(p.Name, costPrefix); ok && name != "" {
			j.spent.add(p.Unit, p.Value)
		}
	case arcp.TraceSpanPayload:
		p.Attributes = slices.Clone(p.Attributes)
		r.Spans = append(r.Spans, p)
	case arcp.EventEmitPayload:
		p.Data = slices.Clone(p.Data)
		r.Events = append(r.Events, p)
	}
}

func (h host) Checkpoint(label string, data arcp.Raw) error {
	if err := h.accept(arcp.JobCheckpoint, arcp.JobCheckpointPayload{Label: label, Data: data}); err != nil {
		return err
	}
	h.update(func(r *Record) { r.Checkpoints = append(r.Checkpoints, Checkpoint{label, slices.Clone(data)}) })
	return nil
}

func (h host) CheckpointWanted() <-chan struct{} { return h.j.wanted }

func (h host) Yield(ctx context.Context) (guidance string, err error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	h.j.mu.Lock()
	resumed := h.j.resumed
	if resumed == nil {
		guidance, h.j.guidance = h.j.guidance, ""
	}
	h.j.record.Yielding = resumed != nil
	h.j.mu.Unlock()
	if resumed == nil {
		return guidance, nil
	}
	select {
	case <-resumed:
		return h.Yield(ctx)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (h host) Interrupted() <-chan struct{} {
	h.j.mu.Lock()
	defer h.j.mu.Unlock()
	return h.j.pause
}

func (h host) ManualHeartbeat() { h.update(func(r *Record) { r.ManualHeartbeat = true }) }
func (h host) Heartbeat()       { h.update(func(r *Record) { r.Heartbeats++ }) }
func (h host) Failed(err error) { h.update(func(r *Record) { r.Failures = append(r.Failures, err) }) }

// unscripted returns the error of a request without a scripted answer.
func unscripted(member, request string) error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "tooltest: Script.%s is not set: %s", member, request)
}

func (h host) Ask(_ context.Context, req tool.InputRequest) (tool.Answer, error) {
	h.update(func(r *Record) { r.Questions = append(r.Questions, req) })
	ask := h.j.script.Ask
	switch {
	case ask == nil && len(req.Default) > 0:
		return answered(tool.Answer{Value: req.Default, RespondedBy: "default", ResolvedBy: "default"}), nil
	case ask == nil:
		return tool.Answer{}, unscripted("Ask", req.Prompt)
	}
	answer, err := ask(req)
	if err != nil {
		return tool.Answer{}, err
	}
	if err := tool.CheckValue(req.Schema, answer.Value); err != nil {
		return tool.Answer{}, arcp.Errorf(arcp.CodeFailedPrecondition, "tooltest: the answer to %q: %s", req.Prompt, err.Message)
	}
	return answered(answer), nil
}

func (h host) Choose(_ context.Context, req tool.ChoiceRequest) (tool.Answer, error) {
	h.update(func(r *Record) { r.Questions = append(r.Questions, req) })
	if h.j.script.Choose == nil {
		return tool.Answer{}, unscripted("Choose", req.Prompt)
	}
	answer, err := h.j.script.Choose(req)
	if err != nil {
		return tool.Answer{}, err
	}
	if !slices.ContainsFunc(req.Options, func(o arcp.Option) bool { return o.ID == answer.ChoiceID }) {
		return tool.Answer{}, arcp.Errorf(arcp.CodeFailedPrecondition, "tooltest: the answer to %q: there is no option %q", req.Prompt, answer.ChoiceID)
	}
	return answered(answer), nil
}

func answered(a tool.Answer) tool.Answer {
	a.ResolvedBy = cmp.Or(a.ResolvedBy, "tooltest")
	if a.At.IsZero() {
		a.At = time.Now()
	}
	return a
}

func (h host) Call(ctx context.Context, c tool.Call) (arcp.Raw, error) {
	h.update(func(r *Record) { r.Calls = append(r.Calls, c) })
	if h.j.script.Call == nil {
		return nil, unscripted("Call", c.Tool)
	}
	if c.OnChild != nil {
		c.OnChild(h.j.script.ID + "_child")
	}
	return h.j.script.Call(ctx, c)
}

func (h host) Allow(namespace, target string) error {
	h.update(func(r *Record) { r.Checks = append(r.Checks, Check{Namespace: namespace, Target: target}) })
	if allow := h.j.script.Allow; allow != nil {
		if err := allow(namespace, target); err != nil {
			return err
		}
	}
	h.j.mu.Lock()
	defer h.j.mu.Unlock()
	return h.j.spent.check()
}

func (h host) UseModel(model string) error { return h.Allow(arcp.NamespaceModelUse, model) }
func (h host) Files() *access.Files        { return access.NewFiles(h.Allow) }
func (h host) Fetcher() *access.Fetcher    { return access.NewFetcher(h.Allow, access.FetchOptions{}) }

func (h host) Charge(name, currency string, amount arcp.Number) error {
	m := arcp.MetricPayload{Name: costPrefix + name, Value: amount, Unit: currency}
	if err := h.accept(arcp.Metric, m); err != nil {
		return err
	}
	h.j.mu.Lock()
	defer h.j.mu.Unlock()
	if err := h.j.spent.fits(currency, amount); err != nil {
		return err
	}
	h.j.add(&h.j.record, m)
	return nil
}

func (h host) Permit(_ context.Context, req tool.PermissionRequest) (tool.PermissionLease, error) {
	h.update(func(r *Record) { r.Questions = append(r.Questions, req) })
	if h.j.script.Permit == nil {
		return tool.PermissionLease{}, unscripted("Permit", req.Permission)
	}
	return h.j.script.Permit(req)
}

func (h host) Permitted(permission, resource, operation string) error {
	h.update(func(r *Record) { r.Checks = append(r.Checks, Check{permission, resource, operation}) })
	if h.j.script.Permitted == nil {
		return nil
	}
	return h.j.script.Permitted(permission, resource, operation)
}

func (h host) Extend(_ context.Context, _ arcp.LeaseID, more time.Duration) (time.Time, error) {
	return time.Now().Add(more), nil
}

func (h host) PutArtifact(_ context.Context, n tool.NewArtifact) (arcp.ArtifactObject, error) {
	content, err := io.ReadAll(n.Content)
	if err != nil {
		return arcp.ArtifactObject{}, err
	}
	sum := sha256.Sum256(content)
	id := arcp.ArtifactID(arcp.NewID(arcp.ArtifactPrefix))
	object := arcp.ArtifactObject{ArtifactID: id, URI: "arcp://artifact/" + string(id), MediaType: n.MediaType,
		Size: uint64(len(content)), SHA256: hex.EncodeToString(sum[:]), ExpiresAt: time.Now().Add(cmp.Or(n.Retain, time.Hour)).UTC()}
	if err := h.accept(arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object}); err != nil {
		return arcp.ArtifactObject{}, err
	}
	h.update(func(r *Record) { r.Artifacts = append(r.Artifacts, Artifact{object, content}) })
	return object, nil
}

func (h host) OpenArtifact(_ context.Context, id arcp.ArtifactID) (arcp.ArtifactObject, io.ReadSeekCloser, error) {
	var object arcp.ArtifactObject
	content, found := h.j.script.Artifacts[id]
	if found {
		object = arcp.ArtifactObject{ArtifactID: id, URI: "arcp://artifact/" + string(id), Size: uint64(len(content))}
	}
	h.update(func(r *Record) {
		for i := range r.Artifacts {
			if r.Artifacts[i].ArtifactID == id {
				object, content, found = r.Artifacts[i].ArtifactObject, r.Artifacts[i].Content, true
			}
		}
	})
	if !found {
		return object, nil, arcp.Errorf(arcp.CodeNotFound, "no artifact %s", id)
	}
	return object, struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(content), io.NopCloser(nil)}, nil
}

func (h host) Lease(_ context.Context, req tool.ResourceRequest) (tool.ResourceLease, error) {
	h.update(func(r *Record) { r.Leases = append(r.Leases, req) })
	if h.j.script.Lease != nil {
		if err := h.j.script.Lease(req); err != nil {
			return nil, err
		}
	}
	return &resource{ask: req, expires: time.Now().Add(req.For)}, nil
}

func (h host) LeaseDirectory(ctx context.Context, req tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	if h.j.script.Dir == "" {
		return "", nil, unscripted("Dir", "there is no place for directories")
	}
	path, err := os.MkdirTemp(h.j.script.Dir, "dir_")
	if err != nil {
		return "", nil, err
	}
	l, err := h.Lease(ctx, tool.ResourceRequest{Provider: "local", Type: "directory", ExternalID: path, For: req.For, Unlisted: req.Unlisted})
	return path, l, err
}
