package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// MaxResult is the largest result in parts in bytes that a runtime sends.
const MaxResult = 256 << 20

// ErrResultTooLarge is the error of a result that has more bytes than the caller takes.
var ErrResultTooLarge = errors.New("the result is too large")

// ResultParts joins the parts of the result of one job. It belongs to one goroutine.
type ResultParts struct {
	Limit int // bytes of the result; 0: MaxResult

	id, encoding string
	next         uint64 // number of the next part
	whole        bool   // the last part has come
	content      []byte
	err          error
}

// Receive handles an event of the job. It ignores other events than job.result_chunk. When an attempt
// begins the result again, under another result_id, the parts of the earlier one are dropped.
func (r *ResultParts) Receive(ev *Event) {
	if ev.Type != arcp.JobResultChunk {
		return
	}
	p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](ev)
	if err == nil && p.ResultID != r.id {
		*r = ResultParts{Limit: r.Limit, id: p.ResultID, encoding: p.Encoding}
	}
	if r.err != nil {
		return
	}
	if err == nil {
		err = r.add(&p)
	}
	if err != nil && !errors.Is(err, ErrResultTooLarge) {
		err = &ProtocolError{string(ev.Type), fmt.Errorf("result %s: %w", p.ResultID, err)}
	}
	r.err = err
}

func (r *ResultParts) add(p *arcp.JobResultChunkPayload) (err error) {
	switch {
	case r.whole:
		return errors.New("a part follows the last one")
	case p.ChunkSeq != r.next:
		return fmt.Errorf("part %d comes instead of part %d", p.ChunkSeq, r.next)
	case p.Encoding != r.encoding:
		return fmt.Errorf("part %d has the encoding %q, and the first one %q", p.ChunkSeq, p.Encoding, r.encoding)
	}
	data := []byte(p.Data)
	if p.Encoding == "base64" {
		if data, err = base64.StdEncoding.DecodeString(p.Data); err != nil {
			return fmt.Errorf("part %d: %w", p.ChunkSeq, err)
		}
	}
	limit := r.Limit
	if limit <= 0 {
		limit = MaxResult
	}
	if len(r.content)+len(data) > limit {
		r.content = nil
		return fmt.Errorf("%w: more than %d bytes", ErrResultTooLarge, limit)
	}
	r.content = append(r.content, data...)
	r.next++
	r.whole = !p.More
	return nil
}

// Content returns the content of the result with which the job has completed. For a result in parts
// these are the decoded parts: the JSON text of the result if res has no ContentType, otherwise a
// content of that type. For another result it is Result.Value. The error is a *ProtocolError if a part
// is missing, and ErrResultTooLarge.
func (r *ResultParts) Content(res *Result) ([]byte, error) {
	switch {
	case res.ResultID == "":
		return res.Value, nil
	case r.err != nil && r.id == res.ResultID:
		return nil, r.err
	case r.id != res.ResultID || !r.whole || res.ResultSize != nil && *res.ResultSize != uint64(len(r.content)):
		return nil, &ProtocolError{string(res.Envelope.Type), fmt.Errorf("parts of the result %s are missing", res.ResultID)}
	}
	return r.content, nil
}

// JSON returns Content as a JSON value: a text becomes a string, and bytes become a string in base64.
func (r *ResultParts) JSON(res *Result) (arcp.Raw, error) {
	content, err := r.Content(res)
	switch {
	case err != nil || res.ResultID == "" || res.ContentType == "":
		return content, err
	case r.encoding == "base64":
		return arcp.AppendString(nil, base64.StdEncoding.EncodeToString(content)), nil
	}
	return arcp.AppendString(nil, string(content)), nil
}

// ReadResult waits for the outcome of the job as Wait does, and returns the content of its result, see
// ResultParts.Content, of at most limit bytes; 0 means MaxResult. It takes the events from Job.Events
// and drops those that are no parts of the result.
func (j *Job) ReadResult(ctx context.Context, limit int) (Result, []byte, error) {
	parts := ResultParts{Limit: limit}
	for ev, err := range j.Events(ctx) {
		if err != nil {
			break // Wait says more
		}
		parts.Receive(&ev)
	}
	res, err := j.Wait(ctx)
	if err != nil {
		return res, nil, err
	}
	content, err := parts.Content(&res)
	return res, content, err
}
