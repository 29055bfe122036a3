package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// fakeLeases grants every lease and records the requests.
type fakeLeases struct {
	holders  []LeaseHolder
	requests []tool.ResourceRequest
}

func (l *fakeLeases) Lease(_ context.Context, t LeaseHolder, req tool.ResourceRequest) (tool.ResourceLease, error) {
	l.holders, l.requests = append(l.holders, t), append(l.requests, req)
	return nil, nil
}

func (l *fakeLeases) LeaseDirectory(_ context.Context, t LeaseHolder, req tool.DirectoryRequest) (string, tool.ResourceLease, error) {
	l.holders, l.requests = append(l.holders, t), append(l.requests, tool.ResourceRequest{For: req.For})
	return "/dir", nil, nil
}

// A job's resource lease carries the job's identity and authority, and is refused after the
// job's end.
func TestLeaseHolderIsTheJob(t *testing.T) {
	l := &fakeLeases{}
	runEngine(t, func(c *Config) { c.Resources = l }, func(f *fixture) {
		var job tool.Job
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			job = j
			_, err := j.Resources().Lease(ctx, tool.ResourceRequest{Provider: "p", ExternalID: "x"})
			path, _, err2 := j.Resources().Directory(ctx, tool.DirectoryRequest{For: time.Minute})
			return arcp.Raw(`"` + path + `"`), errors.Join(err, err2)
		})
		q := f.request("sess_1", "t", `{}`)
		q.payload.LeaseRequest = arcp.Raw(`{"fs.read":["/data/**"]}`)
		id := f.send(q)
		frames := f.want("it ends well", "job.accepted "+string(id), "job.started "+string(id), "job.completed "+string(id))
		if len(l.holders) != 2 || l.requests[0].ExternalID != "x" || l.requests[1].For != time.Minute {
			t.Fatalf("asked for %+v", l.requests)
		}
		for _, got := range l.holders {
			if got.Principal != "alice" || got.Session != "sess_1" || got.Job != frames[0].JobID || !strings.Contains(string(got.Lease), "/data/**") {
				t.Errorf("the holder is %+v", got)
			}
		}
		if _, err := job.Resources().Lease(f.Context(), tool.ResourceRequest{}); !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
		if _, _, err := job.Resources().Directory(f.Context(), tool.DirectoryRequest{}); !errors.Is(err, errEnded) || len(l.holders) != 2 {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestWithoutResources(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Resources().Lease(ctx, tool.ResourceRequest{})
			return nil, err
		})
		id := f.submit("t", `{}`)
		frames := f.want("it says so", "job.accepted "+string(id), "job.started "+string(id), "job.failed "+string(id))
		if !strings.Contains(string(frames[2].Payload), "FAILED_PRECONDITION") {
			t.Errorf("it fails with %s", frames[2].Payload)
		}
	})
}

func TestPerform(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var may error
		f.tool("ok", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			may = j.Authority().Allow("fs.read", "/data/x")
			return arcp.Raw(`1`), nil
		})
		f.tool("early", withoutSideEffect, echo)
		f.tool("fails", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return nil, arcp.Errorf(arcp.CodeUnavailable, "not today")
		})
		f.tool("wait", func(c *tool.Capability) { c.Limits.Timeout = -1 }, wait)
		f.tool("builtin", builtin(tool.SideEffectWrite), echo)
		f.tool("trusting", func(c *tool.Capability) { c.MinTrust = "privileged" }, echo)
		as := LeaseHolder{Principal: "alice", Trust: "trusted"}
		perform := func(as LeaseHolder, name string) error {
			return f.e.RunCleanupTool(f.Context(), as, name, arcp.Raw(`{}`))
		}
		for _, name := range []string{"ok", "early"} {
			if err := perform(as, name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if may == nil {
			t.Error("Allow without a lease = nil, want an error")
		}
		allowed := as
		allowed.Lease = arcp.Raw(`{"fs.read":["/data/**"]}`)
		if err := perform(allowed, "ok"); err != nil || may != nil {
			t.Errorf("who may read: %v, %v", err, may)
		}
		for name, code := range map[string]arcp.Code{"fails": arcp.CodeUnavailable, "nope": arcp.CodeAgentNotAvailable,
			"builtin": arcp.CodePermissionDenied, "trusting": arcp.CodePermissionDenied} {
			if e, ok := errors.AsType[*arcp.Error](perform(as, name)); !ok || e.Code != code {
				t.Errorf("%s: %v, want %s", name, e, code)
			}
		}
		for name, code := range map[string]arcp.Code{"nope": arcp.CodeInvalidArgument, "builtin": arcp.CodeInvalidArgument,
			"trusting": arcp.CodePermissionDenied} {
			if e, ok := errors.AsType[*arcp.Error](f.e.CheckCleanupTool(as, name)); !ok || e.Code != code {
				t.Errorf("takes %s: %v, want %s", name, e, code)
			}
		}
		if err := f.e.CheckCleanupTool(as, "ok"); err != nil {
			t.Errorf("takes ok: %v", err)
		}
		as.Lease = arcp.Raw(`{`)
		if err := perform(as, "ok"); err == nil {
			t.Error("RunCleanupTool with an unreadable lease = nil, want an error")
		}
		as.Lease = nil

		ctx, cancel := context.WithTimeoutCause(f.Context(), time.Second, errors.New("too late"))
		defer cancel()
		if err := f.e.RunCleanupTool(ctx, as, "wait", arcp.Raw(`{}`)); err == nil || err.Error() != "too late" {
			t.Errorf("what takes too long: %v", err)
		}
		synctest.Wait()
		f.expectNoState("and is cancelled")

		f.st.breakWith(errCrash)
		if e, ok := errors.AsType[*arcp.Error](perform(as, "ok")); !ok || e.Code != arcp.CodeUnavailable {
			t.Errorf("without a store: %v", e)
		}
	})
}

