package conn

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/runtime/internal/artifact"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a result in chunks for a client without result_chunk. It is sent as a whole or, above
// maxWholeFrame, as a reference to an artifact.
const (
	maxWholeFrame = 8 << 20   // bytes of its frame: the largest that clients accept
	maxReference  = 128 << 10 // bytes of an event that refers to chunks: most are its summary

	// artifactTimeout bounds the time to make an artifact of a result. Later events of the session wait.
	artifactTimeout = 2 * time.Minute
	artifactPart    = 1 << 20 // bytes of a result that are in memory
)

const payloadMember = `,"payload":` // of the body of an event

// decodeBody decodes the payload of an event, and returns its position in the body.
func decodeBody(e *store.Event, payload any) (at int, err error) {
	at = bytes.Index(e.Body, []byte(payloadMember)) // the first one: quotes in strings are escaped
	return at, arcp.Unmarshal(e.Body[at+len(payloadMember):len(e.Body)-1], payload)
}

// maxResult is the size of a result, in bytes, up to which the session is sent it as a whole.
func (c *conn) maxResult() int {
	if c.dialect.name() == arcp.DialectDraft {
		return draft.MaxFrame - maxReference
	}
	return maxWholeFrame - maxReference
}

// withPayload returns an event with another payload.
func withPayload(e *store.Event, at int, payload arcp.JobCompletedPayload) (*store.Event, error) {
	raw, err := arcp.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	body := append(append(append(bytes.Clone(e.Body[:at]), payloadMember...), raw...), '}')
	return &store.Event{Type: e.Type, Time: e.Time, Body: body, Route: e.Route, JSeq: e.JSeq, OriginSeq: e.OriginSeq}, nil
}

// needsWholeResult reports whether an event completes a job with a result in chunks, and the session did
// not negotiate result_chunk.
func (er *eventReader) needsWholeResult(e *store.Event) bool {
	return (e.Type == arcp.JobCompleted || e.Type == arcp.WorkflowComplete) && len(e.Body) <= maxReference && bytes.Contains(e.Body, []byte(`"result_id":`)) &&
		!er.c.session.negotiated(arcp.FeatureResultChunk)
}

// withWholeResult returns an event for which needsWholeResult is true, with the result in place of the
// reference to chunks. If the frame would be too large, the event refers to an artifact of the result.
// principal is the principal of the session, and limit is its maxResult.
func (s *Server) withWholeResult(ctx context.Context, principal string, limit int, e *store.Event) (*store.Event, error) {
	var p arcp.JobCompletedPayload
	at, err := decodeBody(e, &p)
	switch {
	case err != nil:
		return nil, fmt.Errorf("payload of the end of %s: %w", e.JobID(), err)
	case p.Value != nil || p.ResultSize == nil:
		return e, nil
	case *p.ResultSize > uint64(limit):
		return s.withResultArtifact(ctx, e, at, &p, principal)
	}
	value, err := engine.ReadResult(ctx, s.opts.Store, e.JobID(), e.JSeq, &p)
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), err)
	}
	if len(value) > limit { // a text with many escaped characters
		return s.withResultArtifact(ctx, e, at, &p, principal)
	}
	return withPayload(e, at, arcp.JobCompletedPayload{Value: value, Summary: p.Summary})
}

// withResultArtifact returns an event that refers to an artifact of the result. It makes the artifact if there
// is none. Only the principal of the job can read the artifact: for others the event is unchanged. If the
// artifact cannot be made, the summary of the event has the reason, and the next connection tries again.
func (s *Server) withResultArtifact(ctx context.Context, e *store.Event, at int, p *arcp.JobCompletedPayload, principal string) (*store.Event, error) {
	job, err := s.opts.Store.Job(ctx, e.JobID())
	if err != nil {
		return nil, fmt.Errorf("the job of a large result: %w", err)
	}
	if job.Principal != principal {
		return e, nil
	}
	stored := s.storeResult(ctx, resultSpec(&job, p), &resultReader{store: s.opts.Store, event: e, result: p})
	done := *p
	switch {
	case stored.unread != nil:
		return nil, fmt.Errorf("result of %s: %w", e.JobID(), stored.unread)
	case stored.err != nil:
		s.opts.Logger.Warn().Err(stored.err).Str("job_id", string(e.JobID())).Uint64("bytes", *p.ResultSize).Msg("no artifact can be made of a large result")
		refusal := txn.Refusal(s.opts.Logger, stored.err, "make an artifact of the result")
		done.Summary = fmt.Sprintf("the result of %d bytes is too large for this session, and no artifact can be made of it: %s: %s. %s",
			*p.ResultSize, refusal.Code, refusal.Message, p.Summary)
	default:
		done.ResultID, done.ResultRef = "", new(stored.row.Object())
	}
	return withPayload(e, at, done)
}

