package job

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func TestRetryDelay(t *testing.T) {
	later := func(seconds int) *arcp.Error { return arcp.Errorf(arcp.CodeUnavailable, "later").RetryAfter(seconds) }
	for _, c := range []struct {
		name     string
		failed   int
		err      *arcp.Error
		deadline time.Time
		want     time.Duration
		ok       bool
	}{
		{"the backoff", 0, arcp.Errorf(arcp.CodeUnavailable, "later"), time.Time{}, time.Second, true},
		{"not retryable", 0, arcp.Errorf(arcp.CodeInvalidArgument, "no"), time.Time{}, 0, false},
		{"the last attempt", 2, later(1), time.Time{}, 0, false},
		{"one attempt is left", 1, later(1), time.Time{}, time.Second, true},
		{"a longer wait is asked for", 0, later(30), time.Time{}, 30 * time.Second, true},
		{"the wait is bounded", 0, later(365 * 24 * 3600), time.Time{}, maxRequestedDelay, true},
		{"the time is over before", 0, later(30), t0.Add(30 * time.Second), 0, false},
		{"the time is over after", 0, later(30), t0.Add(31 * time.Second), 30 * time.Second, true},
	} {
		a := Attempts{Failed: c.failed}
		if d, ok := a.RetryDelay(t0, c.err, 3, time.Second, c.deadline); d != c.want || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.name, d, ok, c.want, c.ok)
		}
	}
}

func TestRetryDelayOfDetails(t *testing.T) {
	for details, want := range map[string]time.Duration{
		`{"retry_after_seconds":1.5}`: 1500 * time.Millisecond, `{"retry_after_seconds":"x"}`: 0, `{"retry_after_seconds":-1}`: 0,
		`{"retry_after_seconds":1e300}`: maxRequestedDelay, `{}`: 0, ``: 0,
	} {
		err := &arcp.Error{Code: arcp.CodeUnavailable, Retryable: true, Details: arcp.Raw(details)}
		if got, ok := new(Attempts).RetryDelay(t0, err, 2, 0, time.Time{}); got != want || !ok {
			t.Errorf("%s asks for %v, want %v", details, got, want)
		}
	}
}

func TestAttempts(t *testing.T) {
	var a Attempts
	if d := a.Deadline(time.Minute); !d.IsZero() {
		t.Errorf("a job that has not started has the deadline %v", d)
	}
	a.Started = t0
	if d := a.Deadline(0); !d.IsZero() {
		t.Errorf("a job without a maximum runtime has the deadline %v", d)
	}
	a.Blocked = t0.Add(10 * time.Second)
	a.Unblock(t0.Add(25 * time.Second))
	a.Unblock(t0.Add(time.Hour))
	if d, want := a.Deadline(time.Minute), t0.Add(75*time.Second); !d.Equal(want) || !a.Blocked.IsZero() {
		t.Errorf("after a wait of 15 s the deadline is %v, want %v", d, want)
	}
	a.Blocked = t0.Add(time.Hour)
	a.Unblock(t0) // the clock was set back
	if d, want := a.Deadline(time.Minute), t0.Add(75*time.Second); !d.Equal(want) {
		t.Errorf("a clock that is set back moves the deadline to %v, want %v", d, want)
	}
	a.Fail(t0, time.Second)
	if a.Failed != 1 || !a.Next.Equal(t0.Add(time.Second)) {
		t.Errorf("after a failure: %+v", a)
	}
	for n := 1; n <= maxLost; n++ {
		err := a.Lose(arcp.Errorf(arcp.CodeUnavailable, "gone"))
		if ends := n == maxLost; (err != nil) != ends || ends &&
			(err.Code != arcp.CodeAborted || err.Retryable || !strings.Contains(err.Message, "gone")) {
			t.Errorf("lost attempt %d: %v", n, err)
		}
	}
}

func TestTimeLimitExcludesPauses(t *testing.T) {
	var l TimeLimit
	check := func(why string, want time.Time) {
		t.Helper()
		if got := l.End(); !got.Equal(want) {
			t.Errorf("%s: the limit ends at %v, want %v", why, got, want)
		}
	}
	l.Start(t0, 0)
	l.Pause(t0, PauseAnswer)
	l.Resume(t0, PauseAnswer)
	check("no limit", time.Time{})
	l.Start(t0, time.Minute)
	check("it runs", t0.Add(time.Minute))
	l.Pause(t0.Add(20*time.Second), PauseAnswer)
	check("it pauses", time.Time{})
	l.Resume(t0.Add(time.Hour), PauseAnswer)
	check("it goes on", t0.Add(time.Hour+40*time.Second))
	l.Pause(t0.Add(2*time.Hour), PauseAnswer)
	l.Resume(t0.Add(3*time.Hour), PauseAnswer)
	check("it was over when it paused", t0.Add(3*time.Hour+1))
	l = TimeLimit{}
	l.Pause(t0, PauseAnswer)
	l.Start(t0, time.Minute)
	check("it begins with a pause", time.Time{})
	l.Pause(t0, PauseWorker)
	l.Resume(t0.Add(time.Second), PauseAnswer)
	check("another reason is left", time.Time{})
	l.Resume(t0.Add(time.Second), PauseAnswer)
	check("the same reason ends again", time.Time{})
	l.Resume(t0.Add(2*time.Second), PauseWorker)
	check("then it runs", t0.Add(62*time.Second))
}

func TestCheckpoints(t *testing.T) {
	stored := func(first, last uint64) *Checkpoints {
		c := new(Checkpoints)
		for n := first; n <= last; n++ {
			c[n%MaxCheckpoints] = Checkpoint{ID: string(rune('a' + n)), N: n}
		}
		return c
	}
	id := func(n uint64) string { return string(rune('a' + n)) }
	for _, c := range []struct {
		name        string
		first, last uint64
		choose      uint64
		pending     bool
		ok          bool
	}{
		{"there is none", 1, 0, 1, false, false},
		{"the only one", 1, 1, 1, false, true},
		{"the oldest", 3, 12, 3, false, true},
		{"the oldest is about to be replaced", 3, 12, 3, true, false},
		{"the second oldest is not", 3, 12, 4, true, true},
		{"one that is replaced", 3, 12, 2, false, false},
	} {
		k := stored(c.first, c.last)
		p, ok := k.Choose(id(c.choose), c.pending)
		if ok != c.ok {
			t.Errorf("%s: chosen: %v, want %v", c.name, ok, c.ok)
		}
		if !ok {
			continue
		}
		if from, err := k.RestoreFrom(p); err != nil || from.N != c.choose {
			t.Errorf("%s: the next attempt goes on from %d, %v", c.name, from.N, err)
		}
		later := p.Latest + 1
		k[later%MaxCheckpoints] = Checkpoint{ID: id(later), N: later}
		if from, err := k.RestoreFrom(p); err != nil || from.N != later {
			t.Errorf("%s: after a later checkpoint %d the next attempt goes on from %d, %v", c.name, later, from.N, err)
		}
	}
	if from, err := stored(3, 12).RestoreFrom(RestorePoint{}); err != nil || from.N != 12 {
		t.Errorf("without a choice the next attempt goes on from %d, %v", from.N, err)
	}
	if _, err := stored(3, 12).RestoreFrom(RestorePoint{N: 2, Latest: 12}); err == nil {
		t.Error("a checkpoint that is not kept is restored")
	}
}
