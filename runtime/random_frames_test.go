package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/transport"
)

// seed is of the random frames: ARCP_SEED repeats a run.
func seed(t *testing.T) uint64 {
	s, err := strconv.ParseUint(os.Getenv("ARCP_SEED"), 10, 64)
	if err != nil {
		s = rand.Uint64()
	}
	t.Logf("ARCP_SEED=%d", s)
	return s
}

// noiseFrames is how many random frames a runtime is sent over each transport. The race detector
// makes each cost ten times as much.
func noiseFrames() int {
	if race.Enabled {
		return 12_000
	}
	return 60_000
}

// frameGenerator makes frames: valid ones of every type, mutated ones, and bytes.
type frameGenerator struct {
	*rand.Rand
	n int
}

// payloads has valid payloads of types that change something; $ is a small number.
var payloads = map[arcp.Type][]string{
	arcp.SessionOpen:     {`{"auth":{"scheme":"bearer","token":"x"},"client":{"kind":"k","version":"1"}}`},
	arcp.SessionPing:     {`{"nonce":"n","sent_at":"2030-01-01T00:00:00Z"}`},
	arcp.SessionAck:      {`{"last_processed_seq":$}`},
	arcp.SessionListJobs: {`{"limit":$}`, `{"limit":$,"filter":{"status":["completed"]}}`, `{"cursor":"$"}`},
	arcp.Cancel:          {`{"target":"job","target_id":"job_$"}`, `{"target":"session","target_id":"sess_$"}`, `{"target":"stream","target_id":"str_$"}`},
	arcp.JobSubscribe:    {`{"job_id":"job_$","history":true}`},
	arcp.JobUnsubscribe:  {`{"job_id":"job_$"}`},
	arcp.ToolInvoke: {`{"tool":"demo.echo","arguments":{"n":$}}`, `{"tool":"demo.emit","arguments":{"count":$,"bytes":10}}`,
		`{"tool":"demo.sleep","arguments":{"ms":$}}`, `{"tool":"demo.panic"}`, `{"tool":"demo.none"}`, `{"tool":"jobs.get","arguments":{"job_id":"job_$"}}`,
		`{"tool":"demo.fail","arguments":{"code":"INTERNAL","message":"$"},"idempotency_key":"k$"}`,
		`{"tool":"demo.echo","direct":true,"idempotency_key":"k$"}`, `{"tool":"demo.stubborn","arguments":{"ms":$},"max_runtime_sec":0.001}`},
}

func (g *frameGenerator) frame() []byte {
	switch g.IntN(10) {
	case 0:
		return g.bytes()
	case 1, 2, 3:
		return g.mutate(g.valid())
	}
	return g.valid()
}

func (g *frameGenerator) valid() []byte {
	typ := arcp.Catalog[g.IntN(len(arcp.Catalog))].Type
	if g.IntN(3) == 0 {
		typ = []arcp.Type{arcp.ToolInvoke, arcp.Cancel, arcp.JobSubscribe, arcp.SessionListJobs}[g.IntN(4)]
	}
	if typ == arcp.SessionClose && g.IntN(20) > 0 { // or every conversation is a short one
		typ = arcp.Ping
	}
	payload := "{}"
	if list := payloads[typ]; len(list) > 0 {
		payload = strings.ReplaceAll(list[g.IntN(len(list))], "$", strconv.Itoa(1+g.IntN(20)))
	}
	g.n++
	more := []string{"", "", `"priority":"high",`, `"trace_id":"t",`, `"job_id":"job_1",`, `"extensions":{"optional":true},`, `"event_seq":7,`}[g.IntN(7)]
	return fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_%d","type":%q,"timestamp":"2030-01-02T15:04:05Z",%s"payload":%s}`, g.n, typ, more, payload)
}

