package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// Bounds of checkpoints (SPEC.md §5.6).
const (
	maxCheckpoints = 10        // that are kept of a job
	maxPointData   = 512 << 10 // bytes of one
)

// checkpoint is the record of a checkpoint.
type checkpoint struct {
	ID    string   `json:"id"`
	N     uint64   `json:"n"` // of the job, from 1
	Label string   `json:"label,omitzero"`
	Data  arcp.Raw `json:"data"`
	Asked int      `json:"asked,omitzero"` // questions of the attempt so far
	Knows []byte   `json:"knows,omitzero"` // see ledger.known
}

// checkpointSlots are the records of a job's checkpoints. Checkpoint N has the slot N
// modulo maxCheckpoints, in place of the oldest one.
type checkpointSlots struct {
	last      uint64                 // N of the latest
	revisions [maxCheckpoints]uint64 // of the records; 0: unknown
}

func (c *checkpointSlots) revision(n uint64) *uint64 { return &c.revisions[n%maxCheckpoints] }

// committed records that a checkpoint is durable, and tells the tool.
func (c *checkpointSlots) committed(p *pendingCheckpoint) {
	c.last = p.N
	rev := c.revision(p.N)
	*rev = nextRev(*rev)
	if p.pause {
		p.done <- tool.ErrPaused
	} else {
		p.done <- nil
	}
}

// pendingCheckpoint is a checkpoint on its way to the store.
type pendingCheckpoint struct {
	checkpoint
	pause bool       // the attempt pauses with it
	done  chan error // buffered 1
}

func checkpointKey(id arcp.JobID, n uint64) string {
	return fmt.Sprintf("%scheckpoint/%d", store.JobRecords(id), n%maxCheckpoints)
}

func (j toolJob) Checkpoint(label string, raw arcp.Raw) error {
	raw, label = j.s.e.scrubber().bytes(raw), j.s.e.scrubber().text(label)
	if len(raw) > maxPointData {
		e := arcp.Errorf(arcp.CodeResourceExhausted, "checkpoint of %d bytes: it may have at most %d", len(raw), maxPointData)
		e.Retryable = false // it would be as large again
		return e
	}
	j.s.mu.Lock()
	if r, ok := j.s.requests.take(); ok && r.label != "" {
		label = r.label
	}
	known := j.s.ledger.known(j.s.attempt)
	j.s.mu.Unlock()
	p := &pendingCheckpoint{checkpoint: checkpoint{ID: arcp.NewID(arcp.CheckpointPrefix), Label: label, Data: raw, Knows: known},
		done: make(chan error, 1), pause: j.s.tool.Recovery == tool.RecoveryCheckpoint && j.s.e.shutdown.pausing.Load()}
	if err := j.emit(arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: p.ID, Label: label}, p); err != nil {
		return err
	}
	return <-p.done
}

func (j toolJob) Restored() arcp.Raw { return j.s.from.Data }

// checkpointRecord is the change that stores a checkpoint.
func (r jobRecords) checkpointRecord(p *checkpoint) (store.Record, error) {
	if r.checkpoints == nil {
		if _, err := r.readCheckpoints(); err != nil {
			return store.Record{}, err
		}
	}
	p.N = r.checkpoints.last + 1
	rec := store.Record{Key: checkpointKey(r.row.ID, p.N)}
	rev := r.checkpoints.revision(p.N)
	var err error
	if rec.Rev, err = r.revision(rec.Key, *rev); err != nil {
		return rec, err
	}
	*rev = rec.Rev
	rec.Value, err = arcp.Marshal(p)
	return rec, err
}

// storedCheckpoints are the checkpoints of a job that are in the store.
type storedCheckpoints [maxCheckpoints]struct {
	checkpoint        // N is 0: none
	rev        uint64 // of its record
}

func readCheckpoints(ctx context.Context, st store.Store, id arcp.JobID) (*storedCheckpoints, error) {
	k := new(storedCheckpoints)
	for i := range k {
		rec, err := st.Get(ctx, checkpointKey(id, uint64(i)))
		if err != nil {
			return nil, err
		}
		if k[i].rev = rec.Rev; rec.Rev == 0 {
			continue
		}
		if err := arcp.Unmarshal(rec.Value, &k[i].checkpoint); err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Key, err)
		}
	}
	return k, nil
}

// find returns the checkpoint with an id.
func (k *storedCheckpoints) find(id string) (checkpoint, bool) {
	for i := range k {
		if k[i].N > 0 && k[i].ID == id {
			return k[i].checkpoint, true
		}
	}
	return checkpoint{}, false
}

// latest returns the latest checkpoint; its N is 0 if there is none.
func (k *storedCheckpoints) latest() (p checkpoint) {
	for i := range k {
		if k[i].N > p.N {
			p = k[i].checkpoint
		}
	}
	return p
}

// choose returns the restore point for the checkpoint with an id; nil: there is none.
// pending says that one more checkpoint is on its way: it does not count, but may take the
// place of the oldest one.
func (k *storedCheckpoints) choose(id string, pending bool) *restorePoint {
	p, ok := k.find(id)
	last := k.latest().N
	if pending {
		last++
	}
	if !ok || p.N+maxCheckpoints <= last {
		return nil
	}
	return &restorePoint{N: p.N, After: last}
}

// restoreFrom returns the checkpoint that an attempt goes on from: the one that a client
// has chosen, until a later one is made, and else the latest.
func (k *storedCheckpoints) restoreFrom(chosen *restorePoint) (checkpoint, error) {
	p := k.latest()
	if chosen != nil && p.N <= chosen.After {
		if p = k[chosen.N%maxCheckpoints].checkpoint; p.N != chosen.N {
			return checkpoint{}, fmt.Errorf("checkpoint %d is not kept", chosen.N)
		}
	}
	return p, nil
}

// readCheckpoints reads the job's checkpoints.
func (r jobRecords) readCheckpoints() (*storedCheckpoints, error) {
	r.checkpoints = &checkpointSlots{}
	if r.attempt == 1 && r.origin == nil {
		return new(storedCheckpoints), nil
	}
	k, err := readCheckpoints(context.Background(), r.e.cfg.Store, r.row.ID)
	if err != nil {
		return nil, err
	}
	for i := range k {
		r.checkpoints.revisions[i] = k[i].rev
	}
	r.checkpoints.last = k.latest().N
	return k, nil
}

// restore loads the checkpoint of the attempt. Without one the attempt begins at the
// start. If it cannot be read the attempt fails, for it would repeat what was done.
func (s *supervisor) restore(now time.Time) {
	k, err := jobRecords{s.run}.readCheckpoints()
	var p checkpoint
	if err == nil {
		p, err = k.restoreFrom(s.progress.From)
	}
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("checkpoint of a job cannot be read")
		s.m.Fail(now, arcp.Errorf(arcp.CodeUnavailable, "the job's checkpoint cannot be read"))
		return
	}
	if p.N > 0 {
		s.from, s.questions.ordinal = p, p.Asked
		s.mu.Lock()
		s.ledger.restoreKnown(p.Knows, s.attempt)
		s.mu.Unlock()
	}
}
