package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// binaryPipe is an end of a pipe with binary frames. The first byte of each frame of the pipe says which one it
// is, and binary frames are in base64, because a pipe carries text.
type binaryPipe struct {
	transport.Conn
	binary bool
}

func (p *binaryPipe) AcceptBinary() {}
func (p *binaryPipe) Binary() bool  { return p.binary }

func (p *binaryPipe) Write(frame []byte) error { return p.Conn.Write(append([]byte{'T'}, frame...)) }

func (p *binaryPipe) WriteBinary(frame []byte) error {
	return p.Conn.Write([]byte("B" + base64.StdEncoding.EncodeToString(frame)))
}

func (p *binaryPipe) WriteContent(head, content []byte) error {
	return p.WriteBinary(slices.Concat(head, content))
}

func (p *binaryPipe) Read() ([]byte, error) {
	frame, err := p.Conn.Read()
	if err != nil {
		return nil, err
	}
	if p.binary = frame[0] == 'B'; p.binary {
		return base64.StdEncoding.DecodeString(string(frame[1:]))
	}
	return frame[1:], nil
}

// sidecarRuntime is the runtime's end of a connection with binary frames.
type sidecarRuntime struct {
	*testing.T
	*binaryPipe
}

// newSidecarRuntime returns the ends of a connection.
func newSidecarRuntime(t *testing.T) (sidecarRuntime, *binaryPipe) {
	near, far := transport.Pipe(transport.Limits{})
	t.Cleanup(func() { _ = far.Abort() })
	return sidecarRuntime{t, &binaryPipe{Conn: far}}, &binaryPipe{Conn: near}
}

// receive reads up to a message of a type, with its binary frame.
func (r sidecarRuntime) receive(t arcp.Type) arcp.Envelope {
	r.Helper()
	for {
		frame, err := r.Read()
		if err != nil || r.Binary() {
			r.Errorf("want %s, got %q, %v", t, frame, err)
			return arcp.Envelope{}
		}
		env, err := arcp.Decode(frame)
		if err != nil {
			r.Error(err)
		}
		if announced, ok := env.Announces(); ok {
			frame, err := r.Read()
			if err != nil || !r.Binary() {
				r.Errorf("%s is followed by %q, %v", env.Type, frame, err)
			}
			if err := env.Attach(announced, frame); err != nil {
				r.Error(err)
			}
		}
		if env.Type == t {
			return env
		}
	}
}

func (r sidecarRuntime) send(to arcp.Envelope, t arcp.Type, payload any) {
	env := arcp.Frame(t, payload)
	env.ARCP, env.ID, env.Timestamp, env.SessionID, env.CorrelationID = arcp.Version, arcp.NewMessageID(), time.Now(), "sess_1", to.ID
	if err := errors.Join(r.Write(env.Append(nil)), r.Flush()); err != nil {
		r.Error(err)
	}
}

// accept accepts the session.
func (r sidecarRuntime) accept() {
	open := r.receive(arcp.SessionOpen)
	if !strings.Contains(string(open.Payload), `"binary_encoding":["base64","sidecar"]`) {
		r.Errorf("session.open does not list sidecar: %s", open.Payload)
	}
	r.send(open, arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1", ResumeToken: "rt_1", ResumeWindowSec: 600, Capabilities: binaryCapabilities()})
}

func binaryCapabilities() arcp.Capabilities {
	return arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureBinaryStreams: true, arcp.FeatureArtifacts: true}}
}