func (g *frameGenerator) mutate(f []byte) []byte {
	for range 1 + g.IntN(3) {
		i := g.IntN(len(f) + 1)
		switch g.IntN(5) {
		case 0:
			f = append(f[:i:i], f[min(len(f), i+1+g.IntN(8)):]...)
		case 1:
			f = append(f[:i:i], append([]byte(`{"[]:,0nx\`[g.IntN(10):]), f[i:]...)...)
		case 2:
			if i < len(f) {
				f[i] ^= 1 << g.IntN(7)
			}
		case 3:
			f = append(f[:i:i], append(bytes.Clone(f[g.IntN(len(f)+1):]), f[i:]...)...)
		case 4:
			f = bytes.ReplaceAll(f, []byte(`"demo.`), []byte(`"demo.demo.`))
		}
	}
	return bytes.ToValidUTF8(f, []byte("?"))
}

func (g *frameGenerator) bytes() []byte {
	b := make([]byte, g.IntN(200))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	if g.IntN(50) > 0 { // else it is not UTF-8, and ends the connection
		b = bytes.ToValidUTF8(b, []byte("?"))
	}
	if len(b) == 0 {
		b = []byte("x")
	}
	return b
}

// noiseClient sends random frames. It opens another connection after the end of the last.
type noiseClient struct {
	*testing.T
	frameGenerator
	dial func() (transport.Conn, error)
	ends map[string]int
}

// sendFrames sends n frames.
func (c *noiseClient) sendFrames(n int) {
	c.ends = make(map[string]int)
	for n > 0 {
		conn, err := c.dial()
		if err != nil {
			c.Errorf("dial: %v", err)
			return
		}
		n -= c.conversation(conn, n)
	}
}

// conversation sends frames until the connection ends, or n of them, and checks
// why it ended.
func (c *noiseClient) conversation(conn transport.Conn, n int) (sent int) {
	var why error
	ended, answered := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(ended)
		for {
			raw, err := conn.Read()
			if err != nil {
				why = err
				return
			}
			env, err := arcp.Decode(raw)
			if err != nil {
				c.Errorf("the runtime sent an invalid frame: %s", raw)
			}
			if env.Type == arcp.SessionAccepted || strings.HasPrefix(string(env.CorrelationID), "msg_sync") {
				answered <- struct{}{}
			}
		}
	}()
	opened := c.IntN(8) > 0
	if !opened {
		n = min(n, 40) // no answer confirms the frames: all may be lost
	} else {
		open := fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"noise","version":"1"}}`, token)
		_ = conn.Write(fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_open","type":"session.open","timestamp":"2030-01-02T15:04:05Z","payload":%s}`, open))
	}
	if conn.Flush() == nil && opened {
		select {
		case <-answered:
		case <-ended: // the handshake took too long
		}
	}
	for sent < n {
		f := c.frame()
		sent++
		if conn.Write(f) != nil || sent%16 == 0 && !c.sync(conn, opened, ended, answered) {
			break
		}
	}
	if sent == n {
		_ = conn.Flush()
		_ = conn.Close(transport.CloseNormal, "")
	}
	<-ended
	_ = conn.Abort()
	c.ends[reason(why)]++
	return sent
}

// sync waits until the sent frames were handled, so that few are lost when the connection
// ends. It returns false if it has ended.
func (c *noiseClient) sync(conn transport.Conn, opened bool, ended, answered chan struct{}) bool {
	if opened {
		c.n++
		_ = conn.Write(fmt.Appendf(nil, `{"arcp":"1.1","id":"msg_sync%d","type":"ping","timestamp":"2030-01-02T15:04:05Z","payload":{}}`, c.n))
	}
	if conn.Flush() != nil {
		return false
	}
	if !opened {
		return true
	}
	select {
	case <-answered:
		return true
	case <-ended:
		return false
	}
}

// reason returns the reason for which a connection ended.
func reason(err error) string {
	te, ok := errors.AsType[*transport.Error](err)
	switch {
	case !ok:
		return err.Error()
	case te.Remote:
		return fmt.Sprintf("%d %s", te.Code, te.Reason)
	case errors.Is(err, transport.ErrClosed):
		return "by the test"
	}
	return err.Error()
}

// allowed are the close reasons that bad frames may lead to (SPEC.md §6): the client's own, a
// row of bad frames or credentials, and invalid UTF-8.
var allowed = []string{"by the test", "1000", "1008 too many malformed frames in a row", "1008 too many authentication failures",
	"1007 a frame is not UTF-8", "1008 handshake not completed in time"}

func (c *noiseClient) check() {
	for why, n := range c.ends {
		ok := false
		for _, a := range allowed {
			ok = ok || strings.HasPrefix(why, a)
		}
		if !ok {
			c.Errorf("%d connections ended with %q", n, why)
		}
	}
	c.Logf("ends: %v", c.ends)
}

// Random frames neither crash the runtime, nor end a session but by the rules,
// nor leave a goroutine behind, in memory ...
func TestRandomFramesAreHandled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	s := seed(t)
	inBubble(t, nil, func(f *fixture) {
		var talking sync.WaitGroup
		for i := range uint64(4) {
			talking.Go(func() {
				c := &noiseClient{T: t, frameGenerator: frameGenerator{Rand: rand.New(rand.NewPCG(s, i))}, dial: func() (transport.Conn, error) {
					near, far := transport.Pipe(transport.Limits{})
					f.serve.Go(func() { _ = f.rt.Serve(context.Background(), far) })
					return near, nil
				}}
				c.sendFrames(noiseFrames() / 4)
				c.check()
			})
		}
		talking.Wait()
		p := f.dial("alice")
		p.send("tool.invoke", `{"tool":"demo.echo"}`)
		p.until("job.completed")
		time.Sleep(time.Hour)
		checkLabels(t, f.reg)
		checkHandled(t, f.reg, 0.9*float64(noiseFrames()))
		_ = p.conn.Abort() // it may have ended
		synctest.Wait()
		f.wantNoConnections()
	})
}

// ... and over WebSockets.
func TestRandomFramesOverWebSocketAreHandled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	s := seed(t)
	t.Cleanup(func() { checkNoGoroutines(t) })
	reg := prometheus.NewRegistry()
	srv := start(t, memory(t), func(c *runtime.Config) { c.Metrics = reg })
	var talking sync.WaitGroup
	for i := range uint64(4) {
		talking.Go(func() {
			c := &noiseClient{T: t, frameGenerator: frameGenerator{Rand: rand.New(rand.NewPCG(s, i))}, dial: func() (transport.Conn, error) {
				return transport.Dial(t.Context(), srv.url, transport.DialOptions{})
			}}
			c.sendFrames(noiseFrames() / 4)
			c.check()
		})
	}
	talking.Wait()
	srv.dial(t, "alice") // it still serves
	checkLabels(t, reg)
	checkHandled(t, reg, 0.9*float64(noiseFrames()))
}

// checkHandled fails if the runtime handled too few of the frames.
func checkHandled(t *testing.T, reg *prometheus.Registry, atLeast float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	handled := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				switch f.GetName() + " " + l.GetValue() {
				case "arcp_envelopes_total in", "arcp_protocol_errors_total not_json", "arcp_protocol_errors_total envelope",
					"arcp_protocol_errors_total too_deep", "arcp_protocol_errors_total bad_value":
					handled += m.GetCounter().GetValue()
				}
			}
		}
	}
	if handled < atLeast {
		t.Errorf("%v frames were handled, want at least %v", handled, atLeast)
	}
}

// checkLabels fails if a client can make up label values.
func checkLabels(t *testing.T, reg *prometheus.Registry) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > 300 {
			t.Errorf("%s has %d label sets", f.GetName(), n)
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); strings.ContainsAny(v, "?{}[]\" ") || strings.HasPrefix(v, "msg_") || strings.HasPrefix(v, "job_") || strings.HasPrefix(v, "sess_") {
					t.Errorf("%s has the label %s=%q", f.GetName(), l.GetName(), v)
				}
			}
		}
	}
}

// checkNoGoroutines waits until no goroutine of the runtime is left.
func checkNoGoroutines(t *testing.T) {
	buf := make([]byte, 4<<20)
	for deadline := time.Now().Add(30 * time.Second); ; goruntime.Gosched() {
		all := string(buf[:goruntime.Stack(buf, true)])
		left := 0
		for g := range strings.SplitSeq(all, "\n\n") {
			if strings.Contains(g, "arcpd/runtime.(") || strings.Contains(g, "arcpd/runtime/internal/conn.(") || strings.Contains(g, "arcpd/runtime/internal/eventlog.(") || strings.Contains(g, "arcpd/runtime/internal/engine.(") {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines of the runtime are left:\n%s", left, all)
		}
	}
}
