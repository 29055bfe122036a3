package worker

import (
	"context"
	"encoding/base64"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of the content that a worker writes for a job.
const (
	maxContents = 64      // open streams, as many as a job may have
	maxUnacked  = 4       // frames of a stream, of the result, or about artifacts, without an answer
	maxContent  = 1 << 20 // bytes of the payload of such a frame
)

// contentSet has the open streams and the result in chunks of a job in a worker, and its frames about
// artifacts.
type contentSet struct {
	artifacts frameQueue

	mu   sync.Mutex
	open map[arcp.StreamID]*content // the result has the empty id
}

// frameQueue applies frames one after another, in the order in which they came, on a goroutine of its own.
type frameQueue struct {
	mu      sync.Mutex
	frames  []func() // that wait; at most maxUnacked
	running bool
}

// content is a stream, an artifact or the result in chunks that a worker writes. It has its own queue: a client that
// slows the stream delays no other frame of the worker.
type content struct {
	id  arcp.StreamID // that the worker has chosen; empty: the result
	job tool.Job
	frameQueue

	// Owned by the goroutine of the queue.
	next     uint64 // number of the next chunk
	kind     string
	stream   *tool.Stream
	result   *tool.Result
	resultID string // that the worker has chosen
	encoding string // of the result
	ended    bool   // the last chunk of the result has come
	upload   *upload
}

// do calls f after the functions of earlier calls.
func (q *frameQueue) do(background func(func()), f func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) >= maxUnacked {
		return arcp.Errorf(arcp.CodeResourceExhausted, "%d such frames of the job wait for their answer", maxUnacked)
	}
	q.frames = append(q.frames, f)
	if !q.running {
		q.running = true
		background(q.run)
	}
	return nil
}

func (q *frameQueue) run() {
	for {
		q.mu.Lock()
		if len(q.frames) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		f := q.frames[0]
		q.frames = q.frames[1:]
		q.mu.Unlock()
		f()
	}
}

// get returns the content of a frame. stream.open, artifact.put and the first chunk of a result create it.
func (cs *contentSet) get(job tool.Job, env *arcp.Envelope) (*content, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.open[env.StreamID]
	switch {
	case (env.Type == arcp.JobResultChunk) != (env.StreamID == ""):
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "a stream has a stream_id, and a result has none")
	case (env.Type == arcp.StreamOpen || env.Type == arcp.ArtifactPut) && c != nil:
		return nil, arcp.Errorf(arcp.CodeAlreadyExists, "the stream %s is open", env.StreamID)
	case c != nil:
		return c, nil
	case env.Type != arcp.StreamOpen && env.Type != arcp.ArtifactPut && env.Type != arcp.JobResultChunk:
		return nil, arcp.Errorf(arcp.CodeNotFound, "no stream %s is open", env.StreamID)
	case len(cs.open) >= maxContents+1: // and the result
		return nil, arcp.Errorf(arcp.CodeResourceExhausted, "the job has %d open streams, which is the most a job may have", maxContents)
	case cs.open == nil:
		cs.open = make(map[arcp.StreamID]*content)
	}
	c = &content{id: env.StreamID, job: job}
	cs.open[c.id] = c
	return c, nil
}

func (cs *contentSet) remove(c *content) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c.id)
}

// onContent returns a relay that calls f for the frames of a content. The answer is ack. A repeated frame
// is answered from the cache.
func onContent[P any](f func(questionRelay, *content, P) error) func(*dispatch, context.Context, *arcp.Envelope) error {
	return func(d *dispatch, _ context.Context, env *arcp.Envelope) error {
		p, err := decode[P](env)
		if err != nil {
			return err
		}
		qr := questionRelay{d}
		if n := len(env.Payload) + len(env.Sidecar); n > maxContent {
			return arcp.Errorf(arcp.CodeResourceExhausted, "%s of %d bytes: it may have at most %d", env.Type, n, maxContent)
		}
		return qr.once(env.ID, func() {
			c, err := d.contents.get(d.job, env)
			if err == nil {
				err = c.do(d.pool.background, func() { qr.conclude(env.ID, c, f(qr, c, p)) })
			}
			if err != nil {
				qr.conclude(env.ID, nil, err)
			}
		})
	}
}

// conclude answers a frame of a content.
func (qr questionRelay) conclude(id arcp.MessageID, c *content, err error) {
	switch {
	case err != nil:
		qr.reply(id, arcp.Nack, qr.jobID, refusalOf(err))
	case c.upload != nil && c.upload.stored:
		qr.reply(id, arcp.ArtifactRef, "", reference(c.upload.object))
	default:
		qr.replyAbout(id, arcp.Ack, qr.jobID, c.streamID(), arcp.AckPayload{})
	}
	qr.end(id)
}

// streamID returns the id by which clients know the stream; empty: the content is a result.
func (c *content) streamID() arcp.StreamID {
	if c.stream == nil {
		return ""
	}
	return c.stream.ID()
}

func (qr questionRelay) openStream(c *content, p arcp.StreamOpenPayload) (err error) {
	c.kind = p.Kind
	c.stream, err = c.job.OpenStream(tool.StreamOptions{Name: p.Name, Kind: p.Kind, ContentType: p.ContentType})
	if err != nil {
		qr.contents.remove(c)
	}
	return err
}

