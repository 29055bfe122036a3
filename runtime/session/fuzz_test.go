package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// FuzzMachine turns bytes into things that happen to a machine, and checks
// after each what must always hold.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 1, 0, 2, 0, 3, 17, 3, 40, 4, 1})           // open, judged, established, frames, malformed
	f.Add([]byte{0, 0, 1, 1, 0, 1, 1, 2, 0, 1, 1, 2, 5, 200})     // challenges and wrong answers
	f.Add([]byte{0, 0, 1, 0, 2, 1, 0, 0, 1, 0, 2, 0, 6, 0, 3, 1}) // over a limit, again, evicted
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := &witness{T: t, m: New(t0, testConfig(), ownID), now: t0}
		for i := 0; i+1 < len(ops); i += 2 {
			w.op(ops[i], ops[i+1])
			w.check()
		}
	})
}

// witness drives a machine and remembers what it did.
type witness struct {
	*testing.T
	m        *Machine
	now      time.Time
	n        int
	asked    bool // a question is outstanding
	accepted bool
	closed   bool
}

func (w *witness) op(op, arg byte) {
	switch op % 7 {
	case 0:
		w.frame([]arcp.Type{arcp.SessionOpen, arcp.SessionAuthenticate, arcp.SessionResume}[int(arg)%3])
	case 1:
		w.judge(arg)
	case 2:
		w.establish(arg)
	case 3:
		w.frame(arcp.Catalog[int(arg)%len(arcp.Catalog)].Type)
	case 4:
		w.m.Malformed(&arcp.EncodingError{Reason: arcp.ReasonNotJSON, Message: "bad", ID: arcp.MessageID([]string{"", "msg_b"}[arg%2])})
	case 5:
		w.now = w.now.Add(time.Duration(arg) * 100 * time.Millisecond)
		w.m.Advance(w.now)
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
	if t == arcp.SessionAuthenticate {
		payload = `{"response":"r"}`
	}
	env, err := envelope(fmt.Sprintf("msg_%d %s %s", w.n%50, t, payload))
	if err != nil {
		w.Fatal(err)
	}
	w.m.Receive(w.now, env)
}

func (w *witness) judge(arg byte) {
	w.asked = w.asked && w.m.Phase() != Authenticating // an answer nobody asked for is none
	switch arg % 4 {
	case 0:
		w.m.Judge(w.now, judgement("alice"))
	case 1:
		w.m.Judge(w.now, judgement("challenge n"))
	case 2:
		w.m.Judge(w.now, judgement("refuse challenge=n wrong"))
	case 3:
		w.m.Judge(w.now, judgement("refuse final no"))
	}
}

func (w *witness) establish(arg byte) {
	w.asked = w.asked && w.m.Phase() != Establishing
	if arg%2 == 0 {
		w.m.Established(w.now, established(""))
	} else {
		w.m.Established(w.now, established("refused RESOURCE_EXHAUSTED full"))
	}
}

// check takes what the machine wants and compares it with what it may want.
func (w *witness) check() {
	out := w.m.Take()
	if w.closed && (len(out.Send) > 0 || len(out.Commands) > 0 || out.Question != nil || out.Close != nil) {
		w.Fatalf("after the end: %+v", out)
	}
	for i := range out.Send {
		w.sent(&out.Send[i])
	}
	if len(out.Commands) > 0 && !w.accepted {
		w.Fatalf("commands before the session is accepted: %+v", out.Commands)
	}
	if out.Question != nil {
		if w.asked {
			w.Fatalf("two questions at once: %+v", out.Question)
		}
		w.asked = true
	}
	w.closed = w.closed || out.Close != nil
	w.phase()
}

func (w *witness) sent(env *arcp.Envelope) {
	switch env.Type {
	case arcp.SessionAccepted:
		if w.accepted {
			w.Fatal("accepted twice")
		}
		w.accepted = true
	case arcp.SessionChallenge, arcp.SessionUnauthenticated, arcp.SessionRejected:
		if w.accepted {
			w.Fatalf("%s in an accepted session", env.Type)
		}
	default:
		if !w.accepted {
			w.Fatalf("%s before the session is accepted", env.Type)
		}
	}
	if env.CorrelationID == "" && env.Type != arcp.SessionEvicted {
		w.Fatalf("%s answers nothing", env.Type)
	}
	if env.ID != "" || !env.Timestamp.IsZero() || env.EventSeq != 0 {
		w.Fatalf("%s leaves the machine stamped", env.Type)
	}
}

// phase compares the phase with what was seen.
func (w *witness) phase() {
	p := w.m.Phase()
	switch {
	case w.closed != (p == Closed):
		w.Fatalf("closed %t, but phase %v", w.closed, p)
	case !w.closed && w.accepted != (p == Accepted):
		w.Fatalf("accepted %t, but phase %v", w.accepted, p)
	case w.m.Deadline().IsZero() != (p == Accepted || p == Closed):
		w.Fatalf("phase %v with the deadline %v", p, w.m.Deadline())
	case w.m.Deadline().After(t0.Add(70 * time.Second)):
		w.Fatalf("the handshake may last until %v", w.m.Deadline())
	case (p == Authenticating || p == Establishing) != w.asked && !w.closed:
		w.Fatalf("phase %v with a question outstanding: %t", p, w.asked)
	}
}
