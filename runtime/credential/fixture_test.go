package credential

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// disk is a store that outlives the processes that write to it.
type disk struct {
	store.Store
	mu  sync.Mutex
	log bytes.Buffer // of all processes
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(p)
}

// process is the committer of one simulated process, which crashes at a given commit.
type process struct {
	d *disk

	mu   sync.Mutex
	left int  // commits until it dies; negative: it does not
	torn bool // the commit it dies in is applied all the same
	dead bool
	slip int // the commit that fails without that it dies, torn or not; 1 is the next
}

var (
	errDead = errors.New("the process is dead")
	errSlip = errors.New("it is not known what came of it")
)

func (p *process) Commit(ctx context.Context, w *store.Write) (store.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return store.Result{}, errDead
	}
	p.left--
	if p.dead = p.left == -1; p.dead && !p.torn {
		return store.Result{}, errDead
	}
	p.slip--
	if p.slip == 0 && !p.torn {
		return store.Result{}, errSlip
	}
	results := make([]store.Result, 1)
	if err := p.d.Commit([]*store.Write{w}, results); err != nil {
		return store.Result{}, err
	}
	if p.dead || p.slip == 0 {
		return store.Result{}, errSlip
	}
	return results[0], results[0].Err
}

func (p *process) slips(n int, torn bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slip, p.torn = n, torn
}

func (p *process) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// upstream is a fake provisioner. It makes a new key on each call of Issue and records
// violations of the vault's guarantees in violations.
type upstream struct {
	jobs store.Store

	mu         sync.Mutex
	n          int
	life       time.Duration         // lifetime of an issued credential; 0: endless
	same       map[string]Credential // by job and generation, returned again; nil: each call makes a new one
	during     func(Request)         // is called while it is asked
	keys       map[string]arcp.JobID // by handle, not revoked
	values     []string              // all there were
	issue      func() error          // the answer, after the key was made
	revoke     func() error
	calls      []time.Time // of Revoke
	violations []string
	early      map[arcp.JobID]bool // revoked before there was a job
}

func newUpstream(st store.Store) *upstream {
	return &upstream{jobs: st, keys: make(map[string]arcp.JobID), early: make(map[arcp.JobID]bool)}
}

func (u *upstream) Issue(_ context.Context, r Request) ([]Credential, error) {
	if u.during != nil {
		u.during(r)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.issue != nil {
		err := u.issue()
		if _, ok := errors.AsType[*Refused](err); ok {
			return nil, err
		}
		if err != nil {
			u.make(&r)
			return nil, err
		}
	}
	return []Credential{u.make(&r)}, nil
}

func (u *upstream) make(r *Request) Credential {
	job := r.Job
	key := fmt.Sprintf("%s/%d", job, r.Generation)
	if c, ok := u.same[key]; ok {
		return c
	}
	u.n++
	c := Credential{Value: Secret(fmt.Sprintf("sk-Very+Secret/Value-%d-of-%s", u.n, job)), Endpoint: "https://gw.example/v1", Upstream: fmt.Sprintf("key-%d", u.n)}
	if u.life > 0 {
		c.ExpiresAt = time.Now().Add(u.life)
	}
	if u.same != nil {
		u.same[key] = c
	}
	u.keys[c.Upstream] = job
	u.values = append(u.values, c.Value.Reveal())
	return c
}

func (u *upstream) Revoke(_ context.Context, ref Ref) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, time.Now())
	switch job, err := u.jobs.Job(context.Background(), ref.Job); {
	case err == nil && !job.State.Terminal():
		if ref.Upstream == "" || slices.Contains(u.handles(ref.Job, Live), ref.Upstream) {
			u.violations = append(u.violations, fmt.Sprintf("%q was revoked for %s, which goes on with it", ref.Upstream, ref.Job))
		}
	case err != nil:
		u.early[ref.Job] = true
	}
	if !slices.Contains(u.handles(ref.Job, Revoking), ref.Upstream) {
		u.violations = append(u.violations, fmt.Sprintf("%q of %s was revoked before that was durable: it could still become live", ref.Upstream, ref.Job))
	}
	if u.revoke != nil {
		if err := u.revoke(); err != nil {
			return err
		}
	}
	for h, job := range u.keys {
		if job == ref.Job && (ref.Upstream == "" || ref.Upstream == h) {
			delete(u.keys, h)
		}
	}
	return nil
}

