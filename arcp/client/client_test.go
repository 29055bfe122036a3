package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

func TestCloseWaitsForSessionClosed(t *testing.T) {
	scripted(t, bearer, `
		C close: session.close {"reason":"done"}
		S: session.closed corr=close
		close 1000
	`, func(t *testing.T, c *client.Client, _ *fake) {
		want(t, "close", c.Close(t.Context(), "done"), nil)
		want(t, "close again", c.Close(t.Context(), "done"), nil)
		wantIs(t, "why it ended", c.Err(), client.ErrClosed)
		wantIs(t, "Send", c.Send(arcp.Frame(arcp.Ping, arcp.PingPayload{})), client.ErrClosed)
		_, err := c.Invoke(t.Context(), echo)
		wantIs(t, "Invoke", err, client.ErrClosed)
		_, err = c.Ping(t.Context())
		wantIs(t, "Ping", err, client.ErrClosed)
	})
}

func TestCloseFlushesSentMessages(t *testing.T) {
	scripted(t, bearer, `
		C log: log
		C close: session.close {"open_jobs":"cancel","forget":true}
		S: session.closed corr=close
	`, func(t *testing.T, c *client.Client, _ *fake) {
		want(t, "send", c.Send(arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: "last words"})), nil)
		want(t, "close", c.CloseWith(t.Context(), client.CloseParams{CancelJobs: true, Forget: true}), nil)
	})
}

func TestCloseTwiceAtOnce(t *testing.T) {
	scripted(t, bearer, `
		C close: session.close
		wait 1s
		S: session.closed corr=close
	`, func(t *testing.T, c *client.Client, _ *fake) {
		first := make(chan error)
		go func() { first <- c.Close(t.Context(), "") }()
		synctest.Wait()
		want(t, "the second waits for the first", c.Close(t.Context(), ""), nil)
		want(t, "the first", <-first, nil)
	})
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "invoke", err, nil)
		go c.Close(t.Context(), "")
		_, err = j.Wait(t.Context())
		wantIs(t, "Wait", err, client.ErrClosed)
		types, err := collect(t, j)
		wantIs(t, "Events", err, client.ErrClosed)
		want(t, "what had come", types, []arcp.Type{arcp.JobAccepted})
		<-c.Done()
	})
}

func TestAbortEndsPendingCalls(t *testing.T) {
	scripted(t, bearer, "hang", func(t *testing.T, c *client.Client, _ *fake) {
		stuck := make(chan error)
		go func() { _, err := c.Ping(t.Context()); stuck <- err }()
		synctest.Wait()
		c.Abort()
		c.Abort()
		wantIs(t, "what waits", <-stuck, client.ErrClosed)
		want(t, "close after abort", c.Close(t.Context(), ""), nil)
	})
}

func TestLostConnectionEndsTheClient(t *testing.T) {
	const job = `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
	`
	for name, c := range map[string]struct {
		script string
		call   func(context.Context, *client.Client) error
	}{
		"before the acceptance": {"C invoke: tool.invoke\nabort", func(ctx context.Context, c *client.Client) error {
			_, err := c.Invoke(ctx, echo)
			return err
		}},
		"before the outcome": {job + "abort", func(ctx context.Context, c *client.Client) error {
			j, err := c.Invoke(ctx, echo)
			if err == nil {
				_, err = j.Wait(ctx)
			}
			return err
		}},
		"among the events": {job + "close 1011", func(ctx context.Context, c *client.Client) error {
			j, err := c.Invoke(ctx, echo)
			if err != nil {
				return err
			}
			for _, err = range j.Events(ctx) {
			}
			return err
		}},
		"in a call": {"C ping: ping\nabort", func(ctx context.Context, c *client.Client) error { _, err := c.Ping(ctx); return err }},
		"in a cancel": {"C c: cancel\nclose 1001", func(ctx context.Context, c *client.Client) error {
			return c.Cancel(ctx, client.CancelParams{JobID: "job_1"})
		}},
		"in a subscription": {"C s: job.subscribe\nabort", func(ctx context.Context, c *client.Client) error {
			_, err := c.SubscribeJob(ctx, client.SubscribeJobParams{JobID: "job_1", History: true})
			return err
		}},
		"in a feed": {"C s: subscribe\nS: subscribe.accepted corr=s sub=sub_1 {\"subscription_id\":\"sub_1\"}\nabort", func(ctx context.Context, c *client.Client) error {
			f, err := c.SubscribeFeed(ctx, client.SubscribeFeedParams{})
			if err != nil {
				return err
			}
			for _, err = range f.Events(ctx) {
			}
			return err
		}},
		"while idle": {"abort", func(ctx context.Context, c *client.Client) (err error) {
			for _, err = range c.Unsolicited(ctx) {
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, bearer, c.script, func(t *testing.T, cl *client.Client, _ *fake) {
				err := c.call(t.Context(), cl)
				wantIs(t, "what waits", err, client.ErrConnectionLost)
				wantAs[*transport.Error](t, "the transport's reason", err)
				wantIs(t, "the client", cl.Err(), client.ErrConnectionLost)
			})
		})
	}
}

