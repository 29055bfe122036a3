package worker

import (
	"cmp"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type attemptHost = tool.Attempt

// fakeAttempt is a host that records why its attempt waits.
type fakeAttempt struct {
	attemptHost
	principal string // "": alice
	waits     chan *tool.WorkerWait
	lease     func() error // nil: the lease has not ended
}

func (fakeAttempt) ID() arcp.JobID  { return "job_1" }
func (fakeAttempt) Attempt() uint32 { return 1 }
func (fakeAttempt) TraceID() string { return "" }
func (a fakeAttempt) Info() tool.AttemptInfo {
	return tool.AttemptInfo{Principal: cmp.Or(a.principal, "alice")}
}
func (fakeAttempt) Ended() <-chan struct{}       { return nil }
func (fakeAttempt) Heartbeat()                   {}
func (a fakeAttempt) SetWait(w *tool.WorkerWait) { a.waits <- w }

func (a fakeAttempt) CheckLease() error {
	if a.lease == nil {
		return nil
	}
	return a.lease()
}

// An attempt waits until a connected worker executes it, and while that worker has no connection.
func TestAttemptWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPool(t)
		a := agentOf("a", "one@1.0.0")
		a.Name = "texts"
		if err := p.Register(a, worker("sess_1", nil)); err != nil {
			t.Fatal(err)
		}
		host := fakeAttempt{waits: make(chan *tool.WorkerWait, 10)}
		want := func(why, reason string) *tool.WorkerWait {
			t.Helper()
			synctest.Wait()
			select {
			case w := <-host.waits:
				if w == nil && reason != "" || w != nil && w.Reason != reason {
					t.Fatalf("%s: the attempt waits for %+v, want %q", why, w, reason)
				}
				return w
			default:
				t.Fatalf("%s: the wait has not changed, want %q", why, reason)
				return nil
			}
		}
		ended := make(chan error, 1)
		go func() {
			_, err := p.execute(t.Context(), "one@1.0.0", tool.NewJob(host), arcp.Raw("{}"))
			ended <- err
		}()
		want("no worker is connected", arcp.WaitWorker)
		p.updateSlots([]string{"one@1.0.0"})
		p.Attach(worker("sess_1", nil), nullConn{})
		want("the worker gets the job", "")
		begin := time.Now()
		p.Detach("sess_1", nullConn{})
		w := want("the worker has lost its connection", arcp.WaitReconnect)
		if w.Worker != "texts" || !w.Since.Equal(begin) || !w.Until.Equal(begin.Add(p.reconnectTimeout)) {
			t.Errorf("the wait is %+v, want one of the worker texts from %v for %v", w, begin, p.reconnectTimeout)
		}
		time.Sleep(p.reconnectTimeout - 1)
		p.Attach(worker("sess_1", nil), nullConn{})
		want("the worker has reconnected", "")
		p.Detach("sess_1", nullConn{})
		w = want("the connection is lost again", arcp.WaitReconnect)
		time.Sleep(time.Until(w.Until) - 1)
		select {
		case err := <-ended:
			t.Fatalf("the attempt has ended before the time is over: %v", err)
		default:
		}
		err := <-ended
		if want := `the worker "texts" did not return in 1m`; !errors.Is(err, tool.ErrLost) || err.Error() != want || !time.Now().Equal(w.Until) {
			t.Errorf("the attempt ends at %v with %v, want ErrLost at %v: %s", time.Now(), err, w.Until, want)
		}
		if len(host.waits) > 0 { // the limit of a lost attempt does not run again
			t.Errorf("the wait changes %d times when the attempt is lost", len(host.waits))
		}
	})
}

// An attempt whose lease has ended while it waited is not dispatched.
func TestLeaseEndsBeforeTheDispatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPool(t)
		if err := p.Register(agentOf("a", "one@1.0.0"), worker("sess_1", nil)); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(time.Minute)
		host := fakeAttempt{waits: make(chan *tool.WorkerWait, 10), lease: func() error {
			if time.Now().Before(end) {
				return nil
			}
			return arcp.Errorf(arcp.CodeLeaseExpired, "too late")
		}}
		ended := make(chan error, 1)
		go func() {
			_, err := p.execute(t.Context(), "one@1.0.0", tool.NewJob(host), arcp.Raw("{}"))
			ended <- err
		}()
		synctest.Wait()
		time.Sleep(2 * time.Minute)
		p.Attach(worker("sess_1", nil), nullConn{})
		if err, _ := arcp.AsError(<-ended); err == nil || err.Code != arcp.CodeLeaseExpired {
			t.Errorf("the attempt ends with %v, want LEASE_EXPIRED", err)
		}
	})
}

// The deadline of a dispatch has the whole limit, however long the attempt has waited.
func TestDeadlineOfADispatch(t *testing.T) {
	now := time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		info tool.AttemptInfo
		want time.Time
	}{
		{tool.AttemptInfo{}, time.Time{}},
		{tool.AttemptInfo{Limit: time.Minute}, now.Add(time.Minute)},
		{tool.AttemptInfo{Deadline: now.Add(time.Hour)}, now.Add(time.Hour)},
		{tool.AttemptInfo{Deadline: now.Add(time.Hour), Limit: time.Minute}, now.Add(time.Minute)},
		{tool.AttemptInfo{Deadline: now.Add(time.Second), Limit: time.Minute}, now.Add(time.Second)},
	} {
		if got := deadlineOf(&c.info, now); !got.Equal(c.want) {
			t.Errorf("deadlineOf(%+v) = %v, want %v", c.info, got, c.want)
		}
	}
}

// The reason for the loss of an attempt names the worker only to its own principal.
func TestReasonOfALoss(t *testing.T) {
	for principal, want := range map[string]string{
		"alice": `the worker "texts" has no connection and is not registered any more`,
		"bob":   `the worker has no connection and is not registered any more`,
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := newPool(t)
			a := agentOf("a", "one@1.0.0")
			a.Name = "texts"
			actor := worker("sess_1", func(string) bool { return true })
			if err := p.Register(a, actor); err != nil {
				t.Fatal(err)
			}
			p.Attach(actor, nullConn{})
			host := fakeAttempt{principal: principal, waits: make(chan *tool.WorkerWait, 10)}
			ended := make(chan error, 1)
			go func() {
				_, err := p.execute(t.Context(), "one@1.0.0", tool.NewJob(host), arcp.Raw("{}"))
				ended <- err
			}()
			synctest.Wait()
			p.Detach("sess_1", nullConn{})
			if w := <-host.waits; (w.Worker == "texts") != (principal == "alice") {
				t.Errorf("%s: the wait names the worker %q", principal, w.Worker)
			}
			p.Unregister(a)
			if err := <-ended; !errors.Is(err, tool.ErrLost) || err.Error() != want {
				t.Errorf("%s: the attempt ends with %v, want %s", principal, err, want)
			}
		})
	}
}

// A duration is written without the units that are 0 at its end.
func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second: "10s", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s",
		1500 * time.Millisecond: "1.5s",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("shortDuration(%d) = %s, want %s", d, got, want)
		}
	}
}
