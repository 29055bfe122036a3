// Package credential issues credentials to single jobs. A provisioner creates them before the
// job is accepted, and revokes them when it has ended.
//
// A Vault guarantees that every issued credential is revoked once its job has ended or was
// never accepted, and never while the job is active. The guarantee holds however often the
// process crashes:
//
//   - an intent is durable before the provisioner is called;
//   - the accepting commit of the job makes the credential live;
//   - the commit of the job's end erases the value;
//   - only a credential whose row is durably in state Revoking is revoked, and the call is
//     retried until it succeeds.
//
// A credential that expires before its job ends is rotated. The next generation has a row of
// its own, which is written before the provisioner is called. One commit of the job makes it
// live, erases the previous value and announces the change to the job's submitter. From then
// on the previous one is revoked like any other.
//
// Values are in memory and, while the job is active, sealed in a record. No event, list, error
// or log contains them; a Redactor removes them from the output of tools.
package credential

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of a vault.
const (
	issueTimeout  = 30 * time.Second // including the wait for a call slot
	revokeTimeout = 10 * time.Second
	maxCalls      = 8    // at once to a provisioner, to issue; and as many to revoke
	maxWaiting    = 1024 // issue requests that wait for a call slot

	// DefaultMaxUnrevoked is the number of unrevoked credentials of a provisioner at
	// which no more are issued.
	DefaultMaxUnrevoked = 10_000
)

// Committer makes a write durable, like eventlog.Log. Many goroutines may call it. When ctx
// ends first, the write may still happen.
type Committer interface {
	Commit(ctx context.Context, w *store.Write) (store.Result, error)
}

// Reader is the part of store.Store that a Vault reads.
type Reader interface {
	Get(ctx context.Context, key string) (store.Record, error)
	Records(ctx context.Context, prefix, after string, fn func(store.Record) bool) error
	Job(ctx context.Context, id arcp.JobID) (store.Job, error)
}

// Source is a named provisioner with the tools it serves.
type Source struct {
	Name        string   // unique; part of the keys of its rows
	For         []string // patterns of path.Match; a job whose tool matches one gets credentials
	Provisioner Provisioner
}

// Options of a Vault. They are not changed after use.
type Options struct {
	Sources      []Source
	Log          Committer
	Store        Reader
	Sealer       *Sealer
	Redactor     *Redactor // knows every value; nil: a new one
	MaxUnrevoked int       // of a provisioner; 0: DefaultMaxUnrevoked
	Logger       zerolog.Logger

	// Unrevoked, if set, is called with the number of unrevoked credentials of ended, unknown and
	// rotated jobs at each change. It must neither block nor call the vault.
	Unrevoked func(n int)
	// Operation, if set, counts: op is issue, rotate or revoke, result ok, refused or error.
	Operation func(op, result string)
}

// Vault issues, stores and revokes credentials. Its methods may be called by many
// goroutines, after Recover has been called once.
type Vault struct {
	opts   Options
	ctx    context.Context // until Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	jobs      Jobs      // nil: nothing is rotated
	sources   []*source // the configured ones, then those found only in rows
	active    map[arcp.JobID][]*grant
	unrevoked int
}

// grant is a row that is live, or about to be, with its values.
type grant struct {
	row    row
	rev    uint64   // of the live row
	values []Secret // of the parts of row; "": the value cannot be decrypted

	// State of the rotation of the grant, guarded by Vault.mu.
	released bool        // not in Vault.active any more
	pending  bool        // the next generation may have a row
	rotating bool        // a rotation is running
	idle     bool        // a scheduled rotation would not extend the life
	due      *time.Timer // for the next rotation; nil: never set
	failures int         // consecutive ones
	lastTry  time.Time   // time of the last attempt
}

// New makes a vault and starts its revokers. Nothing is revoked before Recover.
func New(opts Options) (*Vault, error) {
	if opts.Redactor == nil {
		opts.Redactor = new(Redactor)
	}
	if opts.MaxUnrevoked <= 0 {
		opts.MaxUnrevoked = DefaultMaxUnrevoked
	}
	if opts.Log == nil || opts.Store == nil || opts.Sealer == nil {
		return nil, errors.New("credential vault: it needs a log, a store and a sealer")
	}
	v := &Vault{opts: opts, active: make(map[arcp.JobID][]*grant)}
	for _, s := range opts.Sources {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("credential vault: provisioner %q: %w", s.Name, err)
		}
		if v.find(s.Name) != nil {
			return nil, fmt.Errorf("credential vault: provisioner %q: duplicate name", s.Name)
		}
		v.sources = append(v.sources, newSource(v, s))
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	for _, s := range v.sources {
		v.wg.Go(s.run)
	}
	return v, nil
}

func (s *Source) check() error {
	if !validName(s.Name) {
		return errors.New(nameHelp)
	}
	if s.Provisioner == nil {
		return errors.New("Source.Provisioner is nil")
	}
	for _, p := range s.For {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return nil
}

// serves reports whether a tool's jobs get credentials.
func (s *Source) serves(agent string) bool {
	name, _, _ := strings.Cut(agent, "@")
	return slices.ContainsFunc(s.For, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the pattern is good
		return ok
	})
}