// handles returns the handles in the rows of a job with a state.
func (u *upstream) handles(job arcp.JobID, state State) (list []string) {
	err := u.jobs.Records(context.Background(), rowKey(job, "gw"), "", func(rec store.Record) bool {
		if f, err := table(nil).Decode(rec); err == nil && f.Value.State == state {
			for _, ref := range f.Value.refs() {
				list = append(list, ref.Upstream)
			}
		}
		return true
	})
	if err != nil {
		panic(err)
	}
	return list
}

// serves reports whether the live credentials of a job are valid.
func (u *upstream) serves(job arcp.JobID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	live := u.handles(job, Live)
	for _, h := range live {
		if h != "" && u.keys[h] != job { // "" is for those whose names are lost
			return false
		}
	}
	return len(live) > 0
}

func (u *upstream) set(issue, revoke func() error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.issue, u.revoke = issue, revoke
}

func (u *upstream) has(job arcp.JobID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, j := range u.keys {
		if j == job {
			return true
		}
	}
	return false
}

// revokedEarly returns the jobs that did not exist when their keys were revoked.
func (u *upstream) revokedEarly() []arcp.JobID {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.early))
}

func (u *upstream) outstanding() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.keys)
}

func (u *upstream) called() []time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]time.Time(nil), u.calls...)
}

// fixture is a process with a vault on a disk.
type fixture struct {
	t tb
	d *disk
	u *upstream
	p *process
	v *Vault

	sealer *Sealer
	mu     sync.Mutex
	gauge  int
	ops    map[string]int

	jobMu  sync.Mutex           // the supervisor of all jobs
	before func(job arcp.JobID) // is called before a rotation is written
	events map[arcp.JobID]uint64
}

// supervisors implements Jobs for the jobs of a fixture.
type supervisors struct {
	f *fixture
	p *process
}

func (s supervisors) Request(job arcp.JobID) (Request, bool) {
	state := s.f.state(job)
	return request1(job), state != "" && !state.Terminal()
}

func (s supervisors) Rotated(c *Rotation) {
	go func() {
		f := s.f
		if f.before != nil {
			f.before(c.Job)
		}
		f.jobMu.Lock()
		defer f.jobMu.Unlock()
		recs, err := c.Records(f.events[c.Job] + 1)
		log := &store.AppendEvents{Job: c.Job, Attempt: 1}
		w := store.NewWrite(log).Put(recs...)
		for range c.IDs {
			log.Events = append(log.Events, store.NewEvent(arcp.EventEmit, time.Now(), &store.JobContext{JobID: c.Job}, arcp.PriorityNormal, []byte(`{"name":"x"}`)))
		}
		if err == nil {
			_, err = s.p.Commit(context.Background(), w)
		}
		if err == nil {
			f.events[c.Job] += uint64(len(c.IDs))
		}
		c.Done(err)
	}()
}

func request1(job arcp.JobID) Request {
	return Request{Job: job, Principal: "alice", Agent: "llm.ask@1.0.0", Lease: arcp.Raw(`{"model_use":["a/*"]}`)}
}

func newFixture(t tb) *fixture {
	d := &disk{Store: mem.Open(mem.Options{})}
	f := &fixture{t: t, d: d, u: newUpstream(d), sealer: EphemeralSealer(), ops: make(map[string]int), events: make(map[arcp.JobID]uint64)}
	f.start(-1, false)
	return f
}

