package engine

import (
	"cmp"
	"context"
	"encoding/base64"
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

// ReadResult returns the result of a job in chunks. end is the position of the terminal event p in the
// job's log. A result that the tool has written becomes a JSON string: the text, or the bytes as base64.
func ReadResult(ctx context.Context, st store.Store, id arcp.JobID, end uint64, p *arcp.JobCompletedPayload) (arcp.Raw, error) {
	if p.ResultSize == nil || *p.ResultSize > maxResult {
		return nil, fmt.Errorf("the size of result %s of %s is not known, or over %d bytes", p.ResultID, id, maxResult)
	}
	size := *p.ResultSize
	content := make([]byte, 0, size)
	first := uint64(0) // the chunks of a tool are anywhere in the log
	if p.ContentType == "" {
		first = end - min(end, size/minChunk+2) // 2: a last short chunk, and the terminal event
	}
	binary := false
	var bad error
	err := st.JobEvents(ctx, id, first, func(ev *store.Event) bool {
		if ev.Type != arcp.JobResultChunk {
			return ev.JSeq < end
		}
		var env arcp.Envelope
		var chunk arcp.JobResultChunkPayload
		if env, bad = arcp.Decode(store.AppendFrame(nil, store.FrameHead(arcp.Version, arcp.SessionPrefix), 0, "", ev)); bad == nil {
			chunk, bad = arcp.DecodePayload[arcp.JobResultChunkPayload](&env)
		}
		if bad != nil || chunk.ResultID != p.ResultID {
			return bad == nil
		}
		if binary = chunk.Encoding == "base64"; binary {
			content, bad = base64.StdEncoding.AppendDecode(content, []byte(chunk.Data))
		} else {
			content = append(content, chunk.Data...)
		}
		return bad == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	switch {
	case uint64(len(content)) != size:
		return nil, fmt.Errorf("%d of %d bytes of result %s of %s", len(content), size, p.ResultID, id)
	case p.ContentType == "":
		return content, nil
	case binary:
		return arcp.AppendString(nil, base64.StdEncoding.EncodeToString(content)), nil
	}
	return arcp.AppendString(nil, string(content)), nil
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
