package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

// checkedMachine drives a machine and checks its invariants after each call.
type checkedMachine struct {
	m        *Machine
	spec     Spec
	now      time.Time
	started  bool // an attempt has, and is not over
	ever     bool // one had before
	ended    bool
	stops    int
	sequence uint64
}

func newCheckedMachine(spec Spec) *checkedMachine {
	return &checkedMachine{m: New(spec), spec: spec, now: t0}
}

// do calls f and checks the machine; wait is how much time has passed.
func (cm *checkedMachine) do(wait time.Duration, f func(m *Machine, now time.Time)) error {
	cm.now = cm.now.Add(wait)
	before := cm.m.State()
	f(cm.m, cm.now)
	out := cm.m.TakeOutput()
	if again := cm.m.TakeOutput(); again != (Output{}) {
		return fmt.Errorf("a second Take returned %+v", again)
	}
	return cm.check(before, out)
}

func (cm *checkedMachine) check(before arcp.JobState, out Output) error {
	after := cm.m.State()
	switch {
	case !slices.Contains(arcp.JobStates, after):
		return fmt.Errorf("state %q", after)
	case cm.ended && out != (Output{}):
		return fmt.Errorf("output after the end: %+v", out)
	case cm.ended && after != before:
		return fmt.Errorf("%s after the end in %s", after, before)
	case (out.Terminal != nil) != (after.Terminal() && !before.Terminal()):
		return fmt.Errorf("terminal %+v on the way from %s to %s", out.Terminal, before, after)
	case out.Started && cm.started:
		return fmt.Errorf("started twice")
	case after.Terminal() && !cm.m.Deadline().IsZero():
		return fmt.Errorf("%s has the deadline %v", after, cm.m.Deadline())
	case !cm.started && !out.Started && (out.Heartbeat != nil || out.Stop != nil):
		return fmt.Errorf("between attempts: %+v", out)
	case !cm.ever && !out.Started && !cm.m.Deadline().IsZero():
		return fmt.Errorf("before the start: deadline %v", cm.m.Deadline())
	case cm.started && !cm.m.active() && !before.Terminal() && out.Stop == nil && cm.stops == 0 && out.Terminal == nil:
		return fmt.Errorf("the attempt was not stopped on the way from %s to %s", before, after)
	}
	cm.ever = cm.ever || out.Started
	if cm.started = (cm.started || out.Started) && cm.m.active(); !cm.started {
		defer func() { cm.stops = 0 }()
	}
	cm.ended = after.Terminal()
	return first(cm.checkHeartbeat(out.Heartbeat), cm.checkStop(out.Stop), checkOutcome(out.Terminal))
}

func (cm *checkedMachine) checkHeartbeat(h *arcp.JobHeartbeatPayload) error {
	if h == nil {
		return nil
	}
	if h.Sequence <= cm.sequence || h.DeadlineMS != uint64((2*cm.spec.Heartbeat).Milliseconds()) ||
		h.State != string(arcp.StateRunning) && h.State != string(arcp.StateBlocked) {
		return fmt.Errorf("heartbeat %+v after %d", *h, cm.sequence)
	}
	cm.sequence = h.Sequence
	return nil
}

func (cm *checkedMachine) checkStop(stop *arcp.Error) error {
	if stop == nil {
		return nil
	}
	if cm.stops++; cm.stops > 1 {
		return fmt.Errorf("stopped twice")
	}
	return nil
}

func checkOutcome(o *Outcome) error {
	if o == nil {
		return nil
	}
	ok := false
	switch o.State {
	case arcp.StateCompleted:
		ok = o.Err == nil && o.Code == "" && o.Value != nil
	case arcp.StateFailed:
		ok = o.Err != nil && o.Code == "" && o.Value == nil
	case arcp.StateCancelled:
		ok = o.Err == nil && o.Value == nil && (o.Code == arcp.CodeCancelled || o.Code == arcp.CodeAborted)
	}
	if !ok {
		return fmt.Errorf("outcome %+v", *o)
	}
	return nil
}

