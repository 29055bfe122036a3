package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

func TestCredentialIsIssuedAndRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		job := arcp.NewJobID()
		g, err := f.issue(job)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Credentials) != 1 || g.Credentials[0].Value != "" {
			t.Fatalf("credentials for the log = %v, want one without a value", g.Credentials)
		}
		public, err := arcp.Marshal(g.Credentials)
		if err != nil {
			t.Fatal(err)
		}
		f.clean("what is logged", public)
		if want := `"constraints":{"model_use":["a/*"]}`; !strings.Contains(string(public), want) {
			t.Errorf("%s: want %s of the lease", public, want)
		}
		if err := f.accept(job, g); err != nil {
			t.Fatal(err)
		}
		id := g.Credentials[0].ID
		if v, ok := f.v.Value(job, id); !ok || !strings.HasSuffix(v.Reveal(), string(job)) {
			t.Errorf("Value = %v, %v, want that of the job", v, ok)
		}
		list := f.v.Credentials(job)
		if len(list) != 1 || list[0].Value == "" || list[0].ID != id {
			t.Errorf("Credentials = %v, want the one with its value", list)
		}
		if got := string(f.v.Scrub([]byte("got " + list[0].Value + "!"))); got != "got [redacted]!" {
			t.Errorf("Scrub = %q", got)
		}
		time.Sleep(time.Hour)
		if !f.u.has(job) || f.rows() != 1 {
			t.Error("the credential of a job that goes on is not live")
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		if _, ok := f.v.Value(job, id); ok {
			t.Error("there is a value after the end")
		}
		synctest.Wait()
		f.wantNothing("after the end")
		if got := string(f.v.Scrub([]byte(list[0].Value))); got != arcp.Redacted {
			t.Errorf("Scrub after the end = %q: the tool may still write it", got)
		}
		time.Sleep(forgetAfter + time.Second)
		if n := f.v.Redactor().known.Load(); n != 0 {
			t.Errorf("%d values are known long after the end", n)
		}
	})
}

func TestJobsOfOtherToolsGetNothing(t *testing.T) {
	f := newFixture(t)
	defer f.v.Close()
	job := arcp.NewJobID()
	g, err := f.v.Issue(t.Context(), Request{Job: job, Agent: "demo.echo@1"})
	if err != nil || len(g.Records) != 0 || f.rows() != 0 {
		t.Errorf("Issue = %v, %v, want nothing", g, err)
	}
	g.Discard()
	if recs, err := f.v.Ending(job); recs != nil || err != nil {
		t.Errorf("Ending = %v, %v, want nothing", recs, err)
	}
	if f.v.Serves("demo.echo@1") || !f.v.Serves("llm.ask") {
		t.Error("Serves is wrong")
	}
}

// The process crashes in each commit of a job, before or after it is applied. The next start
// revokes no credential in use, and in the end every credential is revoked.
func TestCrashInEachCommit(t *testing.T) {
	for k := range 7 {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", k, torn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { crashIn(t, k, torn) })
			})
		}
	}
}

func crashIn(t *testing.T, k int, torn bool) {
	f := newFixture(t)
	defer func() { f.v.Close() }()
	f.crash(k, torn)
	job := arcp.NewJobID()
	if g, err := f.issue(job); err == nil {
		if f.accept(job, g) == nil {
			_ = f.end(job) // or it dies
			time.Sleep(time.Minute)
		}
	}
	f.rows()
	f.crash(-1, false)
	time.Sleep(time.Minute)
	if s := f.state(job); s != "" && !s.Terminal() {
		if !f.u.has(job) || len(f.v.Credentials(job)) != 1 {
			t.Error("the job goes on without its credential")
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
	f.wantNothing("after the next start")
}

func TestRefusedJobRevokesCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		g, err := f.issue(arcp.NewJobID())
		if err != nil {
			t.Fatal(err)
		}
		g.Discard()
		synctest.Wait()
		f.wantNothing("after Discard")
		if _, err := f.p.Commit(t.Context(), store.NewWrite().Put(g.Records...)); !errors.Is(err, store.ErrConflict) {
			t.Errorf("accept after Discard = %v, want %v", err, store.ErrConflict)
		}
	})
}

func TestDiscardKeepsAcceptedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		job, g := f.accepted(t)
		g.Discard()
		synctest.Wait()
		if !f.u.has(job) || len(f.v.Credentials(job)) != 1 {
			t.Error("the credential of an accepted job is gone")
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.wantNothing("after the end")
	})
}

func TestRevocationIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		job := arcp.NewJobID()
		g, err := f.issue(job)
		if err != nil {
			t.Fatal(err)
		}
		value := f.v.active[job][0].values[0].Reveal()
		f.u.set(nil, func() error { return errors.New("no " + value + strings.Repeat("x", 1000)) })
		if err := f.accept(job, g); err != nil {
			t.Fatal(err)
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		calls := f.u.called()
		want := time.Second
		for i := 1; i < len(calls); i++ {
			if d := calls[i].Sub(calls[i-1]); d < want || d > want+want/5+time.Millisecond {
				t.Errorf("retry %d after %v, want %v and up to a fifth more", i, d, want)
			}
			want = min(2*want, lastRetry)
		}
		if len(calls) < 10 || f.unrevoked() != 1 {
			t.Errorf("%d attempts, %d unrevoked", len(calls), f.unrevoked())
		}
		var seen []Entry
		if err := f.v.List(t.Context(), func(e Entry) bool { seen = append(seen, e); return true }); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 || seen[0].State != Revoking || seen[0].Failed != len(calls) || !strings.HasPrefix(seen[0].Error, "no [redacted]xx") || len(seen[0].Error) > maxError {
			t.Errorf("List = %+v", seen)
		}
		if err := f.forget(t, arcp.NewJobID(), "gw"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Forget of another job = %v", err)
		}
		f.crash(-1, false)
		if synctest.Wait(); len(f.u.called()) != len(calls) {
			t.Error("a restart does not wait for the next attempt")
		}
		f.u.set(nil, nil)
		time.Sleep(lastRetry)
		f.wantNothing("when the provisioner agrees")
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		f.u.set(nil, func() error { return errors.New("no") })
		job := arcp.NewJobID()
		g, err := f.issue(job)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.forget(t, job, "gw"); !errors.Is(err, ErrActive) {
			t.Errorf("Forget of what is in use = %v, want %v", err, ErrActive)
		}
		g.Discard()
		time.Sleep(time.Hour)
		if err := f.forget(t, job, "gw"); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); f.rows() != 0 || f.unrevoked() != 0 {
			t.Errorf("%d rows, gauge %d after Forget", f.rows(), f.unrevoked())
		}
	})
}

func TestUnconfiguredProvisioner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		job := f.live(t)
		f.v.Close()
		v, err := New(Options{Log: f.p, Store: f.d, Sealer: EphemeralSealer()})
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(v.Credentials(job)); n != 0 {
			t.Errorf("%d values open with another key", n)
		}
		old := f.v
		f.v = v
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := v.List(t.Context(), func(e Entry) bool {
			if e.State != Revoking || !strings.Contains(e.Error, "not configured") {
				t.Errorf("entry = %+v", e)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		v.Close()
		old.Close() // twice is fine
		f.start(-1, false)
		defer func() { f.v.Close() }()
		time.Sleep(lastRetry)
		f.wantNothing("when it is configured again")
	})
}

func TestIssueFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		for _, err := range []error{refuse(arcp.Errorf(arcp.CodePermissionDenied, "no")), errors.New("lost"), fmt.Errorf("%w (x)", arcp.Errorf(arcp.CodeUnavailable, "down"))} {
			f.u.set(func() error { return err }, nil)
			_, got := f.issue(arcp.NewJobID())
			if !errors.Is(got, err) {
				t.Errorf("Issue = %v, want %v", got, err)
			}
			synctest.Wait()
			f.wantNothing(err.Error())
		}
	})
}

// hanging is a provisioner that never answers.
type hanging struct{ Provisioner }

func (hanging) Issue(ctx context.Context, _ Request) ([]Credential, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestProvisionerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		f.v.sources[0].Provisioner = hanging{f.u}
		const n = maxCalls + 3
		errs := make(chan error, n)
		begin := time.Now()
		for range n {
			go func() {
				_, err := f.issue(arcp.NewJobID())
				errs <- err
			}()
		}
		for range n {
			if e, known := arcp.AsError(<-errs); !known || e.Code != arcp.CodeUnavailable {
				t.Errorf("Issue = %v, want UNAVAILABLE", e)
			}
		}
		if d := time.Since(begin); d != issueTimeout {
			t.Errorf("the last answer came after %v, want %v", d, issueTimeout)
		}
		go func() {
			_, err := f.issue(arcp.NewJobID())
			errs <- err
		}()
		synctest.Wait()
		f.v.Close()
		if err := <-errs; !errors.Is(err, errClosing) {
			t.Errorf("Issue during Close = %v, want %v", err, errClosing)
		}
		if _, err := f.issue(arcp.NewJobID()); !errors.Is(err, errClosing) {
			t.Errorf("Issue after Close = %v, want %v", err, errClosing)
		}
		f.start(-1, false)
		synctest.Wait()
		f.wantNothing("after the next start")
	})
}

func TestIssueStopsAtMaxUnrevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		f.v.opts.MaxUnrevoked = 3
		f.u.set(nil, func() error { return errors.New("no") })
		for i := range 5 {
			g, err := f.issue(arcp.NewJobID())
			if (err == nil) != (i < 3) {
				t.Fatalf("Issue %d = %v", i, err)
			}
			if err == nil {
				g.Discard()
			}
		}
	})
}

func TestBadAnswers(t *testing.T) {
	good := func() Credential {
		return Credential{Value: "sk-0123456789abcdef", Endpoint: "https://gw.example", Upstream: "k1"}
	}
	for name, change := range map[string]func(*Credential){
		"short":        func(c *Credential) { c.Value = "1234567" },
		"long":         func(c *Credential) { c.Value = Secret(strings.Repeat("x", maxValue+1)) },
		"newline":      func(c *Credential) { c.Value += "\n" },
		"quote":        func(c *Credential) { c.Value += `"` },
		"scheme":       func(c *Credential) { c.Scheme = "basic" },
		"id":           func(c *Credential) { c.ID = "a b" },
		"no endpoint":  func(c *Credential) { c.Endpoint = "" },
		"in handle":    func(c *Credential) { c.Upstream = "x" + c.Value.Reveal() },
		"in endpoint":  func(c *Credential) { c.Endpoint += "?key=" + c.Value.Reveal() },
		"in object":    func(c *Credential) { c.Constraints = arcp.Raw(`{"k":"` + c.Value.Reveal() + `"}`) },
		"not object":   func(c *Credential) { c.Constraints = arcp.Raw(`[1]`) },
		"not json":     func(c *Credential) { c.Constraints = arcp.Raw(`{"a"}`) },
		"long profile": func(c *Credential) { c.Profile = strings.Repeat("x", maxText+1) },
	} {
		c := good()
		change(&c)
		value := c.Value.Reveal()
		err := c.check()
		if err == nil {
			t.Errorf("%s: want an error", name)
		} else if strings.Contains(err.Error(), strings.TrimSpace(value)) {
			t.Errorf("%s: the error has the value in it", name)
		}
	}
	c := good()
	if err := c.check(); err != nil || c.ID == "" || c.Scheme != "bearer" {
		t.Errorf("check = %v, %+v", err, c)
	}
}

func TestTamperedRowIsNotDecrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		var jobs [2]arcp.JobID
		var recs [2]store.Record
		for i := range jobs {
			jobs[i] = arcp.NewJobID()
			g, err := f.issue(jobs[i])
			if err != nil {
				t.Fatal(err)
			}
			if err := f.accept(jobs[i], g); err != nil {
				t.Fatal(err)
			}
			if recs[i], err = f.d.Get(t.Context(), rowKey(jobs[i], "gw")); err != nil {
				t.Fatal(err)
			}
		}
		var a, b row
		for i, dst := range []*row{&a, &b} {
			if err := arcp.Unmarshal(recs[i].Value, dst); err != nil {
				t.Fatal(err)
			}
		}
		a.Parts[0].Sealed = b.Parts[0].Sealed // the credential of another job
		if err := f.v.write(t.Context(), &stored{Key: recs[0].Key, Rev: recs[0].Rev, Value: a}); err != nil {
			t.Fatal(err)
		}
		recs[1].Value = recs[0].Value // a row in another's place
		if _, err := f.p.Commit(t.Context(), store.NewWrite().Put(recs[1:]...)); err != nil {
			t.Fatal(err)
		}
		f.crash(-1, false)
		for _, job := range jobs {
			if list := f.v.Credentials(job); len(list) != 0 {
				t.Errorf("%s has %v", job, list)
			}
		}
		if f.unrevoked() != 1 {
			t.Errorf("gauge = %d, want 1: the row that cannot be read", f.unrevoked())
		}
	})
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := Secret("sk-0123456789abcdef")
	c := Credential{ID: "c1", Value: s}
	for _, got := range []string{s.String(), s.GoString(), fmt.Sprint(s), fmt.Sprintf("%s %v %+v %#v %q %x %X %d", s, s, s, s, s, s, s, s),
		fmt.Sprintf("%v %+v %#v", c, &c, c), fmt.Sprintf("%v %#v", []Secret{s}, map[Secret]Secret{s: s})} {
		if strings.Contains(got, "0123") || strings.Contains(got, "30313233") || !strings.Contains(got, arcp.Redacted) {
			t.Errorf("printed as %s", got)
		}
	}
	for _, encode := range []func(any) ([]byte, error){json.Marshal, func(v any) ([]byte, error) { return arcp.Marshal(v) }} {
		got, err := encode(struct{ C Credential }{c})
		if err != nil || strings.Contains(string(got), "0123") || !strings.Contains(string(got), arcp.Redacted) {
			t.Errorf("encoded as %s, %v", got, err)
		}
	}
	if s.Reveal() != "sk-0123456789abcdef" {
		t.Error("Reveal does not")
	}
}

