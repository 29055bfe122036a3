package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxOpenStreams bounds the open streams of a job: each has an entry in the job's record and an event at
// the end of the attempt.
const maxOpenStreams = 64

// stream is an open stream of an attempt. The tool calls the methods of tool.StreamHost, one at a time.
type stream struct {
	toolGoroutine
	common store.JobContext // of its events
	opened *store.Event     // stream.open
	jseq   uint64           // of opened; owned by the supervisor; 0: it is not in the log

	// Guarded by run.mu. Only the calls of the tool change next, and read it without run.mu.
	next uint64 // sequence of the next chunk
	err  error  // why the stream accepts nothing more; nil: it is open
	pace streamPace

	slowedBy []arcp.SessionID // whose connections have sent backpressure of the stream
}

var _ tool.StreamHost = (*stream)(nil)

// streamSet has the open streams of an attempt, in the order in which they were opened. run.mu guards it.
type streamSet struct {
	open    []*stream
	changed bool // since the last write
}

// OpenStream opens a stream.
func (j toolJob) OpenStream(p arcp.StreamOpenPayload) (tool.StreamHost, error) {
	st := &stream{toolGoroutine: j.toolGoroutine, common: j.s.common}
	st.common.StreamID = arcp.StreamID(arcp.NewID(arcp.StreamPrefix))
	var err error
	if st.opened, err = j.encode(arcp.StreamOpen, p, &st.common); err != nil {
		return nil, err
	}
	err = j.enqueue(st.opened, nil, func() (*store.Event, *arcp.Error) { return nil, j.s.events.addStream(st) })
	if err != nil {
		return nil, err
	}
	return st, nil
}

// addStream adds an open stream. It is called with run.mu.
func (q *eventQueue) addStream(st *stream) *arcp.Error {
	if q.streams == nil {
		q.streams = new(streamSet)
	}
	if len(q.streams.open) >= maxOpenStreams {
		return arcp.Errorf(arcp.CodeResourceExhausted, "the job has %d open streams, which is the most a job may have", maxOpenStreams)
	}
	q.streams.open, q.streams.changed = append(q.streams.open, st), true
	st.s.e.streams.add(st)
	return nil
}

// removeStream removes a stream that has ended. err is the result of its later calls. It is called with
// run.mu.
func (q *eventQueue) removeStream(st *stream, err error) {
	q.streams.open = slices.DeleteFunc(q.streams.open, func(o *stream) bool { return o == st })
	q.streams.changed = true
	st.ended(err)
}

// ended records that a stream has ended. It is called with run.mu.
func (st *stream) ended(err error) {
	st.err = err
	st.s.e.streams.remove(st)
	st.pace.changed.notify()
}

// endStreams records that the streams have ended with their attempt. It is called with run.mu.
func (q *eventQueue) endStreams() {
	if q.streams == nil {
		return
	}
	for _, st := range q.streams.open {
		st.ended(errEnded)
	}
	q.streams.open, q.streams.changed = nil, true
}

// refuseCost refuses a chunk that is a metric of a cost, because it would not debit the budget.
func refuseCost(chunk arcp.Raw) error {
	var m struct {
		Name arcp.Raw `json:"name"`
	}
	var name string
	if arcp.Unmarshal(chunk, &m) == nil && arcp.Unmarshal(m.Name, &name) == nil && lease.IsCost(name) {
		return arcp.Errorf(arcp.CodeInvalidArgument, "stream: the metric %s is a cost: report it with Job.Metric, which debits the budget", name)
	}
	return nil
}

func (st *stream) ID() arcp.StreamID { return st.common.StreamID }

// Chunk queues a chunk.
func (st *stream) Chunk(p arcp.StreamChunkPayload) error {
	if p.Kind == arcp.StreamMetric {
		if err := refuseCost(p.Data); err != nil {
			return err
		}
	}
	if err := st.awaitPace(len(p.Data)); err != nil {
		return err
	}
	if p.Content != "" && !st.mayWriteThought(p.Role) {
		p.Data, p.Content, p.Redacted = arcp.Raw(`""`), "", true
	}
	p.Sequence = st.next
	buffer := buffers.Get().(*[]byte)
	raw := p.AppendJSON((*buffer)[:0])
	ev, err := st.newEvent(arcp.StreamChunk, raw, &st.common)
	putBuffer(buffer, raw)
	if err != nil {
		return err
	}
	return st.enqueue(ev, nil, st.countChunk)
}

// countChunk counts a chunk that is queued, unless the stream has ended. It is called with run.mu.
func (st *stream) countChunk() (*store.Event, *arcp.Error) {
	if st.err != nil {
		return nil, asError(st.err)
	}
	st.next++
	return nil, nil
}

// End queues the last event of the stream.
func (st *stream) End(cause *arcp.Error) error {
	ev, err := st.encodeEnd(cause)
	if err != nil {
		return err
	}
	return st.enqueue(ev, nil, func() (*store.Event, *arcp.Error) {
		if st.err != nil {
			return nil, asError(st.err)
		}
		st.s.events.removeStream(st, errStreamClosed())
		return nil, nil
	})
}

func (st *stream) encodeEnd(cause *arcp.Error) (*store.Event, error) {
	if cause != nil {
		return st.encode(arcp.StreamError, cause, &st.common)
	}
	return st.encode(arcp.StreamClose, closePayload(st.next), &st.common)
}

// closePayload is the payload of stream.close after n chunks.
func closePayload(n uint64) (p arcp.StreamClosePayload) {
	if n > 0 {
		p.FinalSequence = new(n - 1)
	}
	return p
}

func errStreamClosed() *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the stream is closed")
}

