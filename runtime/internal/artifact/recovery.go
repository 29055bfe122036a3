package artifact

import (
	"context"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// recovery compares the rows of earlier processes with their content, once.
type recovery struct {
	store   *Store
	started arcp.ArtifactID // ids of earlier processes are less
	done    bool
}

// run removes content without a row, and rows without content. Does nothing after it has succeeded.
func (r *recovery) run(ctx context.Context) error {
	if r.done {
		return nil
	}
	s := r.store
	ids, err := s.opts.Content.Recover()
	if err != nil {
		return err
	}
	lost := r.compare(ids)
	for _, e := range lost {
		s.opts.Logger.Warn().Str("artifact_id", string(e.row.ID)).Msg("an artifact has no content: it is deleted")
	}
	for batch := range slices.Chunk(lost, sweepBatch) {
		rows, err := s.read(ctx, batch)
		if err == nil {
			err = s.opts.commit(ctx, rows, func(error) {})
		}
		if err != nil {
			r.unmark(lost)
			return err
		}
		for _, e := range batch {
			s.remove(e)
		}
	}
	r.done = true
	s.removeGarbage()
	return nil
}

// compare returns the artifacts of earlier processes without content, marked as deleting. Their content
// without a row is garbage.
func (r *recovery) compare(ids []arcp.ArtifactID) (lost []*entry) {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	content := make(map[arcp.ArtifactID]bool, len(ids))
	for _, id := range ids {
		content[id] = true
		if s.byID[id] == nil && r.compares(id) {
			s.garbage = append(s.garbage, id)
		}
	}
	for id, e := range s.byID {
		if !content[id] && !e.deleting && r.compares(id) {
			e.deleting = true
			lost = append(lost, e)
		}
	}
	return lost
}

// compares reports whether an artifact is of an earlier process. All are during Load.
func (r *recovery) compares(id arcp.ArtifactID) bool { return !r.store.opts.Remote || id < r.started }

// unmark ends the deletion of artifacts that has failed.
func (r *recovery) unmark(list []*entry) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for _, e := range list {
		e.deleting = false
	}
}
