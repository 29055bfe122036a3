package engine

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// progressRow is the state of a job that survives the process and is not in the job's row. It has a
// record of its own. Most jobs have none.
type progressRow struct {
	job.Attempts
	Cancel   *string           `json:"cancel,omitzero"`    // reason of an accepted cancel
	Spent    arcp.Raw          `json:"spent,omitzero"`     // of the budget
	Grants   arcp.Raw          `json:"grants,omitzero"`    // permission leases
	Swept    time.Time         `json:"swept_at,omitzero"`  // until then the expiries of permission leases are counted
	Children uint64            `json:"children,omitzero"`  // that were called; each has a record
	Chosen   *chosenCheckpoint `json:"from,omitzero"`      // the checkpoint that a client has chosen
	Owners   []arcp.SessionID  `json:"owners,omitzero"`    // to which the job was handed over, the latest last
	NoWorker *noWorkerRow      `json:"no_worker,omitzero"` // since when no worker is connected
}

// progressState is the progress of a job and the state of its record.
type progressState struct {
	progressRow
	rev     uint64 // of the record; 0: unknown
	unsaved bool   // the record is to be written

	toolError toolError // the last one
}

// toolError is an error of code outside the runtime. Its message may repeat arguments and results.
type toolError struct {
	err     *arcp.Error // nil: there is none
	logText string      // the text that the log may have; empty: none
}

// endBlock ends the wait for an answer when the attempt ends.
func (p *progressState) endBlock(now time.Time) {
	if !p.Blocked.IsZero() {
		p.Unblock(now)
		p.unsaved = true
	}
}

// committed records that the record is written, if it had to be.
func (p *progressState) committed() {
	if p.unsaved {
		p.rev, p.unsaved = nextRev(p.rev), false
	}
}

// jobRecords reads the records of a job, and makes their changes.
type jobRecords struct {
	store store.Store
	job   arcp.JobID
}

func (r *run) records() jobRecords { return jobRecords{store: r.e.cfg.Store, job: r.row.ID} }

func progressKey(id arcp.JobID) string { return store.JobRecordPrefix(id) + "memo" }

// progress is the change of the progress record. grants are the permission leases, encoded.
func (jr jobRecords) progress(p *progressState, grants arcp.Raw) (store.Record, error) {
	rec := store.Record{Key: progressKey(jr.job)}
	var err error
	if rec.Rev, err = jr.revision(rec.Key, p.rev); err != nil {
		return rec, err
	}
	p.rev, p.Grants = rec.Rev, grants
	rec.Value, err = arcp.Marshal(p.progressRow)
	return rec, err
}

// revision returns the revision of a record. It reads the store if known is 0: the result of a write
// does not have the revision of a new record.
func (jr jobRecords) revision(key string, known uint64) (uint64, error) {
	if known != 0 {
		return known, nil
	}
	rec, err := jr.store.Get(context.Background(), key) // the context of a stopped tool has ended
	return rec.Rev, err
}

// nextRev is the revision after a change of a record; 0: unknown.
func nextRev(rev uint64) uint64 {
	if rev == 0 {
		return 0
	}
	return rev + 1
}

// readProgress reads the progress, the authority and the ledger from the store.
func (r *run) readProgress(ctx context.Context) error {
	rec, err := r.e.cfg.Store.Get(ctx, progressKey(r.row.ID))
	if err != nil || rec.Rev == 0 {
		return err
	}
	r.progress.rev = rec.Rev
	if err := arcp.Unmarshal(rec.Value, &r.progress.progressRow); err != nil {
		return err
	}
	if len(r.progress.Owners) > 0 {
		r.entry.handedTo.Store(&r.progress.Owners)
	}
	if err := r.authority.Restore(r.progress.Spent, r.progress.Grants); err != nil {
		r.e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Msg("authority of a job cannot be read: the job may do nothing")
	}
	if r.progress.Children == 0 {
		return nil
	}
	return r.records().readLedger(ctx, &r.ledger)
}
