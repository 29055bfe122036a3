package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// resumable opens a session that can be resumed with the token rt_1 for a minute.
const resumable = `
	C open: session.open
	S: session.accepted corr=open {"session_id":"sess_1","runtime":{"kind":"fake","version":"1"},"capabilities":{},"resume_token":"rt_1","resume_window_sec":60}
`

// resumed is the start of a connection that continues after event n.
func resumed(token string, n int, next string) string {
	return fmt.Sprintf(`
		C resume: session.resume {"resume_token":%q,"last_event_seq":%d}
		S: session.resumed corr=resume {"session_id":"sess_1","resume_token":%q,"replayed_from":%d,"replayed":true}
	`, token, n, next, n)
}

// dialer dials fake runtimes, one script per connection. After the last script dialing fails.
type dialer struct {
	t       *testing.T
	scripts []string
	names   *names

	mu    sync.Mutex
	fakes []*fake
	dials []time.Time
}

var errNoListener = fmt.Errorf("%w: nobody listens", client.ErrUnreachable)

func (d *dialer) dial(context.Context) (transport.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials = append(d.dials, time.Now())
	if len(d.fakes) == len(d.scripts) {
		return nil, errNoListener
	}
	conn, f := startNext(d.t, d.scripts[len(d.fakes)], d.names)
	d.fakes = append(d.fakes, f)
	return conn, nil
}

// times returns the times of the attempts.
func (d *dialer) times() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dials
}

func (d *dialer) lastPause() time.Duration {
	times := d.times()
	return times[len(times)-1].Sub(times[len(times)-2])
}

// changes records the changes of the connection.
type changes struct {
	mu   sync.Mutex
	list []client.LinkChange
}

func (c *changes) add(ch client.LinkChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, ch)
}

func (c *changes) states() (s []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.list {
		s = append(s, ch.State.String())
	}
	return s
}

// connected runs a test in a bubble with a client of Connect.
func connected(t *testing.T, opts client.Options, scripts []string, test func(t *testing.T, c *client.Client, d *dialer, seen *changes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{t: t, scripts: scripts, names: new(names)}
		seen := new(changes)
		opts.Reconnect.OnChange = seen.add
		c, err := client.ConnectFunc(t.Context(), d.dial, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			c.Abort()
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, f := range d.fakes {
				f.conn.Abort()
			}
		}()
		test(t, c, d, seen)
	})
}

const invoked = `
	C invoke: tool.invoke
	S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
	S: job.started corr=invoke job=job_1 seq=2
`

var lifecycle = []arcp.Type{arcp.JobAccepted, arcp.JobStarted, arcp.JobProgress, arcp.JobCompleted}

func TestResumeInTheMiddleOfAJob(t *testing.T) {
	for _, end := range []string{"abort", "close 1001", "close 1006", "close 1011", "close 1012", "close 1013", "close 1008 heartbeat lost"} {
		t.Run(end, func(t *testing.T) {
			connected(t, bearer, []string{
				resumable + invoked + end,
				resumed("rt_1", 2, "rt_2") + `
					S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
					S: job.completed job=job_1 corr=invoke seq=4 {"value":7}
				`,
			}, func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
				j, err := c.Invoke(t.Context(), echo)
				want(t, "invoke", err, nil)
				types, err := collect(t, j)
				want(t, "the iterator notices nothing", err, nil)
				want(t, "events", types, lifecycle)
				want(t, "changes", seen.states(), []string{"reconnecting", "resumed"})
				wantIs(t, "why", seen.list[0].Err, client.ErrConnectionLost)
				want(t, "token", c.Session().ResumeToken.Reveal(), "rt_2")
				want(t, "window", c.Session().ResumeWindow, time.Minute)
				want(t, "last", c.LastEventSeq(), 4)
				want(t, "close", c.Close(t.Context(), ""), nil)
			})
		})
	}
}

