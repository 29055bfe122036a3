package credential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// margin is the minimum time between a rotation and the credential's end, and between an issue
// and the next rotation. The latter limits the rate for credentials with a very short life.
const margin = 10 * time.Second

// Jobs is the vault's view of the job engine. Its methods are called by many goroutines and
// must not block.
type Jobs interface {
	// Request returns the principal, lease and budget of a job as of now, or false if the job is
	// unknown or has ended.
	Request(job arcp.JobID) (Request, bool)

	// Rotated commits a rotation, unless the job has ended. One write contains consecutive events,
	// one for each of r.IDs, and r.Records. Rotated calls r.Done before the events are delivered.
	Rotated(r *Rotation)
}

// RotateFor sets the job engine. It is called before Recover; without it nothing is rotated.
func (v *Vault) RotateFor(jobs Jobs) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.jobs = jobs
}

// Rotation is a new generation of a job's credentials from one provisioner, on its way to
// replace the present one.
type Rotation struct {
	Job arcp.JobID
	IDs []string // of the credentials, the same in all generations

	v     *Vault
	from  *grant     // previous generation
	to    *grant     // new generation
	donec chan error // buffered 1
}

// Records returns the records that make the new generation live and retire the previous one.
// at is the position of the first event in the job's log.
func (r *Rotation) Records(at uint64) ([]store.Record, error) {
	r.to.row.State, r.to.row.Announced = Live, at
	live, err := r.to.row.record(r.to.rev - 1)
	if err != nil {
		return nil, err
	}
	old := r.from.row.replaced(&r.to.row)
	retired := store.Record{Key: old.key(), Rev: r.from.rev}
	if len(old.Parts) > 0 {
		if retired, err = old.record(r.from.rev); err != nil {
			return nil, err
		}
	}
	return []store.Record{live, retired}, nil
}

// Done reports the outcome of the write, once. After nil the new values are in use. Done does
// not block.
func (r *Rotation) Done(err error) {
	if err == nil {
		r.v.mu.Lock()
		r.from.pending = false
		r.v.mu.Unlock()
		r.v.activate(r.to)
	}
	r.donec <- err
}

// replaced returns the row of the replaced generation, reduced to the credentials to revoke. A
// credential is left out if by has the same handle, because the upstream gave that handle a
// new value. A credential without a handle is left out too; by.Unknown has it revoked later.
func (r row) replaced(by *row) row {
	r.Unknown = false // which is by's now
	old := r.revoking()
	old.Parts = slices.DeleteFunc(old.Parts, func(p part) bool {
		return p.Upstream == "" || slices.ContainsFunc(by.Parts, func(q part) bool { return q.Upstream == p.Upstream })
	})
	return old
}

// unnamed reports whether a credential lacks a handle.
func (r *row) unnamed() bool {
	return slices.ContainsFunc(r.Parts, func(p part) bool { return p.Upstream == "" })
}

// expires returns the earliest end of the credentials; zero: none ends.
func (r *row) expires() (end time.Time) {
	for i := range r.Parts {
		if e := r.Parts[i].ExpiresAt; !e.IsZero() && (end.IsZero() || e.Before(end)) {
			end = e
		}
	}
	return end
}

// rotateAt returns the time of the next rotation, after four fifths of the credentials' life;
// zero: never.
func (r *row) rotateAt() time.Time {
	end := r.expires()
	if end.IsZero() {
		return end
	}
	life := end.Sub(r.CreatedAt)
	at := r.CreatedAt.Add(life - life/5)
	if latest := end.Add(-margin); at.After(latest) {
		at = latest
	}
	if earliest := r.CreatedAt.Add(max(life/2, margin)); at.Before(earliest) {
		at = earliest
	}
	return at
}

