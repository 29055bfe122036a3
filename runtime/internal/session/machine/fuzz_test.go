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
		w := &witness{T: t, m: New(t0, testConfig(), ownID), now: t0}
		for i := 0; i+1 < len(ops); i += 2 {
			w.op(ops[i], ops[i+1])
			w.check()
		}
	})
}

// witness drives a machine and remembers its output.
type witness struct {
	*testing.T
	m        *Machine
	now      time.Time
	n        int
	offer    bool // the client offers refresh
	asked    bool // a question is outstanding
	accepted bool
	closed   bool
}

func (w *witness) op(op, arg byte) {
	switch op % 12 {
	case 0:
		w.frame([]arcp.Type{arcp.SessionOpen, arcp.SessionAuthenticate, arcp.SessionResume}[int(arg)%3])
	case 1:
		w.authenticate(arg)
	case 2:
		w.establish(arg)
	case 3:
		w.frame(arcp.Catalog[int(arg)%len(arcp.Catalog)].Type)
	case 4:
		w.m.Malformed(&arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: "bad", ID: arcp.MessageID([]string{"", "msg_b"}[arg%2])})
	case 5:
		w.now = w.now.Add(time.Duration(arg) * 100 * time.Millisecond)
		w.m.Advance(w.now)
	case 7:
		w.offer = arg%2 == 1
	case 8:
		w.completed(w.m.renewal.state == preparing)
		w.m.RefreshPrepared(w.now, []string{"", "n"}[arg%2])
	case 9:
		w.authenticate(arg)
	case 10:
		w.completed(w.m.renewal.state == storing)
		w.m.Renewed(w.now, established([]string{"", "refused UNAVAILABLE broken"}[arg%2]))
	case 11:
		w.asked = w.asked && w.m.Phase() != Closing
		w.m.Ended(established([]string{"", "refused UNAVAILABLE broken"}[arg%2]).Refused)
	case 6:
		w.frame([]arcp.Type{"x-y", "com.acme.z.v1", "job.boom", "boom"}[arg%4])
	}
}

func (w *witness) frame(t arcp.Type) {
	w.n++
	payload := samples[t]
	if payload == "" || w.n%5 == 0 {
		payload = "{}"
	}
	switch {
	case t == arcp.SessionAuthenticate:
		payload = `{"response":"r"}`
	case t == arcp.SessionClose && w.n%2 == 0:
		payload = `{"forget":true}`
	case t == arcp.SessionOpen && w.offer && payload != "{}":
		payload = strings.TrimSuffix(payload, "}") + `,"capabilities":{"refresh":true}}`
	}
	env, err := envelope(fmt.Sprintf("msg_%d %s %s", w.n%50, t, payload))
	if err != nil {
		w.Fatal(err)
	}
	w.m.Receive(w.now, env)
}

// completed records that the outstanding question was completed, if answers says that the
// next answer is to it. The end of a session is completed by Ended alone.
func (w *witness) completed(answers bool) {
	w.asked = w.asked && (!answers || w.m.Phase() == Closing)
}

func (w *witness) authenticate(arg byte) {
	w.completed(w.m.Phase() == Authenticating || w.m.renewal.state == verifying)
	j := (&script{now: w.now}).decision([]string{"alice", "challenge n", "refuse challenge=n wrong", "refuse final no",
		"alice until=40s"}[arg%5])
	w.m.Authenticated(w.now, j)
	w.m.Reauthenticated(w.now, j)
}

func (w *witness) establish(arg byte) {
	w.asked = w.asked && w.m.Phase() != Establishing
	lines := []string{"", "refused RESOURCE_EXHAUSTED full", "attached"}
	w.m.Established(w.now, established(lines[int(arg)%3]))
	w.m.Resumed(w.now, (&script{now: w.now}).resumed(lines[int(arg)%2]))
}

// check takes the output of the machine and checks that it is allowed.
func (w *witness) check() {
	out := w.m.TakeOutput()
	if w.closed && (len(out.Send) > 0 || out.Admitted.Envelope != nil || out.CancelJobs || out.Request != nil || out.Close != nil) {
		w.Fatalf("after the end: %+v", out)
	}
	for i := range out.Send {
		w.sent(&out.Send[i])
	}
	if out.Admitted.Envelope != nil && !w.accepted {
		w.Fatalf("messages are handled before the session is accepted: %+v", out.Admitted)
	}
	if out.Request != nil {
		if _, ends := out.Request.(EndRequest); w.asked && !ends { // an EndRequest cancels the question before
			w.Fatalf("two questions at once: %+v", out.Request)
		}
		w.asked = true
	}
	w.closed = w.closed || out.Close != nil
	w.phase()
}

func (w *witness) sent(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SessionAccepted, arcp.SessionResumed:
		if w.accepted && w.m.renewal.state != idle {
			w.Fatal("accepted twice")
		}
		w.accepted = true
	case arcp.SessionChallenge, arcp.SessionRejected:
		if w.accepted {
			w.Fatalf("%s in an accepted session", env.Type)
		}
	case arcp.SessionUnauthenticated:
	default:
		if !w.accepted {
			w.Fatalf("%s before the session is accepted", env.Type)
		}
	}
	if env.CorrelationID == "" && env.Type != arcp.SessionEvicted && env.Type != arcp.SessionRefresh {
		w.Fatalf("%s answers nothing", env.Type)
	}
	if env.ID != "" || !env.Timestamp.IsZero() || env.EventSeq != 0 {
		w.Fatalf("%s leaves the machine stamped", env.Type)
	}
}

// phase compares the phase with the outputs so far.
func (w *witness) phase() {
	p := w.m.Phase()
	switch {
	case w.closed != (p == Closed):
		w.Fatalf("closed %t, but phase %v", w.closed, p)
	case !w.closed && w.accepted != (p == Accepted || p == Closing):
		w.Fatalf("accepted %t, but phase %v", w.accepted, p)
	case w.m.Deadline().IsZero() != (p == Accepted || p == Closed) && p != Accepted:
		w.Fatalf("phase %v with the deadline %v", p, w.m.Deadline())
	case p == Accepted && w.m.positionDeadline.After(w.now.Add(positionWait)):
		w.Fatalf("the client is waited for until %v", w.m.positionDeadline)
	case p == Accepted && w.m.Deadline().After(w.now.Add(time.Hour)):
		w.Fatalf("nothing need be heard until %v", w.m.Deadline())
	case p == Accepted && !w.m.renewal.expires.IsZero() && w.m.renewal.state < verifying && w.m.Deadline().After(w.m.renewal.expires):
		w.Fatalf("the session outlives its credential: %v", w.m.Deadline())
	case p == Closing && w.m.Deadline().After(w.now.Add(endWait)):
		w.Fatalf("the end is waited for until %v", w.m.Deadline())
	case p < Accepted && w.m.Deadline().After(t0.Add(70*time.Second)):
		w.Fatalf("the handshake may last until %v", w.m.Deadline())
	case (p == Authenticating || p == Establishing || p == Accepted && w.renewing() || p == Closing) != w.asked && !w.closed:
		w.Fatalf("phase %v, renewal %d with a question outstanding: %t", p, w.m.renewal.state, w.asked)
	}
}

// renewing reports whether the machine waits for its caller.
func (w *witness) renewing() bool {
	r := w.m.renewal.state
	return r == preparing || r == verifying || r == storing
}
