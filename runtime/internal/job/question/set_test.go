package question

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

var t0 = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// input returns a pending input of alice that was sent to the sessions s1 and s2 and expires in an
// hour.
func input(id string) approval.Row {
	return approval.Row{ID: id, Kind: approval.Input, Principal: "alice", Status: approval.Pending,
		CreatedAt: t0, ExpiresAt: t0.Add(time.Hour), Sent: []arcp.SessionID{"s1", "s2"}}
}

// logged adds a question whose event is in the log.
func (s *Set) logged(row approval.Row) *Question {
	q := s.Add(row)
	q.Row.JSeq = 1
	q.SetLogged(arcp.MessageID("msg_" + row.ID))
	return q
}

func alice(id arcp.SessionID) *approval.Actor {
	return &approval.Actor{Principal: "alice", Session: id, HumanInput: true}
}

func anyValue(_, _ arcp.Raw) *arcp.Error { return nil }

func codeOf(err *arcp.Error) arcp.Code {
	if err == nil {
		return ""
	}
	return err.Code
}

// A question repeats the one with its content and its ordinal, or a pending one that no call of the
// attempt waits for.
func TestRepeatFindsAnEqualQuestion(t *testing.T) {
	q := func(id, digest string, ordinal int, status approval.Status, waiters int) *Question {
		return &Question{waiters: waiters, Row: approval.Row{ID: id, Digest: digest, Ordinal: ordinal, Status: status}}
	}
	interrupt := q("interrupt", "x", 0, approval.Pending, 0)
	interrupt.Row.Interrupt = true
	for _, c := range []struct {
		digest  string
		ordinal int
		want    string
	}{
		{"x", 1, "answered"}, {"x", 2, "awaited"}, {"x", 3, "pending"}, {"x", 0, "pending"}, {"x", 9, "pending"},
		{"y", 0, "alone"}, {"y", 1, ""}, {"z", 0, ""}, {"y", BeforeCall, ""}, {"g", BeforeCall, "gate"},
	} {
		set := Set{ordinal: max(c.ordinal, 0), list: []*Question{
			interrupt,
			q("withdrawn", "x", 0, approval.Cancelled, 0),
			q("answered", "x", 1, approval.Resolved, 0),
			q("awaited", "x", 2, approval.Pending, 1),
			q("pending", "x", 3, approval.Pending, 0),
			q("alone", "y", 0, approval.Resolved, 0),
			q("gate", "g", BeforeCall, approval.Pending, 0),
		}}
		row := approval.Row{Digest: c.digest, Ordinal: min(c.ordinal, 0)}
		got, found := "", set.Repeat(&row)
		if found != nil {
			got = found.Row.ID
		}
		if got != c.want || row.Ordinal != c.ordinal {
			t.Errorf("question %s %d repeats %q as %d, want %q", c.digest, c.ordinal, got, row.Ordinal, c.want)
		}
		if found != nil && (found.Row.Ordinal != c.ordinal || found.Unsaved != (got == "pending" && c.ordinal != 3)) {
			t.Errorf("question %s %d: %+v", c.digest, c.ordinal, found)
		}
		if set.Interrupt() != interrupt || !set.AwaitsApproval() {
			t.Error("the interrupt or the approval is not found")
		}
	}
}

