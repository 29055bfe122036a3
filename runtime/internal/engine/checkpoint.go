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
	keptPoints   = 10        // of a job
	maxPointData = 512 << 10 // of one
)

// point is a checkpoint as it is kept.
type point struct {
	ID    string   `json:"id"`
	N     uint64   `json:"n"` // of the job, from 1
	Label string   `json:"label,omitzero"`
	Data  arcp.Raw `json:"data"`
	Asked int      `json:"asked,omitzero"` // questions of the attempt so far
	Knows []byte   `json:"knows,omitzero"` // the children whose outcome it knows
}

// points is what the runtime knows of a job's checkpoints. They take turns in a
// fixed number of records.
type points struct {
	last      uint64             // N of the latest
	revisions [keptPoints]uint64 // of the records; 0: unknown
}

// saving is a checkpoint on its way to the store.
type saving struct {
	point
	pause bool // the attempt ends with it
	done  chan error
}

func pointKey(id arcp.JobID, n uint64) string {
	return fmt.Sprintf("%scheckpoint/%d", store.JobRecords(id), n%keptPoints)
}

func (j toolJob) Checkpoint(label string, raw arcp.Raw) error {
	raw, label = j.s.e.scrub(raw), j.s.e.scrubText(label)
	if len(raw) > maxPointData {
		e := arcp.Errorf(arcp.CodeResourceExhausted, "checkpoint of %d bytes: it may have at most %d", len(raw), maxPointData)
		e.Retryable = false // it would be as large again
		return e
	}
	if w, ok := j.s.wish(); ok && w.label != "" {
		label = w.label
	}
	p := &saving{point: point{ID: arcp.NewID(arcp.CheckpointPrefix), Label: label, Data: raw, Knows: j.s.knows()}, done: make(chan error, 1),
		pause: j.s.tool.Recovery == tool.RecoveryCheckpoint && j.s.e.pausing.Load()}
	if err := j.s.emit(arcp.JobCheckpoint, arcp.JobCheckpointPayload{CheckpointID: p.ID, Label: label}, p); err != nil {
		return err
	}
	return <-p.done
}

func (j toolJob) Restored() arcp.Raw { return j.s.restored }

// pointRecord is the change that stores a checkpoint, in place of the oldest.
func (r *run) pointRecord(p *point) (store.Record, error) {
	if r.points == nil {
		if _, err := r.readPoints(); err != nil {
			return store.Record{}, err
		}
	}
	p.N = r.points.last + 1
	rec := store.Record{Key: pointKey(r.row.ID, p.N)}
	var err error
	if rec.Rev, err = r.revision(rec.Key, r.points.revisions[p.N%keptPoints]); err != nil {
		return rec, err
	}
	r.points.revisions[p.N%keptPoints] = rec.Rev
	rec.Value, err = arcp.Marshal(p)
	return rec, err
}

// saved tells the tool that its checkpoint is durable.
func (r *run) saved(p *saving) {
	r.points.last = p.N
	rev := &r.points.revisions[p.N%keptPoints]
	*rev = raised(*rev)
	if p.pause {
		p.done <- tool.ErrPaused
	} else {
		p.done <- nil
	}
}

// storedCheckpoints are the checkpoints of a job that are in the store.
type storedCheckpoints [keptPoints]struct {
	point        // N is 0: none
	rev   uint64 // of its record
}

func (e *Engine) kept(ctx context.Context, id arcp.JobID) (*storedCheckpoints, error) {
	k := new(storedCheckpoints)
	for i := range k {
		rec, err := e.cfg.Store.Get(ctx, pointKey(id, uint64(i)))
		if err != nil {
			return nil, err
		}
		if k[i].rev = rec.Rev; rec.Rev == 0 {
			continue
		}
		if err := arcp.Unmarshal(rec.Value, &k[i].point); err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Key, err)
		}
	}
	return k, nil
}

// find returns the checkpoint with an id.
func (k *storedCheckpoints) find(id string) (point, bool) {
	for i := range k {
		if k[i].N > 0 && k[i].ID == id {
			return k[i].point, true
		}
	}
	return point{}, false
}

// latest returns the last one; its N is 0 if there is none.
func (k *storedCheckpoints) latest() (p point) {
	for i := range k {
		if k[i].N > p.N {
			p = k[i].point
		}
	}
	return p
}

// readPoints reads the job's checkpoints.
func (r *run) readPoints() (*storedCheckpoints, error) {
	r.points = &points{}
	if r.attempt == 1 && r.origin == nil {
		return new(storedCheckpoints), nil
	}
	k, err := r.e.kept(context.Background(), r.row.ID)
	if err != nil {
		return nil, err
	}
	for i := range k {
		r.points.revisions[i] = k[i].rev
	}
	r.points.last = k.latest().N
	return k, nil
}

// goesOn returns the checkpoint that an attempt goes on from: the one that was
// chosen, until a later one was made, and else the latest.
func (m *progress) goesOn(k *storedCheckpoints) (point, error) {
	p := k.latest()
	if c := m.From; c != nil && p.N <= c.After {
		if p = k[c.N%keptPoints].point; p.N != c.N {
			return point{}, fmt.Errorf("checkpoint %d is not kept", c.N)
		}
	}
	return p, nil
}

// restore gives the attempt what its checkpoint has kept. An attempt that has
// none begins at the start; one whose checkpoint cannot be read fails, or it
// would do again what was done.
func (s *supervisor) restore(now time.Time) {
	k, err := s.readPoints()
	var p point
	if err == nil {
		p, err = s.progress.goesOn(k)
	}
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("checkpoint of a job cannot be read")
		s.m.Fail(now, arcp.Errorf(arcp.CodeUnavailable, "the job's checkpoint cannot be read"))
		return
	}
	if p.N > 0 {
		s.from, s.restored, s.ordinal = p, p.Data, p.Asked
		s.recall(p.Knows)
	}
}