func asError(err error) *arcp.Error {
	e, _ := arcp.AsError(err)
	return e
}

// lastEvents returns the last events of the open streams: stream.close if cause is nil, otherwise
// stream.error.
func (ss *streamSet) lastEvents(now time.Time, cause *arcp.Error) []*store.Event {
	events := make([]*store.Event, len(ss.open))
	for i, st := range ss.open {
		if cause == nil {
			events[i] = mustEvent(arcp.StreamClose, now, &st.common, st.s.row.Priority, closePayload(st.next))
		} else {
			events[i] = mustEvent(arcp.StreamError, now, &st.common, st.s.row.Priority, cause)
		}
	}
	return events
}

// streamsEnd returns the error with which the end of an attempt ends its streams; nil: they are closed.
func (ae *attemptEnd) streamsEnd() *arcp.Error {
	switch {
	case ae.exit == exitRetry:
		return arcp.Errorf(ae.retryCause.code, "the attempt has failed, and another attempt follows")
	case ae.outcome == nil:
		return errAttemptStopped()
	}
	return outcomeStreamsEnd(ae.outcome)
}

func errAttemptStopped() *arcp.Error {
	return arcp.Errorf(arcp.CodeAborted, "the attempt was stopped, and another attempt follows")
}

// outcomeStreamsEnd returns the error with which the end of a job ends its streams; nil: they are closed.
func outcomeStreamsEnd(o *job.Outcome) *arcp.Error {
	switch o.State {
	case arcp.StateCompleted:
		return nil
	case arcp.StateCancelled:
		return arcp.Errorf(arcp.CodeCancelled, "the job was cancelled")
	}
	return arcp.Errorf(outcomeCode(o), "the job has failed")
}

// drainStreams returns the last events of the streams if the attempt has ended, and records which streams
// are open after the drained events. It is called with run.mu.
func (jw *jobWriter) drainStreams(now time.Time) (ends []*store.Event) {
	set := jw.queue.streams
	if set == nil {
		return nil
	}
	if jw.end.exit > exitIdle && len(set.open) > 0 {
		ends = set.lastEvents(now, jw.end.streamsEnd())
		jw.queue.endStreams()
	}
	if set.changed {
		set.changed = false
		jw.streams = &openStreams{set: slices.Clone(set.open)}
	}
	return ends
}

// openStreams are the open streams behind the events of a write.
type openStreams struct{ set []*stream }

// streamRow is an open stream in the record of its job. A job without open streams has no record.
type streamRow struct {
	ID   arcp.StreamID `json:"id"`
	JSeq uint64        `json:"jseq"` // position of stream.open in the job's log
}

func streamsKey(id arcp.JobID) string { return store.JobRecordPrefix(id) + "streams" }

// addStreams adds the change of the record to the write of the events. lastJSeq is the position of the
// event before them.
func (pw *pendingWrite) addStreams(w *store.Write, records jobRecords, lastJSeq uint64) error {
	if pw.streams == nil {
		return nil
	}
	events := store.Find[*store.AppendEvents](w).Events
	rows := make([]streamRow, len(pw.streams.set))
	for i, st := range pw.streams.set {
		if at := slices.Index(events, st.opened); at >= 0 {
			st.jseq = lastJSeq + uint64(at) + 1
		}
		rows[i] = streamRow{st.ID(), st.jseq}
	}
	pw.streams = nil
	return records.addStreams(w, rows)
}

// addStreams adds the change of the record with the open streams.
func (jr jobRecords) addStreams(w *store.Write, rows []streamRow) error {
	rec := store.Record{Key: streamsKey(jr.job)}
	var err error
	if rec.Rev, err = jr.revision(rec.Key, 0); err != nil {
		return err
	}
	switch {
	case len(rows) > 0:
		if rec.Value, err = arcp.Marshal(rows); err != nil {
			return err
		}
	case rec.Rev == 0:
		return nil
	}
	w.Put(rec)
	return nil
}

// readStreams reads the open streams of a job from its record.
func (jr jobRecords) readStreams(ctx context.Context) (rows []streamRow, err error) {
	rec, err := jr.store.Get(ctx, streamsKey(jr.job))
	if err == nil && rec.Rev != 0 {
		err = arcp.Unmarshal(rec.Value, &rows)
	}
	return rows, err
}

// endStreams ends the streams that were open when the earlier process stopped. Their last events precede
// all others of the write.
func (j *recoveredJob) endStreams(w *store.Write, now time.Time) error {
	if len(j.streams) == 0 {
		return nil
	}
	cause := arcp.Errorf(arcp.CodeAborted, "the runtime stopped while the stream was open")
	if j.outcome != nil {
		cause = outcomeStreamsEnd(j.outcome)
	}
	log := store.Find[*store.AppendEvents](w)
	for _, row := range j.streams {
		common := j.common
		common.StreamID = row.ID
		log.Events = append(log.Events, mustEvent(arcp.StreamError, now, &common, j.row.Priority, cause))
	}
	return j.records().addStreams(w, nil)
}

// JobStreams has the operations of clients on the streams of jobs.
type JobStreams struct{ e *Engine }

// Streams returns the operations of clients on the streams of jobs.
func (e *Engine) Streams() JobStreams { return JobStreams{e} }

// Opened reads the stream.open events of the open streams of jobs.
func (js JobStreams) Opened(ctx context.Context, jobs []arcp.JobID) (events []*store.Event, err error) {
	for _, id := range jobs {
		rows, err := jobRecords{store: js.e.cfg.Store, job: id}.readStreams(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			err := js.e.cfg.Store.JobEvents(ctx, id, row.JSeq-1, func(ev *store.Event) bool {
				events = append(events, ev)
				return false
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return events, nil
}
