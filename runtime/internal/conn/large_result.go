package conn

import (
	"bytes"
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a result in chunks that is sent as a whole to a client without result_chunk.
const (
	maxWholeFrame = 8 << 20   // bytes of its frame: the largest that clients accept
	maxReference  = 128 << 10 // bytes of an event that refers to chunks: most are its summary
)

// needsWholeResult reports whether an event completes a job with a result in chunks, and the session did
// not negotiate result_chunk.
func (er *eventReader) needsWholeResult(e *store.Event) bool {
	return (e.Type == arcp.JobCompleted || e.Type == arcp.WorkflowComplete) && len(e.Body) <= maxReference && bytes.Contains(e.Body, []byte(`"result_id":`)) &&
		!er.c.session.negotiated(arcp.FeatureResultChunk)
}

// withWholeResult returns an event for which needsWholeResult is true, with the result in place of the
// reference to chunks. It returns e itself if the frame would be too large.
func (s *Server) withWholeResult(ctx context.Context, e *store.Event) (*store.Event, error) {
	const member = `,"payload":`
	at := bytes.Index(e.Body, []byte(member)) // the first one: quotes in strings are escaped
	var p arcp.JobCompletedPayload
	if err := arcp.Unmarshal(e.Body[at+len(member):len(e.Body)-1], &p); err != nil {
		return nil, fmt.Errorf("payload of the end of %s: %w", e.JobID(), err)
	}
	if p.Value != nil || p.ResultSize == nil || *p.ResultSize > maxWholeFrame-maxReference {
		return e, nil
	}
	value, err := engine.ReadResult(ctx, s.opts.Store, e.JobID(), e.JSeq, &p)
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	if len(value) > maxWholeFrame-maxReference { // a text with many escaped characters
		return e, nil
	}
	payload, err := arcp.Marshal(arcp.JobCompletedPayload{Value: value, Summary: p.Summary})
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	body := append(append(append(bytes.Clone(e.Body[:at]), member...), payload...), '}')
	return &store.Event{Type: e.Type, Time: e.Time, Body: body, Route: e.Route, JSeq: e.JSeq, OriginSeq: e.OriginSeq}, nil
}
