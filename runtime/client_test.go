package runtime_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// link is a connection of a client to the runtime that the test can break.
type link struct {
	f *fixture

	mu        sync.Mutex
	conn      transport.Conn
	downUntil time.Time // dial fails until then
}

func (l *link) dial(context.Context) (transport.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.downUntil) {
		return nil, errors.New("no connection")
	}
	near, far := transport.Pipe(transport.Limits{})
	l.f.serve.Go(func() { _ = l.f.rt.Serve(context.Background(), far) }) // the client sees how it ended
	l.conn = near
	return near, nil
}

// breakConnection ends the connection, and there is no other one for a while.
func (l *link) breakConnection(d time.Duration) {
	l.mu.Lock()
	l.downUntil = time.Now().Add(d)
	conn := l.conn
	l.mu.Unlock()
	_ = conn.Abort()
}

// client opens a session of a client with handlers, which is closed with the test.
func (f *fixture) client(name string, h client.Handlers) (*client.Client, *link) {
	f.Helper()
	l := &link{f: f}
	c, err := client.ConnectFunc(f.Context(), l.dial, client.Options{Auth: client.Auth{Token: client.Secret(name + "-" + token)}, Handlers: h})
	if err != nil {
		f.Fatal(err)
	}
	return c, l
}

// run invokes a tool and waits for its outcome.
func run(t *testing.T, c *client.Client, tool, args string) (value string, types []arcp.Type, err error) {
	t.Helper()
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args)})
	if err != nil {
		t.Fatal(err)
	}
	for env, err := range job.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, env.Type)
	}
	r, err := job.Wait(t.Context())
	return string(r.Value), types, err
}

func TestClientHandlersAnswerJobs(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		tries := 0
		c, _ := f.client("alice", client.Handlers{
			By: "a script",
			Input: func(_ context.Context, q client.InputRequest) (any, error) {
				if tries++; q.Refused == nil {
					return "", nil
				}
				return "main", nil
			},
			Choice: func(_ context.Context, q client.ChoiceRequest) (string, error) { return q.Options[0].ID, nil },
			Permission: func(_ context.Context, q client.PermissionRequest) (client.PermissionAnswer, error) {
				return client.PermissionAnswer{Grant: q.Permission == "deploy", Resource: "env:prod", For: time.Minute}, nil
			},
		})
		defer c.Abort()
		value, _, err := run(f.T, c, "demo.ask", `{"prompt":"Branch?","response_schema":{"type":"string","minLength":1}}`)
		if value != `{"value":"main","responded_by":"a script"}` || err != nil || tries != 2 {
			f.Errorf("ask = %s, %v after %d tries; want the second to count", value, err, tries)
		}
		value, _, err = run(f.T, c, "demo.choose", `{"prompt":"Go?","options":[{"id":"go","label":"Go"}]}`)
		if value != `{"choice_id":"go","responded_by":"a script"}` || err != nil {
			f.Errorf("choose = %s, %v", value, err)
		}
		permit := func(name string) (string, []arcp.Type, error) {
			return run(f.T, c, "demo.permit", `{"permission":"`+name+`","resource":"env:*","operation":"write","lease_seconds":3600,"hold_ms":10}`)
		}
		value, types, err := permit("deploy")
		if !strings.Contains(value, `"resource":"env:prod"`) || err != nil || types[3] != arcp.LeaseGranted {
			f.Errorf("permit = %s, %v with events %v; want less than was asked for, and to hear of it", value, err, types)
		}
		_, _, err = permit("drop")
		wantCode(f.T, "a permission that is not granted", err, arcp.CodePermissionDenied)
	})
}

func wantCode(t *testing.T, why string, err error, code arcp.Code) {
	t.Helper()
	if e := reported(err); e == nil || e.Code != code {
		t.Errorf("%s: error %v, want %s", why, err, code)
	}
}

// reported is the failure that the runtime reported; nil if it is another.
func reported(err error) *client.RemoteError {
	e, _ := errors.AsType[*client.RemoteError](err)
	return e
}

// A question outlives the connection that it came over; its answer is given once.
func TestClientAnswersAfterAReconnect(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		asked := 0
		c, l := f.client("alice", client.Handlers{Input: func(ctx context.Context, _ client.InputRequest) (any, error) {
			asked++
			select {
			case <-time.After(time.Minute):
				return "late", nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}})
		defer c.Abort()
		go func() {
			time.Sleep(10 * time.Second)
			l.breakConnection(0)
		}()
		value, _, err := run(f.T, c, "demo.ask", `{"prompt":"Branch?"}`)
		if !strings.Contains(value, `"late"`) || err != nil || asked != 1 {
			f.Errorf("ask = %s, %v; asked %d times, want once", value, err, asked)
		}
	})
}

