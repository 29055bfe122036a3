package pebble

import (
	"slices"
	"strings"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
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
	lastJob       []byte // the greatest key of a job with a minted id
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
	slices.SortFunc(chg.Jobs, func(a, b *sequence.JobChange) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(chg.Sessions, func(a, b *sequence.SessionChange) int { return strings.Compare(string(a.ID), string(b.ID)) })
	// A table at a time: keys that are set in their order cost half.
	for _, set := range jobTables {
		for _, c := range chg.Jobs {
			set(e, b, c)
		}
	}
	for _, c := range chg.Jobs {
		e.count(c, s)
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

// jobTables set the keys of a changed job, each in one table.
var jobTables = [...]func(*encoder, *pdb.Batch, *sequence.JobChange){
	(*encoder).row, (*encoder).chunks, (*encoder).live, (*encoder).index, (*encoder).status, (*encoder).holder,
}

func (e *encoder) row(b *pdb.Batch, c *sequence.JobChange) {
	if c.Created == nil {
		return
	}
	e.key, e.val = jobKey(e.key[:0], tJob, c.ID), codec.AppendJob(e.val[:0], c.Created)
	must(b.Set(e.key, e.val, nil))
	if e.key[len(tJob)] == codec.MintedID && string(e.key) > string(e.lastJob) {
		e.lastJob = append(e.lastJob[:0], e.key...)
	}
}

func (e *encoder) index(b *pdb.Batch, c *sequence.JobChange) {
	if c.Created == nil {
		return
	}
	e.key = indexKey(e.key[:0], c.Created.Principal, c.Created.CreatedAt, c.ID)
	must(b.Set(e.key, nil, nil))
}

func (e *encoder) holder(b *pdb.Batch, c *sequence.JobChange) {
	if c.Created == nil || c.Created.IdempotencyKey == "" {
		return
	}
	e.key = holderKey(e.key[:0], c.Created.Principal, c.Created.IdempotencyKey)
	e.val = codec.AppendHolder(e.val[:0], c.ID, c.Created.Digest)
	must(b.Set(e.key, e.val, nil))
}

// status writes what has changed of an older job; a new one's row has it.
func (e *encoder) status(b *pdb.Batch, c *sequence.JobChange) {
	if c.Created != nil || !c.Changed {
		return
	}
	e.key, e.val = jobKey(e.key[:0], tStatus, c.ID), codec.AppendStatus(e.val[:0], &c.Status)
	must(b.Set(e.key, e.val, nil))
}

func (e *encoder) live(b *pdb.Batch, c *sequence.JobChange) {
	e.key = jobKey(e.key[:0], tLive, c.ID)
	switch {
	case c.Created != nil && !c.Ended:
		must(b.Set(e.key, nil, nil))
	case c.Created == nil && c.Ended:
		must(b.SingleDelete(e.key, nil)) // it was set once
	}
}

func (e *encoder) count(c *sequence.JobChange, s *Store) {
	if c.Created != nil {
		e.state.Jobs++
		s.jobs.Add(1)
		s.live.Add(1)
	}
	if c.Ended {
		s.live.Add(-1)
	}
}

// chunks writes events of a job in pieces of bounded size.
func (e *encoder) chunks(b *pdb.Batch, c *sequence.JobChange) {
	events, first := c.Events, c.First
	for len(events) > 0 {
		n, size := 1, len(events[0].Body)
		for n < len(events) && size+len(events[n].Body) <= chunkBytes {
			size += len(events[n].Body)
			n++
		}
		e.key, e.val = chunkKey(e.key[:0], c.ID, first), codec.AppendChunk(e.val[:0], events[:n])
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
