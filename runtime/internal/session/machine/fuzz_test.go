package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// FuzzMachine turns bytes into inputs of a machine, and checks the invariants after each.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 1, 0, 2, 0, 3, 17, 3, 40, 4, 1})                          // open, authenticated, established, frames, malformed
	f.Add([]byte{0, 0, 1, 1, 0, 1, 1, 2, 0, 1, 1, 2, 5, 200})                    // challenges and wrong answers
	f.Add([]byte{0, 0, 1, 0, 2, 1, 0, 0, 1, 0, 2, 0, 6, 0, 3, 1})                // over a limit, again, evicted
	f.Add([]byte{7, 1, 0, 0, 1, 4, 2, 0, 5, 250, 8, 1, 0, 1, 9, 4, 10, 0, 3, 1}) // a credential that ends is renewed
	f.Add([]byte{7, 1, 0, 0, 1, 4, 2, 0, 5, 250, 8, 0, 0, 1, 9, 2, 0, 1, 9, 3, 0, 1, 9, 2, 5, 250})
	f.Fuzz(func(t *testing.T, ops []byte) {
		d := &machineDriver{T: t, m: New(t0, testConfig(), ownID), now: t0}
		for i := 0; i+1 < len(ops); i += 2 {
			d.op(ops[i], ops[i+1])
			d.check()
		}
	})
}

// machineDriver drives a machine and remembers its output.
type machineDriver struct {
	*testing.T
	m        *Machine
	now      time.Time
	n        int
	offer    bool // the client offers refresh
	asked    bool // a question is outstanding
	accepted bool
	closed   bool
}

func (d *machineDriver) op(op, arg byte) {
	switch op % 12 {
	case 0:
		d.frame([]arcp.Type{arcp.SessionOpen, arcp.SessionAuthenticate, arcp.SessionResume}[int(arg)%3])
	case 1:
		d.authenticate(arg)
	case 2:
		d.establish(arg)
	case 3:
		d.frame(arcp.Catalog[int(arg)%len(arcp.Catalog)].Type)
	case 4:
		d.m.Malformed(&arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: "bad", ID: arcp.MessageID([]string{"", "msg_b"}[arg%2])})
	case 5:
		d.now = d.now.Add(time.Duration(arg) * 100 * time.Millisecond)
		d.m.Advance(d.now)
	case 7:
		d.offer = arg%2 == 1
	case 8:
		d.completed(d.m.renewal.state == preparing)
		d.m.RefreshPrepared(d.now, []string{"", "n"}[arg%2])
	case 9:
		d.authenticate(arg)
	case 10:
		d.completed(d.m.renewal.state == storing)
		d.m.Renewed(d.now, established([]string{"", "refused UNAVAILABLE broken"}[arg%2]))
	case 11:
		d.asked = d.asked && d.m.Phase() != Closing
		d.m.Ended(established([]string{"", "refused UNAVAILABLE broken"}[arg%2]).Refused)
	case 6:
		d.frame([]arcp.Type{"x-y", "com.acme.z.v1", "job.boom", "boom"}[arg%4])
	}
}

func (d *machineDriver) frame(t arcp.Type) {
	d.n++
	payload := samples[t]
	if payload == "" || d.n%5 == 0 {
		payload = "{}"
	}
	switch {
	case t == arcp.SessionAuthenticate:
		payload = `{"response":"r"}`
	case t == arcp.SessionClose && d.n%2 == 0:
		payload = `{"forget":true}`
	case t == arcp.SessionOpen && d.offer && payload != "{}":
		payload = strings.TrimSuffix(payload, "}") + `,"capabilities":{"refresh":true}}`
	}
	env, err := envelope(fmt.Sprintf("msg_%d %s %s", d.n%50, t, payload))
	if err != nil {
		d.Fatal(err)
	}
	d.m.Receive(d.now, env)
}

// completed records that the outstanding question was completed, if answers says that the
// next answer is to it. The end of a session is completed by Ended alone.
func (d *machineDriver) completed(answers bool) {
	d.asked = d.asked && (!answers || d.m.Phase() == Closing)
}

