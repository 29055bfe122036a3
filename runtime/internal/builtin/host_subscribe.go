package builtin

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/questions"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of host.subscribe (SPEC.md §7.7).
const (
	maxSnapshotBytes    = 256 << 10 // bytes of an event.emit, which may have 512 KiB
	maxSubscribedEvents = 1_000_000 // events until a subscription ends, because the log of its job grows
)

type hostSubscribeIn struct {
	Limit *int `json:"limit,omitzero" jsonschema:"description=maximum of events in the snapshot; default 100,minimum=0,maximum=500"`
}

// subscribe emits a snapshot and then every event. It reads only as fast as the log of its job
// accepts events, and slows down no other subscription.
func (t *hostTools) subscribe(ctx context.Context, caller *Caller, in hostSubscribeIn) (struct{}, error) {
	limit := defaultEvents
	if in.Limit != nil {
		limit = *in.Limit
	}
	sub, snapshot, refused := t.agents.Store.Subscribe(caller.Principal, limit)
	if refused != nil {
		return struct{}{}, refused
	}
	defer sub.Close()
	// The approvals are read after the snapshot, so that none is missing. A new one may be in both.
	snapshot.Agents = t.agents.WithConnections(snapshot.Agents)
	if err := emitSnapshot(caller.Job, &snapshot, t.questions.PendingOf(caller.Principal)); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, emitEvents(ctx, caller.Job, sub)
}

// emitEvents emits each event of a subscription, up to maxSubscribedEvents.
func emitEvents(ctx context.Context, job tool.Job, sub *agents.Subscription) error {
	for n := 0; n < maxSubscribedEvents; {
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
	return arcp.Errorf(arcp.CodeResourceExhausted, "the subscription has had %d events: subscribe again", maxSubscribedEvents).RetryAfter(1)
}

// snapshotPart is the payload of one host.snapshot.
type snapshotPart struct {
	Agents    []arcp.Raw `json:"agents"`
	Approvals []arcp.Raw `json:"approvals"`
	Events    []arcp.Raw `json:"events"`
	More      bool       `json:"more,omitzero"` // another part follows

	size int
}

func newSnapshotPart() *snapshotPart {
	return &snapshotPart{Agents: []arcp.Raw{}, Approvals: []arcp.Raw{}, Events: []arcp.Raw{}}
}

// emitSnapshot emits a snapshot in parts of at most maxSnapshotBytes.
func emitSnapshot(job tool.Job, s *agents.Snapshot, approvals []approval.Row) error {
	summaries := make([]questions.Summary, len(approvals))
	for i := range approvals {
		summaries[i] = questions.Summarize(&approvals[i])
	}
	p := &snapshotEmitter{job: job, part: newSnapshotPart()}
	appendItems(p, s.Agents, func(p *snapshotPart) *[]arcp.Raw { return &p.Agents })
	appendItems(p, summaries, func(p *snapshotPart) *[]arcp.Raw { return &p.Approvals })
	appendItems(p, s.Events, func(p *snapshotPart) *[]arcp.Raw { return &p.Events })
	if p.err != nil {
		return p.err
	}
	return job.Emit(arcp.EventHostSnapshot, p.part)
}

// snapshotEmitter emits the parts of a snapshot.
type snapshotEmitter struct {
	job  tool.Job
	part *snapshotPart // not emitted yet
	err  error         // the first error
}

// appendItems appends items to one list of the snapshot, and emits the full parts.
func appendItems[T any](p *snapshotEmitter, items []T, list func(*snapshotPart) *[]arcp.Raw) {
	for i := 0; i < len(items) && p.err == nil; i++ {
		var raw arcp.Raw
		if raw, p.err = arcp.Marshal(&items[i]); p.err == nil && p.part.size > 0 && p.part.size+len(raw) > maxSnapshotBytes {
			p.part.More = true
			p.err = p.job.Emit(arcp.EventHostSnapshot, p.part)
			p.part = newSnapshotPart()
		}
		*list(p.part) = append(*list(p.part), raw)
		p.part.size += len(raw)
	}
}
