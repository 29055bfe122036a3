package conn

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

func newInbox() *inbox {
	b := new(inbox)
	b.init(func() {})
	return b
}

// The reader blocks while the inbox is full, and continues when the loop has taken the frames.
func TestInboxBoundsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newInbox()
		put := 0
		go func() {
			for b.put(inbound{size: 1}) {
				put++
			}
		}()
		synctest.Wait()
		if put != inboxLen {
			t.Fatalf("%d frames are read ahead, want %d", put, inboxLen)
		}
		if _, ok := b.takeFrame(); !ok {
			t.Fatal("no frame")
		}
		synctest.Wait()
		if put != 2*inboxLen {
			t.Errorf("%d frames are read, want another %d", put, inboxLen)
		}
		b.close()
	})
}

// Actions pass frames that wait, and acknowledgements are coalesced.
func TestInboxCoalescesAcks(t *testing.T) {
	b := newInbox()
	id := arcp.SessionID("sess_1")
	ack := []byte(`{"arcp":"1.1","id":"msg_1","type":"session.ack","session_id":"sess_1","timestamp":"2030-01-01T00:00:00Z","payload":{"last_processed_seq":7}}`)
	if b.putAck(&decoder{rfcDecoder{}}, ack) {
		t.Fatal("an acknowledgement before the session is accepted")
	}
	b.ackSession.Store(&id)
	for range 3 {
		if !b.putAck(&decoder{rfcDecoder{}}, ack) {
			t.Fatal("the acknowledgement is not read")
		}
	}
	untimed := []byte(`{"arcp":"1.1","id":"m","type":"session.ack","payload":{"last_processed_seq":8}}`)
	if b.putAck(&decoder{rfcDecoder{}}, untimed) {
		t.Fatal("an acknowledgement without a timestamp is read in the RFC's dialect")
	}
	if !b.putAck(&decoder{new(draft.ServerCodec)}, untimed) {
		t.Fatal("the acknowledgement of the draft dialect is not read")
	}
	b.put(inbound{size: 1})
	b.post(loopFunc(func(time.Time) {}))
	actions, acked := b.takeActions()
	if len(actions) != 1 || acked != (acks{8, 4, 3*len(ack) + len(untimed)}) {
		t.Errorf("%d actions and %+v, want one and four acknowledgements", len(actions), acked)
	}
	b.putBackAcks(acked)
	if _, again := b.takeActions(); again != acked {
		t.Errorf("put back: %+v", again)
	}
}

// A closed inbox drops frames and retains posted actions.
func TestInboxClose(t *testing.T) {
	b := newInbox()
	b.put(inbound{size: 1})
	b.post(readerEnded{})
	b.close()
	if b.put(inbound{}) || b.post(readerEnded{}) || b.hasFrames() || !b.isClosed() {
		t.Error("the inbox is not closed")
	}
	if actions, _ := b.takeActions(); len(actions) != 1 {
		t.Errorf("%d actions, want the one that was posted before", len(actions))
	}
}