// fakeRights are the present rights of every principal.
type fakeRights struct {
	mu      sync.Mutex
	rights  Rights
	refusal *arcp.Error
	asked   []string // identities
}

func (fr *fakeRights) set(r Rights, err *arcp.Error) {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	fr.rights, fr.refusal = r, err
}

func (fr *fakeRights) get(identity arcp.Raw) (Rights, *arcp.Error) {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	fr.asked = append(fr.asked, string(identity))
	return fr.rights, fr.refusal
}

// A clean-up tool has at most the rights that the principal has when it runs. An elevation does not outlast its
// session.
func TestCleanupRights(t *testing.T) {
	var now fakeRights
	runEngine(t, func(c *Config) { c.Rights = now.get }, func(f *fixture) {
		var may error
		f.tool("ok", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			may = j.Authority().Allow("fs.read", "/data/x")
			return nil, nil
		})
		f.tool("high", func(c *tool.Capability) { c.MinTrust = arcp.Privileged }, echo)
		f.tool("low", func(c *tool.Capability) { c.MinTrust = arcp.Trusted }, echo)
		elevated := LeaseHolder{Principal: "alice", Trust: arcp.Privileged, Lease: arcp.Raw(`{"fs.read":["/data/**"]}`), Identity: arcp.Raw(`"alice"`)}
		trusted := elevated
		trusted.Trust = arcp.Trusted
		ended := trusted
		ended.Lease = arcp.Raw(`{"fs.read":["/data/**"],"expires_at":"1999-12-31T00:00:00Z"}`)
		old := elevated
		old.Identity = nil
		data, other := leaseFrom(t, `{"fs.read":["/data/**"]}`), leaseFrom(t, `{"fs.read":["/other"]}`)
		removed := arcp.Errorf(arcp.CodePermissionDenied, "who?")
		for _, c := range []struct {
			name    string
			holder  LeaseHolder
			rights  Rights
			refusal *arcp.Error
			tool    string
			code    string
		}{
			{"as then", trusted, Rights{Trust: arcp.Trusted}, nil, "low", ""},
			{"the elevation has ended", elevated, Rights{Trust: arcp.Trusted}, nil, "high", "PERMISSION_DENIED"},
			{"more trust than then", trusted, Rights{Trust: arcp.Privileged}, nil, "high", "PERMISSION_DENIED"},
			{"less trust than then", trusted, Rights{Trust: arcp.Constrained}, nil, "low", "PERMISSION_DENIED"},
			{"a covering lease", trusted, Rights{Trust: arcp.Trusted, Lease: data}, nil, "ok", ""},
			{"the job's lease has ended", ended, Rights{Trust: arcp.Trusted, Lease: data}, nil, "ok", ""},
			{"the principal's lease has ended", trusted, Rights{Trust: arcp.Trusted, Lease: decodeLease(ended.Lease)}, nil, "ok", "LEASE_EXPIRED"},
			{"another lease", trusted, Rights{Trust: arcp.Trusted, Lease: other}, nil, "ok", "PERMISSION_DENIED"},
			{"the principal is removed", trusted, Rights{}, removed, "ok", "PERMISSION_DENIED"},
			{"stored by an earlier version", old, Rights{}, removed, "high", ""},
		} {
			now.set(c.rights, c.refusal)
			may = errors.New("the tool was not called")
			if err := f.e.RunCleanupTool(f.Context(), c.holder, c.tool, arcp.Raw("{}")); code(err) != c.code {
				t.Errorf("%s: %v, want %q", c.name, err, c.code)
			}
			if c.tool == "ok" && (may == nil) != (c.code == "") {
				t.Errorf("%s: Allow = %v", c.name, may)
			}
		}
	})
}