// armLocked sets the timer of a grant's next rotation, if one is needed. It requires v.mu.
func (v *Vault) armLocked(g *grant) {
	if v.jobs == nil || v.closed || g.released || g.rotating {
		return
	}
	var at time.Time
	switch now := time.Now(); {
	case g.pending:
		at = now
	case g.idle:
		return
	default:
		if at = g.row.rotateAt(); at.IsZero() {
			return
		}
	}
	if g.failures > 0 {
		if next := g.lastTry.Add(retryBackoff.Delay(g.failures)); at.Before(next) {
			at = next
		}
	}
	if g.due == nil {
		g.due = time.AfterFunc(time.Until(at), func() { v.rotateDue(g) })
	} else {
		g.due.Reset(time.Until(at))
	}
}

func (v *Vault) rotateDue(g *grant) {
	if v.enter() {
		defer v.wg.Done()
		_ = v.rotateGrant(g, true) // it is logged, and tried again
	}
}

// releaseLocked marks a grant as not active and stops its timer. It requires v.mu. It returns true
// if the caller must enqueue the row of the next generation.
func (g *grant) releaseLocked() bool {
	g.released = true
	if g.due != nil {
		g.due.Stop()
	}
	return g.pending && !g.rotating
}

// Rotated lists the credentials replaced by Rotate.
type Rotated struct {
	Provisioner string
	IDs         []string
}

// ErrRotating is the error of Rotate while another rotation of the same credentials runs.
var ErrRotating = errors.New("the credentials are being rotated")

// ErrEnded is the error of Rotate for a job that has ended.
var ErrEnded = errors.New("the job does not continue")

// errIdle reports that the credentials last as long as the job's lease: a rotation is
// useless.
var errIdle = errors.New("the credentials last as long as the job's lease")

// Rotate replaces a job's credentials of one provisioner, or with "" of all its provisioners.
// It returns when the new ones are live, or store.ErrNotFound if the job has none. If ctx ends
// first, or after a provisioner error that is not a RefusedError, the rotation continues in the
// background.
func (v *Vault) Rotate(ctx context.Context, job arcp.JobID, provisioner string) (list []Rotated, err error) {
	v.mu.Lock()
	grants := slices.Clone(v.active[job])
	v.mu.Unlock()
	grants = slices.DeleteFunc(grants, func(g *grant) bool { return provisioner != "" && g.row.Source != provisioner })
	if len(grants) == 0 {
		return nil, store.ErrNotFound
	}
	for _, g := range grants {
		if !v.enter() {
			return list, errClosing
		}
		donec := make(chan error, 1)
		go func() {
			defer v.wg.Done()
			donec <- v.rotateGrant(g, false)
		}()
		select {
		case err = <-donec:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return list, fmt.Errorf("provisioner %s: %w", g.row.Source, err)
		}
		list = append(list, Rotated{g.row.Source, g.row.ids()})
	}
	return list, nil
}

func (r *row) ids() []string {
	ids := make([]string, len(r.Parts))
	for i := range r.Parts {
		ids[i] = r.Parts[i].ID
	}
	return ids
}

// rotateGrant replaces a grant by its next generation, and sets the timer of a retry.
func (v *Vault) rotateGrant(g *grant, due bool) error {
	v.mu.Lock()
	switch {
	case g.rotating:
		v.mu.Unlock()
		return ErrRotating
	case g.released || v.jobs == nil:
		v.mu.Unlock()
		return ErrEnded
	}
	g.rotating = true
	if g.due != nil {
		g.due.Stop()
	}
	v.mu.Unlock()

	s := v.source(g.row.Source)
	err := s.rotateOnce(g, due)

	v.mu.Lock()
	g.rotating, g.idle = false, g.idle || err == errIdle
	g.failures, g.lastTry = g.failures+1, time.Now()
	tries, hasNext := g.failures, g.released && g.pending
	if g.released && err != nil {
		err = ErrEnded // more precise than the other error
	}
	v.armLocked(g)
	v.mu.Unlock()
	if hasNext {
		s.enqueue(&task{key: g.row.nextKey(), n: g.row.count()})
	}
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		v.countOperation("rotate", "ok")
		return nil
	case v.ctx.Err() != nil || err == errIdle || err == ErrEnded:
		return err
	case refused:
		v.countOperation("rotate", "refused")
	default:
		v.countOperation("rotate", "error")
	}
	v.opts.Logger.Warn().Str("job_id", string(g.row.Job)).Str("provisioner", s.Name).Int("attempts", tries).Str("error", v.errorText(err)).
		Msg("a credential is not rotated")
	return err
}

