package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// longestHeartbeat is the longest interval that a check waits for.
const longestHeartbeat = 2 * time.Second

// interval is the advertised time between two pings. The check is skipped if
// it is too long to wait for.
func (c *Conn) interval() time.Duration {
	d := time.Duration(c.Accepted.HeartbeatIntervalSec) * time.Second
	if d <= 0 || d > longestHeartbeat {
		c.t.Skipf("the server pings every %v: too rarely for a check", d)
	}
	return d
}

func livenessPing(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureHeartbeat))
	interval := c.interval()
	nonces := map[string]bool{}
	for range 3 {
		began := time.Now()
		f := c.frame("a session is pinged in every interval")
		c.match("nothing else happens", f, arcp.SessionPing, "")
		took := time.Since(began)
		t.Want("a ping comes within the interval", took < 2*interval, "it took %v", took)
		t.Want("a ping has a nonce of its own", f.nonce() != "" && !nonces[f.nonce()], "it is %q", f.nonce())
		nonces[f.nonce()] = true
		c.pong(f)
	}
}

func livenessSilence(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureHeartbeat))
	interval := c.interval()
	began := time.Now() // it is silent from later on
	c.hush()
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	c.Superseded("a silent peer loses its connection") // by the same code
	took := time.Since(began)
	t.Want("nobody is given up before two intervals of silence", took > 3*interval/2, "it took %v", took)
	d := c.Resume(c.rec.last())
	d.Cancel(job, 5000)
	d.Await("its job went on", arcp.JobCancelled, submit)
}

func livenessNegotiated(_ context.Context, t *T) {
	c := t.Open()
	interval := c.interval()
	c.Submit("demo.sleep", map[string]any{"ms": (interval + interval/4).Milliseconds()})
	for f := c.frame("the job ends"); f.Type != arcp.JobCompleted; f = c.frame("the job ends") {
		t.Want("nobody is pinged who did not ask for it", f.Type != arcp.SessionPing, "got %s", f)
	}
}
