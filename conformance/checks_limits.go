package conformance

import (
	"bytes"
	"context"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// openSocket opens a session on a connection that can send anything.
func (t *T) openSocket() (*Conn, *socket) {
	c, s := t.DialSocket()
	c.Open()
	return c, s
}

func limitBinary(_ context.Context, t *T) {
	c, s := t.openSocket()
	_ = s.send(opBinary, []byte{1, 2, 3}) // reading tells how it was taken
	c.ExpectClosed("nothing binary was negotiated", transport.CloseNotText)
}

func limitNotUTF8(_ context.Context, t *T) {
	c, s := t.openSocket()
	_ = s.send(opText, []byte("{\"arcp\":\"1.1\",\"id\":\"msg_\xff\xfe\"}")) // reading tells how it was taken
	c.ExpectClosed("a text frame is UTF-8", transport.CloseNotUTF8)
}

// padded is a ping of exactly n bytes.
func (c *Conn) padded(n int64) (frame []byte, id arcp.MessageID) {
	m := c.rightPing().with("pad", "")
	frame = []byte(m.String())
	at := bytes.Index(frame, []byte(`"pad":"`)) + len(`"pad":"`)
	pad := bytes.Repeat([]byte("p"), int(n)-len(frame))
	return append(frame[:at:at], append(pad, frame[at:]...)...), m.id()
}

func limitFrameOver(_ context.Context, t *T) {
	c, s := t.openSocket()
	frame, _ := c.padded(t.target.frameLimit() + 2)
	_ = s.send(opText, frame) // reading tells how it was taken
	c.ExpectClosed("a frame over the limit is not read", transport.CloseTooBig)
}

func limitFrameUnder(_ context.Context, t *T) {
	c := t.Open()
	frame, id := c.padded(t.target.frameLimit() - 1024)
	c.SendRaw(string(frame), string(id))
	c.Expect("a frame within the limit is read", arcp.Pong, id)
}

func limitFrameBeforeOpen(_ context.Context, t *T) {
	c, s := t.DialSocket()
	frame, _ := c.padded(64<<10 + 2)
	_ = s.send(opText, frame) // reading tells how it was taken
	c.ExpectClosed("a stranger gets little room", transport.CloseTooBig)

	c, s = t.openSocket()
	frame, id := c.padded(128 << 10)
	t.sent[string(id)] = true
	_ = s.send(opText, frame) // reading tells how it was taken
	c.Expect("an authenticated client gets more", arcp.Pong, id)
}

func limitSessionSurvives(_ context.Context, t *T) {
	bystander := t.Open()
	c, s := t.openSocket()
	_ = s.send(opBinary, []byte{1}) // reading tells how it was taken
	c.ExpectClosed("nothing binary was negotiated")
	bystander.ExpectNothing("other sessions are not touched")
	t.Open().ExpectNothing("and new ones are accepted")
}

func limitBadFrames(_ context.Context, t *T) {
	c := t.Open()
	for range 3 {
		for range 99 {
			c.SendRaw(`{"arcp":`)
		}
		c.ExpectNothing("99 bad frames are borne, and a good one begins the count anew")
	}
}

func limitTooManyBadFrames(_ context.Context, t *T) {
	c := t.Open()
	for range 100 {
		c.SendRaw(`{"arcp":`)
	}
	c.ExpectClosed("a peer that does not speak the protocol is let go", transport.ClosePolicy, transport.CloseNotUTF8)
}

func limitArguments(_ context.Context, t *T) {
	c := t.Open()
	for _, a := range []struct {
		tool string
		args string
	}{
		{"demo.emit", `{"count":10000001,"bytes":1}`}, {"demo.emit", `{"count":-1,"bytes":1}`},
		{"demo.emit", `{"count":1,"bytes":262145}`}, {"demo.emit", `{"count":1.5,"bytes":1}`},
		{"demo.emit", `{"count":"1","bytes":1}`}, {"demo.emit", `{"bytes":1}`}, {"demo.emit", `{"count":1,"bytes":1,"x":1}`},
		{"demo.emit", `{"count":1,"bytes":1,"interval_ms":3600001}`}, {"demo.emit", `[]`}, {"demo.emit", `"text"`},
		{"demo.sleep", `{}`}, {"demo.sleep", `{"ms":-1}`}, {"demo.sleep", `{"ms":1e9}`}, {"demo.sleep", `{"ms":null}`},
	} {
		end := c.Invoke(a.tool, arcp.Raw(a.args)).End()
		t.Want(fmt.Sprintf("%s does not take %s", a.tool, a.args), end.Type == arcp.JobFailed, "got %s", end)
		t.wantCode(fmt.Sprintf("%s does not take %s", a.tool, a.args), end, arcp.CodeInvalidArgument)
	}
}

func limitManyJobs(_ context.Context, t *T) {
	c := t.Open()
	const jobs = 200
	waiting := map[arcp.MessageID]bool{}
	for i := range jobs {
		waiting[c.Submit("demo.echo", map[string]any{"n": i})] = true
	}
	for len(waiting) > 0 {
		f := c.event("every job ends")
		if !f.Type.Terminal() {
			continue
		}
		t.Want("every job ends well", f.Type == arcp.JobCompleted && waiting[f.CorrelationID], "got %s of %q", f, f.CorrelationID)
		delete(waiting, f.CorrelationID)
	}
}