// find requires v.mu once the vault is in use.
func (v *Vault) find(name string) *source {
	for _, s := range v.sources {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// source returns the source with a name. A name that is not configured gets a source that
// fails each revocation: its rows stay until it is configured again, or Forget deletes them.
func (v *Vault) source(name string) *source {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.find(name)
	if s == nil {
		s = newSource(v, Source{Name: name, Provisioner: unconfigured{}})
		v.sources = append(v.sources, s)
		if !v.closed {
			v.wg.Go(s.run)
		}
	}
	return s
}

type unconfigured struct{}

var errUnconfigured = errors.New("the provisioner is not configured any more: configure it, or revoke the credential by hand and forget it")

func (unconfigured) Issue(context.Context, Request) ([]Credential, error) {
	return nil, &RefusedError{errUnconfigured}
}
func (unconfigured) Revoke(context.Context, Ref) error { return errUnconfigured }

// Close stops all calls, waits for the vault's goroutines and drops all values. The next Vault
// on the store continues the revocations.
func (v *Vault) Close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.cancel()
	v.wg.Wait()
	v.mu.Lock()
	for _, list := range v.active {
		for _, g := range list {
			g.releaseLocked()
		}
	}
	clear(v.active)
	v.mu.Unlock()
	v.opts.Redactor.close()
}

// enter registers a call that Close waits for. It returns false after Close.
func (v *Vault) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.wg.Add(1)
	}
	return !v.closed
}

// Serves reports whether a job of a tool gets credentials.
func (v *Vault) Serves(agent string) bool {
	return slices.ContainsFunc(v.opts.Sources, func(s Source) bool { return s.serves(agent) })
}

// Redactor knows the values of all jobs.
func (v *Vault) Redactor() *Redactor { return v.opts.Redactor }

// Scrub calls Redactor.Scrub.
func (v *Vault) Scrub(b []byte) []byte { return v.opts.Redactor.Scrub(b) }

// Credentials returns a job's credentials with their values, for its submitter. It returns
// none once the job has ended.
func (v *Vault) Credentials(job arcp.JobID) []arcp.Credential {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []arcp.Credential
	for _, g := range v.active[job] {
		for i := range g.row.Parts {
			if g.values[i] != "" {
				c := g.row.Parts[i].public()
				c.Value = g.values[i].Reveal()
				list = append(list, c)
			}
		}
	}
	return list
}

// Value returns the value of one credential, or false once its job has ended.
func (v *Vault) Value(job arcp.JobID, id string) (Secret, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range v.active[job] {
		for i := range g.row.Parts {
			if g.row.Parts[i].ID == id && g.values[i] != "" {
				return g.values[i], true
			}
		}
	}
	return "", false
}

func (p *part) public() arcp.Credential {
	return arcp.Credential{ID: p.ID, Scheme: scheme, Endpoint: p.Endpoint, Profile: p.Profile, Constraints: p.Constraints}
}

// activate adds a grant to the values in memory and has the grant of an earlier generation
// revoked. It ignores a generation that is already active.
func (v *Vault) activate(g *grant) {
	if old := v.replaceActive(g); old != nil {
		v.source(old.row.Source).enqueue(&task{key: old.row.key(), n: old.row.count(), values: old.values})
	}
}

// replaceActive adds g like activate and returns the grant it replaces, or nil.
func (v *Vault) replaceActive(g *grant) (old *grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.active[g.row.Job]
	i := slices.IndexFunc(list, func(other *grant) bool { return other.row.Source == g.row.Source })
	switch {
	case v.closed, i >= 0 && list[i].row.generation() >= g.row.generation():
		return nil
	case i >= 0:
		old = list[i]
		old.releaseLocked()
		list[i] = g
	default:
		v.active[g.row.Job] = append(list, g)
	}
	for _, s := range g.values {
		v.opts.Redactor.Add(s)
	}
	v.armLocked(g)
	return old
}

// Ending returns the records for the write that ends a job: they erase the values. It returns
// none if the job has no credentials.
func (v *Vault) Ending(job arcp.JobID) ([]store.Record, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []store.Record
	for _, g := range v.active[job] {
		r := g.row.revoking()
		rec, err := r.record(g.rev)
		if err != nil {
			return nil, err
		}
		list = append(list, rec)
	}
	return list, nil
}

// Ended reports the durable end of a job. Its values are dropped and its credentials revoked
// in the background. Ended does not block, and does nothing for a job without credentials. Nothing
// is revoked if the job is still active in the store.
func (v *Vault) Ended(job arcp.JobID) {
	v.mu.Lock()
	grants := v.active[job]
	delete(v.active, job)
	var pending []*grant
	for _, g := range grants {
		if g.releaseLocked() {
			pending = append(pending, g)
		}
	}
	v.mu.Unlock()
	for _, g := range grants {
		v.source(g.row.Source).enqueue(&task{key: g.row.key(), n: g.row.count(), values: g.values})
	}
	for _, g := range pending {
		v.source(g.row.Source).enqueue(&task{key: g.row.nextKey(), n: g.row.count()})
	}
}

