package pebble

import (
	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Bounds of what is stored under one key: a reader has a few of them in memory.
const (
	chunkBytes = 64 << 10
	runsLen    = 256
)

// encoder turns changes into a batch. It belongs to the committer.
type encoder struct {
	key, end, val []byte
	floors        map[arcp.SessionID]uint64 // up to where pointers are deleted
	state         codec.State
}

// size estimates how many bytes the batch of changes takes.
func (e *encoder) size(chg *sequence.Changes) int {
	n := 256
	for _, c := range chg.Jobs {
		n += codec.ChunkSize(c.Events) + 128
		if c.Created != nil {
			n += 512 + len(c.Created.Arguments) + len(c.Created.Options)
		}
	}
	return n + 128*len(chg.Sessions)
}

// encode puts changes into a batch. Setting a key of a batch that is not yet
// committed cannot fail; an error is the store's, of reading.
func (e *encoder) encode(b *pdb.Batch, chg *sequence.Changes, s *Store) error {
	before := e.state
	for _, c := range chg.Jobs {
		e.job(b, c, s)
	}
	for _, c := range chg.Sessions {
		if err := e.session(b, c, s); err != nil {
			return err
		}
	}
	for i := range chg.Follows {
		e.follow(b, &chg.Follows[i])
	}
	for i := range chg.Records {
		e.record(b, &chg.Records[i])
	}
	e.state.Deleted = chg.Deleted
	if chg.LastID != "" {
		e.state.LastID = chg.LastID
	}
	if e.state != before {
		e.val = codec.AppendState(e.val[:0], &e.state)
		must(b.Set([]byte(keyState), e.val, nil))
	}
	return nil
}

// must is for operations on a batch in memory, which fail only after it was
// committed.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (e *encoder) job(b *pdb.Batch, c *sequence.JobChange, s *Store) {
	switch {
	case c.Created != nil:
		e.created(b, c.Created)
		e.state.Jobs++
		s.jobs.Add(1)
	case c.Changed:
		e.key, e.val = jobKey(e.key[:0], tStatus, c.ID), codec.AppendStatus(e.val[:0], &c.Status)
		must(b.Set(e.key, e.val, nil))
	}
	e.chunks(b, c.ID, c.First, c.Events)
	e.key = jobKey(e.key[:0], tLive, c.ID)
	switch {
	case c.Created != nil && !c.Ended:
		must(b.Set(e.key, nil, nil))
		s.live.Add(1)
	case c.Created == nil && c.Ended:
		must(b.SingleDelete(e.key, nil)) // it was set once
		s.live.Add(-1)
	}
}

func (e *encoder) created(b *pdb.Batch, row *store.Job) {
	e.key, e.val = jobKey(e.key[:0], tJob, row.ID), codec.AppendJob(e.val[:0], row)
	must(b.Set(e.key, e.val, nil))
	e.key = indexKey(e.key[:0], row.Principal, row.CreatedAt, row.ID)
	must(b.Set(e.key, nil, nil))
	if row.IdempotencyKey != "" {
		e.key = holderKey(e.key[:0], row.Principal, row.IdempotencyKey)
		e.val = codec.AppendHolder(e.val[:0], row.ID, row.Digest)
		must(b.Set(e.key, e.val, nil))
	}
}

// chunks writes events of a job in pieces of bounded size.
func (e *encoder) chunks(b *pdb.Batch, id arcp.JobID, first uint64, events []*store.Event) {
	for len(events) > 0 {
		n, size := 1, len(events[0].Body)
		for n < len(events) && size+len(events[n].Body) <= chunkBytes {
			size += len(events[n].Body)
			n++
		}
		e.key, e.val = chunkKey(e.key[:0], id, first), codec.AppendChunk(e.val[:0], events[:n])
		must(b.Set(e.key, e.val, nil))
		events, first = events[n:], first+uint64(n)
	}
}

func (e *encoder) session(b *pdb.Batch, c *sequence.SessionChange, s *Store) error {
	if c.Row != nil {
		e.key, e.val = sessionKey(e.key[:0], tSession, c.ID), codec.AppendSession(e.val[:0], c.Row)
		must(b.Set(e.key, e.val, nil))
	}
	if c.New {
		e.state.Sessions++
		s.sessions.Add(1)
	}
	if err := e.trim(b, c, s); err != nil {
		return err
	}
	for runs := c.Runs; len(runs) > 0; {
		n := min(len(runs), runsLen)
		e.key, e.val = runsKey(e.key[:0], c.ID, runs[0].First), codec.AppendRuns(e.val[:0], runs[:n])
		must(b.Set(e.key, e.val, nil))
		runs = runs[n:]
	}
	return nil
}

func (e *encoder) follow(b *pdb.Batch, c *sequence.FollowChange) {
	e.key = followKey(e.key[:0], &c.FollowKey)
	if c.Delete {
		must(b.Delete(e.key, nil))
		return
	}
	e.val = codec.AppendFollow(e.val[:0], c)
	must(b.Set(e.key, e.val, nil))
}

func (e *encoder) record(b *pdb.Batch, c *sequence.RecordChange) {
	e.key = recordKey(e.key[:0], c.Key)
	if c.Value == nil {
		must(b.Delete(e.key, nil))
		return
	}
	e.val = codec.AppendRecord(e.val[:0], c.Rev, c.Value)
	must(b.Set(e.key, e.val, nil))
}
