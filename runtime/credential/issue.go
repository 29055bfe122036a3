package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Grant holds the credentials issued to a job that is not accepted yet.
type Grant struct {
	// Records belong into the accepting write, which makes the credentials live.
	Records []store.Record
	// Credentials are for the payload of job.accepted, without their values.
	Credentials []arcp.Credential

	v   *Vault
	job arcp.JobID
}

// Discard reports that the accepting write failed or that its outcome is unknown. The
// credentials are revoked unless the job exists. Discard does not block.
func (g *Grant) Discard() {
	if g.v != nil {
		g.v.Ended(g.job)
	}
}

var errClosing = arcp.Errorf(arcp.CodeUnavailable, "the runtime is shutting down")

// Issue requests credentials from every provisioner that serves the job's tool. The job must
// not exist yet. After nil the caller commits Records with the job, or calls Discard. After an
// error all issued credentials are revoked in the background. An *arcp.Error in the error's
// chain is for the client, the rest of it for the log.
func (v *Vault) Issue(ctx context.Context, r Request) (*Grant, error) {
	g := &Grant{v: v, job: r.Job}
	if !v.Serves(r.Agent) {
		return g, nil
	}
	if err := validJob(r.Job); err != nil {
		return nil, fmt.Errorf("issue credentials: %w", err)
	}
	if !v.enter() {
		return nil, errClosing
	}
	defer v.wg.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(v.ctx, func() { cancel(errClosing) })()
	for i := range v.opts.Sources {
		s := v.sources[i]
		if !s.serves(r.Agent) {
			continue
		}
		if err := s.grant(ctx, &r, g); err != nil {
			g.Discard()
			return nil, fmt.Errorf("provisioner %s: %w", s.Name, err)
		}
	}
	return g, nil
}

// grant calls one provisioner and adds its credentials to g.
func (s *source) grant(ctx context.Context, r *Request, g *Grant) error {
	v := s.v
	if n := s.unrevoked.Load(); n >= int64(v.opts.MaxUnrevoked) {
		return arcp.Errorf(arcp.CodeUnavailable, "no more credentials are issued until earlier ones are revoked")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, issueTimeout, errTimeout)
	defer cancel()
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	first := *r
	first.Generation = 1
	f := newStored(row{Job: r.Job, Source: s.Name, Principal: r.Principal, Agent: r.Agent, State: Intent, CreatedAt: time.Now()})
	if err := s.writeIntent(&f); err != nil {
		return err
	}
	list, err := s.Provisioner.Issue(ctx, first)
	if err == nil {
		err = checkAll(list, r)
	}
	if err != nil {
		return s.failed(ctx, &f, err)
	}
	v.countOperation("issue", "ok")
	return s.issued(&f, list, g)
}

var errTimeout = arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner did not answer in time")

// acquire waits until fewer than maxCalls requests to the provisioner are running.
func (s *source) acquire(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		return arcp.Errorf(arcp.CodeResourceExhausted, "too many jobs wait for their credentials").RetryAfter(1)
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *source) release() { <-s.slots }

// writeIntent makes the intent durable before the provisioner is called: after a crash without an
// answer the intent is revoked. The commit does not use the caller's context, because a
// cancelled commit has an unknown outcome.
func (s *source) writeIntent(f *stored) error {
	err := s.v.insert(f)
	if err == nil {
		return nil
	}
	if !errors.Is(err, store.ErrConflict) { // a conflict is with the row of another call
		s.enqueue(&task{key: f.Key, n: 1})
	}
	return fmt.Errorf("record the intent: %w", err)
}

// failed cleans up after a provisioner that has issued no usable credentials.
func (s *source) failed(ctx context.Context, f *stored, err error) error {
	v := s.v
	if ctx.Err() != nil {
		err = context.Cause(ctx) // more precise than the provisioner's error
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		v.countOperation("issue", "refused")
		if v.erase(v.ctx, f) == nil {
			return err
		}
	} else {
		v.countOperation("issue", "error")
	}
	s.enqueue(&task{key: f.Key, n: 1})
	return err
}

