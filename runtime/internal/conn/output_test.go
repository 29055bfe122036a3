package conn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/pool"
	"github.com/arcpd/arcpd/transport"
)

// sendBuffer is a transport.Conn that records what is written and flushed.
type sendBuffer struct {
	transport.Conn
	calls []string
}

func (s *sendBuffer) Write(frame []byte) error {
	s.calls = append(s.calls, "write "+string(frame[:1]))
	return nil
}

func (s *sendBuffer) Flush() error {
	s.calls = append(s.calls, "flush")
	return nil
}

func (s *sendBuffer) sent(seq uint64) { s.calls = append(s.calls, fmt.Sprint("sent ", seq)) }

// TestLastFramesWaitForTheCloseFrame checks that the last frames stay in the send buffer, so that Close
// sends them with its frame, unless they are too large for it or have events.
func TestLastFramesWaitForTheCloseFrame(t *testing.T) {
	p := pool.New()
	defer p.Close()
	for _, test := range []struct {
		why  string
		last *batch
		want []string
	}{
		{"no frame", nil, nil},
		{"two frames", &batch{data: []byte("abcd"), ends: []int{2, 4}}, []string{"write a", "write c"}},
		{"an event", &batch{data: []byte("ab"), ends: []int{2}, last: 7}, []string{"write a", "flush", "sent 7"}},
		{"a large frame", &batch{data: []byte(strings.Repeat("x", maxLastBatch+1)), ends: []int{maxLastBatch + 1}},
			[]string{"write x", "flush"}},
	} {
		conn := new(sendBuffer)
		o := output{outbox: newOutbox(conn, p, func() {}, conn.sent), current: test.last, counts: frameCounts{metrics: new(metrics.Metrics)}}
		o.finish()
		if !slices.Equal(conn.calls, test.want) {
			t.Errorf("%s: %v, want %v", test.why, conn.calls, test.want)
		}
		if o.current != nil {
			t.Errorf("%s: the batch is left", test.why)
		}
	}
}