// rotateOnce replaces a grant by the next generation. Its progress is stored in the rows, so that
// it resumes after a failed attempt or a restart.
func (s *source) rotateOnce(g *grant, due bool) error {
	v := s.v
	req, on := v.jobs.Request(g.row.Job)
	if !on {
		return ErrEnded
	}
	req.Generation = g.row.generation() + 1
	ctx, cancel := context.WithTimeoutCause(v.ctx, issueTimeout, errTimeout)
	defer cancel()
	f, err := s.readNext(ctx, g)
	if err != nil {
		return err
	}
	if f.Rev == 0 && due && !req.ExpiresAt.IsZero() && !g.row.expires().Before(req.ExpiresAt) {
		return errIdle
	}
	var to *grant
	switch {
	case f.Rev == 0 || f.Value.State == Intent:
		to, err = s.reissue(ctx, g, &req, &f)
	case f.Value.State == Issued:
		if to = v.open(&f.Value, f.Rev+1); slices.Contains(to.values, "") { // the sealing key is not configured any more
			to, err = s.reissue(ctx, g, &req, &f)
		}
	case f.Value.State == Live: // it was not known that the write had happened
		v.adopt(g, &f)
		return nil
	default:
		err = ErrEnded
	}
	if err != nil {
		return err
	}
	for _, value := range to.values { // activate adds them again, until their revocation
		v.opts.Redactor.Add(value)
		defer v.opts.Redactor.Forget(value)
	}
	return s.commitRotation(g, to)
}

// readNext reads the row of the generation after a grant's; its revision is 0 if there is none.
// readNext also checks that the grant's own row is unchanged, because otherwise the write of the
// job would fail.
func (s *source) readNext(ctx context.Context, g *grant) (stored, error) {
	f, err := table(s.v.opts.Store).Get(ctx, g.row.nextKey())
	if err != nil {
		return f, err
	}
	s.v.setPending(g, f.Rev != 0)
	own, err := s.v.opts.Store.Get(ctx, g.row.key())
	if err == nil && own.Rev != g.rev && f.Value.State != Live {
		err = fmt.Errorf("record %s: it was changed", own.Key)
	}
	return f, err
}

// markPending marks the next generation of an active grant as pending. It returns false if the
// previous generation is not active.
func (v *Vault) markPending(r *row) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.active[r.Job] {
		if g.row.Source == r.Source && g.row.generation()+1 == r.generation() {
			if !g.pending {
				g.pending = true
				v.armLocked(g)
			}
			return true
		}
	}
	return false
}

// adopt activates the grant of a rotation whose commit turned out to have succeeded.
func (v *Vault) adopt(g *grant, f *stored) {
	v.mu.Lock()
	g.pending = false
	v.mu.Unlock()
	v.activate(v.open(&f.Value, f.Rev))
}

// reissue requests the next generation from the provisioner. The intent is durable before the
// call, as with the first generation. A lost answer revokes nothing: the job continues with
// its current credentials, and the request is repeated. Credentials issued in a lost answer
// are revoked when the job has ended, with all its others.
func (s *source) reissue(ctx context.Context, g *grant, req *Request, f *stored) (*grant, error) {
	v := s.v
	repeated := f.Rev != 0
	if n := s.unrevoked.Load(); !repeated && n >= int64(v.opts.MaxUnrevoked) {
		return nil, arcp.Errorf(arcp.CodeUnavailable, "no more credentials are issued until earlier ones are revoked")
	}
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if !repeated {
		*f = newStored(row{
			Job:        g.row.Job,
			Source:     s.Name,
			Generation: req.Generation,
			Principal:  g.row.Principal,
			Agent:      g.row.Agent,
			State:      Intent,
			CreatedAt:  time.Now(),
		})
		v.setPending(g, true)
		if err := v.insert(f); err != nil {
			return nil, fmt.Errorf("record the intent: %w", err)
		}
	}
	list, err := s.Provisioner.Issue(ctx, *req)
	if err == nil {
		if err = checkAll(list, req); err == nil {
			err = g.match(list)
		}
	}
	if err != nil {
		return nil, s.notIssued(ctx, g, f, repeated, err)
	}
	r := &f.Value
	r.State, r.CreatedAt, r.Unknown = Issued, time.Now(), repeated || g.row.Unknown || g.row.unnamed()
	r.Parts = v.seal(r.Job, list)
	if err := v.write(v.ctx, f); err != nil {
		return nil, fmt.Errorf("record the issued credentials: %w", err)
	}
	return grantOf(r, f.Rev+1, list), nil
}

