package artifact

import (
	"context"
	"errors"
	"io/fs"
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
	for batch := range slices.Chunk(r.compare(ids), sweepBatch) {
		if err := r.deleteLost(ctx, batch); err != nil {
			return err
		}
	}
	r.done = true
	s.removeGarbage()
	return nil
}

// compare returns the artifacts of earlier processes whose content is not in ids. Content without a row is
// garbage.
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
		if !content[id] && r.compares(id) {
			lost = append(lost, e)
		}
	}
	return lost
}

// deleteLost deletes the rows of those artifacts of a list that have no content.
func (r *recovery) deleteLost(ctx context.Context, list []*entry) error {
	s := r.store
	lost, err := r.confirm(list)
	if err != nil || len(lost) == 0 {
		return err
	}
	lost = s.markDeleting(lost)
	for _, e := range lost {
		s.opts.Logger.Warn().Str("artifact_id", string(e.row.ID)).Msg("an artifact has no content: it is deleted")
	}
	rows, err := s.read(ctx, lost)
	if err == nil {
		err = s.opts.commit(ctx, rows, func(error) {})
	}
	if err != nil {
		r.unmark(lost)
		return err
	}
	for _, e := range lost {
		s.remove(e)
	}
	return nil
}

// confirm returns the artifacts of a list whose content cannot be opened: a list of content may be incomplete.
func (r *recovery) confirm(list []*entry) (lost []*entry, err error) {
	for _, e := range list {
		content, err := r.store.opts.Content.Open(e.row.ID)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			lost = append(lost, e)
		case err != nil:
			return nil, err
		default:
			_ = content.Close() // nothing was read
		}
	}
	return lost, nil
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