// A binary frame that is not the announced one, a missing one, and one that nothing announces end the client with
// a *ProtocolError.
func TestSidecarsThatViolateTheProtocol(t *testing.T) {
	chunk := arcp.Frame(arcp.StreamChunk, arcp.StreamChunkPayload{Encoding: arcp.EncodingSidecar, Size: 1})
	chunk.ARCP, chunk.ID, chunk.Timestamp, chunk.SessionID, chunk.StreamID = arcp.Version, "msg_1", time.Unix(0, 0), "sess_1", "str_1"
	text := chunk.Append(nil)
	h := arcp.SidecarHeader{Kind: arcp.SidecarStream, ID: "str_1"}
	for name, send := range map[string]func(r sidecarRuntime) error{
		"no message announces": func(r sidecarRuntime) error { return r.WriteBinary(append(h.Append(nil), 'x')) },
		"a text frame follows": func(r sidecarRuntime) error { return errors.Join(r.Write(text), r.Write(text)) },
		"has 2 bytes": func(r sidecarRuntime) error {
			return errors.Join(r.Write(text), r.WriteBinary(append(h.Append(nil), "xy"...)))
		},
		"shorter than": func(r sidecarRuntime) error { return errors.Join(r.Write(text), r.WriteBinary([]byte{1})) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r, near := newSidecarRuntime(t)
			go func() {
				r.accept()
				if err := errors.Join(send(r), r.Flush()); err != nil {
					t.Error(err)
				}
			}()
			c, err := client.New(t.Context(), near, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			<-c.Done()
			if _, ok := errors.AsType[*client.ProtocolError](c.Err()); !ok || !strings.Contains(c.Err().Error(), name) {
				t.Errorf("the client ends with %v, want %s", c.Err(), name)
			}
		})
	}
}

// A request with a binary frame is sent again with it on the next connection.
func TestSidecarIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := bytes.Repeat([]byte{0xff}, 100_000)
		conns := make(chan sidecarRuntime, 2)
		dial := func(context.Context) (transport.Conn, error) {
			r, near := newSidecarRuntime(t)
			conns <- r
			return near, nil
		}
		go func() {
			r := <-conns
			r.accept()
			first := r.receive(arcp.ArtifactPut)
			_ = r.Abort() // as a lost connection
			r = <-conns
			resume := r.receive(arcp.SessionResume)
			r.send(resume, arcp.SessionResumed, arcp.SessionResumedPayload{SessionID: "sess_1", ResumeToken: "rt_2"})
			again := r.receive(arcp.ArtifactPut)
			if again.ID != first.ID || !bytes.Equal(again.Sidecar, content) {
				t.Errorf("%s with %d bytes is sent again as %s with %d bytes", first.ID, len(first.Sidecar), again.ID, len(again.Sidecar))
			}
			object := arcp.ArtifactObject{ArtifactID: "art_1", Size: uint64(len(content))}
			r.send(again, arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: object, ArtifactObject: object})
		}()
		c, err := client.ConnectFunc(t.Context(), dial, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		ref, err := c.Artifacts().Put(t.Context(), client.PutArtifactParams{MediaType: "image/png", Content: bytes.NewReader(content)})
		if err != nil || ref.ArtifactID != "art_1" {
			t.Errorf("Put = %+v, %v", ref, err)
		}
	})
}

// A request that is given up before it was written leaves no binary frame behind.
func TestWithdrawnSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, near := newSidecarRuntime(t)
		proceed := make(chan struct{})
		go func() {
			r.accept()
			<-proceed // the send buffers are full meanwhile
			first := r.receive(arcp.ArtifactPut)
			ping := r.receive(arcp.Ping) // refuses a binary frame
			if len(first.Sidecar) != 300_000 {
				t.Errorf("the first put has %d bytes", len(first.Sidecar))
			}
			p, _ := arcp.DecodePayload[arcp.PingPayload](&ping)
			r.send(ping, arcp.Pong, arcp.PongPayload(p))
		}()
		c, err := client.ConnectFunc(t.Context(), func(context.Context) (transport.Conn, error) { return near, nil }, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		put := func(ctx context.Context, size int) {
			_, err := c.Artifacts().Put(ctx, client.PutArtifactParams{MediaType: "image/png", Content: bytes.NewReader(make([]byte, size))})
			if err == nil {
				t.Errorf("a put of %d bytes has an answer", size)
			}
		}
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go put(ctx, 300_000)
		synctest.Wait() // the writer has it
		second, giveUpSecond := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			put(second, 10)
			close(done)
		}()
		synctest.Wait() // the buffer has it
		giveUpSecond()
		<-done
		close(proceed)
		if _, err := c.Ping(t.Context()); err != nil {
			t.Errorf("Ping = %v", err)
		}
	})
}
