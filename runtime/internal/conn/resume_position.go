package conn

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// resumePosition is the last event before the position from which the next connection of the
// session continues. It is the last acknowledged event or, for a client that does not acknowledge,
// the last written one. The loop and the writer set it; any goroutine reads it.
type resumePosition struct {
	acks           atomic.Bool
	acked, written atomic.Uint64
}

// start sets the position of a new connection. acked matters only if the client acknowledges.
func (r *resumePosition) start(after uint64, acks bool, acked uint64) {
	r.written.Store(after)
	r.acked.Store(min(after, acked))
	r.acks.Store(acks)
}

// acknowledged sets the last acknowledged event. From now on the client acknowledges.
func (r *resumePosition) acknowledged(seq uint64) {
	r.acked.Store(seq)
	r.acks.Store(true)
}

// wrote sets the last written event. Only the writer calls it.
func (r *resumePosition) wrote(seq uint64) { r.written.Store(seq) }

func (r *resumePosition) load() uint64 {
	if r.acks.Load() {
		return r.acked.Load()
	}
	return r.written.Load()
}

// handleResume handles resume, which moves the cursor to a position (SPEC.md §5.10).
func (aw *ackWindow) handleResume(now time.Time, env *arcp.Envelope, p *arcp.ResumePayload) error {
	aw.c.machine.PositionRequested()
	switch {
	case aw.locating, aw.c.events.cursor.Position() != aw.startSeq:
		aw.c.nack(now, env.ID, arcp.Errorf(arcp.CodeFailedPrecondition,
			"resume has to be the first message after session.accepted: the session goes on already"))
	case p.AfterMessageID == "" && p.CheckpointID == "" && !p.IncludeOpenStreams:
		aw.c.reply(now, env.ID, arcp.Ack, arcp.AckPayload{})
		aw.unpause()
	default:
		aw.pause()
		aw.locating = true
		aw.c.unanswered.add()
		viewer, followed := aw.c.principal.actor(), slices.Clone(aw.followed)
		aw.c.tasks.backgroundThenLoop(func(ctx context.Context) func(time.Time) {
			found := aw.locate(ctx, p)
			if p.IncludeOpenStreams && found.err == nil {
				found.streams, found.err = aw.openStreams(ctx, &viewer, followed)
			}
			aw.c.unanswered.done()
			return func(now time.Time) { aw.completeResume(now, env.ID, found) }
		})
	}
	return nil
}

// positionResult is the result of locate.
type positionResult struct {
	after   uint64         // event_seq of the last event before the position
	ok      bool           // the position was found
	oldest  arcp.MessageID // oldest stored event
	streams []*store.Event // stream.open of the open streams, if the client asks for them
	err     error
}

// openStreams returns the stream.open events of the streams that are open in the jobs of the session and
// in the followed jobs that the viewer may observe.
func (aw *ackWindow) openStreams(ctx context.Context, viewer *approval.Actor, followed []arcp.JobID) ([]*store.Event, error) {
	if !aw.c.session.negotiated(arcp.FeatureStreaming) {
		return nil, nil
	}
	hidden, err := unobserved(ctx, aw.c.srv.opts.Store, viewer, followed)
	if err != nil {
		return nil, err
	}
	followed = slices.DeleteFunc(followed, func(id arcp.JobID) bool {
		return slices.ContainsFunc(hidden, func(j store.Job) bool { return j.ID == id })
	})
	e := aw.c.srv.opts.Engine
	return e.Streams().Opened(ctx, union(e.SessionJobs().IDs(aw.c.id), followed))
}

// union returns the jobs of both lists, each once.
func union(a, b []arcp.JobID) []arcp.JobID {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	return slices.Compact(all)
}

// locate searches the session's events for a message and a checkpoint. The position is after the
// earlier one, or the start of the cursor without both.
func (aw *ackWindow) locate(ctx context.Context, p *arcp.ResumePayload) (at positionResult) {
	if p.AfterMessageID == "" && p.CheckpointID == "" {
		return positionResult{after: aw.startSeq, ok: true}
	}
	row, err := aw.c.srv.opts.Store.Session(ctx, aw.c.id)
	if err != nil {
		return positionResult{err: err}
	}
	wanted := []func(*store.Event) bool{}
	if p.AfterMessageID != "" {
		wanted = append(wanted, func(e *store.Event) bool { return e.ID() == p.AfterMessageID })
	}
	if p.CheckpointID != "" {
		wanted = append(wanted, func(e *store.Event) bool { return e.Type == arcp.JobCheckpoint && checkpointID(e) == p.CheckpointID })
	}
	missing := len(wanted)
	at.err = aw.c.srv.opts.Store.SessionEvents(ctx, aw.c.id, row.TrimmedTo, func(d store.Delivery) bool {
		if at.oldest == "" {
			at.oldest = d.Event.ID()
		}
		for i, is := range wanted {
			if is != nil && is(d.Event) {
				wanted[i] = nil
				if missing--; !at.ok {
					at.after, at.ok = d.Seq, true
				}
			}
		}
		return missing > 0 && !aw.c.inbox.isClosed()
	})
	if errors.Is(at.err, store.ErrTrimmed) { // one of the events belongs to a deleted job
		at.err, missing = nil, max(missing, 1)
	}
	at.ok = at.ok && missing == 0
	return at
}

// checkpointID returns the checkpoint_id of a job.checkpoint event; "": it cannot be decoded.
func checkpointID(e *store.Event) string {
	env, err := arcp.Decode(store.AppendFrame(nil, []byte(`{"arcp":"1.1",`), 0, "", e))
	if err != nil {
		return ""
	}
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&env)
	if err != nil {
		return ""
	}
	return p.CheckpointID
}

// completeResume completes handleResume.
func (aw *ackWindow) completeResume(now time.Time, request arcp.MessageID, at positionResult) {
	aw.locating = false
	switch {
	case at.err != nil:
		aw.c.srv.opts.Logger.Error().Err(at.err).Str("session_id", string(aw.c.id)).Msg("look for a position")
		aw.c.nack(now, request, errUnreadable())
	case !at.ok:
		e := arcp.Errorf(arcp.CodeDataLoss, "the message or checkpoint is not among the events that are kept of this session")
		if at.oldest != "" {
			e = e.WithDetails(arcp.LostDetails{OldestMessageID: at.oldest})
		}
		aw.c.nack(now, request, e)
	default:
		aw.c.events.cursor.Seek(max(at.after, aw.acked)) // acknowledged events are deleted
		aw.c.reply(now, request, arcp.Ack, arcp.AckPayload{})
		aw.announce(now, request, at.streams)
	}
	aw.startSeq = aw.c.events.cursor.Position()
	aw.position.start(aw.startSeq, aw.clientAcks, aw.acked)
	aw.unpause()
}

// announce sends the events stream.open again, as answers to resume, except for those of the session's own
// jobs that are behind the position: they follow as events.
func (aw *ackWindow) announce(now time.Time, request arcp.MessageID, streams []*store.Event) {
	own := aw.c.srv.opts.Engine.SessionJobs().Submitted(aw.c.id) // the OriginSeq of others is not a number of this session
	for _, ev := range streams {
		if ev.OriginSeq <= aw.c.events.cursor.Position() || !slices.Contains(own, ev.JobID()) {
			aw.c.events.deliver(now, eventlog.Item{Event: ev, CorrelationID: request})
		}
	}
}
