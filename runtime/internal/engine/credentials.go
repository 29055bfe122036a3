package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

// jobCredentials has the credentials of a job.
type jobCredentials struct {
	vault *credential.Vault // nil: no job gets credentials
	job   *definition
}

func (r *run) credentials() jobCredentials {
	return jobCredentials{vault: r.e.cfg.Vault, job: &r.definition}
}

// provisioned reports whether credentials are issued to the job.
func (jc jobCredentials) provisioned() bool {
	return jc.vault != nil && !jc.job.builtin() && jc.vault.Serves(jc.job.row.Agent)
}

// appendProvisioned is append for a job that gets credentials before its claim. The session's
// later submits wait, because the answers to submits are sent in their order.
func (s *Submit) appendProvisioned(r *run, w *store.Write, done func(created bool), placed func()) (blocks bool) {
	e := r.e
	decided := func() {
		e.order.unblock(s.Session)
		s.notifyDecided()
	}
	return e.order.perform(s, true, stepFunc(func() bool {
		e.wg.Add(1)
		e.pool.Run(func() {
			defer e.wg.Done()
			grant, err := issueCredentials(r)
			if err != nil {
				done(false)
				answer := refusalFrame(s, arcp.JobFailed, err)
				e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: s.Session}}, NoSync: true}, func(*store.Result) {
					s.Answers.AnswerAfterEvents(answer)
					decided()
				})
				return
			}
			w.Put(grant.Records...)
			e.cfg.Log.Append(w, func(res *store.Result) {
				created := s.claimCommitted(r, res)
				if !created {
					grant.Discard()
				}
				done(created)
				decided()
			})
			placed()
		})
		return true
	}))
}

// issueCredentials calls the provisioners for a job. It is cancelled when the runtime stops.
func issueCredentials(r *run) (*credential.Grant, *arcp.Error) {
	e := r.e
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	watched := make(chan struct{})
	defer close(watched)
	go func() {
		select {
		case <-e.shutdown.quitc:
			cancel(errShuttingDown())
		case <-watched:
		}
	}()
	grant, err := e.cfg.Vault.Issue(ctx, credentialRequest(r))
	if err == nil {
		return grant, nil
	}
	e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Str("tool", r.row.Agent).
		Msg("job not accepted: its credentials were not issued")
	refusal, _ := arcp.AsError(err)
	return nil, refusal
}

// credentialRequest returns the description of a job for the provisioners.
func credentialRequest(r *run) credential.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return credential.Request{Job: r.row.ID, Principal: r.row.Principal, Agent: r.row.Agent, Lease: r.authority.Lease.WireJSON(),
		ExpiresAt: r.authority.Lease.ExpiresAt(), Budget: r.authority.Budget.JSON(), TraceID: r.row.TraceID}
}

// vaultJobs gives the vault access to the jobs that have not ended.
type vaultJobs struct{ e *Engine }

func (vj vaultJobs) Request(id arcp.JobID) (credential.Request, bool) {
	r := vj.e.run(id)
	if r == nil {
		return credential.Request{}, false
	}
	return credentialRequest(r), true
}

func (vj vaultJobs) Rotated(c *credential.Rotation) {
	if r := vj.e.run(c.Job); r == nil || !r.post(&rotation{Rotation: c}) {
		c.Done(errEnded)
	}
}

// rotation is a command of the vault that replaces the values of a job's credentials. The supervisor
// writes it, so it does not race with the job's end.
type rotation struct {
	*credential.Rotation
	events  []*store.Event
	written bool // the records are in the write in progress
}

func (ro *rotation) apply(s *supervisor, now time.Time) {
	if s.machine.State().Terminal() {
		ro.Done(errEnded)
		return
	}
	for _, id := range ro.IDs {
		ro.events = append(ro.events, s.event(arcp.EventEmit, now, s.row.Priority, rotatedPayload(id)))
	}
	s.mu.Lock()
	s.events.push(ro.events...)
	s.mu.Unlock()
	s.write.rotations = append(s.write.rotations, ro)
	s.write.addCommands(ro)
}

// rotatedPayload returns the event that a credential has another value. The log does not contain the
// value.
func rotatedPayload(id string) arcp.EventEmitPayload {
	raw, err := arcp.Marshal(struct {
		ID string `json:"id"`
	}{id})
	if err != nil { // a text
		panic("engine: credential id: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: "credential_rotated", Data: raw}
}

func (ro *rotation) committed(_ *jobWriter, err error) {
	if err == nil && !ro.written {
		err = errEnded
	}
	ro.Done(err)
}

func (ro *rotation) rejected(*Engine, bool) { ro.Done(errEnded) }

// addRotations adds the records of rotations to the write of their events. lastJSeq is the position of
// the event before the write.
func (pw *pendingWrite) addRotations(w *store.Write, lastJSeq uint64) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, d := range pw.rotations {
		i := slices.Index(events, d.events[0])
		if i < 0 {
			continue
		}
		records, err := d.Records(lastJSeq + uint64(i) + 1)
		if err != nil {
			return err
		}
		w.Put(records...)
		d.written = true
	}
	pw.rotations = nil
	return nil
}

// dropRotations removes the rotations of a job that ends, because its credentials end with it. Called
// with run.mu, which guards the queue of their events.
func (pw *pendingWrite) dropRotations(q *eventQueue) {
	for _, d := range pw.rotations {
		q.remove(d.events...)
	}
	pw.rotations = nil
}

// ending returns the records that erase the job's credentials in the write of its end.
func (jc jobCredentials) ending() ([]store.Record, error) {
	if jc.vault == nil {
		return nil, nil
	}
	return jc.vault.Ending(jc.job.row.ID)
}

// end revokes the credentials once the job's end is durable.
func (jc jobCredentials) end() {
	if jc.vault != nil {
		jc.vault.Ended(jc.job.row.ID)
	}
}