// insert writes a row without a record.
func (v *Vault) insert(f *stored) error {
	if err := v.write(v.ctx, f); err != nil {
		return err
	}
	rec, err := v.opts.Store.Get(v.ctx, f.Key)
	f.Rev = rec.Rev
	return err
}

func (v *Vault) setPending(g *grant, pending bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	g.pending = pending
}

// notIssued handles a provisioner that has issued no usable credentials. It erases the intent
// after a RefusedError of the first try.
func (s *source) notIssued(ctx context.Context, g *grant, f *stored, repeated bool, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // more precise than the provisioner's error
	}
	if _, ok := errors.AsType[*RefusedError](err); ok && !repeated && s.v.erase(s.v.ctx, f) == nil {
		s.v.setPending(g, false)
	}
	return err
}

var errSame = errors.New("it gave what the job has already")

// match pairs newly issued credentials with those of the grant: it sorts them in the grant's
// order and assigns the grant's ids.
func (g *grant) match(list []Credential) error {
	bad := func(why error) error {
		return fmt.Errorf("%w: %w", arcp.Errorf(arcp.CodeInternal, "the credential provisioner gave an answer that cannot be used"), why)
	}
	parts := g.row.Parts
	if len(list) != len(parts) {
		return bad(fmt.Errorf("%d credentials in the place of %d", len(list), len(parts)))
	}
	index := func(c Credential) int { return slices.IndexFunc(parts, func(p part) bool { return p.ID == c.ID }) }
	if !slices.ContainsFunc(list, func(c Credential) bool { return index(c) < 0 }) {
		slices.SortFunc(list, func(a, b Credential) int { return index(a) - index(b) })
	}
	same := 0
	for i := range list {
		list[i].ID = parts[i].ID
		if slices.Contains(g.values, list[i].Value) {
			same++
		}
	}
	switch same {
	case 0:
		return nil
	case len(list): // so nothing was issued
		return &RefusedError{bad(errSame)}
	}
	return bad(errSame)
}

// commitRotation makes a generation live in a write of the job, and waits for the write.
func (s *source) commitRotation(g, to *grant) error {
	v := s.v
	to.idle = !g.row.expires().IsZero() && !to.row.expires().After(g.row.expires()) // another one would not last longer
	r := &Rotation{Job: g.row.Job, IDs: to.row.ids(), v: v, from: g, to: to, donec: make(chan error, 1)}
	v.jobs.Rotated(r)
	select {
	case err := <-r.donec:
		if err != nil {
			return fmt.Errorf("make the new credential live: %w", err)
		}
	case <-v.ctx.Done():
		return errClosing
	}
	v.opts.Logger.Info().Str("job_id", string(g.row.Job)).Str("provisioner", s.Name).Int("generation", to.row.generation()).Msg("credentials rotated")
	return nil
}

// Announced returns the new value announced by an event, given its position in the job's log.
// It returns false if the event announces none, or the value has been replaced since.
func (v *Vault) Announced(job arcp.JobID, at uint64) (Secret, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.active[job] {
		first := g.row.Announced
		if first == 0 || at < first || at-first >= uint64(len(g.values)) {
			continue
		}
		value := g.values[at-first]
		return value, value != ""
	}
	return "", false
}
