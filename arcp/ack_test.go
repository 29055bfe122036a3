package arcp_test

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

const ackFrame = `{"arcp":"1.1","id":"msg_1","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","session_id":"sess_1","payload":{"last_processed_seq":42}}`

// ReadAck and Decode return the same values.
func TestReadAckReadsOnlyItsSession(t *testing.T) {
	if seq, ok := arcp.ReadAck([]byte(ackFrame), "sess_1"); !ok || seq != 42 {
		t.Errorf("ReadAck = %d, %t, want 42", seq, ok)
	}
	if _, ok := arcp.ReadAck([]byte(ackFrame), "sess_2"); ok {
		t.Error("the acknowledgement of another session is read")
	}
	const untimed = `{"arcp":"1.1","id":"msg_1","type":"session.ack","session_id":"sess_1","payload":{"last_processed_seq":42}}`
	if seq, ok := arcp.ReadDraftAck([]byte(untimed), "sess_1"); !ok || seq != 42 {
		t.Errorf("ReadDraftAck = %d, %t, want 42", seq, ok)
	}
	if _, ok := arcp.ReadAck([]byte(untimed), "sess_1"); ok {
		t.Error("an acknowledgement without a timestamp is read")
	}
}

// ReadAck and Decode agree: a frame that ReadAck accepts decodes to the same values, and a
// frame that Decode refuses is refused by ReadAck. So do ReadDraftAck and DecodeDraft.
func FuzzReadAck(f *testing.F) {
	for _, s := range []string{ackFrame, `{"arcp":"1","type":"session.ack","id":"a","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":0}}`,
		`{"arcp":"1.1","id":"msg_1","type":"session.ack","timestamp":"yesterday","payload":{"last_processed_seq":1}}`,
		`{"arcp":"1.1","id":"","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":1}}`,
		`{"arcp":"2.0","id":"m","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":-1}}`,
		`{"arcp":"1.1","id":"m","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":1.0}}`,
		`{"arcp":"1.1","id":"m","id":"m","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":1}}`,
		`{"arcp":"1.1","id":"\u0041","type":"session.ack","timestamp":"2026-01-02T15:04:05Z","payload":{"last_processed_seq":1,"x":2}} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, dialect := range []struct {
			read   func([]byte, arcp.SessionID) (uint64, bool)
			decode func([]byte) (arcp.Envelope, error)
		}{{arcp.ReadAck, arcp.Decode}, {arcp.ReadDraftAck, arcp.DecodeDraft}} {
			seq, ok := dialect.read(frame, "sess_1")
			if !ok {
				continue
			}
			env, err := dialect.decode(frame)
			if err != nil {
				t.Fatalf("%s is read, but decoding says %v", frame, err)
			}
			p, err := arcp.DecodePayload[arcp.SessionAckPayload](&env)
			if err != nil || env.Type != arcp.SessionAck || p.LastProcessedSeq != seq || !arcp.SupportedVersion(env.ARCP) ||
				env.SessionID != "" && env.SessionID != "sess_1" {
				t.Fatalf("%s is read as %d, but is %+v, %+v, %v", frame, seq, env, p, err)
			}
		}
	})
}

func BenchmarkReadAck(b *testing.B) {
	frame := []byte(ackFrame)
	b.Run("ReadAck", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := arcp.ReadAck(frame, "sess_1"); !ok {
				b.Fatal("not read")
			}
		}
	})
	b.Run("Decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			env, err := arcp.Decode(frame)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := arcp.DecodePayload[arcp.SessionAckPayload](&env); err != nil {
				b.Fatal(err)
			}
		}
	})
}
