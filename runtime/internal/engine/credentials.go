package engine

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/store"
)

// provisioned reports whether a job is given credentials of its own.
func (r *run) provisioned() bool {
	return r.e.cfg.Vault != nil && !r.builtin() && r.e.cfg.Vault.Serves(r.row.Agent)
}

// enterProvisioned is enter for a job that is given credentials first. What comes
// behind it in its session waits: answers to submits leave in their order.
func (e *Engine) enterProvisioned(submit *Submit, r *run, w *store.Write, done func(made bool), placed func()) (next bool) {
	s := *submit
	settled := func() {
		e.settled(s.Session)
		s.settle()
	}
	return e.inOrder(submit, true, func() bool {
		e.wg.Add(1)
		e.pool.Run(func() {
			defer e.wg.Done()
			grant, err := e.issue(r)
			if err != nil {
				done(false)
				answer := refusalFrame(&s, arcp.JobFailed, err)
				e.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: s.Session}}, NoSync: true}, func(*store.Result) {
					s.Answers.Post(answer)
					settled()
				})
				return
			}
			w.Put(grant.Records...)
			e.cfg.Log.Append(w, func(res *store.Result) {
				made := e.claimed(&s, r, res)
				if !made {
					grant.Discard()
				}
				done(made)
				settled()
			})
			placed()
		})
		return false
	})
}

// issue has the provisioners asked, unless the runtime stops meanwhile.
func (e *Engine) issue(r *run) (*credential.Grant, *arcp.Error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	watched := make(chan struct{})
	defer close(watched)
	go func() {
		select {
		case <-e.quit:
			cancel(errShuttingDown())
		case <-watched:
		}
	}()
	grant, err := e.cfg.Vault.Issue(ctx, r.request())
	if err == nil {
		return grant, nil
	}
	e.cfg.Logger.Error().Err(err).Str("job_id", string(r.row.ID)).Str("tool", r.row.Agent).Msg("job not accepted: its credentials were not issued")
	refusal, _ := arcp.AsError(err)
	return nil, refusal
}

// request says who the job is of and what it may do.
func (r *run) request() credential.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return credential.Request{Job: r.row.ID, Principal: r.row.Principal, Agent: r.row.Agent, Lease: r.auth.Lease.RFC(),
		ExpiresAt: r.auth.Lease.ExpiresAt(), Budget: r.auth.Budget.JSON(), TraceID: r.row.TraceID}
}

// tenants are the jobs as the vault knows them.
type tenants struct{ e *Engine }

func (t tenants) Request(id arcp.JobID) (credential.Request, bool) {
	r := t.e.run(id)
	if r == nil {
		return credential.Request{}, false
	}
	return r.request(), true
}

func (t tenants) Rotated(c *credential.Rotation) {
	if r := t.e.run(c.Job); r == nil || !r.post(&rotation{Rotation: c}) {
		c.Done(errEnded)
	}
}

// rotation is a demand of the vault: that new values take the place of those of
// the job. Its supervisor writes it, so that it never meets the job's end.
type rotation struct {
	*credential.Rotation
	events  []*store.Event
	written bool // it is in the write under way
}

func (d *rotation) meet(s *supervisor, now time.Time) {
	if s.m.State().Terminal() {
		d.Done(errEnded)
		return
	}
	for _, id := range d.IDs {
		d.events = append(d.events, s.event(arcp.EventEmit, now, s.row.Priority, rotatedPayload(id)))
	}
	s.mu.Lock()
	for _, ev := range d.events {
		s.push(ev)
	}
	s.mu.Unlock()
	s.rotations = append(s.rotations, d)
	s.asked = append(s.asked, d)
}

// rotatedPayload is how the submitter learns that a credential has another value,
// which the log has not.
func rotatedPayload(id string) arcp.EventEmitPayload {
	raw, err := arcp.Marshal(struct {
		ID string `json:"id"`
	}{id})
	if err != nil { // a text
		panic("engine: credential id: " + err.Error())
	}
	return arcp.EventEmitPayload{Name: "credential_rotated", Data: raw}
}

func (d *rotation) settled(_ *supervisor, err error) {
	if err == nil && !d.written {
		err = errEnded
	}
	d.Done(err)
}

func (d *rotation) tooLate(*Engine, bool) { d.Done(errEnded) }

// addRotations adds the records of rotations to the write of their events.
func (s *supervisor) addRotations(w *store.Write) error {
	events := store.Find[*store.AppendEvents](w).Events
	for _, d := range s.rotations {
		i := slices.Index(events, d.events[0])
		if i < 0 {
			continue
		}
		records, err := d.Records(s.jseq + uint64(i) + 1)
		if err != nil {
			return err
		}
		w.Put(records...)
		d.written = true
	}
	s.rotations = nil
	return nil
}

// dropRotations takes them back: the job ends, which gives up what it has.
func (s *supervisor) dropRotations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.rotations {
		s.queue = slices.DeleteFunc(s.queue, func(ev *store.Event) bool {
			mine := slices.Contains(d.events, ev)
			if mine {
				s.bytes -= len(ev.Body)
			}
			return mine
		})
	}
	s.rotations = nil
}

// ending are the records that erase a job's credentials in the write of its end.
func (r *run) ending() ([]store.Record, error) {
	if r.e.cfg.Vault == nil {
		return nil, nil
	}
	return r.e.cfg.Vault.Ending(r.row.ID)
}

// endCredentials has them revoked once the job's end is durable.
func (r *run) endCredentials() {
	if r.e.cfg.Vault != nil {
		r.e.cfg.Vault.Ended(r.row.ID)
	}
}

// scrub takes the values of credentials out of what a tool says.
func (e *Engine) scrub(b []byte) []byte {
	if e.cfg.Vault == nil || len(b) == 0 {
		return b
	}
	return e.cfg.Vault.Scrub(b)
}

func (e *Engine) scrubText(s string) string {
	if e.cfg.Vault == nil || s == "" {
		return s
	}
	return string(e.cfg.Vault.Scrub([]byte(s)))
}

// scrubQuestion takes them out of a question, which is not the tool's afterwards.
func (e *Engine) scrubQuestion(q *approval.Row) {
	if e.cfg.Vault == nil {
		return
	}
	q.Action, q.Details, q.Default, q.Schema = e.scrubText(q.Action), e.scrub(q.Details), e.scrub(q.Default), e.scrub(q.Schema)
	q.Options = slices.Clone(q.Options)
	for i := range q.Options {
		o := &q.Options[i]
		o.ID, o.Label = e.scrubText(o.ID), e.scrubText(o.Label)
	}
	if p := q.Permission; p != nil {
		q.Permission = &arcp.PermissionTerm{Permission: e.scrubText(p.Permission), Resource: e.scrubText(p.Resource),
			Operation: e.scrubText(p.Operation), Seconds: p.Seconds}
	}
}

// scrubOutcome takes them out of what came of a job.
func (e *Engine) scrubOutcome(o *job.Outcome) {
	if e.cfg.Vault == nil {
		return
	}
	o.Value = e.scrub(o.Value)
	if o.Err == nil {
		return
	}
	err := *o.Err
	err.Message, err.Details = e.scrubText(err.Message), e.scrub(err.Details)
	if err.Cause != nil {
		err.Cause = &arcp.Cause{Code: err.Cause.Code, Message: e.scrubText(err.Cause.Message)}
	}
	o.Err = &err
}