// streamChunk writes a chunk. A chunk that is missing ends the stream with OUT_OF_RANGE.
func (qr questionRelay) streamChunk(c *content, p arcp.StreamChunkPayload) error {
	if c.upload != nil {
		return qr.uploadChunk(c, p)
	}
	if c.stream == nil {
		return errNotOpen(c)
	}
	err := c.count(p.Sequence)
	if err == nil {
		return c.write(p)
	}
	qr.contents.remove(c)
	_ = c.stream.CloseWithError(err) // a job that has ended has ended its streams
	return err
}

// errNotOpen is the error of a frame that came behind the stream.open that was refused.
func errNotOpen(c *content) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the stream %s is not open", c.id)
}

// count returns the error for a chunk that does not have the next number.
func (c *content) count(n uint64) error {
	if n != c.next {
		return errGap(n, c.next)
	}
	c.next++
	return nil
}

func errGap(got, want uint64) *arcp.Error {
	return arcp.Errorf(arcp.CodeOutOfRange, "chunk %d comes instead of chunk %d", got, want)
}

func (c *content) write(p arcp.StreamChunkPayload) error {
	if c.kind != arcp.StreamText && c.kind != arcp.StreamBinary && c.kind != arcp.StreamThought {
		return c.stream.WriteJSON(p.Data)
	}
	data, err := p.Bytes(c.kind)
	if err != nil {
		return arcp.PayloadError(arcp.StreamChunk, err)
	}
	if c.kind == arcp.StreamThought {
		return c.stream.WriteThought(tool.Thought{Role: p.Role, Text: string(data), Redacted: p.Redacted})
	}
	_, err = c.stream.Write(data)
	return err
}

func (qr questionRelay) closeStream(c *content, p arcp.StreamClosePayload) error {
	if c.upload == nil && c.stream == nil {
		return errNotOpen(c)
	}
	qr.contents.remove(c)
	err := c.checkEnd(p.FinalSequence)
	switch {
	case c.upload != nil && err != nil:
		c.upload.abort(err)
		return err
	case c.upload != nil:
		return c.upload.finish()
	case err != nil:
		_ = c.stream.CloseWithError(err) // as for a chunk
		return err
	}
	return c.stream.Close()
}

// checkEnd returns an error unless final is the sequence of the last chunk; nil if there was no chunk.
func (c *content) checkEnd(final *uint64) error {
	if final == nil && c.next > 0 || final != nil && (c.next == 0 || *final != c.next-1) {
		return arcp.Errorf(arcp.CodeOutOfRange, "final_sequence is not that of the last of %d chunks", c.next)
	}
	return nil
}

func (qr questionRelay) failStream(c *content, p arcp.Error) error {
	if c.upload != nil {
		qr.contents.remove(c)
		c.upload.abort(&p)
		return nil
	}
	if c.stream == nil {
		return errNotOpen(c)
	}
	qr.contents.remove(c)
	return c.stream.CloseWithError(&p)
}

// resultChunk writes a part of the result. The last one stays for the outcome of the worker, which may
// have a summary.
func (qr questionRelay) resultChunk(c *content, p arcp.JobResultChunkPayload) error {
	if err := c.checkResult(p); err != nil {
		return err
	}
	data := []byte(p.Data)
	if p.Encoding == "base64" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(p.Data); err != nil {
			return arcp.Errorf(arcp.CodeInvalidArgument, "job.result_chunk: data: %s", err)
		}
	}
	if p.ChunkSeq != c.next {
		return errGap(p.ChunkSeq, c.next)
	}
	if c.result == nil {
		var err error
		if c.result, err = c.job.Result(tool.ResultOptions{Binary: p.Encoding == "base64", ContentType: p.ContentType}); err != nil {
			return err
		}
		c.resultID, c.encoding = p.ResultID, p.Encoding
	}
	c.next++
	if _, err := c.result.Write(data); err != nil || !p.More {
		c.ended = err == nil
		return err
	}
	return c.result.Flush()
}

func (c *content) checkResult(p arcp.JobResultChunkPayload) error {
	switch {
	case p.Encoding != "utf8" && p.Encoding != "base64":
		return arcp.Errorf(arcp.CodeInvalidArgument, "job.result_chunk: encoding is utf8 or base64")
	case c.ended:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "job.result_chunk: the last part of the result has come")
	case c.result != nil && (p.ResultID != c.resultID || p.Encoding != c.encoding):
		return arcp.Errorf(arcp.CodeFailedPrecondition, "job.result_chunk: a job has one result_id and one encoding")
	}
	return nil
}

// closeResult ends the result in chunks, if the worker has written one, behind its last chunk.
func (d *dispatch) closeResult(summary string) error {
	d.contents.mu.Lock()
	c := d.contents.open[""]
	d.contents.mu.Unlock()
	if c == nil {
		return nil
	}
	done := make(chan error, 1)
	err := c.do(d.pool.background, func() {
		if c.ended { // otherwise the job fails without the end of its result
			done <- c.result.CloseWithSummary(summary)
			return
		}
		done <- nil
	})
	if err != nil {
		return err
	}
	return <-done
}
