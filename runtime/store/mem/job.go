package mem

import (
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// packBytes is the size up to which a job is packed when it ends. Packing a longer job
// would delay the commit, and its overhead is small anyway.
const packBytes = 16 << 10

// job is a job's row and events.
type job struct {
	id      arcp.JobID
	row     *store.Job     // nil when packed, and of announced events
	events  []*store.Event // append only: a reader's copy of the slice stays valid
	packed  []byte         // row, then chunk
	rowLen  int            // length of the row in packed
	bytes   int64          // its part of Store.bytes
	deleted bool           // only runs still point to it
}

func (s *Store) applyJob(c *sequence.JobChange) {
	j := s.jobs[c.ID]
	if c.Created != nil {
		j = &job{id: c.ID, row: c.Created}
		s.jobs[c.ID] = j
		s.addJob(c.Created, j)
		s.resize(j, sizeOfEntries(j.row)+sizeOfRow(j.row))
	}
	s.resize(j, j.bytes+sizeOfEvents(c.Events))
	switch {
	case c.Created != nil && !c.Ended:
		s.live[c.ID] = struct{}{}
		s.lists[j.row.Principal].live.add(j.row.CreatedAt, j)
	case c.Created == nil && c.Ended:
		delete(s.live, c.ID)
		s.lists[j.row.Principal].live.remove(j.row.CreatedAt, c.ID)
	}
	c.Status.Apply(j.row)
	if c.Ended {
		s.ended.add(c.Status.EndedAt, j)
	}
	if c.Ended && len(j.events) == 0 && s.pack(j, c.Events) {
		return
	}
	j.events = append(j.events, c.Events...)
	if c.Ended {
		s.pack(j, j.events)
	}
}

// addJob adds a new job to the indexes.
func (s *Store) addJob(row *store.Job, j *job) {
	l := s.lists[row.Principal]
	if l == nil {
		l = new(lists)
		s.lists[row.Principal] = l
	}
	l.all.add(row.CreatedAt, j)
	if row.IdempotencyKey != "" {
		s.keys[idempotencyKey{row.Principal, row.IdempotencyKey}] = holder{row.ID, row.Digest}
	}
	if e := s.sessions[row.Session]; e != nil && row.SubmitID != "" {
		if e.submits == nil {
			e.submits = make(map[arcp.MessageID]*job)
		}
		e.submits[row.SubmitID] = j
	}
}

// deleteJob deletes a job that has ended. Runs that still point to it see deleted.
func (s *Store) deleteJob(d *sequence.Deletion) {
	row, j := &d.Row, s.jobs[d.Row.ID]
	s.resize(j, 0)
	delete(s.jobs, row.ID)
	s.ended.remove(row.EndedAt, row.ID)
	all := &s.lists[row.Principal].all
	if all.remove(row.CreatedAt, row.ID); len(all.entries) == 0 {
		delete(s.lists, row.Principal)
	}
	if d.Key {
		delete(s.keys, idempotencyKey{row.Principal, row.IdempotencyKey})
	}
	if d.Submit {
		delete(s.sessions[row.Session].submits, row.SubmitID)
	}
	*j = job{id: j.id, deleted: true}
}

// pack encodes a short job that has ended into one piece of memory.
func (s *Store) pack(j *job, events []*store.Event) bool {
	if codec.ChunkSize(events)+len(j.row.Arguments)+len(j.row.Options) > packBytes {
		return false
	}
	s.resize(j, sizeOfEntries(j.row))
	b := codec.AppendJob(s.scratch[:0], j.row)
	j.rowLen = len(b)
	b = codec.AppendChunk(b, events)
	j.packed = append(make([]byte, 0, len(b)), b...)
	s.resize(j, j.bytes+int64(len(b)))
	j.row, j.events = nil, nil
	s.scratch = b
	return true
}

// log is a snapshot of a job's events. It is read without a lock.
type log struct {
	events []*store.Event
	packed []byte // a chunk; then events is nil
}

func (j *job) log() log { return log{j.events, j.packed[j.rowLen:]} }

// at returns the event with a position.
func (l log) at(jseq uint64) (*store.Event, error) {
	l, err := l.unpack()
	if err != nil {
		return nil, err
	}
	return l.events[jseq-1], nil
}

// unpack decodes a packed log.
func (l log) unpack() (log, error) {
	if len(l.packed) == 0 {
		return l, nil
	}
	events, err := codec.DecodeChunk(l.packed, 1)
	if err != nil {
		return l, err
	}
	l = log{events: make([]*store.Event, len(events))}
	for i := range events {
		l.events[i] = &events[i]
	}
	return l, nil
}

func (l log) each(ctx context.Context, after uint64, fn func(*store.Event) bool) error {
	l, err := l.unpack()
	if err != nil {
		return err
	}
	for i := after; i < uint64(len(l.events)); i++ {
		if !fn(l.events[i]) {
			return nil
		}
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// row is a snapshot of a job's row: a copy, or packed.
type row struct {
	plain  store.Job
	packed []byte
}

func (j *job) copyRow() row {
	if j.row != nil {
		return row{plain: *j.row}
	}
	return row{plain: store.Job{ID: j.id}, packed: j.packed[:j.rowLen]}
}

func (r *row) unpack() (store.Job, error) {
	if r.packed == nil {
		return r.plain, nil
	}
	return codec.DecodeJob(r.plain.ID, r.packed)
}

// Job returns a job's row.
func (s *Store) Job(_ context.Context, id arcp.JobID) (store.Job, error) {
	r, err := s.findRow(id)
	if err != nil {
		return store.Job{}, err
	}
	return r.unpack()
}

func (s *Store) findRow(id arcp.JobID) (row, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.broken != nil {
		return row{}, s.broken
	}
	j := s.jobs[id]
	if j == nil {
		return row{}, fmt.Errorf("job %q: %w", id, store.ErrNotFound)
	}
	return j.copyRow(), nil
}

// JobEvents calls fn for a job's events after a position.
func (s *Store) JobEvents(ctx context.Context, id arcp.JobID, after uint64, fn func(*store.Event) bool) error {
	s.mu.RLock()
	j, err := s.jobs[id], s.broken
	var l log
	if j != nil {
		l = j.log()
	}
	s.mu.RUnlock()
	switch {
	case err != nil:
		return err
	case j == nil:
		return fmt.Errorf("job %q: %w", id, store.ErrNotFound)
	}
	return l.each(ctx, after, fn)
}

// LiveJobs calls fn for every job that has not ended.
func (s *Store) LiveJobs(ctx context.Context, fn func(store.Job) bool) error {
	names, err := sorted(s, s.live)
	if err != nil {
		return err
	}
	for _, id := range names {
		j, err := s.Job(ctx, id)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !j.State.Terminal() && !fn(j):
			return nil
		}
	}
	return nil
}
