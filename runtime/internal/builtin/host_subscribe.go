package builtin

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/host"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of host.subscribe (SPEC.md §7.7).
const (
	maxSnapshotBytes = 256 << 10 // of an event.emit; 512 KiB are allowed
	maxWatched       = 1_000_000 // events of a subscription, because its log grows until it ends
)

type hostSubscribeIn struct {
	Limit *int `json:"limit,omitzero" jsonschema:"description=events of the snapshot at most; default 100,minimum=0,maximum=500"`
}

// subscribe emits a snapshot and then every event. It reads as fast as the log of its job
// accepts events, and slows down no other reader.
func (t *hostTools) subscribe(ctx context.Context, who *Caller, in hostSubscribeIn) (struct{}, error) {
	limit := defaultEvents
	if in.Limit != nil {
		limit = *in.Limit
	}
	sub, snapshot, refused := t.agents.Host.Subscribe(who.Principal, limit)
	if refused != nil {
		return struct{}{}, refused
	}
	defer sub.Close()
	// The approvals are read after the snapshot: one that is requested in between is in both,
	// none is missing.
	snapshot.Agents = t.agents.WithConnections(snapshot.Agents)
	if err := emitSnapshot(who.Job, &snapshot, t.questions.PendingOf(who.Principal)); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, emitEvents(ctx, who.Job, sub)
}

func emitEvents(ctx context.Context, job tool.Job, sub *host.Subscription) error {
	for n := 0; n < maxWatched; {
		events, skipped, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if skipped > 0 {
			if err := job.Emit("host.gap", map[string]uint64{"skipped": skipped}); err != nil {
				return err
			}
		}
		for i := range events {
			if err := job.Emit(arcp.EventHost, &events[i]); err != nil {
				return err
			}
		}
		n += len(events)
	}
	return arcp.Errorf(arcp.CodeResourceExhausted, "the subscription has had %d events: subscribe again", maxWatched).RetryAfter(1)
}

// snapshotPart is the payload of a host.snapshot.
type snapshotPart struct {
	Agents    []arcp.Raw `json:"agents"`
	Approvals []arcp.Raw `json:"approvals"`
	Events    []arcp.Raw `json:"events"`
	More      bool       `json:"more,omitzero"` // another part follows

	size int
}

func newPart() *snapshotPart {
	return &snapshotPart{Agents: []arcp.Raw{}, Approvals: []arcp.Raw{}, Events: []arcp.Raw{}}
}

// emitSnapshot emits a snapshot in as many parts as it needs.
func emitSnapshot(job tool.Job, s *host.Snapshot, approvals []approval.Row) error {
	summaries := make([]questions.Summary, len(approvals))
	for i := range approvals {
		summaries[i] = questions.Summarize(&approvals[i])
	}
	p := &parts{job: job, part: newPart()}
	addAll(p, s.Agents, func(p *snapshotPart) *[]arcp.Raw { return &p.Agents })
	addAll(p, summaries, func(p *snapshotPart) *[]arcp.Raw { return &p.Approvals })
	addAll(p, s.Events, func(p *snapshotPart) *[]arcp.Raw { return &p.Events })
	if p.err != nil {
		return p.err
	}
	return job.Emit("host.snapshot", p.part)
}

// parts emits a snapshot in parts.
type parts struct {
	job  tool.Job
	part *snapshotPart // the next one
	err  error         // ends the emission
}

// addAll adds items to one list of a snapshot. It emits the parts that are full.
func addAll[T any](p *parts, items []T, list func(*snapshotPart) *[]arcp.Raw) {
	for i := 0; i < len(items) && p.err == nil; i++ {
		var raw arcp.Raw
		if raw, p.err = arcp.Marshal(&items[i]); p.err == nil && p.part.size > 0 && p.part.size+len(raw) > maxSnapshotBytes {
			p.part.More = true
			p.err = p.job.Emit("host.snapshot", p.part)
			p.part = newPart()
		}
		*list(p.part) = append(*list(p.part), raw)
		p.part.size += len(raw)
	}
}
