package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
)

// progress is the part of a job's state that must survive the process and is not in its row. It
// is a record of its own, which most jobs never need.
type progress struct {
	Started  time.Time `json:"started_at,omitzero"` // the first attempt; kept only for jobs with a maximum runtime
	Next     time.Time `json:"next_at,omitzero"`    // the next attempt does not start before
	Failed   int       `json:"failed,omitzero"`     // attempts that were made again for it
	Lost     int       `json:"lost,omitzero"`       // attempts whose maker was gone
	Cancel   *string   `json:"cancel,omitzero"`     // the reason of an accepted cancel
	Blocked  time.Time `json:"blocked_at,omitzero"` // since then it waits for people; kept only for jobs with a maximum runtime
	Spent    arcp.Raw  `json:"spent,omitzero"`      // of the budget
	Grants   arcp.Raw  `json:"grants,omitzero"`     // permission leases
	Swept    time.Time `json:"swept_at,omitzero"`   // until when the ends of permission leases were noticed
	Children uint64    `json:"children,omitzero"`   // that were called; each has a record
	From     *chosen   `json:"from,omitzero"`       // the checkpoint that a client wants the job to go on from
}

func progressKey(id arcp.JobID) string { return store.JobRecords(id) + "memo" }

// progressRecord is the change that stores the progress of a job.
func (r *run) progressRecord() (store.Record, error) {
	rec := store.Record{Key: progressKey(r.row.ID)}
	var err error
	if rec.Rev, err = r.revision(rec.Key, r.progressRev); err != nil {
		return rec, err
	}
	r.progressRev = rec.Rev
	r.progress.Grants = r.auth.Grants.Encode()
	rec.Value, err = arcp.Marshal(r.progress)
	return rec, err
}

// revision is that of a record, which is looked up when it is not known: the
// store does not say which one a new record has got.
func (r *run) revision(key string, known uint64) (uint64, error) {
	if known != 0 {
		return known, nil
	}
	rec, err := r.e.cfg.Store.Get(context.Background(), key) // also for a job whose tool was stopped
	return rec.Rev, err
}

// raised is the revision after a change of a record with a revision; 0 if that
// is not known.
func raised(rev uint64) uint64 {
	if rev == 0 {
		return 0
	}
	return rev + 1
}

// readProgress reads what an earlier process left.
func (r *run) readProgress(ctx context.Context) error {
	rec, err := r.e.cfg.Store.Get(ctx, progressKey(r.row.ID))
	if err != nil || rec.Rev == 0 {
		return err
	}
	r.progressRev = rec.Rev
	if err := arcp.Unmarshal(rec.Value, &r.progress); err != nil {
		return err
	}
	if err := r.restoreAuthority(); err != nil {
		r.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("what a job may do cannot be read: it may do nothing")
		r.auth = lease.Authority{Lease: lease.Nothing()}
	}
	return r.readChildren(ctx)
}

// deadline is when the job's maximum runtime is over; zero: never, or it has not
// started.
func (r *run) deadline() time.Time {
	if r.maxRuntime <= 0 || r.progress.Started.IsZero() {
		return time.Time{}
	}
	return r.progress.Started.Add(r.maxRuntime)
}

// restoreAuthority goes on with what was spent and granted.
func (r *run) restoreAuthority() error {
	var err error
	if len(r.progress.Spent) > 0 {
		if r.auth.Budget, err = lease.RestoreBudget(r.progress.Spent); err != nil {
			return err
		}
	}
	if len(r.progress.Grants) > 0 {
		err = r.auth.Grants.Decode(r.progress.Grants)
	}
	return err
}