// A commit fails, applied or not, and the process continues.
func TestFailedCommitLeavesNoCredential(t *testing.T) {
	for k := range 4 {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", k+1, torn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					defer func() { f.v.Close() }()
					f.p.slips(k+1, torn)
					job := arcp.NewJobID()
					if g, err := f.issue(job); err == nil && f.accept(job, g) != nil {
						g.Discard()
					}
					time.Sleep(time.Minute)
					if f.state(job) != "" {
						if !f.u.has(job) || len(f.v.Credentials(job)) != 1 {
							t.Error("the job goes on without its credential")
						}
						err := f.end(job)
						if err != nil {
							err = f.end(job)
						}
						if err != nil {
							f.v.Ended(job) // it had ended, which was not known
						}
					}
					time.Sleep(time.Minute)
					f.wantNothing("a minute later")
				})
			})
		}
	}
}

// ending is a store whose jobs end right after they are read.
type ending struct {
	*fixture
	Reader
	before bool // Ended is called while the job is not held
}

func (e ending) Job(ctx context.Context, id arcp.JobID) (store.Job, error) {
	j, err := e.Reader.Job(ctx, id)
	if err == nil && !j.State.Terminal() {
		e.endBare(id, e.before)
	}
	return j, err
}

// The job ends while the row is checked whether it is active.
func TestJobEndsDuringRowCheck(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			defer func() { f.v.Close() }()
			job, g := f.accepted(t)
			f.v.opts.Store = ending{f, f.d, told}
			g.Discard()
			synctest.Wait()
			f.wantNothing("after the end")
			if n := len(f.v.Credentials(job)); n != 0 {
				t.Errorf("%d values of a job that has ended", n)
			}
		})
	}
}

func TestRepeatedTaskIsMerged(t *testing.T) {
	f := newFixture(t)
	defer f.v.Close()
	s := newSource(f.v, Source{Name: "x", Provisioner: f.u})
	var q queue
	known := make(map[string]*task)
	later := time.Now().Add(time.Hour)
	s.merge(&task{key: "a", due: later}, known, &q)
	s.merge(&task{key: "b", due: later.Add(-time.Minute)}, known, &q)
	if s.merge(&task{key: "a"}, known, &q); len(q) != 2 || q[0].key != "a" || !q[0].due.IsZero() {
		t.Errorf("queue = %v: a is due now", q)
	}
	a := q[0]
	q = q[1:]
	a.busy, a.due = true, time.Time{}
	s.merge(&task{key: "a"}, known, &q)
	if s.requeue(a, known, &q); len(q) != 2 || a.due.IsZero() || known["a"] != a {
		t.Error("a task that was asked for while it was done is not done again")
	}
	q = q[:0]
	if s.requeue(&task{key: "a"}, known, &q); len(q) != 0 || known["a"] != nil {
		t.Error("a task that is done is kept")
	}
}

// hidden hides the deadline of a test, which has no meaning in a bubble.
type hidden struct{ rapid.TB }

// In any interleaving an active job has its credential, and in the end every issued credential
// is revoked.
func TestAnyInterleavingWithRotations(t *testing.T) {
	for range 8 { // rapid.Check ends after a bubble's simulated day, so repeat it
		synctest.Test(t, func(t *testing.T) {
			rapid.Check(hidden{t}, func(rt *rapid.T) { interleave(rt, newFixture(rt)) })
		})
	}
}

var errLost = errors.New("lost")

// interleaving is a sequence of random operations on a vault.
type interleaving struct {
	*fixture
	t       *rapid.T
	jobs    []arcp.JobID // all
	pending []arcp.JobID // with credentials that are neither accepted nor discarded
	grants  map[arcp.JobID]*Grant
}