func TestPermanentEndsAreNotResumed(t *testing.T) {
	for _, end := range []string{"close 1008 superseded", "close 1009", `S: session.evicted {"code":"CANCELLED","reason":"out"}` + "\nclose 1008 evicted",
		"raw nonsense", `S: log seq=9 {"level":"info","message":"a gap"}`} {
		t.Run(end, func(t *testing.T) {
			connected(t, bearer, []string{resumable + end}, func(t *testing.T, c *client.Client, d *dialer, seen *changes) {
				<-c.Done()
				time.Sleep(time.Hour)
				want(t, "connections", len(d.times()), 1)
				want(t, "changes", seen.states(), nil)
			})
		})
	}
	t.Run("without a token", func(t *testing.T) {
		connected(t, bearer, []string{opened + "abort"}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
			<-c.Done()
			wantIs(t, "there is no way back", c.Err(), client.ErrConnectionLost)
		})
	})
}

// The reply to a resume may be lost. The runtime then accepts the new token, which no client
// has, and the old one.
func TestResumeReplyLost(t *testing.T) {
	connected(t, bearer, []string{
		resumable + "abort",
		`C resume: session.resume {"resume_token":"rt_1"}
		 abort`,
		resumed("rt_1", 0, "rt_3") + "abort",
		resumed("rt_3", 0, "rt_4"),
	}, func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
		time.Sleep(time.Minute)
		want(t, "changes", seen.states(), []string{"reconnecting", "resumed", "reconnecting", "resumed"})
		want(t, "token", c.Session().ResumeToken.Reveal(), "rt_4")
	})
}

// The runtime may process a resume whose reply was lost concurrently with the next resume, and
// attach the session to the abandoned connection.
func TestConcurrentResumeAttempts(t *testing.T) {
	lostReply := `C resume: session.resume {"resume_token":"rt_1"}
		abort`
	rejected := `C resume: session.resume
		S: session.rejected corr=resume {"code":"RESUME_WINDOW_EXPIRED","message":"another connection was faster"}`
	for name, script := range map[string][]string{
		"refused":       {lostReply, rejected, resumed("rt_1", 0, "rt_2")},
		"superseded":    {lostReply, resumed("rt_1", 0, "rt_2") + "close 1008 superseded", rejected, resumed("rt_1", 0, "rt_3")},
		"only so often": {lostReply, rejected, rejected},
	} {
		t.Run(name, func(t *testing.T) {
			connected(t, bearer, append([]string{resumable + "abort"}, script...), func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
				time.Sleep(time.Minute)
				want(t, "attempts", len(d.times()), 1+len(script))
				want(t, "lost", errors.Is(c.Err(), client.ErrSessionLost), name == "only so often")
			})
		})
	}
}

func TestPreviousResumeToken(t *testing.T) {
	connected(t, bearer, []string{
		resumable + "abort",
		resumed("rt_1", 0, "rt_2") + "abort",
		`C resume: session.resume {"resume_token":"rt_2"}
		 S: session.rejected corr=resume {"code":"RESUME_WINDOW_EXPIRED","message":"unknown token"}`,
		resumed("rt_1", 0, "rt_3"),
	}, func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
		time.Sleep(time.Minute)
		want(t, "changes", seen.states(), []string{"reconnecting", "resumed", "reconnecting", "resumed"})
		want(t, "token", c.Session().ResumeToken.Reveal(), "rt_3")
	})
}

func TestRepeatedEventsAreSkipped(t *testing.T) {
	connected(t, bearer, []string{
		resumable + invoked + "abort",
		`C resume: session.resume {"last_event_seq":2}
		 S: session.resumed corr=resume {"session_id":"sess_1","resume_token":"rt_2","replayed_from":1,"replayed":true}
		 S: job.started job=job_1 corr=invoke seq=2
		 S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
		 S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
		 S: job.completed job=job_1 corr=invoke seq=4`,
	}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		types, err := collect(t, j)
		want(t, "error", err, nil)
		want(t, "events", types, lifecycle)
	})
}

