package engine

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of the streams that clients write to jobs (SPEC.md §5.16).
const (
	maxClientStreams = 8       // of a job, and of a session, that the tool has not read to their end
	maxClientChunks  = 256     // of a stream that the tool has not read
	maxClientBytes   = 1 << 20 // of these chunks
	maxClientName    = 256     // bytes of a name, a content type or a role
)

// clientStream is a stream that a client writes to a job. The tool calls the methods of
// tool.ClientStreamHost, one at a time.
type clientStream struct {
	run    *run
	id     arcp.StreamID
	opened arcp.StreamOpenPayload

	// Guarded by run.mu.
	client  Requester // of the last frame
	chunks  []clientChunk
	bytes   int    // of chunks
	next    uint64 // number of the next chunk
	slowed  bool   // backpressure was sent, and the tool has not read enough since then
	ended   bool   // with its attempt, or by the tool
	err     error  // behind the chunks: io.EOF, the error of the client or of the runtime; nil: it is open
	changed change // there is a chunk, or an error
}

// clientChunk is a chunk that the tool has not read. Its ack is due when the tool reads it.
type clientChunk struct {
	tool.ClientChunk
	request arcp.MessageID
}

var _ tool.ClientStreamHost = (*clientStream)(nil)

// clientStreamIndex finds the streams of clients by their session and the id that the client has chosen.
// Its lock may be taken with run.mu.
type clientStreamIndex struct {
	mu        sync.Mutex
	bySession map[arcp.SessionID][]*clientStream
}

func (x *clientStreamIndex) find(session arcp.SessionID, id arcp.StreamID) *clientStream {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, cs := range x.bySession[session] {
		if cs.id == id {
			return cs
		}
	}
	return nil
}

func (x *clientStreamIndex) of(session arcp.SessionID) []*clientStream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.bySession[session])
}

func (x *clientStreamIndex) add(session arcp.SessionID, cs *clientStream) *arcp.Error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.bySession[session]) >= maxClientStreams {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the session has %d streams to jobs, which is the most it may have", maxClientStreams)
	}
	if x.bySession == nil {
		x.bySession = make(map[arcp.SessionID][]*clientStream)
	}
	x.bySession[session] = append(x.bySession[session], cs)
	return nil
}

func (x *clientStreamIndex) remove(cs *clientStream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	session := cs.client.Session
	left := slices.DeleteFunc(x.bySession[session], func(o *clientStream) bool { return o == cs })
	if x.bySession[session] = left; len(left) == 0 {
		delete(x.bySession, session)
	}
}

// clientStreams are the streams of clients to a job. run.mu guards them.
type clientStreams struct {
	open    []*clientStream // that the tool has not read to their end
	waiting []*clientStream // of these, for which the tool has not called AcceptStream
	added   change
}

// Open opens a stream of a client to its job. Only the session uses its id. The answer is an
// ack or a nack.
func (js JobStreams) Open(from Requester, id arcp.JobID, stream arcp.StreamID, p *arcp.StreamOpenPayload) {
	r := js.e.run(id)
	if r == nil {
		from.refuseEnded(js.e, id)
		return
	}
	if err := r.openClientStream(from, stream, p); err != nil {
		from.Answers.AnswerBeforeEvents(answerTo(from.Request, arcp.Nack, err))
		return
	}
	from.Answers.AnswerBeforeEvents(answerTo(from.Request, arcp.Ack, arcp.AckPayload{}))
}

func (r *run) openClientStream(from Requester, stream arcp.StreamID, p *arcp.StreamOpenPayload) *arcp.Error {
	switch {
	case r.row.Principal != from.Principal:
		return errNoSuchJob()
	case !r.tool.ReadsStreams:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "%s reads no streams of clients", r.tool.Name)
	case len(p.Name) > maxClientName || len(p.ContentType) > maxClientName:
		return arcp.Errorf(arcp.CodeInvalidArgument, "stream.open: name and content_type may have at most %d bytes", maxClientName)
	case !slices.Contains(arcp.StreamKinds, p.Kind):
		return arcp.Errorf(arcp.CodeInvalidArgument, "stream.open: the kind %q is not known", p.Kind)
	}
	cs := &clientStream{run: r, id: stream, opened: *p, client: from}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.e.clientStreams.find(from.Session, stream)
	switch {
	case before != nil && before.run == r && before.next == 0:
		before.client = from
		return nil // the client repeats the message
	case before != nil:
		return arcp.Errorf(arcp.CodeAlreadyExists, "the session has opened the stream %s", stream)
	case r.lifecycle.isFinal() || r.lifecycle == lifeStopped:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the job is ending")
	case len(r.inputs.open) >= maxClientStreams:
		return arcp.Errorf(arcp.CodeResourceExhausted, "the job has %d streams of clients, which is the most it may have", maxClientStreams)
	}
	if err := r.e.clientStreams.add(from.Session, cs); err != nil {
		return err
	}
	r.inputs.open, r.inputs.waiting = append(r.inputs.open, cs), append(r.inputs.waiting, cs)
	r.inputs.added.notify()
	return nil
}