func (d *machineDriver) authenticate(arg byte) {
	d.completed(d.m.Phase() == Authenticating || d.m.renewal.state == verifying)
	j := (&script{now: d.now}).decision([]string{"alice", "challenge n", "refuse challenge=n wrong", "refuse final no",
		"alice until=40s"}[arg%5])
	d.m.Authenticated(d.now, j)
	d.m.Reauthenticated(d.now, j)
}

func (d *machineDriver) establish(arg byte) {
	d.asked = d.asked && d.m.Phase() != Establishing
	lines := []string{"", "refused RESOURCE_EXHAUSTED full", "attached"}
	d.m.Established(d.now, established(lines[int(arg)%3]))
	d.m.Resumed(d.now, (&script{now: d.now}).resumed(lines[int(arg)%2]))
}

// check takes the output of the machine and checks that it is allowed.
func (d *machineDriver) check() {
	out := d.m.TakeOutput()
	if d.closed && (len(out.Send) > 0 || out.Admitted.Envelope != nil || out.CancelJobs || out.Request != nil || out.Close != nil) {
		d.Fatalf("after the end: %+v", out)
	}
	for i := range out.Send {
		d.sent(&out.Send[i])
	}
	if out.Admitted.Envelope != nil && !d.accepted {
		d.Fatalf("messages are handled before the session is accepted: %+v", out.Admitted)
	}
	if out.Request != nil {
		if _, ends := out.Request.(EndRequest); d.asked && !ends { // an EndRequest cancels the question before
			d.Fatalf("two questions at once: %+v", out.Request)
		}
		d.asked = true
	}
	d.closed = d.closed || out.Close != nil
	d.phase()
}

func (d *machineDriver) sent(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SessionAccepted, arcp.SessionResumed:
		if d.accepted && d.m.renewal.state != idle {
			d.Fatal("accepted twice")
		}
		d.accepted = true
	case arcp.SessionChallenge, arcp.SessionRejected:
		if d.accepted {
			d.Fatalf("%s in an accepted session", env.Type)
		}
	case arcp.SessionUnauthenticated:
	default:
		if !d.accepted {
			d.Fatalf("%s before the session is accepted", env.Type)
		}
	}
	if env.CorrelationID == "" && env.Type != arcp.SessionEvicted && env.Type != arcp.SessionRefresh {
		d.Fatalf("%s answers nothing", env.Type)
	}
	if env.ID != "" || !env.Timestamp.IsZero() || env.EventSeq != 0 {
		d.Fatalf("%s leaves the machine stamped", env.Type)
	}
}

// phase compares the phase with the outputs so far.
func (d *machineDriver) phase() {
	p := d.m.Phase()
	switch {
	case d.closed != (p == Closed):
		d.Fatalf("closed %t, but phase %v", d.closed, p)
	case !d.closed && d.accepted != (p == Accepted || p == Closing):
		d.Fatalf("accepted %t, but phase %v", d.accepted, p)
	case d.m.Deadline().IsZero() != (p == Accepted || p == Closed) && p != Accepted:
		d.Fatalf("phase %v with the deadline %v", p, d.m.Deadline())
	case p == Accepted && d.m.positionDeadline.After(d.now.Add(positionWait)):
		d.Fatalf("the client is waited for until %v", d.m.positionDeadline)
	case p == Accepted && d.m.Deadline().After(d.now.Add(time.Hour)):
		d.Fatalf("nothing need be heard until %v", d.m.Deadline())
	case p == Accepted && !d.m.renewal.expires.IsZero() && d.m.renewal.state < verifying && d.m.Deadline().After(d.m.renewal.expires):
		d.Fatalf("the session outlives its credential: %v", d.m.Deadline())
	case p == Closing && d.m.Deadline().After(d.now.Add(endWait)):
		d.Fatalf("the end is waited for until %v", d.m.Deadline())
	case p < Accepted && d.m.Deadline().After(t0.Add(70*time.Second)):
		d.Fatalf("the handshake may last until %v", d.m.Deadline())
	case (p == Authenticating || p == Establishing || p == Accepted && d.renewing() || p == Closing) != d.asked && !d.closed:
		d.Fatalf("phase %v, renewal %d with a question outstanding: %t", p, d.m.renewal.state, d.asked)
	}
}

// renewing reports whether the machine waits for its caller.
func (d *machineDriver) renewing() bool {
	r := d.m.renewal.state
	return r == preparing || r == verifying || r == storing
}