// advance also checks the promises of Deadline: before it nothing happens, at
// it something does.
func (cm *checkedMachine) advance(wait time.Duration) error {
	deadline := cm.m.Deadline()
	var out Output
	var after time.Time
	err := cm.do(wait, func(m *Machine, now time.Time) {
		m.Advance(now)
		out, after = m.out, m.Deadline()
	})
	due := !deadline.IsZero() && !deadline.After(cm.now)
	switch {
	case err != nil:
		return err
	case !due && out != (Output{}):
		return fmt.Errorf("advance to %v did %+v before the deadline %v", cm.now, out, deadline)
	case due && out == (Output{}):
		return fmt.Errorf("nothing happened at the deadline %v", deadline)
	case !after.IsZero() && !after.After(cm.now):
		return fmt.Errorf("after advance to %v the deadline is %v", cm.now, after)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

var ops = []func(m *Machine, now time.Time){
	func(m *Machine, now time.Time) { m.Queue(now) },
	func(m *Machine, now time.Time) { m.Start(now) },
	func(m *Machine, now time.Time) { m.Complete(now, arcp.Raw("1")) },
	func(m *Machine, now time.Time) { m.Fail(now, arcp.Errorf(arcp.CodeInternal, "broken")) },
	func(m *Machine, now time.Time) { m.Fail(now, arcp.Errorf(arcp.CodeCancelled, "gave up")) },
	func(m *Machine, now time.Time) { m.Cancel(now, "why", 0) },
	func(m *Machine, now time.Time) { m.Cancel(now, "why", 90*time.Second) },
	func(m *Machine, now time.Time) { m.Block(now) },
	func(m *Machine, now time.Time) { m.Unblock(now) },
	func(m *Machine, now time.Time) { m.SetManualHeartbeats(now) },
	func(m *Machine, now time.Time) { m.Heartbeat(now) },
	func(m *Machine, now time.Time) { m.Retry(now, arcp.Errorf(arcp.CodeUnavailable, "later")) },
	func(m *Machine, now time.Time) { m.Pause(now) },
	func(m *Machine, now time.Time) { m.Rewind(now) },
}

// FuzzMachine reads bytes as a spec and pairs of an operation and the seconds
// that pass before it.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{10, 2, 1, 10, 1, 0, 9, 0, 11, 4, 11, 4, 10, 1, 2, 1})
	f.Add([]byte{0, 0, 0, 0, 0, 1, 1, 1, 7, 3, 5, 1, 11, 9})
	f.Add([]byte{20, 3, 1, 0, 1, 0, 9, 0, 11, 200, 8, 1, 11, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 4 {
			return
		}
		seconds := func(b byte) time.Duration { return time.Duration(b) * time.Second }
		w := newCheckedMachine(Spec{MaxRuntime: seconds(script[0]), Heartbeat: seconds(script[1]), BlockOnSilence: script[2]&1 == 1,
			SilenceWindow: seconds(script[3])})
		for rest := script[4:]; len(rest) >= 2; rest = rest[2:] {
			op, wait := int(rest[0])%(len(ops)+1), seconds(rest[1])
			err := error(nil)
			if op == len(ops) {
				err = w.advance(wait)
			} else {
				err = w.do(wait, ops[op])
			}
			if err != nil {
				t.Fatalf("spec %+v, operation %d at %v: %v", w.spec, op, w.now.Sub(t0), err)
			}
		}
	})
}

func drawSpec(t *rapid.T) Spec {
	d := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 20).Draw(t, name)) * time.Second
	}
	return Spec{MaxRuntime: d("max_runtime"), Heartbeat: d("heartbeat"), BlockOnSilence: rapid.Bool().Draw(t, "block"),
		SilenceWindow: d("window")}
}

func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCheckedMachine(drawSpec(t))
		for i := range rapid.IntRange(1, 60).Draw(t, "n") {
			op := rapid.IntRange(0, 2*len(ops)).Draw(t, "op")
			wait := time.Duration(rapid.IntRange(0, 8000).Draw(t, "wait")) * time.Millisecond
			err := error(nil)
			if op >= len(ops) {
				err = w.advance(wait)
			} else {
				err = w.do(wait, ops[op])
			}
			if err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
	})
}

// A job with automatic heartbeats that is advanced at each Deadline fails exactly after
// MaxRuntime, not counting the time blocked by questions. It never leaves a client without a
// heartbeat for longer than an interval.
func TestMaxRuntimeCountsOnlyRunningTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{MaxRuntime: time.Duration(rapid.IntRange(1, 100_000).Draw(t, "max_runtime")) * time.Millisecond,
			Heartbeat: time.Duration(rapid.IntRange(1, 10_000).Draw(t, "heartbeat")) * time.Millisecond}
		m := New(spec)
		now, ran, beat := t0, time.Duration(0), t0
		m.Start(now)
		step := func(d time.Duration) {
			for until := now.Add(d); !m.State().Terminal(); {
				next := until
				if dl := m.Deadline(); dl.Before(until) {
					next = dl
				}
				if m.State() == arcp.StateRunning {
					ran += next.Sub(now)
				}
				now = next
				m.Advance(now)
				if m.TakeOutput().Heartbeat != nil {
					if gap := now.Sub(beat); gap > spec.Heartbeat {
						t.Fatalf("%v without a heartbeat, want at most %v", gap, spec.Heartbeat)
					}
					beat = now
				}
				if now.Equal(until) {
					return
				}
			}
		}
		for !m.State().Terminal() {
			step(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "run")) * time.Millisecond)
			m.Block(now)
			step(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "wait")) * time.Millisecond)
			m.Unblock(now)
		}
		if ran != spec.MaxRuntime {
			t.Fatalf("it ended after running %v, want %v", ran, spec.MaxRuntime)
		}
	})
}

func BenchmarkLife(b *testing.B) {
	b.ReportAllocs()
	spec := Spec{MaxRuntime: time.Minute, Heartbeat: 30 * time.Second}
	value := arcp.Raw("1")
	for b.Loop() {
		m := New(spec)
		m.Start(t0)
		m.TakeOutput()
		m.Advance(t0)
		if m.Deadline().IsZero() {
			b.Fatal("a running job has no deadline")
		}
		m.Complete(t0, value)
		m.TakeOutput()
	}
}