// A resource lease stores the identity with which the job was submitted. A child stores that of its root job. After
// a restart, a job stores the identity of its session.
func TestIdentityOfAHolder(t *testing.T) {
	l, now := &fakeLeases{}, &fakeRights{}
	runEngine(t, func(c *Config) { c.Resources, c.Rights = l, now.get }, func(f *fixture) {
		take := func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Resources().Lease(ctx, tool.ResourceRequest{})
			return arcp.Raw("{}"), err
		}
		f.tool("take", nil, take)
		f.tool("parent", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			return j.Call(ctx, tool.Call{Tool: "take", Arguments: arcp.Raw("{}")})
		})
		f.tool("later", rerun, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			return take(ctx, j, args)
		})
		for _, name := range []string{"take", "parent", "later"} {
			q := f.request("sess_1", name, "{}")
			q.payload.LeaseRequest, q.Identity = arcp.Raw(`{"tool.call":["take"]}`), arcp.Raw(`"submit"`)
			f.send(q)
		}
		f.frames("sess_1")
		row, err := f.st.Session(f.Context(), "sess_1")
		if err != nil {
			t.Fatal(err)
		}
		row.Identity = arcp.Raw(`"session"`)
		f.cfg.Log.Append(store.NewWrite(&store.PutSession{Row: &row}), nil)
		f.restart(1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var got []string
		for _, h := range l.holders {
			got = append(got, string(h.Identity))
		}
		if want := []string{`"submit"`, `"submit"`, `"session"`}; !slices.Equal(got, want) {
			t.Errorf("the holders have the identities %q, want %q", got, want)
		}
	})
}

// RunCleanupTool returns ErrStopping at a shutdown.
func TestPerformStops(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("wait", func(c *tool.Capability) { c.Limits.Timeout = -1 }, wait)
		done := make(chan error, 1)
		go func() {
			done <- f.e.RunCleanupTool(f.Context(), LeaseHolder{Principal: "alice", Trust: "trusted"}, "wait", arcp.Raw(`{}`))
		}()
		synctest.Wait()
		f.stop(time.Second)
		if err := <-done; !errors.Is(err, ErrStopping) {
			t.Errorf("error %v", err)
		}
	})
}

// A job whose end is durable is not live and counts for no limit, even before its supervisor
// sees the end.
func TestEndedJobsAreNotLive(t *testing.T) {
	const jobs = 200
	limits := func(c *Config) { c.MaxJobs, c.MaxJobsPerPrincipal, c.MaxJobsPerSession = jobs, jobs, jobs }
	runEngine(t, limits, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, _ tool.Job, args arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			return args, nil
		})
		for range jobs {
			f.submit("t", `{}`)
		}
		synctest.Wait()
		var last arcp.JobID
		f.e.EachLive(func(_ string, id arcp.JobID, _ arcp.Raw) bool {
			last = id
			return true
		})
		if !f.e.IsLive(last) || f.e.IsLive("job_unknown") {
			t.Error("IsLive: a running job does not live, or an unknown one does")
		}
		release := f.st.hold()
		time.Sleep(time.Second)
		synctest.Wait() // the ends are in the log, or on their way into it
		live, counted := make(chan int, 1), make(chan [3]int, 1)
		f.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: "sess_1"}}, NoSync: true}, func(*store.Result) {
			n := 0
			f.e.EachLive(func(string, arcp.JobID, arcp.Raw) bool { n++; return true })
			if f.e.IsLive(last) {
				n++
			}
			live <- n
			f.e.mu.Lock()
			defer f.e.mu.Unlock()
			f.e.jobs.uncountConcluded()
			counted <- [3]int{f.e.jobs.counted, f.e.jobs.perPrincipal["alice"], f.e.jobs.perSession["sess_1"].counted}
		})
		release()
		if n := <-live; n != 0 {
			t.Errorf("%d of %d jobs live whose ends are durable", n, jobs)
		}
		if n := <-counted; n != [3]int{} {
			t.Errorf("%v jobs count for limits whose ends are durable", n)
		}
	})
}
