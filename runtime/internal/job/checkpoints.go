package job

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// MaxCheckpoints is the number of stored checkpoints of a job (SPEC.md §5.6). A later checkpoint replaces
// the oldest one.
const MaxCheckpoints = 10

// Checkpoint is a checkpoint of a job as it is stored.
type Checkpoint struct {
	ID            string   `json:"id"`
	N             uint64   `json:"n"` // number within the job, from 1; 0: no checkpoint
	Label         string   `json:"label,omitzero"`
	Data          arcp.Raw `json:"data"`
	Questions     int      `json:"asked,omitzero"` // number of questions that the attempt had asked
	KnownChildren []byte   `json:"knows,omitzero"` // children whose outcome the attempt knew, one bit each
}

// Checkpoints are the stored checkpoints of a job. Checkpoint N has the slot N modulo MaxCheckpoints.
type Checkpoints [MaxCheckpoints]Checkpoint

// RestorePoint is a checkpoint that a client has chosen for the next attempt.
type RestorePoint struct {
	N      uint64 `json:"n"`
	Latest uint64 `json:"after"` // N of the latest checkpoint at the time of the choice: a later one replaces the choice
}

// Find returns the checkpoint with an id.
func (c *Checkpoints) Find(id string) (Checkpoint, bool) {
	for _, p := range c {
		if p.N > 0 && p.ID == id {
			return p, true
		}
	}
	return Checkpoint{}, false
}

// Latest returns the latest checkpoint; its N is 0 if there is none.
func (c *Checkpoints) Latest() (latest Checkpoint) {
	for _, p := range c {
		if p.N > latest.N {
			latest = p
		}
	}
	return latest
}

// Choose returns the restore point for the checkpoint with an id. pending says that one more checkpoint
// is being stored. It does not replace the choice, but it may overwrite the chosen checkpoint: then ok
// is false.
func (c *Checkpoints) Choose(id string, pending bool) (RestorePoint, bool) {
	chosen, ok := c.Find(id)
	last := c.Latest().N
	if pending {
		last++
	}
	if !ok || chosen.N+MaxCheckpoints <= last {
		return RestorePoint{}, false
	}
	return RestorePoint{N: chosen.N, Latest: last}, true
}

// RestoreFrom returns the checkpoint from which an attempt continues: the chosen one, or the latest one
// if there is a later one or no choice. Its N is 0 if there is none. The zero RestorePoint is no
// choice.
func (c *Checkpoints) RestoreFrom(chosen RestorePoint) (Checkpoint, error) {
	checkpoint := c.Latest()
	if chosen.N > 0 && checkpoint.N <= chosen.Latest {
		if checkpoint = c[chosen.N%MaxCheckpoints]; checkpoint.N != chosen.N {
			return Checkpoint{}, fmt.Errorf("checkpoint %d is not stored", chosen.N)
		}
	}
	return checkpoint, nil
}
