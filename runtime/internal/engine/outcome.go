package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// readOutcome reads the outcome of a job that has ended.
func readOutcome(ctx context.Context, st store.Store, row *store.Job) (*job.Outcome, error) {
	ends, err := readEvents(ctx, st, row, row.LastJSeq-1)
	if err != nil || len(ends) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d terminal events", len(ends)))
	}
	o := &job.Outcome{State: row.State}
	switch row.State {
	case arcp.StateFailed:
		p, err := arcp.DecodePayload[arcp.Error](&ends[0])
		o.Err = &p
		return o, err
	case arcp.StateCancelled:
		p, err := arcp.DecodePayload[arcp.JobCancelledPayload](&ends[0])
		o.Reason, o.Code = p.Reason, p.Code
		return o, err
	}
	p, err := arcp.DecodePayload[arcp.JobCompletedPayload](&ends[0])
	if o.Value = p.Value; err == nil && p.ResultSize != nil {
		o.Value, err = ReadResult(ctx, st, row.ID, row.LastJSeq, &p)
	}
	return o, err
}

// ReadResult returns the result of a job in chunks. end is the position of the terminal
// event p in the job's log. The chunks precede it.
func ReadResult(ctx context.Context, st store.Store, id arcp.JobID, end uint64, p *arcp.JobCompletedPayload) (arcp.Raw, error) {
	if p.ResultSize == nil || *p.ResultSize > maxResult {
		return nil, fmt.Errorf("the size of result %s of %s is not known, or over %d bytes", p.ResultID, id, maxResult)
	}
	size := *p.ResultSize
	value := make(arcp.Raw, 0, size)
	var bad error
	err := st.JobEvents(ctx, id, end-min(end, size/minChunk+2), func(ev *store.Event) bool { // 2: a last short chunk, and the terminal event
		if ev.Type != arcp.JobResultChunk {
			return ev.JSeq < end
		}
		var env arcp.Envelope
		var chunk arcp.JobResultChunkPayload
		if env, bad = arcp.Decode(store.AppendFrame(nil, store.FrameHead(arcp.Version, arcp.SessionPrefix), 0, "", ev)); bad == nil {
			chunk, bad = arcp.DecodePayload[arcp.JobResultChunkPayload](&env)
		}
		if chunk.ResultID == p.ResultID {
			value = append(value, chunk.Data...)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	if uint64(len(value)) != size {
		return nil, fmt.Errorf("%d of %d bytes of result %s of %s", len(value), size, p.ResultID, id)
	}
	return value, nil
}

// readEvents reads the events of a job behind a position of its log.
func readEvents(ctx context.Context, st store.Store, row *store.Job, after uint64) (events []arcp.Envelope, err error) {
	var bad error
	head := store.FrameHead(arcp.Version, cmp.Or(row.Session, arcp.SessionID(arcp.SessionPrefix)))
	err = st.JobEvents(ctx, row.ID, after, func(ev *store.Event) bool {
		var env arcp.Envelope
		env, bad = arcp.Decode(store.AppendFrame(nil, head, 0, "", ev))
		events = append(events, env)
		return bad == nil
	})
	return events, errors.Join(err, bad)
}
