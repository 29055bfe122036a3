package client_test

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// serveEcho is a minimal runtime: it accepts any session and completes every job at once with its
// arguments.
func serveEcho(conn transport.Conn) {
	defer conn.Abort()
	var seq uint64
	send := func(env arcp.Envelope) error {
		env.ARCP, env.ID, env.Timestamp, env.SessionID = arcp.Version, arcp.NewMessageID(), time.Now(), "sess_1"
		return conn.Write(env.Append(nil))
	}
	event := func(t arcp.Type, id arcp.JobID, corr arcp.MessageID, payload any) error {
		env := arcp.Frame(t, payload)
		seq++
		env.JobID, env.CorrelationID, env.EventSeq = id, corr, seq
		return send(env)
	}
	for {
		frame, err := conn.Read()
		if err != nil {
			return
		}
		env, err := arcp.Decode(frame)
		if err != nil {
			return
		}
		var answer arcp.Envelope
		switch env.Type {
		case arcp.SessionOpen:
			answer = arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1", Runtime: arcp.RuntimeInfo{Kind: "echo", Version: "1"}})
		case arcp.SessionClose:
			answer = arcp.Frame(arcp.SessionClosed, arcp.SessionClosedPayload{})
		case arcp.ToolInvoke:
			p, _ := arcp.DecodePayload[arcp.ToolInvokePayload](&env)
			id := arcp.NewJobID()
			event(arcp.JobAccepted, id, env.ID, arcp.JobAcceptedPayload{JobID: id})
			event(arcp.JobStarted, id, env.ID, arcp.JobStartedPayload{})
			if event(arcp.JobCompleted, id, env.ID, arcp.JobCompletedPayload{Value: p.Arguments}) != nil || conn.Flush() != nil {
				return
			}
			continue
		default:
			continue
		}
		answer.CorrelationID = env.ID
		if send(answer) != nil || conn.Flush() != nil {
			return
		}
	}
}

func TestDialReachesAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := transport.ListenUnix(path, transport.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			serveEcho(conn)
		}
	}()
	c, err := client.Dial(t.Context(), "unix://"+path, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Invoke(t.Context(), echo)
	if err != nil {
		t.Fatal(err)
	}
	result, err := j.Wait(t.Context())
	want(t, "error", err, nil)
	want(t, "value", string(result.Value), `{"n":1}`)
	want(t, "close", c.Close(t.Context(), ""), nil)
}

func TestDialErrorsWrapUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // no listener from here on
	_, err = client.Dial(t.Context(), "ws://"+l.Addr().String()+"/arcp", client.Options{})
	wantIs(t, "nobody listens", err, client.ErrUnreachable)
	_, err = client.Dial(t.Context(), "unix:///does/not/exist", client.Options{})
	wantIs(t, "no such socket", err, client.ErrUnreachable)
	_, err = client.Dial(t.Context(), "http://127.0.0.1/", client.Options{})
	if err == nil || !strings.Contains(err.Error(), "want a URL with ws://, wss:// or unix://") {
		t.Errorf("http: %v", err)
	}
	_, err = client.Dial(t.Context(), "ws://bad\x7f/", client.Options{})
	want(t, "not a URL", err != nil, true)
}

// Many goroutines share one client.
func TestManyGoroutinesShareAClient(t *testing.T) {
	near, far := transport.Pipe(transport.Limits{})
	go serveEcho(far)
	opts := bearer
	opts.AckEvery = 16
	c, err := client.New(t.Context(), near, opts)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for n := range 50 {
				j, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "demo.echo", Arguments: n})
				if err != nil {
					t.Error(err)
					return
				}
				types, err := collect(t, j)
				if err != nil || len(types) != 3 {
					t.Errorf("events %v, %v", types, err)
				}
				if _, err := j.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				c.LastEventSeq()
				c.Session()
				c.Job(j.ID())
			}
		})
	}
	group.Wait()
	want(t, "events", c.LastEventSeq(), 16*50*3)
	want(t, "close", c.Close(t.Context(), ""), nil)
}

// Two iterators share a job's events: each event goes to one of them.
func TestTwoIteratorsShareTheEvents(t *testing.T) {
	scripted(t, bearer, `
		C invoke: tool.invoke
		S: job.accepted corr=invoke job=job_1 seq=1 {"job_id":"job_1"}
		S: job.started corr=invoke job=job_1 seq=2
		wait 1s
		S: job.progress corr=invoke job=job_1 seq=3 {"current":1}
		S: job.completed corr=invoke job=job_1 seq=4
	`, func(t *testing.T, c *client.Client, _ *fake) {
		j, err := c.Invoke(t.Context(), echo)
		want(t, "error", err, nil)
		counts := make(chan int)
		for range 2 {
			go func() {
				types, err := collect(t, j)
				want(t, "error", err, nil)
				counts <- len(types)
			}()
		}
		want(t, "together they see every event once", <-counts+<-counts, 4)
	})
}
