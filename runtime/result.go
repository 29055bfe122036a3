package runtime

import (
	"bytes"
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a result that is put together for a client which takes no chunks.
const (
	maxWholeFrame = 8 << 20 // of its frame: the largest that clients read
	maxReference  = 4 << 10 // of an event that only refers to chunks
)

// whole returns an event as the connection sends it. The event that ends a job with a
// result in chunks gets the value for a session that did not negotiate result_chunk,
// unless the frame would be too large. It reads the store then.
func (c *conn) whole(e *store.Event) (*store.Event, error) {
	if e.Type != arcp.JobCompleted || len(e.Body) > maxReference || !bytes.Contains(e.Body, []byte(`"result_id":`)) || c.negotiated(arcp.FeatureResultChunk) {
		return e, nil
	}
	const member = `,"payload":`
	at := bytes.Index(e.Body, []byte(member)) // the first: quotes in a string are escaped
	var p arcp.JobCompletedPayload
	if err := arcp.Unmarshal(e.Body[at+len(member):len(e.Body)-1], &p); err != nil {
		return nil, fmt.Errorf("payload of the end of %s: %w", e.JobID(), err)
	}
	if p.Value != nil || p.ResultSize == nil || *p.ResultSize > maxWholeFrame-maxReference {
		return e, nil
	}
	value, err := engine.ReadResult(context.Background(), c.rt.cfg.Store, e.JobID(), e.JSeq, &p)
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	payload, err := arcp.Marshal(arcp.JobCompletedPayload{Value: value, Summary: p.Summary})
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	complete := *e
	complete.Body = append(append(append(bytes.Clone(e.Body[:at]), member...), payload...), '}')
	return &complete, nil
}