func interleave(t *rapid.T, f *fixture) {
	defer func() { f.v.Close() }()
	s := &interleaving{fixture: f, t: t, grants: make(map[arcp.JobID]*Grant)}
	f.u.life = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "life")
	if rapid.Bool().Draw(t, "idempotent") {
		f.u.same = make(map[string]Credential)
	}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		s.step(rapid.SampledFrom([]string{"issue", "accept", "accept", "discard", "lost accept", "end", "end", "end without", "crash", "crash in",
			"slip", "upstream", "sleep", "rotate", "rotate", "rotate and end"}).Draw(t, "op"))
		synctest.Wait()
		s.check()
	}
	f.u.set(nil, nil)
	f.crash(-1, false)
	for _, job := range s.jobs {
		if state := f.state(job); state != "" && !state.Terminal() {
			if len(f.v.Credentials(job)) != 1 {
				t.Fatalf("%s has no value after a restart", job)
			}
			if err := f.end(job); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.finishAll()
	s.check()
	f.wantNothing("in the end")
}

func (s *interleaving) step(op string) {
	switch op {
	case "issue":
		job := arcp.NewJobID()
		if g, err := s.issue(job); err == nil {
			s.grants[job] = g
			s.pending = append(s.pending, job)
		}
		s.jobs = append(s.jobs, job)
	case "accept", "discard", "lost accept":
		s.decide(op)
	case "end", "end without", "rotate", "rotate and end":
		if len(s.jobs) > 0 {
			s.change(op, rapid.SampledFrom(s.jobs).Draw(s.t, "job"))
		}
	case "crash":
		s.crash(-1, false)
		s.pending = nil
	case "crash in":
		s.crash(rapid.IntRange(0, 6).Draw(s.t, "commits"), rapid.Bool().Draw(s.t, "torn"))
		s.pending = nil
	case "slip":
		s.p.slips(rapid.IntRange(1, 4).Draw(s.t, "commits"), rapid.Bool().Draw(s.t, "torn"))
	case "upstream":
		refused := func() error { return refuse(arcp.Errorf(arcp.CodeUnavailable, "no")) }
		lost := func() error { return errLost }
		s.u.set(rapid.SampledFrom([]func() error{nil, nil, nil, refused, lost}).Draw(s.t, "issue"),
			rapid.SampledFrom([]func() error{nil, nil, lost}).Draw(s.t, "revoke"))
	case "sleep":
		time.Sleep(time.Duration(rapid.IntRange(0, 400_000).Draw(s.t, "ms")) * time.Millisecond)
	}
}

// decide accepts or discards the first pending job.
func (s *interleaving) decide(op string) {
	if len(s.pending) == 0 {
		return
	}
	job := s.pending[0]
	s.pending = s.pending[1:]
	if g := s.grants[job]; op == "discard" || s.accept(job, g) != nil || op == "lost accept" {
		g.Discard()
	}
}

// change ends a job, or rotates its credentials.
func (s *interleaving) change(op string, job arcp.JobID) {
	accepted := s.state(job) != ""
	switch op {
	case "rotate", "rotate and end":
		v := s.v
		go func() { _, _ = v.Rotate(context.Background(), job, "") }() // ErrRotating and ErrEnded are expected here
		if op == "rotate and end" && accepted {
			_ = s.end(job) // the job may have ended before
		}
	case "end without": // the records, as if the runtime had left them out
		if accepted {
			s.endBare(job, rapid.Bool().Draw(s.t, "told"))
		}
	case "end":
		if accepted {
			_ = s.end(job) // the job may have ended before
		}
	}
}

func (s *interleaving) check() {
	s.rows()
	for _, job := range s.jobs {
		if state := s.state(job); state != "" && !state.Terminal() && !s.u.serves(job) {
			s.t.Fatalf("%s goes on without its credential", job)
		}
	}
	for _, job := range s.u.revokedEarly() {
		if s.state(job) != "" {
			s.t.Fatalf("%s was accepted after its credential was revoked", job)
		}
	}
}

// endBare ends a job without the records of the vault.
func (f *fixture) endBare(job arcp.JobID, told bool) {
	f.jobMu.Lock()
	defer f.jobMu.Unlock()
	e := store.NewEvent(arcp.JobCompleted, time.Now(), &store.JobContext{JobID: job}, arcp.PriorityNormal, []byte("{}"))
	_, err := f.p.Commit(context.Background(), store.NewWrite(&store.AppendEvents{Job: job, Attempt: 1, Events: []*store.Event{e}, State: arcp.StateCompleted}))
	if err == nil && told {
		f.v.Ended(job)
	}
}
