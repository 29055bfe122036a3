package worker

import (
	"maps"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func answer(size int) arcp.Envelope {
	return arcp.Envelope{Payload: arcp.Raw(strings.Repeat("x", size))}
}

func ids(n int) arcp.MessageID { return arcp.MessageID(strings.Repeat("m", n+1)) }

// settle has a question answered.
func settle(t *testing.T, a *asks, id arcp.MessageID, size int) {
	t.Helper()
	if before, err := a.begin(id); before != nil || err != nil {
		t.Fatalf("%s: %v, %v", id, before, err)
	}
	a.open[id] = append(a.open[id], answer(size))
	a.end(id)
}

// Answers are cached, up to a bound, for a worker that repeats its question.
func TestAnswersAreCached(t *testing.T) {
	var kept answerCache
	a := asks{total: &kept}
	for n := range maxAnswers + 1 {
		settle(t, &a, ids(n), 10)
	}
	if before, _ := a.begin(ids(1)); len(before) != 1 {
		t.Errorf("the second of %d is answered with %v", maxAnswers+1, before)
	}
	if before, _ := a.begin(ids(0)); before != nil {
		t.Error("the first is still kept")
	}
	a.end(ids(0))
	for n := range maxAsking {
		if _, err := a.begin(ids(1000 + n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.begin("one more"); err == nil || err.Code != arcp.CodeResourceExhausted {
		t.Errorf("one question too many: %v", err)
	}
	if again, err := a.begin(ids(1000)); again == nil || err != nil {
		t.Errorf("one that waits is asked anew: %v", err)
	}
	if a.drop(); kept.cached != 0 || kept.unsent != 0 {
		t.Errorf("of nothing are kept %+v", kept)
	}
}

// The answers of all dispatches of a session share one size bound; the oldest are evicted. A
// question whose answer was evicted is refused: asking again would repeat a call.
func TestAnswersOfASessionAreBounded(t *testing.T) {
	var kept answerCache
	a, b := asks{total: &kept}, asks{total: &kept}
	settle(t, &a, "first", maxKept/2)
	settle(t, &a, "second", maxKept/2)
	settle(t, &a, "small", smallAnswer)
	settle(t, &b, "other", smallAnswer+1)
	if before, err := a.begin("first"); before != nil || err == nil || err.Code != arcp.CodeFailedPrecondition {
		t.Errorf("a question whose answer has given way: %v, %v", before, err)
	}
	for id, asked := range map[arcp.MessageID]*asks{"second": &a, "small": &a, "other": &b} {
		if before, err := asked.begin(id); len(before) != 1 || err != nil {
			t.Errorf("%s is answered with %d envelopes, %v", id, len(before), err)
		}
	}
	if want := maxKept/2 + smallAnswer + 1; kept.cached != want || len(kept.order) != 2 {
		t.Errorf("%d bytes of %d answers are kept, want %d of 2", kept.cached, len(kept.order), want)
	}
	a.queue(answer(7))
	if kept.unsent != 7 {
		t.Errorf("%d bytes wait for the worker, want 7", kept.unsent)
	}
	if envs := a.takeQueued(); len(envs) != 1 || kept.unsent != 0 {
		t.Errorf("%d answers were held, %d bytes still are", len(envs), kept.unsent)
	}
	a.queue(answer(7))
	a.drop()
	b.drop()
	if kept.cached != 0 || kept.unsent != 0 {
		t.Errorf("of nothing are kept %+v", kept)
	}
	for range 3 * maxKept / smallAnswer { // dispatches that come and go
		c := asks{total: &kept}
		settle(t, &c, "x", smallAnswer+1)
		c.drop()
	}
	if len(kept.order) > 2*maxKept/smallAnswer {
		t.Errorf("%d answers that are gone are in order", len(kept.order))
	}
}

// The end of an attempt refuses each open question. A call whose child was accepted ends with
// the child's outcome, and an answered question gets no second answer.
func TestRefusals(t *testing.T) {
	accepted := arcp.Frame(arcp.JobAccepted, struct{}{})
	accepted.JobID = "child"
	a := asks{open: map[arcp.MessageID][]arcp.Envelope{
		"open":     nil,
		"accepted": {accepted},
		"answered": {arcp.Frame(arcp.Nack, struct{}{})},
		"ended":    {accepted, arcp.Frame(arcp.JobFailed, struct{}{})},
	}}
	type answer struct {
		typ arcp.Type
		job arcp.JobID
	}
	got := make(map[arcp.MessageID]answer)
	for _, env := range a.refusals("parent", arcp.Errorf(arcp.CodeTimeout, "over")) {
		got[env.CorrelationID] = answer{env.Type, env.JobID}
	}
	want := map[arcp.MessageID]answer{"open": {arcp.Nack, "parent"}, "accepted": {arcp.JobFailed, "child"}}
	if !maps.Equal(got, want) {
		t.Errorf("refused are %v, want %v", got, want)
	}
}