// storedResult is the artifact of a result, or the reason why there is none.
type storedResult struct {
	row    artifact.Row
	err    error
	unread error // of the result itself
}

// storeResult stores the artifact of a result unless there is one. It returns after artifactTimeout at the
// latest. A request to a bucket that takes longer goes on: if it succeeds, the next session gets its artifact.
func (s *Server) storeResult(ctx context.Context, spec artifact.Spec, r *resultReader) storedResult {
	limited, cancel := context.WithTimeout(ctx, artifactTimeout)
	defer cancel()
	stored := make(chan storedResult, 1)
	s.serving.Add(1) // Close waits for it
	s.opts.Pool.Run(func() {
		defer s.serving.Done()
		var result storedResult
		result.row, result.err = s.opts.Artifacts.PutOnce(limited, spec, func(w io.Writer) error {
			err := r.copy(ctx, &limitedWriter{w, limited})
			result.unread = r.err
			return err
		})
		stored <- result
	})
	select {
	case result := <-stored:
		return result
	case <-limited.Done():
		return storedResult{err: errNotStored}
	}
}

// errNotStored says that artifactTimeout is over.
var errNotStored = arcp.Errorf(arcp.CodeUnavailable, "the result was not stored within %v", artifactTimeout)

// resultSpec describes the artifact of a result.
func resultSpec(job *store.Job, p *arcp.JobCompletedPayload) artifact.Spec {
	spec := artifact.Spec{Principal: job.Principal, Session: job.Session, MediaType: "application/json", Result: job.ID}
	if p.ContentType != "" {
		spec.MediaType = p.ContentType
	}
	if !artifact.IsMediaType(spec.MediaType) {
		spec.MediaType = "application/octet-stream"
	}
	return spec
}

// limitedWriter is a Writer until ctx ends.
type limitedWriter struct {
	io.Writer
	ctx context.Context
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, errNotStored
	}
	return w.Writer.Write(p)
}

// resultReader reads the content of a result in chunks, a part at a time: the store is not used while a
// part is written.
type resultReader struct {
	store  store.Store
	event  *store.Event // the end of the job
	result *arcp.JobCompletedPayload

	position uint64 // in the log of the job
	part     []byte
	err      error // of the store, or of its content
}

// copy writes the content. The error is r.err, or of w.
func (r *resultReader) copy(ctx context.Context, w io.Writer) error {
	size := uint64(0)
	for r.read(ctx); r.err == nil && len(r.part) > 0; r.read(ctx) {
		size += uint64(len(r.part))
		if _, err := w.Write(r.part); err != nil {
			return err
		}
	}
	if r.err == nil && size != *r.result.ResultSize {
		r.err = fmt.Errorf("%d of %d bytes of result %s", size, *r.result.ResultSize, r.result.ResultID)
	}
	return r.err
}

// read reads the next part. It is empty at the end.
func (r *resultReader) read(ctx context.Context) {
	r.part = r.part[:0]
	err := r.store.JobEvents(ctx, r.event.JobID(), r.position, func(e *store.Event) bool {
		r.position = e.JSeq
		if e.Type == arcp.JobResultChunk {
			r.append(e)
		}
		return r.err == nil && len(r.part) < artifactPart && e.JSeq < r.event.JSeq
	})
	if err != nil {
		r.err = err
	}
}

// append appends the content of a chunk of the result.
func (r *resultReader) append(e *store.Event) {
	var chunk arcp.JobResultChunkPayload
	if _, r.err = decodeBody(e, &chunk); r.err != nil || chunk.ResultID != r.result.ResultID {
		return
	}
	if chunk.Encoding == "base64" {
		r.part, r.err = base64.StdEncoding.AppendDecode(r.part, []byte(chunk.Data))
		return
	}
	r.part = append(r.part, chunk.Data...)
}
