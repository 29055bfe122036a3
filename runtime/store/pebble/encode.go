package pebble

import (
	"slices"
	"strings"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/codec"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Bounds of a value: a reader has a few values in memory.
const (
	chunkBytes = 64 << 10
	runsLen    = 256
)

// encoder encodes changes as a batch. Only Commit uses it.
type encoder struct {
	key, end, val []byte
	prefix        []byte
	trail         trail
	deletedTo     map[string]uint64           // last deleted number, by the prefix of a trail's records
	endedSessions map[arcp.SessionID]struct{} // in this batch
	state         codec.State
	lastJob       []byte // greatest key of a job with a minted id
}

// size estimates the size of a batch in bytes.
func (e *encoder) size(chg *sequence.Changes) int {
	n := 256
	for _, c := range chg.Jobs {
		n += codec.ChunkSize(c.Events) + 128
		if c.Created != nil {
			n += 512 + len(c.Created.Arguments) + len(c.Created.Options)
		}
	}
	for _, c := range chg.Feeds {
		n += 128 + 24*len(c.Runs) + codec.ChunkSize(c.Events)
	}
	return n + 128*len(chg.Sessions)
}

// encode adds changes to a batch. An error is one of reading the store: to set a key in
// an uncommitted batch cannot fail.
func (e *encoder) encode(b *pdb.Batch, chg *sequence.Changes, s *Store) error {
	before := e.state
	slices.SortFunc(chg.Jobs, func(a, b *sequence.JobChange) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(chg.Sessions, func(a, b *sequence.SessionChange) int { return strings.Compare(string(a.ID), string(b.ID)) })
	e.setEnded(chg)
	// One table after the other: keys set in ascending order cost half.
	for _, set := range jobTables {
		for _, c := range chg.Jobs {
			set(e, b, c)
		}
	}
	for _, c := range chg.Jobs {
		e.count(c, s)
	}
	if err := e.trails(b, chg, s); err != nil {
		return err
	}
	for i := range chg.Follows {
		e.follow(b, &chg.Follows[i])
	}
	for i := range chg.Records {
		e.record(b, &chg.Records[i])
	}
	if err := e.deletions(b, chg, s); err != nil {
		return err
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

// must panics on an error of an operation on a batch in memory. Such operations fail
// only after the batch was committed.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// jobTables set the keys of a changed job, one table each.
var jobTables = [...]func(*encoder, *pdb.Batch, *sequence.JobChange){
	(*encoder).submitted, (*encoder).holder,
	(*encoder).row, (*encoder).chunks, (*encoder).live, (*encoder).status, (*encoder).index, (*encoder).ended,
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

// submitted sets the key that finds a new job by its SubmitID.
func (e *encoder) submitted(b *pdb.Batch, c *sequence.JobChange) {
	row := c.Created
	if row == nil || row.Session == "" || row.SubmitID == "" || e.hasEnded(row.Session) {
		return
	}
	e.key, e.val = submitKey(e.key[:0], row.Session, row.SubmitID), codec.AppendSubmitted(e.val[:0], c.ID)
	must(b.Set(e.key, e.val, nil))
}

func (e *encoder) ended(b *pdb.Batch, c *sequence.JobChange) {
	if c.Ended {
		e.key = endedKey(e.key[:0], c.Status.EndedAt, c.ID)
		must(b.Set(e.key, nil, nil))
	}
}

// status writes the status of an older job. The row of a new job has it.
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
		must(b.SingleDelete(e.key, nil)) // the key was set once
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

func (e *encoder) chunks(b *pdb.Batch, c *sequence.JobChange) {
	e.prefix = jobKey(e.prefix[:0], tChunk, c.ID)
	e.putEvents(b, e.prefix, c.First, c.Events)
}

// putEvents writes consecutive events in pieces of bounded size.
func (e *encoder) putEvents(b *pdb.Batch, prefix []byte, first uint64, events []*store.Event) {
	for len(events) > 0 {
		n, size := 1, len(events[0].Body)
		for n < len(events) && size+len(events[n].Body) <= chunkBytes {
			size += len(events[n].Body)
			n++
		}
		e.key, e.val = numberKey(e.key[:0], prefix, first), codec.AppendChunk(e.val[:0], events[:n])
		must(b.Set(e.key, e.val, nil))
		events, first = events[n:], first+uint64(n)
	}
}

// trails writes the rows and logs of sessions that have not ended, and feeds.
func (e *encoder) trails(b *pdb.Batch, chg *sequence.Changes, s *Store) error {
	for _, c := range chg.Sessions {
		if c.Ended {
			continue
		}
		e.session(b, c, s)
		e.trail.setSession(c.ID)
		if err := e.putTrail(b, &c.TrailChange, c.Row != nil, s); err != nil {
			return err
		}
	}
	for _, c := range chg.Feeds {
		e.trail.setFeed(c.Principal)
		if err := e.putTrail(b, &c.TrailChange, false, s); err != nil {
			return err
		}
		e.announced(b, c)
	}
	return nil
}

// announced writes the announced events of the feed in e.trail.
func (e *encoder) announced(b *pdb.Batch, c *sequence.FeedChange) {
	events := c.Events
	for i := range c.Runs {
		if r := &c.Runs[i]; r.Job == "" {
			e.putEvents(b, e.trail.announced, r.First, events[:r.N])
			events = events[r.N:]
		}
	}
}

func (e *encoder) session(b *pdb.Batch, c *sequence.SessionChange, s *Store) {
	if c.Row != nil {
		e.key, e.val = sessionKey(e.key[:0], tSession, c.ID), codec.AppendSession(e.val[:0], c.Row)
		must(b.Set(e.key, e.val, nil))
	}
	if c.New {
		e.state.Sessions++
		s.sessions.Add(1)
	}
}

func (e *encoder) follow(b *pdb.Batch, c *sequence.FollowChange) {
	if e.hasEnded(c.Session) {
		return
	}
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
