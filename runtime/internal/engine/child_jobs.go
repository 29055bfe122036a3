package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/store"
)

// ChildJobs returns the first children of a job that are stored, in the order of their calls. more reports
// whether there are others.
func ChildJobs(ctx context.Context, st store.Store, id arcp.JobID, limit int) (children []store.Job, more bool, err error) {
	entries, err := childEntries(ctx, st, id)
	for i := 0; i < len(entries) && err == nil; i++ {
		var j store.Job
		switch j, err = st.Job(ctx, entries[i].Job); {
		case errors.Is(err, store.ErrNotFound): // it was not created, or is deleted
			err = nil
		case err == nil && len(children) == limit:
			return children, true, nil
		case err == nil:
			children = append(children, j)
		}
	}
	return children, false, err
}

// childEntries returns the records of the children of a job in the order of their calls.
func childEntries(ctx context.Context, st store.Store, id arcp.JobID) (list []family.Entry, err error) {
	var bad error
	err = st.Records(ctx, childrenPrefix(id), "", func(rec store.Record) bool {
		var k family.Entry
		bad = arcp.Unmarshal(rec.Value, &k)
		list = append(list, k)
		return bad == nil
	})
	slices.SortFunc(list, func(a, b family.Entry) int { return cmp.Compare(a.N, b.N) })
	return list, errors.Join(err, bad)
}