// The job is blocked from the first wait to the end of the last question that a call waits for.
func TestJobIsBlockedWhileACallWaits(t *testing.T) {
	var set Set
	a, b := set.logged(input("a")), set.logged(input("b"))
	if !set.Wait(a) || set.Wait(a) || set.Wait(b) || !set.Blocked() {
		t.Error("only the first wait blocks")
	}
	if set.release(a) {
		t.Error("the job goes on while it waits for the other question")
	}
	if set.release(a) {
		t.Error("a question without waiters unblocks the job")
	}
	if e, ok := set.Withdraw(t0, b, "withdrawn"); !ok || !e.Unblocks || set.Blocked() {
		t.Errorf("the end of the last question does not unblock the job: %+v", e)
	}
	set.Wait(a)
	if set.BeginAttempt(); set.Blocked() || !set.Wait(a) {
		t.Error("waiters of an earlier attempt block the next one")
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	var set Set
	for i := range MaxPending {
		if err := set.CheckRoom(1); err != nil {
			t.Fatalf("%d questions: %v", i, err)
		}
		set.Add(input(fmt.Sprint(i)))
	}
	if err := set.CheckRoom(1); codeOf(err) != arcp.CodeResourceExhausted {
		t.Errorf("a question too many: %v", err)
	}
	set.Withdraw(t0, set.All()[0], "withdrawn")
	if err := set.CheckRoom(1); err != nil {
		t.Errorf("a closed question takes room: %v", err)
	}
}

// The first valid answer counts. The other sessions that got the question are notified.
func TestFirstValidAnswerCounts(t *testing.T) {
	var set Set
	q := set.logged(input("q"))
	for _, c := range []struct {
		id    string
		actor *approval.Actor
		code  arcp.Code
	}{
		{"q", alice("s1"), ""},
		{"x", alice("s1"), arcp.CodeNotFound},
		{"q", &approval.Actor{Principal: "bob", Session: "s9", HumanInput: true}, arcp.CodeNotFound},
		{"q", &approval.Actor{Principal: "alice", Session: "s3", Observer: true}, arcp.CodePermissionDenied},
	} {
		if got, err := set.Answerable(c.id, c.actor); codeOf(err) != c.code || (got == nil) != (c.id == "x") {
			t.Errorf("%s by %s: %+v %v, want %q", c.id, c.actor.Session, got, err, c.code)
		}
	}
	refuse := func(_, _ arcp.Raw) *arcp.Error { return arcp.Errorf(arcp.CodeInvalidArgument, "no") }
	row, err := q.WithAnswer(t0, alice("s1"), &approval.Answer{Value: arcp.Raw("0")}, refuse)
	if codeOf(err) != arcp.CodeInvalidArgument || row.Status != approval.Pending {
		t.Errorf("an answer that does not satisfy the schema: %v, %s", err, row.Status)
	}
	row, err = q.WithAnswer(t0, alice("s1"), &approval.Answer{Value: arcp.Raw("1")}, anyValue)
	if err != nil || !q.Pending() {
		t.Fatalf("%v, pending: %v", err, q.Pending())
	}
	e := set.Update(q, row)
	if !e.Closed || !slices.Equal(e.Notified, []arcp.SessionID{"s2"}) || e.Notice.Reason != "answered" || !q.Unsaved ||
		string(q.Row.Value) != "1" {
		t.Errorf("after the answer: %+v, %+v", e, q)
	}
	if _, err := q.WithAnswer(t0, alice("s2"), &approval.Answer{Value: arcp.Raw("2")}, anyValue); codeOf(err) != arcp.CodeFailedPrecondition {
		t.Errorf("a second answer: %v", err)
	}
	if _, ok := set.Withdraw(t0, q, "withdrawn"); ok {
		t.Error("Withdraw of an answered question = true, want false")
	}
}

func TestAdvanceExpiresAndEscalates(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*approval.Row)
		after   time.Duration
		status  approval.Status // empty: the question is not due
		notice  string
		failure arcp.Code
	}{
		{name: "before its time", after: time.Hour - 1},
		{name: "expired", after: time.Hour, status: approval.Expired, notice: "expired"},
		{name: "with a default", change: func(r *approval.Row) { r.Default = arcp.Raw("0") }, after: time.Hour,
			status: approval.Resolved, notice: "the default was taken"},
		{name: "an interrupt", change: func(r *approval.Row) { r.Interrupt = true }, after: time.Hour,
			status: approval.Expired, notice: "expired", failure: arcp.CodeDeadlineExceeded},
		{name: "escalated", change: func(r *approval.Row) { r.EscalateAt = t0.Add(time.Minute) }, after: time.Minute, status: approval.Pending},
		{name: "expired before it is escalated", change: func(r *approval.Row) { r.EscalateAt = t0.Add(time.Minute) },
			after: time.Hour, status: approval.Expired, notice: "expired"},
	} {
		var set Set
		row := input("q")
		if c.change != nil {
			c.change(&row)
		}
		q := set.logged(row)
		set.Committed()
		now := t0.Add(c.after)
		if due := !set.Due().After(now); due != (c.status != "") {
			t.Errorf("%s: due: %v at %v", c.name, due, set.Due())
		}
		effects := set.Advance(now)
		if len(set.Advance(now)) > 0 {
			t.Errorf("%s: it happens twice", c.name)
		}
		if c.status == "" {
			if len(effects) > 0 || q.Unsaved {
				t.Errorf("%s: effects = %+v, unsaved %t, want none and false", c.name, effects, q.Unsaved)
			}
			continue
		}
		if len(effects) != 1 || q.Row.Status != c.status || !q.Unsaved {
			t.Errorf("%s: effects = %+v, question = %+v, want one effect and the unsaved status %s", c.name, effects, q, c.status)
			continue
		}
		e := effects[0]
		if e.Closed == q.Pending() || e.Escalated != q.Pending() || e.Notice.Reason != c.notice || codeOf(e.Failure) != c.failure {
			t.Errorf("%s: effect = %+v, want the notice %q and the failure %q of a question that is pending: %t", c.name, e,
				c.notice, c.failure, q.Pending())
		}
	}
}