// The first answer counts; the other handler is told.
func TestClientReceivesAnotherClientsAnswer(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		var told error
		slow, _ := f.client("alice", client.Handlers{Input: func(ctx context.Context, _ client.InputRequest) (any, error) {
			<-ctx.Done()
			told = context.Cause(ctx)
			return nil, told
		}})
		defer slow.Abort()
		quick, _ := f.client("alice", client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return 7, nil }})
		defer quick.Abort()
		if value, _, err := run(f.T, slow, "demo.ask", `{"prompt":"Well?"}`); !strings.Contains(value, `"value":7`) || err != nil {
			f.Errorf("ask = %s, %v", value, err)
		}
		synctest.Wait()
		if e := reported(told); e == nil || e.Type != arcp.HumanInputCancelled || e.Message != "answered" {
			f.Errorf("who was slower is told %v, want that somebody has answered", told)
		}
	})
}

func TestClientElevatesItsSession(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		say := "approve"
		ann, _ := f.client("ann", client.Handlers{Choice: func(_ context.Context, q client.ChoiceRequest) (string, error) {
			time.Sleep(time.Hour)
			return say, nil
		}})
		defer ann.Abort()
		c, l := f.client("alice", client.Handlers{})
		defer c.Abort()
		_, err := c.Elevate(f.Context(), client.ElevateParams{Level: "trusted"})
		wantCode(f.T, "what it is already", err, arcp.CodeFailedPrecondition)
		say = "deny"
		_, err = c.Elevate(f.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		wantCode(f.T, "denied", err, arcp.CodePermissionDenied)
		go func() {
			time.Sleep(59 * time.Minute)
			l.breakConnection(5 * time.Minute) // there is no connection when it is denied
		}()
		_, err = c.Elevate(f.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		wantCode(f.T, "denied meanwhile", err, arcp.CodePermissionDenied)
		say = "approve"
		go func() {
			time.Sleep(time.Minute)
			l.breakConnection(0) // the answer comes over the next connection
		}()
		lease, err := c.Elevate(f.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		if err != nil || lease.Permission != "trust.elevate.privileged" {
			f.Fatalf("elevate = %+v, %v", lease, err)
		}
		if value, _, err := run(f.T, c, "trusting", `{}`); value != `"done"` || err != nil {
			f.Errorf("with more trust: %s, %v", value, err)
		}
		if n := f.sum("arcp_approvals_total", ""); n != 3 {
			f.Errorf("%v approvals were asked for, want 3: not again after the reconnect", n)
		}
		if err := ann.RevokeLease(f.Context(), lease.LeaseID, "enough"); err != nil {
			f.Errorf("who granted it takes it back: %v", err)
		}
		_, err = c.Invoke(f.Context(), client.InvokeParams{Tool: "trusting"})
		wantCode(f.T, "with the trust taken back", err, arcp.CodePermissionDenied)
	})
}

func TestClientInterruptsAndExtends(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		c, _ := f.client("alice", client.Handlers{
			Input: func(context.Context, client.InputRequest) (any, error) {
				return map[string]string{"action": "cancel"}, nil
			},
			Permission: func(context.Context, client.PermissionRequest) (client.PermissionAnswer, error) {
				return client.PermissionAnswer{Grant: true}, nil
			},
		})
		defer c.Abort()
		job, err := c.Invoke(f.Context(), client.InvokeParams{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":3600000}`)})
		if err != nil {
			f.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := c.Interrupt(f.Context(), job.ID(), "go on?"); err != nil {
			f.Errorf("interrupt: %v", err)
		}
		_, err = job.Wait(f.Context())
		wantCode(f.T, "a handler has the job cancelled", err, arcp.CodeCancelled)

		job, err = c.Invoke(f.Context(), client.InvokeParams{Tool: "demo.permit",
			Arguments: arcp.Raw(`{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":100000}`)})
		if err != nil {
			f.Fatal(err)
		}
		for env, err := range job.Events(f.Context()) {
			if err != nil {
				f.Fatal(err)
			}
			if env.Type != arcp.LeaseGranted {
				continue
			}
			p, _ := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env) // without an id it cannot be extended
			if ends, err := c.ExtendLease(f.Context(), p.LeaseID, time.Minute); err != nil || ends.Sub(p.ExpiresAt) != time.Minute {
				f.Errorf("extended from %s to %s, %v; want a minute more", p.ExpiresAt, ends, err)
			}
		}
		if _, err := job.Wait(f.Context()); err != nil {
			f.Errorf("the job has its permission for longer: %v", err)
		}
	})
}