// Write adds a chunk to a stream of a client. The answer is an ack when the tool has read the
// chunk. A chunk that was received before is only acknowledged.
func (js JobStreams) Write(from Requester, id arcp.StreamID, p *arcp.StreamChunkPayload) *arcp.Error {
	cs := js.e.clientStreams.find(from.Session, id)
	if cs == nil {
		return errNoStream()
	}
	chunk, err := decodeClientChunk(cs.opened.Kind, p)
	if err != nil {
		return err
	}
	cs.run.mu.Lock()
	defer cs.run.mu.Unlock()
	cs.client = from
	switch {
	case cs.ended:
		return errNoStream()
	case p.Sequence < cs.next:
		cs.repeated(p.Sequence)
	case cs.err != nil:
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the stream %s has ended", id)
	case p.Sequence > cs.next:
		cs.abort(arcp.Errorf(arcp.CodeOutOfRange, "chunk %d comes instead of chunk %d", p.Sequence, cs.next))
	case len(cs.chunks) >= maxClientChunks || cs.bytes+len(chunk.Data) > maxClientBytes:
		cs.abort(arcp.Errorf(arcp.CodeBackpressureOverflow, "the tool has not read %d chunks of %d bytes", len(cs.chunks), cs.bytes))
	default:
		cs.add(chunk)
	}
	return nil
}

// decodeClientChunk returns the content of a chunk of a stream of a kind.
func decodeClientChunk(kind string, p *arcp.StreamChunkPayload) (chunk tool.ClientChunk, err *arcp.Error) {
	if len(p.Role) > maxClientName {
		return chunk, arcp.Errorf(arcp.CodeInvalidArgument, "stream.chunk: a role may have at most %d bytes", maxClientName)
	}
	chunk.Role, chunk.Redacted = p.Role, p.Redacted
	switch kind {
	case arcp.StreamText, arcp.StreamThought, arcp.StreamBinary:
	default:
		if p.Data.Kind() != '{' {
			return chunk, arcp.Errorf(arcp.CodeInvalidArgument, "stream.chunk: the data of a stream of the kind %s is an object", kind)
		}
		chunk.Data = slices.Clone(p.Data)
		return chunk, nil
	}
	var bad error
	if chunk.Data, bad = p.Bytes(kind); bad != nil {
		return chunk, arcp.PayloadError(arcp.StreamChunk, bad)
	}
	return chunk, nil
}

// add adds a chunk, and asks the client to slow down when the queue is half full. It is called with run.mu.
func (cs *clientStream) add(chunk tool.ClientChunk) {
	cs.chunks = append(cs.chunks, clientChunk{chunk, cs.client.Request})
	cs.bytes += len(chunk.Data)
	cs.next++
	cs.changed.notify()
	if cs.slowed || len(cs.chunks) < maxClientChunks/2 && cs.bytes < maxClientBytes/2 {
		return
	}
	cs.slowed = true
	cs.send("", arcp.Backpressure, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(maxClientBytes - cs.bytes)),
		Reason: "the tool has not read the chunks"})
}

// repeated answers a chunk that was received before. It is called with run.mu.
func (cs *clientStream) repeated(n uint64) {
	first := cs.next - uint64(len(cs.chunks))
	if n < first {
		cs.send(cs.client.Request, arcp.Ack, arcp.AckPayload{})
		return
	}
	cs.chunks[n-first].request = cs.client.Request
}

// send sends a frame about the stream to the client, which gets it if it is still connected. It is
// called with run.mu.
func (cs *clientStream) send(request arcp.MessageID, t arcp.Type, payload any) {
	env := answerTo(request, t, payload)
	env.JobID, env.StreamID = cs.run.row.ID, cs.id
	cs.client.Answers.AnswerBeforeEvents(env)
}

// abort ends a stream with an error of the runtime, which the client is sent. It is called with run.mu.
func (cs *clientStream) abort(err *arcp.Error) {
	cs.end(err)
	cs.send(cs.client.Request, arcp.StreamError, err)
}

// end ends a stream behind its chunks. It is called with run.mu.
func (cs *clientStream) end(err error) {
	cs.err = err
	cs.changed.notify()
}

// End ends a stream: with the error of the client, or else behind the chunk finalSequence; nil
// means that there was none.
func (js JobStreams) End(from Requester, id arcp.StreamID, finalSequence *uint64, cause *arcp.Error) *arcp.Error {
	cs := js.e.clientStreams.find(from.Session, id)
	if cs == nil {
		return errNoStream()
	}
	cs.run.mu.Lock()
	defer cs.run.mu.Unlock()
	cs.client = from
	switch {
	case cs.err != nil: // the client repeats the message, or was sent stream.error
	case cause != nil:
		cs.end(cause)
	case !endsAt(finalSequence, cs.next):
		err := arcp.Errorf(arcp.CodeOutOfRange, "final_sequence is not that of the last of %d chunks", cs.next)
		cs.end(err)
		return err
	default:
		cs.end(io.EOF)
	}
	return nil
}

