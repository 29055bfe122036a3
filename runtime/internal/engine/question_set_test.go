package engine

import (
	"testing"

	"github.com/arcpd/arcpd/runtime/internal/approval"
)

// A question repeats the one with its content and its ordinal, or a pending one that no call of the
// attempt waits for.
func TestRepeatedQuestion(t *testing.T) {
	q := func(id, digest string, ordinal int, status approval.Status, waiters int) *question {
		return &question{waiters: waiters, row: approval.Row{ID: id, Digest: digest, Ordinal: ordinal, Status: status}}
	}
	interrupt := q("interrupt", "x", 0, approval.Pending, 0)
	interrupt.row.Interrupt = true
	set := questionSet{list: []*question{
		interrupt,
		q("withdrawn", "x", 0, approval.Cancelled, 0),
		q("answered", "x", 1, approval.Resolved, 0),
		q("awaited", "x", 2, approval.Pending, 1),
		q("pending", "x", 3, approval.Pending, 0),
		q("alone", "y", 0, approval.Resolved, 0),
	}}
	for _, c := range []struct {
		digest  string
		ordinal int
		want    string
	}{
		{"x", 1, "answered"}, {"x", 2, "awaited"}, {"x", 3, "pending"}, {"x", 0, "pending"}, {"x", 9, "pending"},
		{"y", 0, "alone"}, {"y", 1, ""}, {"z", 0, ""},
	} {
		got := ""
		if found := set.repeated(&approval.Row{Digest: c.digest, Ordinal: c.ordinal}); found != nil {
			got = found.row.ID
		}
		if got != c.want {
			t.Errorf("question %s %d repeats %q, want %q", c.digest, c.ordinal, got, c.want)
		}
	}
	if n := set.pending(); n != 3 {
		t.Errorf("%d questions are pending, want 3", n)
	}
	if set.interrupt() != interrupt {
		t.Error("the interrupt is not found")
	}
}

// The job is blocked from the first wait to the last release.
func TestQuestionWaiters(t *testing.T) {
	a, b := new(question), new(question)
	set := questionSet{list: []*question{a, b}}
	if !set.wait(a) || set.wait(a) || set.wait(b) {
		t.Error("only the first wait blocks")
	}
	if set.release(a) {
		t.Error("the job goes on while it waits for the other question")
	}
	if set.release(a) {
		t.Error("a question without waiters unblocks the job")
	}
	if !set.release(b) || set.waiters != 0 {
		t.Errorf("the last release does not unblock the job: %d waiters", set.waiters)
	}
	set.wait(a)
	if set.begin(); a.waiters != 0 || set.waiters != 0 {
		t.Error("waiters of an earlier attempt block the next one")
	}
}