// count changes the number of unrevoked credentials. Options.Unrevoked is called under the
// lock, so it sees the changes in order.
func (v *Vault) count(delta int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unrevoked += delta
	if v.opts.Unrevoked != nil {
		v.opts.Unrevoked(v.unrevoked)
	}
}

func (v *Vault) countOperation(op, result string) {
	if v.opts.Operation != nil {
		v.opts.Operation(op, result)
	}
}

// write commits a row over the revision that was read.
func (v *Vault) write(ctx context.Context, f *stored) error {
	rec, err := f.Put(&f.Value)
	if err != nil {
		return err
	}
	if _, err = v.opts.Log.Commit(ctx, store.NewWrite().Put(rec)); err == nil {
		f.Rev++
	}
	return err
}

// erase commits the deletion of a row.
func (v *Vault) erase(ctx context.Context, f *stored) error {
	_, err := v.opts.Log.Commit(ctx, store.NewWrite().Put(f.Delete()))
	return err
}

// jobEnded reports whether a job has ended, or is unknown.
func (v *Vault) jobEnded(ctx context.Context, job arcp.JobID) (bool, error) {
	row, err := v.opts.Store.Job(ctx, job)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return err == nil && row.State.Terminal(), err
}

// open decrypts the values of a live row. A value that cannot be decrypted is logged. Its credential
// is unusable, and is revoked like any other.
func (v *Vault) open(r *row, rev uint64) *grant {
	g := &grant{row: *r, rev: rev, values: make([]Secret, len(r.Parts))}
	for i := range r.Parts {
		p := &r.Parts[i]
		var err error
		if g.values[i], err = v.opts.Sealer.Open(r.Job, p.ID, p.Sealed); err != nil {
			v.opts.Logger.Error().Err(err).Str("job_id", string(r.Job)).Str("credential_id", p.ID).Msg("the value of a credential cannot be read")
		}
	}
	return g
}

// Recover loads the rows of an earlier process. It is called once, before the first Issue and
// before jobs are restarted. Credentials of active jobs are live; all others are revoked in
// the background.
func (v *Vault) Recover(ctx context.Context) error {
	list, err := v.scan(ctx)
	if err != nil {
		return fmt.Errorf("recover credentials: %w", err)
	}
	v.restore(list)
	for i := range list {
		if err := v.recoverRow(ctx, &list[i]); err != nil {
			return fmt.Errorf("recover credentials: %w", err)
		}
	}
	return nil
}

// scan reads all rows. An unreadable row is logged and stays unrevoked.
func (v *Vault) scan(ctx context.Context) (list []stored, err error) {
	broken := 0
	err = table(v.opts.Store).Scan(ctx, keyPrefix, "", func(f stored, bad error) bool {
		if bad != nil {
			broken++
			v.opts.Logger.Error().Err(bad).Msg("a record of credentials cannot be read: they are not revoked")
		} else {
			list = append(list, f)
		}
		return true
	})
	v.count(broken)
	return list, err
}

// HasUnrevoked reports whether a store contains unrevoked credentials.
func HasUnrevoked(ctx context.Context, st store.Store) (found bool, err error) {
	err = st.Records(ctx, keyPrefix, "", func(store.Record) bool {
		found = true
		return false
	})
	return found, err
}

// restore passes each Restorer its unrevoked credentials, before any of them is revoked.
func (v *Vault) restore(list []stored) {
	known := make(map[*source][]Ref)
	for i := range list {
		s := v.source(list[i].Value.Source)
		known[s] = append(known[s], list[i].Value.refs()...)
	}
	for s, refs := range known {
		if r, ok := s.Provisioner.(Restorer); ok {
			r.Restore(refs)
		}
	}
}

// recoverRow activates a row whose job is active, and has other rows revoked.
func (v *Vault) recoverRow(ctx context.Context, f *stored) error {
	if f.Value.State == Live {
		ended, err := v.jobEnded(ctx, f.Value.Job)
		if err != nil {
			return err
		}
		if !ended {
			v.activate(v.open(&f.Value, f.Rev))
			return nil
		}
	}
	v.source(f.Value.Source).enqueue(&task{key: f.Key, n: f.Value.count(), due: f.Value.NextAt})
	return nil
}

// List calls fn for each unrevoked row, in the order of the jobs, until fn returns false.
func (v *Vault) List(ctx context.Context, fn func(Entry) bool) error {
	return List(ctx, v.opts.Store, fn)
}

// List is Vault.List without a vault, on a store alone.
func List(ctx context.Context, from Reader, fn func(Entry) bool) error {
	var broken error
	err := table(from).Scan(ctx, keyPrefix, "", func(f stored, bad error) bool {
		if bad != nil {
			broken = errors.Join(broken, bad)
			return true
		}
		return fn(f.Value.entry())
	})
	return errors.Join(err, broken)
}