// endsAt reports whether final_sequence is right after n chunks.
func endsAt(finalSequence *uint64, n uint64) bool {
	if finalSequence == nil {
		return n == 0
	}
	return n > 0 && *finalSequence == n-1
}

// AcceptStream waits for a stream of a client.
func (j toolJob) AcceptStream(ctx context.Context) (tool.ClientStreamHost, error) {
	s := j.s
	if !s.tool.ReadsStreams {
		return nil, arcp.Errorf(arcp.CodeFailedPrecondition, "%s does not declare that it reads streams of clients", s.tool.Name)
	}
	for {
		s.mu.Lock()
		if s.events.closed { // another attempt may run
			s.mu.Unlock()
			return nil, errEnded
		}
		if in := &s.inputs; len(in.waiting) > 0 {
			cs := in.waiting[0]
			in.waiting = slices.Delete(in.waiting, 0, 1)
			s.mu.Unlock()
			return cs, nil
		}
		added := s.inputs.added.channel()
		s.mu.Unlock()
		if err := awaitSignal(ctx, s.ctx, added); err != nil {
			return nil, err
		}
	}
}

// awaitSignal waits for a signal. The error is the cause of the context that has ended before.
func awaitSignal(ctx, attempt context.Context, signalled <-chan struct{}) error {
	select {
	case <-signalled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-attempt.Done():
		return context.Cause(attempt)
	}
}

func (cs *clientStream) Opened() (arcp.StreamID, arcp.StreamOpenPayload) { return cs.id, cs.opened }

// Next waits for a chunk and acknowledges it.
func (cs *clientStream) Next(ctx context.Context) (tool.ClientChunk, error) {
	for {
		chunk, changed, err := cs.take()
		if err != nil || changed == nil {
			return chunk, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return chunk, context.Cause(ctx)
		}
	}
}

// take removes the next chunk. If there is none yet, changed is closed when there may be one.
func (cs *clientStream) take() (chunk tool.ClientChunk, changed <-chan struct{}, err error) {
	cs.run.mu.Lock()
	defer cs.run.mu.Unlock()
	switch {
	case len(cs.chunks) > 0:
		c := cs.chunks[0]
		cs.chunks = slices.Delete(cs.chunks, 0, 1)
		cs.bytes -= len(c.Data)
		cs.slowed = cs.slowed && (len(cs.chunks) >= maxClientChunks/4 || cs.bytes >= maxClientBytes/4)
		cs.send(c.request, arcp.Ack, arcp.AckPayload{})
		return c.ClientChunk, nil, nil
	case cs.err != nil:
		cs.run.inputs.remove(cs)
		return chunk, nil, cs.err
	}
	return chunk, cs.changed.channel(), nil
}

// Close ends a stream that the tool does not read to its end.
func (cs *clientStream) Close(err *arcp.Error) {
	cs.run.mu.Lock()
	defer cs.run.mu.Unlock()
	if cs.ended {
		return
	}
	cs.drop(err)
	cs.run.inputs.remove(cs)
}

// drop ends a stream, and tells the client if the tool has not read all of it. It is called with run.mu.
func (cs *clientStream) drop(err *arcp.Error) {
	cs.ended = true
	if cs.err == nil || len(cs.chunks) > 0 {
		cs.chunks, cs.bytes = nil, 0
		cs.abort(err)
	}
}

// remove removes a stream that the tool has read to its end, or closed. It is called with run.mu.
func (in *clientStreams) remove(cs *clientStream) {
	in.open = slices.DeleteFunc(in.open, func(o *clientStream) bool { return o == cs })
	cs.run.e.clientStreams.remove(cs)
}

// end ends the streams with their attempt. A client whose chunks the tool has not read is told. It is
// called with run.mu.
func (in *clientStreams) end() {
	for _, cs := range in.open {
		cs.drop(arcp.Errorf(arcp.CodeAborted, "the job has ended, or another attempt follows"))
		cs.run.e.clientStreams.remove(cs)
	}
	in.open, in.waiting = nil, nil
}

// endStreamsOf ends the streams of a session that has ended.
func (e *Engine) endStreamsOf(session arcp.SessionID) {
	for _, cs := range e.clientStreams.of(session) {
		cs.run.mu.Lock()
		if cs.err == nil {
			cs.end(arcp.Errorf(arcp.CodeAborted, "the session of the stream has ended"))
		}
		cs.run.mu.Unlock()
	}
}