func TestGapAfterResume(t *testing.T) {
	for name, script := range map[string]string{
		"in the events": resumed("rt_1", 2, "rt_2") + `S: job.completed job=job_1 corr=invoke seq=4`,
		"said at once": `C resume: session.resume
			S: session.resumed corr=resume {"session_id":"sess_1","resume_token":"rt_2","replayed_from":3,"replayed":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			connected(t, bearer, []string{resumable + invoked + "abort", script}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
				j, err := c.Invoke(t.Context(), echo)
				want(t, "invoke", err, nil)
				_, err = j.Wait(t.Context())
				e := wantAs[*client.SequenceError](t, "a gap is an error", err)
				want(t, "numbers", [2]uint64{e.Want, e.Got}, [2]uint64{3, 4})
			})
		})
	}
}

func TestRejectedResumeLosesTheSession(t *testing.T) {
	const rejected = `C resume: session.resume
		S: session.rejected corr=resume {"code":"%s","message":"no"}`
	for _, code := range []arcp.Code{arcp.CodeResumeWindowExpired, arcp.CodeDataLoss, arcp.CodeUnauthenticated} {
		t.Run(string(code), func(t *testing.T) {
			connected(t, bearer, []string{resumable + invoked + "abort", fmt.Sprintf(rejected, code)},
				func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
					j, err := c.Invoke(t.Context(), echo)
					want(t, "invoke", err, nil)
					_, err = j.Wait(t.Context())
					wantIs(t, "what waits", err, client.ErrSessionLost)
					want(t, "cause", wantAs[*client.RemoteError](t, "cause", err).Code, code)
					_, err = c.Ping(t.Context())
					wantIs(t, "what comes later", err, client.ErrSessionLost)
					want(t, "changes", seen.states(), []string{"reconnecting", "lost"})
				})
		})
	}
}

func TestNoRuntimeWithinTheWindow(t *testing.T) {
	connected(t, bearer, []string{resumable + "abort"}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		start := time.Now()
		<-c.Done()
		wantIs(t, "error", c.Err(), client.ErrSessionLost)
		wantIs(t, "its cause", c.Err(), client.ErrUnreachable)
		want(t, "it took the announced window", time.Since(start).Round(time.Second), time.Minute)
		if n := len(d.times()); n < 12 || n > 200 {
			t.Errorf("attempts = %d in a minute, want about one in 2.5 s", n)
		}
	})
}

func TestRuntimeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &dialer{t: t, scripts: []string{resumable + "close 1001"}, names: new(names)}
		opts := bearer
		opts.Reconnect.Window = time.Hour
		c, err := client.ConnectFunc(t.Context(), d.dial, opts)
		want(t, "connect", err, nil)
		defer c.Abort()
		time.Sleep(30 * time.Minute)
		rtt := make(chan error)
		go func() { _, err := c.Ping(t.Context()); rtt <- err }()
		synctest.Wait()
		d.mu.Lock()
		d.scripts = append(d.scripts, `C resume: session.resume
			S: session.rejected corr=resume {"code":"UNAVAILABLE","message":"starting","retryable":true,"details":{"retry_after_seconds":20}}`,
			resumed("rt_1", 0, "rt_2")+`C ping: ping`)
		d.mu.Unlock()
		for c.Session().ReplayedFrom == 0 && !c.Session().Resumed {
			time.Sleep(time.Second)
		}
		pause := d.lastPause()
		want(t, "a runtime's wish is respected", pause >= 20*time.Second, true)
		c.Abort()
		wantIs(t, "the ping waited", <-rtt, client.ErrClosed)
	})
}

func TestUnansweredRequestsAreRepeated(t *testing.T) {
	connected(t, bearer, []string{
		resumable + `
			C invoke: tool.invoke
			C list: session.list_jobs
			C cancel: cancel
			abort`,
		resumed("rt_1", 0, "rt_2") + `
			C invoke2: tool.invoke {"tool":"demo.echo"}
			C list2: session.list_jobs
			S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
			abort`,
		resumed("rt_2", 1, "rt_3") + `
			C list3: session.list_jobs
			C cancel3: cancel
			S: session.jobs corr=list {"request_id":"r","jobs":[],"next_cursor":null}
			S: job.accepted corr=invoke job=job_1 {"job_id":"job_1"}
			S: cancel.accepted corr=cancel {"target_id":"job_1"}
			S: job.cancelled job=job_1 corr=invoke seq=2 {"code":"CANCELLED"}`,
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		type done struct {
			name string
			err  error
		}
		results := make(chan done)
		try := func(name string, do func() error) {
			go func() { results <- done{name, do()} }()
			synctest.Wait()
		}
		var job *client.Job
		try("invoke", func() (err error) { job, err = c.Invoke(t.Context(), echo); return err })
		try("list", func() error { _, err := c.ListJobs(t.Context(), client.ListJobsParams{}); return err })
		try("cancel", func() error { return c.Cancel(t.Context(), client.CancelParams{JobID: "job_1"}) })
		for range 3 {
			r := <-results
			want(t, r.name, r.err, nil)
		}
		types, err := collect(t, job)
		want(t, "error", err, nil)
		want(t, "the acceptance comes once", types, []arcp.Type{arcp.JobAccepted, arcp.JobCancelled})
		want(t, "the same command", d.names.get("invoke2"), d.names.get("invoke"))
		want(t, "the same question", d.names.get("list3"), d.names.get("list"))
	})
}

func TestCommandsBetweenConnections(t *testing.T) {
	opts := bearer
	opts.Reconnect.MinDelay, opts.Reconnect.MaxDelay = 10*time.Second, 10*time.Second
	connected(t, opts, []string{resumable + "abort", resumed("rt_1", 0, "rt_2") + "C log: log\n" + invoked + "S: job.completed job=job_1 corr=invoke seq=3"},
		func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			abandoned := make(chan error)
			go func() { _, err := c.Invoke(ctx, echo); abandoned <- err }()
			synctest.Wait()
			want(t, "what needs no answer waits too", c.Send(arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: "x"})), nil)
			accepted := make(chan *client.Job)
			go func() { j, err := c.Invoke(t.Context(), echo); want(t, "invoke", err, nil); accepted <- j }()
			synctest.Wait()
			cancel()
			wantIs(t, "its context is honoured, and it is never said", <-abandoned, context.Canceled)
			j := <-accepted
			_, err := j.Wait(t.Context())
			want(t, "wait", err, nil)
		})
}

func TestAcksAcrossConnections(t *testing.T) {
	opts := bearer
	opts.AckEvery = 2
	connected(t, opts, []string{
		resumable + invoked + `
			C ack: session.ack {"last_processed_seq":2}
			abort`,
		resumed("rt_1", 2, "rt_2") + `
			C again: session.ack {"last_processed_seq":2}
			S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
			S: job.completed job=job_1 corr=invoke seq=4
			C last: session.ack {"last_processed_seq":4}`,
	}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		_, err = j.Wait(t.Context())
		want(t, "wait", err, nil)
		synctest.Wait()
	})
}

// A full window stops the events, so the client acknowledges half a window at the latest. Each
// connection has its own window.
func TestAcksWithinTheWindow(t *testing.T) {
	opts := bearer
	opts.AckEvery, opts.Capabilities.AckWindow = 100, 8
	connected(t, opts, []string{`
		C open: session.open {"capabilities":{"ack_window":8,"refresh":true}}
		S: session.accepted corr=open {"session_id":"sess_1","runtime":{"kind":"fake","version":"1"},"capabilities":{"ack_window":4},"resume_token":"rt_1","resume_window_sec":60}
		` + invoked + `
		C ack: session.ack {"last_processed_seq":2}
		abort`, `
		C resume: session.resume {"resume_token":"rt_1","last_event_seq":2,"ack_window":8}
		S: session.resumed corr=resume {"session_id":"sess_1","resume_token":"rt_2","replayed_from":2,"replayed":true,"ack_window":2}
		C again: session.ack {"last_processed_seq":2}
		S: job.progress job=job_1 corr=invoke seq=3 {"current":1}
		C first: session.ack {"last_processed_seq":3}
		S: job.completed job=job_1 corr=invoke seq=4
		C last: session.ack {"last_processed_seq":4}`,
	}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		_, err = j.Wait(t.Context())
		want(t, "wait", err, nil)
		synctest.Wait()
	})
}

func TestCloseBetweenConnections(t *testing.T) {
	for name, end := range map[string]func(*client.Client) error{
		"close": func(c *client.Client) error { return c.Close(t.Context(), "") },
		"abort": func(c *client.Client) error { c.Abort(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			connected(t, bearer, []string{resumable + invoked + "abort"}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
				j, err := c.Invoke(t.Context(), echo)
				want(t, "invoke", err, nil)
				time.Sleep(time.Second)
				want(t, "end", end(c), nil)
				_, err = j.Wait(t.Context())
				wantIs(t, "what waits", err, client.ErrClosed)
				n := len(d.times())
				time.Sleep(time.Hour)
				want(t, "later attempts", len(d.times())-n, 0)
			})
		})
	}
	t.Run("during a handshake", func(t *testing.T) {
		connected(t, bearer, []string{resumable + "abort", "C resume: session.resume\nhang"}, func(t *testing.T, c *client.Client, _ *dialer, _ *changes) {
			time.Sleep(time.Second)
			want(t, "close", c.Close(t.Context(), ""), nil)
		})
	})
}

// A resume without an answer times out, and the next attempt follows.
func TestUnansweredResumeIsTriedAgain(t *testing.T) {
	connected(t, bearer, []string{resumable + "abort", "C resume: session.resume\nhang", resumed("rt_1", 0, "rt_2")},
		func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
			time.Sleep(15 * time.Second)
			want(t, "changes", seen.states(), []string{"reconnecting", "resumed"})
		})
}

func TestSilentRuntimeIsDialedAgain(t *testing.T) {
	heartbeats := strings.Replace(resumable, `"capabilities":{}`, `"capabilities":{"heartbeat":true},"heartbeat_interval_sec":5`, 1)
	connected(t, bearer, []string{heartbeats + "wait 5s\nS: session.ping {\"nonce\":\"n\",\"sent_at\":\"2026-05-09T13:00:00Z\"}\nhang", resumed("rt_1", 0, "rt_2")},
		func(t *testing.T, c *client.Client, _ *dialer, seen *changes) {
			time.Sleep(14 * time.Second)
			want(t, "two intervals have not passed", seen.states(), nil)
			time.Sleep(8 * time.Second)
			want(t, "they have", seen.states(), []string{"reconnecting", "resumed"})
			want(t, "why", strings.Contains(seen.list[0].Err.Error(), "no frame received for"), true)
		})
}

func TestFeedIsReopened(t *testing.T) {
	event := func(sub, id string) string {
		return fmt.Sprintf(`S: subscribe.event sub=%s {"event":{"arcp":"1.1","id":%q,"type":"log","timestamp":"2026-05-09T13:00:00Z","payload":{"level":"info","message":"m"}}}`+"\n", sub, id)
	}
	marker := func(sub, name, data string) string {
		return fmt.Sprintf(`S: subscribe.event sub=%s {"event":{"arcp":"1.1","id":"msg_m","type":"event.emit","timestamp":"2026-05-09T13:00:00Z","payload":{"name":%q,"data":%s}}}`+"\n", sub, name, data)
	}
	connected(t, bearer, []string{
		resumable + `
			C sub: subscribe {"filter":{"types":["log"]}}
			S: subscribe.accepted corr=sub sub=sub_1 {"subscription_id":"sub_1"}
			` + event("sub_1", "msg_a") + "abort",
		resumed("rt_1", 0, "rt_2") + `
			C sub2: subscribe {"filter":{"types":["log"]},"since":{"after_message_id":"msg_a"}}
			abort`,
		resumed("rt_2", 0, "rt_3") + `
			C sub3: subscribe {"filter":{"types":["log"]},"since":{"after_message_id":"msg_a"}}
			S: subscribe.accepted corr=sub3 sub=sub_3 {"subscription_id":"sub_3"}
			` + event("sub_3", "msg_b") + marker("sub_3", client.FeedCaughtUp, "{}") + marker("sub_3", client.FeedGap, `{"skipped":2,"first_id":"msg_c","last_id":"msg_d"}`) + "abort",
		resumed("rt_3", 0, "rt_4") + `
			C sub4: subscribe {"since":{"after_message_id":"msg_d"}}
			S: subscribe.accepted corr=sub4 sub=sub_4 {"subscription_id":"sub_4"}
			` + event("sub_4", "msg_e") + "abort",
		resumed("rt_4", 0, "rt_5") + `
			C sub5: subscribe {"since":{"after_message_id":"msg_e"}}
			S: nack corr=sub5 {"code":"PERMISSION_DENIED","message":"no"}`,
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		f, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{Filter: &arcp.EventFilter{Types: []arcp.Type{arcp.Log}}})
		want(t, "subscribe", err, nil)
		var ids []arcp.MessageID
		for env, e := range f.Events(t.Context()) {
			if err = e; err == nil {
				ids = append(ids, env.ID)
			}
		}
		want(t, "events once each, the gap told, no marker nobody asked for", ids, []arcp.MessageID{"msg_a", "msg_b", "msg_m", "msg_e"})
		want(t, "the end", wantAs[*client.RemoteError](t, "the end", err).Code, arcp.CodePermissionDenied)
		want(t, "the id stays", f.ID(), "sub_1")
		want(t, "the client goes on", c.Err(), nil)
	})
}

// A feed whose last event is no longer retained continues with live events and reports the
// gap. Such a gap is no error: the filter may have selected nothing for a long time.
func TestFeedContinuesLive(t *testing.T) {
	const refused = `{"code":"DATA_LOSS","message":"the message is not among the events that are kept"}`
	event := func(sub, id string) string {
		return fmt.Sprintf(`S: subscribe.event sub=%s {"event":{"arcp":"1.1","id":%q,"type":"log","timestamp":"2026-05-09T13:00:00Z","payload":{"level":"info","message":"m"}}}`+"\n", sub, id)
	}
	since := &arcp.Since{AfterMessageID: "msg_0"}
	connected(t, bearer, []string{
		resumable + `
			C sub: subscribe {"since":{"after_message_id":"msg_0"}}
			S: subscribe.accepted corr=sub sub=sub_1 {"subscription_id":"sub_1"}
			abort`,
		resumed("rt_1", 0, "rt_2") + `
			C sub2: subscribe {"filter":{"types":["log"]},"since":{"after_message_id":"msg_0"}}
			S: nack corr=sub2 ` + refused + `
			C live: subscribe {"filter":{"types":["log"]}}
			abort`,
		resumed("rt_2", 0, "rt_3") + `
			C live2: subscribe {"filter":{"types":["log"]}}
			S: subscribe.accepted corr=live2 sub=sub_3 {"subscription_id":"sub_3"}
			` + event("sub_3", "msg_a") + "abort",
		resumed("rt_3", 0, "rt_4") + `
			C sub4: subscribe {"filter":{"types":["log"]},"since":{"after_message_id":"msg_a"}}
			S: nack corr=sub4 ` + refused + `
			C live4: subscribe {"filter":{"types":["log"]}}
			S: subscribe.accepted corr=live4 sub=sub_4 {"subscription_id":"sub_4"}
			` + event("sub_4", "msg_b") + "abort",
		resumed("rt_4", 0, "rt_5") + `
			C sub5: subscribe {"filter":{"types":["log"]},"since":{"after_message_id":"msg_b"}}
			S: nack corr=sub5 {"code":"PERMISSION_DENIED","message":"no"}`,
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		f, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{Filter: &arcp.EventFilter{Types: []arcp.Type{arcp.Log}}, Since: since})
		want(t, "subscribe", err, nil)
		var got []string
		for env, e := range f.Events(t.Context()) {
			if err = e; err != nil {
				break
			}
			p, _ := arcp.DecodePayload[arcp.EventEmitPayload](&env)
			got = append(got, cmp.Or(p.Name, string(env.ID)))
			want(t, "a marker is of the feed", env.Type == arcp.EventEmit, env.SubscriptionID == f.ID())
		}
		want(t, "what came", got, []string{client.FeedGap, client.FeedCaughtUp, "msg_a", client.FeedGap, "msg_b"})
		want(t, "another refusal ends it", wantAs[*client.RemoteError](t, "the end", err).Code, arcp.CodePermissionDenied)
		for i, types := range [][]arcp.Type{1: {arcp.SessionResume, arcp.Subscribe, arcp.Subscribe}, 2: {arcp.SessionResume, arcp.Subscribe}} {
			if types != nil {
				want(t, fmt.Sprint("said on connection ", i), d.fakes[i].types(), types)
				said := d.fakes[i].received
				want(t, "the last one asks for what is live", string(said[len(said)-1].Payload), `{"filter":{"types":["log"]}}`)
			}
		}
	})
}

func TestFeedClosedBetweenConnections(t *testing.T) {
	opts := bearer
	opts.Reconnect.MinDelay = 5 * time.Second
	connected(t, opts, []string{
		resumable + `
			C sub: subscribe
			S: subscribe.accepted corr=sub sub=sub_1 {"subscription_id":"sub_1"}
			abort`,
		resumed("rt_1", 0, "rt_2") + "C ping: ping",
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		f, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
		want(t, "subscribe", err, nil)
		synctest.Wait()
		want(t, "close", f.Close(), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Ping(ctx) // the script checks that no other message is sent
		synctest.Wait()
		want(t, "sent", d.fakes[1].types(), []arcp.Type{arcp.SessionResume, arcp.Ping})
	})
}

func TestFeedClosedWhileReopened(t *testing.T) {
	connected(t, bearer, []string{
		resumable + `
			C sub: subscribe
			S: subscribe.accepted corr=sub sub=sub_1 {"subscription_id":"sub_1"}
			abort`,
		resumed("rt_1", 0, "rt_2") + `
			C again: subscribe
			wait 10s
			S: subscribe.accepted corr=again sub=sub_2 {"subscription_id":"sub_2"}
			C un: unsubscribe {"subscription_id":"sub_2"}`,
	}, func(t *testing.T, c *client.Client, d *dialer, _ *changes) {
		f, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
		want(t, "subscribe", err, nil)
		time.Sleep(5 * time.Second)
		want(t, "close", f.Close(), nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, "sent", d.fakes[1].types(), []arcp.Type{arcp.SessionResume, arcp.Subscribe, arcp.Unsubscribe})
	})
}

func TestFirstConnectionIsTriedOnce(t *testing.T) {
	_, err := client.Connect(t.Context(), "unix:///does/not/exist", client.Options{})
	wantIs(t, "the first connection is tried once", err, client.ErrUnreachable)
	if errors.Is(err, client.ErrSessionLost) {
		t.Errorf("err = %v: there was no session to lose", err)
	}
	want(t, "an unknown state", client.LinkState(9).String(), "LinkState(9)")
}
