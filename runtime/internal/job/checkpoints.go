package job

import (
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// MaxCheckpoints is the number of checkpoints that are kept of a job (SPEC.md §5.6).
const MaxCheckpoints = 10

// Checkpoint is a checkpoint of a job as it is stored.
type Checkpoint struct {
	ID    string   `json:"id"`
	N     uint64   `json:"n"` // of the job, from 1; 0: no checkpoint
	Label string   `json:"label,omitzero"`
	Data  arcp.Raw `json:"data"`
	Asked int      `json:"asked,omitzero"` // questions of the attempt so far
	Knows []byte   `json:"knows,omitzero"` // children whose outcome the attempt knew, a bit each
}

// Checkpoints are the stored checkpoints of a job. Checkpoint N has the slot N modulo
// MaxCheckpoints, in place of the oldest one.
type Checkpoints [MaxCheckpoints]Checkpoint

// RestorePoint is a checkpoint that a client has chosen for the next attempt.
type RestorePoint struct {
	N     uint64 `json:"n"`
	After uint64 `json:"after"` // the latest when it was chosen: a later one counts instead
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

// Choose returns the restore point for the checkpoint with an id. pending says that one more
// checkpoint is on its way: it does not count, but may take the place of the oldest one.
func (c *Checkpoints) Choose(id string, pending bool) (RestorePoint, bool) {
	p, ok := c.Find(id)
	last := c.Latest().N
	if pending {
		last++
	}
	if !ok || p.N+MaxCheckpoints <= last {
		return RestorePoint{}, false
	}
	return RestorePoint{N: p.N, After: last}, true
}

// RestoreFrom returns the checkpoint from which an attempt continues: the chosen one until a
// later one is made, otherwise the latest. Its N is 0 if there is none. A zero chosen is no
// choice.
func (c *Checkpoints) RestoreFrom(chosen RestorePoint) (Checkpoint, error) {
	p := c.Latest()
	if chosen.N > 0 && p.N <= chosen.After {
		if p = c[chosen.N%MaxCheckpoints]; p.N != chosen.N {
			return Checkpoint{}, fmt.Errorf("checkpoint %d is not kept", chosen.N)
		}
	}
	return p, nil
}