// Sessions are notified of the end of a question only if they got it: not before its event is in the
// log.
func TestWithdrawalNotifiesOnlyReceivers(t *testing.T) {
	var set Set
	answered, queued, sent := set.logged(input("a")), set.Add(input("b")), set.logged(input("c"))
	answered.Row.Status = approval.Resolved
	effects := set.WithdrawAll(t0)
	if len(effects) != 2 || effects[0].Question != queued || effects[1].Question != sent {
		t.Fatalf("WithdrawAll = %+v, want effects on the queued and the sent question", effects)
	}
	if len(effects[0].Notified) != 0 || queued.Queued || len(effects[1].Notified) != 2 || effects[1].Notice.Reason != "the job has ended" {
		t.Errorf("WithdrawAll = %+v, want no session notified of the queued question, and 2 of the sent one", effects)
	}
	if !set.Due().IsZero() {
		t.Errorf("a closed question is due at %v", set.Due())
	}
}

func TestDeliveryIsRecordedOnce(t *testing.T) {
	var set Set
	q := set.Add(input("q"))
	if q.CanDeliver(alice("s3"), t0) {
		t.Error("a question whose event is not in the log is delivered")
	}
	q.SetLogged("msg_q")
	if !q.CanDeliver(alice("s3"), t0) || q.CanDeliver(alice("s1"), t0) {
		t.Error("the question is wanted by the wrong session")
	}
	q.RecordDelivery([]arcp.SessionID{"s3"})
	if !slices.Equal(q.Row.Sent, []arcp.SessionID{"s1", "s2", "s3"}) || q.CanDeliver(alice("s3"), t0) {
		t.Errorf("delivered to %v", q.Row.Sent)
	}
	for i := range approval.MaxSent {
		q.RecordDelivery([]arcp.SessionID{arcp.SessionID(fmt.Sprint(i))})
	}
	if n := len(q.Row.Sent); n != approval.MaxSent || q.Row.Sent[0] != "0" {
		t.Errorf("%d sessions are remembered, the first is %s", n, q.Row.Sent[0])
	}
}

