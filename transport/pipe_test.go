package transport_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/transport"
	"github.com/arcpd/arcpd/transport/transporttest"
)

func dialPipe(_ *testing.T, l transport.Limits) (a, b transport.Conn) { return transport.Pipe(l) }

func TestPipeIsAConn(t *testing.T) { transporttest.Run(t, dialPipe) }

func TestPipeIsAConnInVirtualTime(t *testing.T) { transporttest.RunIn(t, synctest.Test, dialPipe) }

// A peer that is slow but reads is never given up; one that stops is, after
// exactly the write timeout.
func TestPipeProgressRenewsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		a, b := transport.Pipe(transport.Limits{WriteTimeout: timeout})
		start := time.Now()
		var last time.Time
		go func() {
			for range 10 {
				time.Sleep(timeout - 1)
				b.Read()
				last = time.Now()
			}
		}()
		var err error
		for f := make([]byte, transport.BufferSize); err == nil; {
			err = a.Write(f)
		}
		synctest.Wait()
		if got, want := time.Since(last), timeout; got != want {
			t.Errorf("Write failed %v after the last progress, want %v: %v", got, want, err)
		}
		if total := time.Since(start); total < 5*timeout {
			t.Errorf("Write failed after %v, though the peer was reading: %v", total, err)
		}
		a.Abort()
		b.Abort()
	})
}
