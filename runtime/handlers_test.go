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

// link is a client's connection to the bed that can be cut.
type link struct {
	b *fixture

	mu   sync.Mutex
	conn transport.Conn
	away time.Time // until then there is no way to the bed
}

func (l *link) dial(context.Context) (transport.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.away) {
		return nil, errors.New("no way")
	}
	near, far := transport.Pipe(transport.Limits{})
	l.b.serve.Go(func() { _ = l.b.rt.Serve(context.Background(), far) }) // the client sees how it ended
	l.conn = near
	return near, nil
}

// breakConnection ends the connection, and there is no other one for a while.
func (l *link) breakConnection(d time.Duration) {
	l.mu.Lock()
	l.away = time.Now().Add(d)
	conn := l.conn
	l.mu.Unlock()
	_ = conn.Abort()
}

// client opens a session of a client with handlers, which is closed with the test.
func (b *fixture) client(name string, h client.Handlers) (*client.Client, *link) {
	b.Helper()
	l := &link{b: b}
	c, err := client.ConnectFunc(b.Context(), l.dial, client.Options{Auth: client.Auth{Token: client.Secret(name + "-" + token)}, Handlers: h})
	if err != nil {
		b.Fatal(err)
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

func TestClientAnswers(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		tries := 0
		c, _ := b.client("alice", client.Handlers{
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
		value, _, err := run(b.T, c, "demo.ask", `{"prompt":"Branch?","response_schema":{"type":"string","minLength":1}}`)
		if value != `{"value":"main","responded_by":"a script"}` || err != nil || tries != 2 {
			b.Errorf("ask = %s, %v after %d tries; want the second to count", value, err, tries)
		}
		value, _, err = run(b.T, c, "demo.choose", `{"prompt":"Go?","options":[{"id":"go","label":"Go"}]}`)
		if value != `{"choice_id":"go","responded_by":"a script"}` || err != nil {
			b.Errorf("choose = %s, %v", value, err)
		}
		permit := func(name string) (string, []arcp.Type, error) {
			return run(b.T, c, "demo.permit", `{"permission":"`+name+`","resource":"env:*","operation":"write","lease_seconds":3600,"hold_ms":10}`)
		}
		value, types, err := permit("deploy")
		if !strings.Contains(value, `"resource":"env:prod"`) || err != nil || types[3] != arcp.LeaseGranted {
			b.Errorf("permit = %s, %v with events %v; want less than was asked for, and to hear of it", value, err, types)
		}
		_, _, err = permit("drop")
		wantCode(b.T, "a permission that is not granted", err, arcp.CodePermissionDenied)
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
	inBubble(t, withPeople(t), func(b *fixture) {
		asked := 0
		c, l := b.client("alice", client.Handlers{Input: func(ctx context.Context, _ client.InputRequest) (any, error) {
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
		value, _, err := run(b.T, c, "demo.ask", `{"prompt":"Branch?"}`)
		if !strings.Contains(value, `"late"`) || err != nil || asked != 1 {
			b.Errorf("ask = %s, %v; asked %d times, want once", value, err, asked)
		}
	})
}

// The first answer counts; the other handler is told.
func TestClientReceivesAnotherClientsAnswer(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		var told error
		slow, _ := b.client("alice", client.Handlers{Input: func(ctx context.Context, _ client.InputRequest) (any, error) {
			<-ctx.Done()
			told = context.Cause(ctx)
			return nil, told
		}})
		defer slow.Abort()
		quick, _ := b.client("alice", client.Handlers{Input: func(context.Context, client.InputRequest) (any, error) { return 7, nil }})
		defer quick.Abort()
		if value, _, err := run(b.T, slow, "demo.ask", `{"prompt":"Well?"}`); !strings.Contains(value, `"value":7`) || err != nil {
			b.Errorf("ask = %s, %v", value, err)
		}
		synctest.Wait()
		if e := reported(told); e == nil || e.Type != arcp.HumanInputCancelled || e.Message != "answered" {
			b.Errorf("who was slower is told %v, want that somebody has answered", told)
		}
	})
}

func TestClientElevates(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		say := "approve"
		ann, _ := b.client("ann", client.Handlers{Choice: func(_ context.Context, q client.ChoiceRequest) (string, error) {
			time.Sleep(time.Hour)
			return say, nil
		}})
		defer ann.Abort()
		c, l := b.client("alice", client.Handlers{})
		defer c.Abort()
		_, err := c.Elevate(b.Context(), client.ElevateParams{Level: "trusted"})
		wantCode(b.T, "what it is already", err, arcp.CodeFailedPrecondition)
		say = "deny"
		_, err = c.Elevate(b.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		wantCode(b.T, "denied", err, arcp.CodePermissionDenied)
		go func() {
			time.Sleep(59 * time.Minute)
			l.breakConnection(5 * time.Minute) // there is no connection when it is denied
		}()
		_, err = c.Elevate(b.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		wantCode(b.T, "denied meanwhile", err, arcp.CodePermissionDenied)
		say = "approve"
		go func() {
			time.Sleep(time.Minute)
			l.breakConnection(0) // the answer comes over the next connection
		}()
		lease, err := c.Elevate(b.Context(), client.ElevateParams{Level: "privileged", Reason: "because", For: time.Minute})
		if err != nil || lease.Permission != "trust.elevate.privileged" {
			b.Fatalf("elevate = %+v, %v", lease, err)
		}
		if value, _, err := run(b.T, c, "trusting", `{}`); value != `"done"` || err != nil {
			b.Errorf("with more trust: %s, %v", value, err)
		}
		if n := b.sum("arcp_approvals_total", ""); n != 3 {
			b.Errorf("%v approvals were asked for, want 3: not again after the reconnect", n)
		}
		if err := ann.RevokeLease(b.Context(), lease.LeaseID, "enough"); err != nil {
			b.Errorf("who granted it takes it back: %v", err)
		}
		_, err = c.Invoke(b.Context(), client.InvokeParams{Tool: "trusting"})
		wantCode(b.T, "with the trust taken back", err, arcp.CodePermissionDenied)
	})
}

func TestClientInterruptsAndExtends(t *testing.T) {
	inBubble(t, withPeople(t), func(b *fixture) {
		c, _ := b.client("alice", client.Handlers{
			Input: func(context.Context, client.InputRequest) (any, error) {
				return map[string]string{"action": "cancel"}, nil
			},
			Permission: func(context.Context, client.PermissionRequest) (client.PermissionAnswer, error) {
				return client.PermissionAnswer{Grant: true}, nil
			},
		})
		defer c.Abort()
		job, err := c.Invoke(b.Context(), client.InvokeParams{Tool: "demo.sleep", Arguments: arcp.Raw(`{"ms":3600000}`)})
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := c.Interrupt(b.Context(), job.ID(), "go on?"); err != nil {
			b.Errorf("interrupt: %v", err)
		}
		_, err = job.Wait(b.Context())
		wantCode(b.T, "a handler has the job cancelled", err, arcp.CodeCancelled)

		job, err = c.Invoke(b.Context(), client.InvokeParams{Tool: "demo.permit",
			Arguments: arcp.Raw(`{"permission":"p","resource":"r","operation":"o","lease_seconds":60,"hold_ms":100000}`)})
		if err != nil {
			b.Fatal(err)
		}
		for env, err := range job.Events(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			if env.Type != arcp.LeaseGranted {
				continue
			}
			p, _ := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env) // without an id it cannot be extended
			if ends, err := c.ExtendLease(b.Context(), p.LeaseID, time.Minute); err != nil || ends.Sub(p.ExpiresAt) != time.Minute {
				b.Errorf("extended from %s to %s, %v; want a minute more", p.ExpiresAt, ends, err)
			}
		}
		if _, err := job.Wait(b.Context()); err != nil {
			b.Errorf("the job has its permission for longer: %v", err)
		}
	})
}
