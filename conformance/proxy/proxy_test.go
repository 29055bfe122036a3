package proxy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

// fakeConn is a connection that returns given frames, and records the written ones.
type fakeConn struct {
	transport.Conn
	frames  []string
	written []string
}

var errEnd = errors.New("all frames are read")

func (c *fakeConn) Read() ([]byte, error) {
	if len(c.frames) == 0 {
		return nil, errEnd
	}
	next := c.frames[0]
	c.frames = c.frames[1:]
	return []byte(next), nil
}

func (c *fakeConn) Write(frame []byte) error {
	c.written = append(c.written, string(frame))
	return nil
}

func event(seq, id string) string {
	return `{"arcp":"1.1","event_seq":` + seq + `,"id":"msg_` + id + `","payload":{"n":1e2},"timestamp":"2026-01-02T03:04:05Z","type":"log"}`
}

// through reads everything from a connection through the rewriter.
func through(t *testing.T, make func() rewriter, frames ...string) []string {
	t.Helper()
	c := Wrap(&fakeConn{frames: frames}, Fault{newRewriter: make})
	var got []string
	for {
		frame, err := c.Read()
		if err != nil {
			if !errors.Is(err, errEnd) {
				t.Fatalf("Read() = %v, want errEnd", err)
			}
			return got
		}
		got = append(got, string(frame))
	}
}

func TestRewriters(t *testing.T) {
	a, b, c := event("1", "a"), event("2", "b"), event("3", "c")
	unchanged := func(f frame) frame { return f }
	for _, test := range []struct {
		name      string
		rewriters func() rewriter
		frames    []string
		want      []string
	}{
		{"nothing", func() rewriter { return rewriter{} }, []string{a, "not json", b}, []string{a, "not json", b}},
		{"edit nothing", editEvents(unchanged), []string{a, b}, []string{a, b}},
		{"swap", swap(isEvent(1), isEvent(2), false), []string{a, b, c}, []string{b, a, c}},
		{"swap and renumber", swap(isEvent(1), isEvent(2), true), []string{a, b}, []string{event("1", "b"), event("2", "a")}},
		{"drop and renumber", dropAndRenumber(2), []string{a, b, c}, []string{a, event("2", "c")}},
		{"lose and renumber", dropEvents(isEvent(2)), []string{a, b, c}, []string{a, event("2", "c")}},
		{"add and renumber", func() rewriter {
			return insertEvents(func(f frame) (frame, bool) { return f, f.EventSeq == 2 })
		}, []string{a, b, c}, []string{a, b, event("3", "b"), event("4", "c")}},
		{"edit", editEvents(func(f frame) frame { return f.with("event_seq", f.EventSeq+5) }), []string{a}, []string{event("6", "a")}},
	} {
		if got := through(t, test.rewriters, test.frames...); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCopiesReachTheServer(t *testing.T) {
	inner := &fakeConn{}
	c := Wrap(inner, Fault{newRewriter: performCopies})
	for range 2 {
		if err := c.Write([]byte(event("1", "same"))); err != nil {
			t.Fatal(err)
		}
	}
	if len(inner.written) != 2 || inner.written[0] == inner.written[1] {
		t.Errorf("the server gets %q, want two different messages", inner.written)
	}
}

// The state of a fault spans the connections of a check and ends with it.
func TestStateAcrossConnections(t *testing.T) {
	const resume = `{"arcp":"1.1","id":"msg_r","type":"session.resume","timestamp":"2026-01-02T03:04:05Z","payload":{"last_event_seq":0,"resume_token":"rt_a"}}`
	f := Fault{newShared: refuseRepeatedTokens}
	for range 2 {
		wrap := f.Begin()
		for i, want := range []bool{true, false} {
			inner := &fakeConn{}
			if err := wrap(inner).Write([]byte(resume)); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(inner.written[0], `"rt_a"`); got != want {
				t.Errorf("connection %d: the server gets %s", i+1, inner.written[0])
			}
		}
	}
}

func TestPendingFramesArrive(t *testing.T) {
	a := event("1", "a")
	later := []frame{parse([]byte(event("2", "b")))}
	got := through(t, func() rewriter {
		return rewriter{afterEnd: func() []frame {
			frames := later
			later = nil
			return frames
		}}
	}, a)
	if len(got) != 2 || got[1] != event("2", "b") {
		t.Errorf("got %q, want what still comes after the end, once", got)
	}
}

// fakeBinaryConn is a fakeConn that records binary frames, too.
type fakeBinaryConn struct {
	fakeConn
	binary []string
}

func (c *fakeBinaryConn) WriteBinary(data []byte) error {
	c.binary = append(c.binary, string(data))
	return nil
}

func TestBinaryFrames(t *testing.T) {
	for name, test := range map[string]struct {
		make         func() rewriter
		text, binary []string
	}{
		"passed":   {replaceBroken(isNotUTF8), nil, []string{"\x01\xff"}},
		"dropped":  {replaceBroken(isBinary), nil, nil},
		"replaced": {replaceBroken(isBinary, ping), []string{string(ping.text)}, nil},
	} {
		wire := &fakeBinaryConn{}
		c := Wrap(wire, Fault{newRewriter: test.make})
		if err := c.(BinaryWriter).WriteBinary([]byte("\x01\xff")); err != nil {
			t.Errorf("%s: WriteBinary() = %v", name, err)
		}
		if !slices.Equal(wire.written, test.text) || !slices.Equal(wire.binary, test.binary) {
			t.Errorf("%s: the server receives text %q and binary %q, want %q and %q", name, wire.written, wire.binary, test.text, test.binary)
		}
	}
	c := Wrap(&fakeConn{}, Fault{newRewriter: func() rewriter { return rewriter{} }})
	if err := c.(BinaryWriter).WriteBinary(nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteBinary() on a connection of text = %v, want ErrUnsupported", err)
	}
}