// start begins a process that crashes after left commits.
func (f *fixture) start(left int, torn bool) {
	f.t.Helper()
	f.p = &process{d: f.d, left: left, torn: torn}
	v, err := New(Options{Sources: []Source{{Name: "gw", For: []string{"llm.*"}, Provisioner: f.u}}, Log: f.p, Store: f.d, Sealer: f.sealer,
		Logger: zerolog.New(f.d), Unrevoked: func(n int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.gauge = n
		}, Operation: func(op, result string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.ops[op+" "+result]++
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.v = v
	v.RotateFor(supervisors{f, f.p})
	if err := v.Recover(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

// crash ends a process and starts another one.
func (f *fixture) crash(left int, torn bool) {
	f.p.die()
	f.v.Close()
	f.start(left, torn)
}

func (f *fixture) unrevoked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gauge
}

func (f *fixture) issue(job arcp.JobID) (*Grant, error) {
	return f.v.Issue(context.Background(), request1(job))
}

// accept commits the job with its credentials.
func (f *fixture) accept(job arcp.JobID, g *Grant) error {
	_, err := f.p.Commit(context.Background(), store.NewWrite(&store.SubmitJob{Row: &store.Job{ID: job, Principal: "alice", Agent: "llm.ask@1.0.0", State: arcp.StateAccepted, Attempt: 1, CreatedAt: time.Now()}}).Put(g.Records...))
	return err
}

// end commits the end of a job and calls Ended.
func (f *fixture) end(job arcp.JobID) error {
	f.jobMu.Lock()
	defer f.jobMu.Unlock()
	recs, err := f.v.Ending(job)
	if err != nil {
		return err
	}
	e := store.NewEvent(arcp.JobCompleted, time.Now(), &store.JobContext{JobID: job}, arcp.PriorityNormal, []byte("{}"))
	_, err = f.p.Commit(context.Background(), store.NewWrite(&store.AppendEvents{Job: job, Attempt: 1, Events: []*store.Event{e}, State: arcp.StateCompleted}).Put(recs...))
	if err == nil {
		f.v.Ended(job)
	}
	return err
}

// state returns the state of a job, or "" for an unknown job.
func (f *fixture) state(job arcp.JobID) arcp.JobState {
	j, err := f.d.Job(context.Background(), job)
	if err != nil {
		return ""
	}
	return j.State
}

// rows returns the number of rows. It checks that neither a row nor the log contains a value.
func (f *fixture) rows() int {
	f.t.Helper()
	n := 0
	err := f.d.Records(context.Background(), "", "", func(rec store.Record) bool {
		n++
		f.clean("record "+rec.Key, rec.Value)
		if bytes.Contains(rec.Value, []byte(`"revoking"`)) && bytes.Contains(rec.Value, []byte(`"sealed"`)) {
			f.t.Errorf("%s keeps a value that is to be revoked", rec.Value)
		}
		return true
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.clean("log", f.d.log.Bytes())
	return n
}

// clean reports an error for each value in b, also in base64.
func (f *fixture) clean(name string, b []byte) {
	f.t.Helper()
	f.u.mu.Lock()
	defer f.u.mu.Unlock()
	for _, v := range f.u.values {
		if bytes.Contains(b, []byte(v)) || bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString([]byte(v))[:16])) {
			f.t.Errorf("%s has a value in it", name)
		}
	}
}

// finishAll waits until everything is revoked. It must run in a synctest bubble.
func (f *fixture) finishAll() {
	time.Sleep(3 * lastRetry)
}

func (f *fixture) wantNothing(why string) {
	f.t.Helper()
	if n := f.u.outstanding(); n != 0 {
		f.t.Errorf("%s: %d keys are not revoked", why, n)
	}
	if n := f.rows(); n != 0 {
		f.t.Errorf("%s: %d rows are left", why, n)
	}
	if n := f.unrevoked(); n != 0 {
		f.t.Errorf("%s: gauge = %d, want 0", why, n)
	}
	f.u.mu.Lock()
	defer f.u.mu.Unlock()
	for _, c := range f.u.violations {
		f.t.Error(c)
	}
}

// tb is the part of testing.TB that the fixture uses.
type tb interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// forget calls Vault.Forget with a commit of a single write.
func (f *fixture) forget(t *testing.T, job arcp.JobID, provisioner string) error {
	t.Helper()
	return f.v.Forget(t.Context(), job, provisioner, func(ctx context.Context, w *store.Write, done func(error)) error {
		_, err := f.p.Commit(ctx, w)
		done(err)
		return err
	})
}
