package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// maxCheckpointData bounds the data of a checkpoint, in bytes (SPEC.md §5.6).
const maxCheckpointData = 512 << 10

// checkpointSlots are the records of a job's checkpoints. Checkpoint N has the slot N modulo
// job.MaxCheckpoints: it replaces the oldest one.
type checkpointSlots struct {
	last      uint64                     // N of the latest
	revisions [job.MaxCheckpoints]uint64 // of the records; 0: unknown
}

func (c *checkpointSlots) revision(n uint64) *uint64 { return &c.revisions[n%job.MaxCheckpoints] }

// committed records that a checkpoint is durable, and unblocks the tool.
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
	job.Checkpoint
	pause bool       // the attempt pauses with it
	done  chan error // buffered 1
}

func checkpointKey(id arcp.JobID, n uint64) string {
	return fmt.Sprintf("%scheckpoint/%d", store.JobRecordPrefix(id), n%job.MaxCheckpoints)
}

func (j toolJob) Checkpoint(label string, raw arcp.Raw) error {
	raw, label = j.s.e.cfg.scrubber().bytes(raw), j.s.e.cfg.scrubber().text(label)
	if len(raw) > maxCheckpointData {
		e := arcp.Errorf(arcp.CodeResourceExhausted, "checkpoint of %d bytes: it may have at most %d", len(raw), maxCheckpointData)
		e.Retryable = false // it would be as large again
		return e
	}
	j.s.mu.Lock()
	if r, ok := j.s.requests.next(); ok && r.label != "" {
		label = r.label
	}
	known := j.s.ledger.Known(j.s.attempt)
	j.s.mu.Unlock()
	p := &pendingCheckpoint{Checkpoint: job.Checkpoint{ID: arcp.NewID(arcp.CheckpointPrefix), Label: label, Data: raw, KnownChildren: known},
		done: make(chan error, 1), pause: j.s.tool.Recovery == tool.RecoveryCheckpoint && j.s.e.shutdown.pausing.Load()}
	if err := j.emit(arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: p.ID, Label: label}, p); err != nil {
		return err
	}
	return <-p.done
}

func (j toolJob) Restored() arcp.Raw { return j.s.checkpoint.Data }

// checkpoint is the change that stores a checkpoint. It numbers the checkpoint.
func (jr jobRecords) checkpoint(slots *checkpointSlots, p *job.Checkpoint) (store.Record, error) {
	p.N = slots.last + 1
	rec := store.Record{Key: checkpointKey(jr.job, p.N)}
	rev := slots.revision(p.N)
	var err error
	if rec.Rev, err = jr.revision(rec.Key, *rev); err != nil {
		return rec, err
	}
	*rev = rec.Rev
	rec.Value, err = arcp.Marshal(p)
	return rec, err
}

// readCheckpoints reads the checkpoints of a job, and the revisions of their records.
func readCheckpoints(ctx context.Context, st store.Store, id arcp.JobID) (*job.Checkpoints, checkpointSlots, error) {
	k, slots := new(job.Checkpoints), checkpointSlots{}
	for i := range k {
		rec, err := st.Get(ctx, checkpointKey(id, uint64(i)))
		if err != nil {
			return nil, checkpointSlots{}, err
		}
		if slots.revisions[i] = rec.Rev; rec.Rev == 0 {
			continue
		}
		if err := arcp.Unmarshal(rec.Value, &k[i]); err != nil {
			return nil, checkpointSlots{}, fmt.Errorf("%s: %w", rec.Key, err)
		}
	}
	slots.last = k.Latest().N
	return k, slots, nil
}

// readCheckpoints reads the job's checkpoints.
func (r *run) readCheckpoints() (*job.Checkpoints, error) {
	r.checkpoints = new(checkpointSlots)
	if r.attempt == 1 && r.restoredFrom == nil {
		return new(job.Checkpoints), nil
	}
	k, slots, err := readCheckpoints(context.Background(), r.e.cfg.Store, r.row.ID)
	*r.checkpoints = slots
	return k, err
}

// restore loads the checkpoint of the attempt. Without one the attempt begins at the start. If
// it cannot be read the attempt fails, because otherwise it would repeat completed work.
func (s *supervisor) restore(now time.Time) {
	k, err := s.readCheckpoints()
	var p job.Checkpoint
	if err == nil {
		var chosen job.RestorePoint
		if s.progress.Chosen != nil {
			chosen = s.progress.Chosen.RestorePoint
		}
		p, err = k.RestoreFrom(chosen)
	}
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("checkpoint of a job cannot be read")
		s.machine.Fail(now, arcp.Errorf(arcp.CodeUnavailable, "the job's checkpoint cannot be read"))
		return
	}
	if p.N > 0 {
		s.checkpoint = p
		s.questions.SetAsked(p.Questions)
		s.mu.Lock()
		s.ledger.RestoreKnown(p.KnownChildren, s.attempt)
		s.mu.Unlock()
	}
}
