package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// fakeLeases grants every lease and records the requests.
type fakeLeases struct {
	tenants []LeaseHolder
	asks    []tool.ResourceAsk
}

func (l *fakeLeases) Lease(_ context.Context, t LeaseHolder, a tool.ResourceAsk) (tool.ResourceLease, error) {
	l.tenants, l.asks = append(l.tenants, t), append(l.asks, a)
	return nil, nil
}

func (l *fakeLeases) LeaseDirectory(_ context.Context, t LeaseHolder, a tool.DirectoryAsk) (string, tool.ResourceLease, error) {
	l.tenants, l.asks = append(l.tenants, t), append(l.asks, tool.ResourceAsk{For: a.For})
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
			_, err := j.Resources().Lease(ctx, tool.ResourceAsk{Provider: "p", ExternalID: "x"})
			path, _, err2 := j.Resources().Directory(ctx, tool.DirectoryAsk{For: time.Minute})
			return arcp.Raw(`"` + path + `"`), errors.Join(err, err2)
		})
		q := f.request("sess_1", "t", `{}`)
		q.payload.LeaseRequest = arcp.Raw(`{"fs.read":["/data/**"]}`)
		id := f.send(q)
		frames := f.want("it ends well", "job.accepted "+string(id), "job.started "+string(id), "job.completed "+string(id))
		if len(l.tenants) != 2 || l.asks[0].ExternalID != "x" || l.asks[1].For != time.Minute {
			t.Fatalf("asked for %+v", l.asks)
		}
		for _, got := range l.tenants {
			if got.Principal != "alice" || got.Session != "sess_1" || got.Job != frames[0].JobID || !strings.Contains(string(got.Lease), "/data/**") {
				t.Errorf("the tenant is %+v", got)
			}
		}
		if _, err := job.Resources().Lease(f.Context(), tool.ResourceAsk{}); !errors.Is(err, errEnded) {
			t.Errorf("after the end: %v", err)
		}
		if _, _, err := job.Resources().Directory(f.Context(), tool.DirectoryAsk{}); !errors.Is(err, errEnded) || len(l.tenants) != 2 {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestWithoutResources(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			_, err := j.Resources().Lease(ctx, tool.ResourceAsk{})
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
		f.tool("early", early, echo)
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
			t.Error("who may do nothing can have it done")
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
			t.Error("a lease that cannot be read allows it")
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
		release := f.st.hold()
		time.Sleep(time.Second)
		synctest.Wait() // the ends are in the log, or on their way into it
		live, counted := make(chan int, 1), make(chan [3]int, 1)
		f.cfg.Log.Append(&store.Write{Ops: []store.Op{&store.ReadPosition{Session: "sess_1"}}, NoSync: true}, func(*store.Result) {
			n := 0
			f.e.EachLive(func(string, arcp.JobID, arcp.Raw) bool { n++; return true })
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