// checkAll validates the credentials in a provisioner's answer and sets their defaults.
func checkAll(list []Credential, r *Request) error {
	bad := func(why string) error {
		return fmt.Errorf("%w: %s", arcp.Errorf(arcp.CodeInternal, "the credential provisioner gave an answer that cannot be used"), why)
	}
	if len(list) == 0 || len(list) > maxIssued {
		return bad(fmt.Sprintf("%d credentials, not 1 to %d", len(list), maxIssued))
	}
	ids := make(map[string]bool)
	for i := range list {
		c := &list[i]
		err := c.check()
		if err == nil && ids[c.ID] {
			err = errors.New("its id is that of another one")
		}
		if err == nil {
			limits := *r
			if !c.ExpiresAt.IsZero() {
				limits.ExpiresAt = c.ExpiresAt
			}
			c.Constraints, err = constraints(c.Constraints, &limits)
		}
		if err != nil {
			return bad(fmt.Sprintf("credential %d: %v", i+1, err))
		}
		ids[c.ID] = true
	}
	return nil
}

// constraints returns the provisioner's constraints, or by default the constraints of the
// lease.
func constraints(own arcp.Raw, r *Request) (arcp.Raw, error) {
	if len(own) > 0 {
		return own, nil
	}
	members := make(map[string]arcp.Raw)
	if len(r.Lease) > 0 && r.Lease.Kind() == '{' {
		if err := arcp.Unmarshal(r.Lease, &members); err != nil {
			return nil, fmt.Errorf("the lease: %w", err)
		}
	}
	if members["expires_at"] == nil && !r.ExpiresAt.IsZero() {
		at, err := arcp.Marshal(r.ExpiresAt)
		if err != nil {
			return nil, err
		}
		members["expires_at"] = at
	}
	if len(members) == 0 {
		return nil, nil
	}
	return arcp.Marshal(members)
}

// issued records the handles to revoke, and prepares the record that makes the row live. Only
// the latter contains the value.
func (s *source) issued(f *stored, list []Credential, g *Grant) error {
	v, r := s.v, &f.Value
	r.State = Issued
	for i := range list {
		r.Parts = append(r.Parts, part{ID: list[i].ID, Upstream: list[i].Upstream})
	}
	if err := v.write(v.ctx, f); err != nil {
		s.enqueue(&task{key: f.Key, n: r.count()})
		return fmt.Errorf("record the issued credentials: %w", err)
	}
	live := *r
	live.State, live.Parts = Live, v.seal(r.Job, list)
	rec, err := live.record(f.Rev)
	if err != nil {
		s.enqueue(&task{key: f.Key, n: r.count()})
		return err
	}
	for i := range live.Parts {
		g.Credentials = append(g.Credentials, live.Parts[i].public())
	}
	g.Records = append(g.Records, rec)
	v.activate(grantOf(&live, f.Rev+1, list))
	return nil
}

// seal returns the stored form of credentials, with their values encrypted.
func (v *Vault) seal(job arcp.JobID, list []Credential) []part {
	parts := make([]part, len(list))
	for i := range list {
		c := &list[i]
		parts[i] = part{ID: c.ID, Upstream: c.Upstream, Endpoint: c.Endpoint, Profile: c.Profile, Constraints: c.Constraints,
			ExpiresAt: c.ExpiresAt, Sealed: v.opts.Sealer.Seal(job, c.ID, c.Value)}
	}
	return parts
}

// grantOf returns a row together with the values of its credentials. rev is the revision of
// the row once it is live.
func grantOf(r *row, rev uint64, list []Credential) *grant {
	g := &grant{row: *r, rev: rev, values: make([]Secret, len(list))}
	for i := range list {
		g.values[i] = list[i].Value
	}
	return g
}