func TestConnectionLostWhileSending(t *testing.T) {
	scripted(t, bearer, "hang", func(t *testing.T, c *client.Client, f *fake) {
		for range 10 {
			if err := c.Send(arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: strings.Repeat("x", 50_000)})); err != nil {
				t.Fatal(err)
			}
		}
		f.conn.Abort()
		<-c.Done()
		wantIs(t, "why it ended", c.Err(), client.ErrConnectionLost)
	})
}

func TestEvictionEndsTheClient(t *testing.T) {
	scripted(t, bearer, `
		S: session.evicted {"code":"UNAUTHENTICATED","reason":"lease ended"}
		close 1008
	`, func(t *testing.T, c *client.Client, _ *fake) {
		<-c.Done()
		wantIs(t, "kind", c.Err(), client.ErrConnectionLost)
		e := wantAs[*client.RemoteError](t, "the runtime's reason", c.Err())
		want(t, "code", e.Code, arcp.CodeUnauthenticated)
		want(t, "text", c.Err().Error(), "connection lost: session.evicted: UNAUTHENTICATED: lease ended (closed by peer: 1008 scripted)")
	})
}

func TestShutdownOfTheRuntime(t *testing.T) {
	scripted(t, bearer, `
		S: session.close {"reason":"shutdown"}
		close 1001
	`, func(t *testing.T, c *client.Client, _ *fake) {
		<-c.Done()
		want(t, "text", c.Err().Error(), "connection lost: the runtime closes the session: shutdown (closed by peer: 1001 scripted)")
		for env := range c.Unsolicited(t.Context()) {
			want(t, "the farewell can be read", env.Type, arcp.SessionClose)
			break
		}
	})
}

func TestWrongEventSeqEndsTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		seqs      []uint64
		want, got uint64
	}{
		"gap":             {[]uint64{1, 2, 4}, 3, 4},
		"repeated":        {[]uint64{1, 2, 2}, 3, 2},
		"not from one":    {[]uint64{2}, 1, 2},
		"falling":         {[]uint64{1, 2, 1}, 3, 1},
		"in order, plain": {[]uint64{1, 0, 2, 0, 0, 3}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var script strings.Builder
			for _, seq := range c.seqs {
				script.WriteString(fmt.Sprintf("S: log seq=%d {\"level\":\"info\",\"message\":\"x\"}\n", seq))
			}
			scripted(t, bearer, script.String(), func(t *testing.T, cl *client.Client, _ *fake) {
				synctest.Wait()
				if c.got == 0 {
					want(t, "error", cl.Err(), nil)
					want(t, "last", cl.LastEventSeq(), c.seqs[len(c.seqs)-1])
					return
				}
				e := wantAs[*client.SequenceError](t, "error", cl.Err())
				want(t, "numbers", *e, client.SequenceError{Want: c.want, Got: c.got, Type: arcp.Log})
				want(t, "this is not a lost connection", errors.Is(cl.Err(), client.ErrConnectionLost), false)
				<-cl.Done()
			})
		})
	}
}

func TestBrokenFrameEndsTheConnection(t *testing.T) {
	scripted(t, bearer, `raw {"arcp":"1.1","id":"msg_1"}`, func(t *testing.T, c *client.Client, _ *fake) {
		<-c.Done()
		e := wantAs[*client.ProtocolError](t, "error", c.Err())
		want(t, "text", e.Error(), `read: envelope member "type" is required`)
	})
}

func TestWriteTimeoutEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := transport.Pipe(transport.Limits{WriteTimeout: 5 * time.Second})
		f := &fake{t: t, conn: far, names: new(names)}
		go func() {
			for line := range strings.Lines(opened) {
				if line = strings.TrimSpace(line); line != "" {
					f.step(line)
				}
			}
		}()
		c, err := client.New(t.Context(), near, bearer)
		if err != nil {
			t.Fatal(err)
		}
		defer far.Abort()
		defer c.Abort()
		for {
			if err = c.Send(arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: strings.Repeat("x", 50_000)})); err != nil {
				break
			}
		}
		<-c.Done()
		wantIs(t, "why it ended", c.Err(), client.ErrConnectionLost)
	})
}