// A question is not stored before its event, and the oldest closed ones are forgotten.
func TestClosedQuestionsAreForgotten(t *testing.T) {
	var set Set
	q := set.Add(input("q"))
	if set.Committed() || !q.Unsaved {
		t.Error("a question whose event is on its way is stored")
	}
	q.SetLogged("msg_q")
	if set.Committed() || q.Unsaved {
		t.Error("a pending question is not stored")
	}
	q.Rev = 3
	set.Withdraw(t0, q, "withdrawn")
	if !set.Committed() || q.Rev != 4 {
		t.Errorf("a closed question is not stored: %+v", q)
	}
	for i := range 3*MaxClosed + 1 {
		set.Load(&Question{Size: 1, Row: approval.Row{ID: fmt.Sprint(i), Status: approval.Resolved}})
		if n := len(set.All()); n > 2*MaxClosed {
			t.Fatalf("%d questions are in memory", n)
		}
	}
	pending := set.logged(input("p"))
	set.Forget(1)
	if list := set.All(); len(list) != 2 || list[0].Row.ID != fmt.Sprint(3*MaxClosed) || list[1] != pending || !list[0].Closed {
		t.Errorf("%d questions are left", len(list))
	}
	set.All()[0].Size = MaxClosedBytes + 1
	if set.Forget(5); len(set.All()) != 1 {
		t.Error("a large question stays in memory")
	}
}

// For random questions, answers, withdrawals and times: a question is closed once, the job is blocked
// exactly while a call waits for a pending question, and nothing is due in the past.
func TestSetEqualsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set Set
		now, closed, waits := t0, map[*Question]bool{}, map[*Question]bool{}
		end := func(e Effect) {
			if !e.Closed {
				return
			}
			if closed[e.Question] || e.Question.Pending() {
				t.Fatalf("%s is closed twice, or pending", e.Question.Row.ID)
			}
			closed[e.Question] = true
			waited := waits[e.Question]
			delete(waits, e.Question)
			if e.Unblocks != (waited && len(waits) == 0) {
				t.Fatalf("%s unblocks the job: %v", e.Question.Row.ID, e.Unblocks)
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			var q *Question
			if n := len(set.All()); n > 0 {
				q = set.All()[rapid.IntRange(0, n-1).Draw(t, "question")]
			}
			switch step := rapid.SampledFrom([]string{"ask", "ask", "answer", "withdraw", "wait", "time", "attempt", "write"}).Draw(t, "step"); {
			case step == "ask":
				row := input(fmt.Sprint(i))
				row.Digest, row.ExpiresAt = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "digest"), now.Add(time.Minute)
				if earlier := set.Repeat(&row); earlier != nil {
					if earlier.Row.Digest != row.Digest || earlier.Row.Status == approval.Cancelled {
						t.Fatalf("%+v repeats %+v", row, earlier.Row)
					}
				} else if set.CheckRoom(1) == nil {
					set.logged(row)
				}
			case step == "time":
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
				for _, e := range set.Advance(now) {
					end(e)
				}
			case step == "attempt":
				set.BeginAttempt()
				clear(waits)
			case step == "write":
				set.Committed()
			case q == nil:
			case step == "answer":
				row, err := q.WithAnswer(now, alice("s1"), &approval.Answer{Value: arcp.Raw("1")}, anyValue)
				if (err == nil) != q.Pending() {
					t.Fatalf("an answer to %+v: %v", q.Row, err)
				}
				if err == nil {
					end(set.Update(q, row))
				}
			case step == "withdraw":
				if e, ok := set.Withdraw(now, q, "withdrawn"); ok {
					end(e)
				}
			case step == "wait" && q.Pending():
				if blocks := set.Wait(q); blocks != (len(waits) == 0) {
					t.Fatalf("the wait blocks: %v", blocks)
				}
				waits[q] = true
			}
			if set.Blocked() != (len(waits) > 0) {
				t.Fatalf("blocked: %v, calls wait for %d questions", set.Blocked(), len(waits))
			}
			if due := set.Due(); !due.IsZero() && !due.After(now) {
				t.Fatalf("a question is due at %v, it is %v", due, now)
			}
		}
	})
}
