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
func settle(t *testing.T, a *questionSet, id arcp.MessageID, size int) {
	t.Helper()
	if before, err := a.begin(id); before != nil || err != nil {
		t.Fatalf("%s: %v, %v", id, before, err)
	}
	a.open[id] = append(a.open[id], answer(size))
	a.end(id)
}

// Answers are cached, up to a bound, for a worker that repeats its question.
func TestAnswersAreCached(t *testing.T) {
	var cache answerCache
	a := questionSet{cache: &cache}
	for n := range maxAnswers + 1 {
		settle(t, &a, ids(n), 10)
	}
	if before, _ := a.begin(ids(1)); len(before) != 1 {
		t.Errorf("the second of %d is answered with %v", maxAnswers+1, before)
	}
	if before, _ := a.begin(ids(0)); before != nil {
		t.Error("the first is still cached")
	}
	a.end(ids(0))
	for n := range maxOpen {
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
	if a.drop(); cache.cached != 0 || cache.unsent != 0 {
		t.Errorf("of nothing are cached %+v", cache)
	}
}

// The answers of all dispatches of a session share one size bound; the oldest are evicted. A
// question whose answer was evicted is refused: asking again would repeat a call.
func TestAnswersOfASessionAreBounded(t *testing.T) {
	var cache answerCache
	a, b := questionSet{cache: &cache}, questionSet{cache: &cache}
	settle(t, &a, "first", maxCachedBytes/2)
	settle(t, &a, "second", maxCachedBytes/2)
	settle(t, &a, "small", smallAnswer)
	settle(t, &b, "other", smallAnswer+1)
	if before, err := a.begin("first"); before != nil || err == nil || err.Code != arcp.CodeFailedPrecondition {
		t.Errorf("a question whose answer has given way: %v, %v", before, err)
	}
	for id, asked := range map[arcp.MessageID]*questionSet{"second": &a, "small": &a, "other": &b} {
		if before, err := asked.begin(id); len(before) != 1 || err != nil {
			t.Errorf("%s is answered with %d envelopes, %v", id, len(before), err)
		}
	}
	if want := maxCachedBytes/2 + smallAnswer + 1; cache.cached != want || len(cache.large) != 2 {
		t.Errorf("%d bytes of %d answers are cached, want %d of 2", cache.cached, len(cache.large), want)
	}
	a.queue(answer(7))
	if cache.unsent != 7 {
		t.Errorf("%d bytes wait for the worker, want 7", cache.unsent)
	}
	if envs := a.dequeue(); len(envs) != 1 || cache.unsent != 0 {
		t.Errorf("%d answers were queued, %d bytes still are", len(envs), cache.unsent)
	}
	a.queue(answer(7))
	a.drop()
	b.drop()
	if cache.cached != 0 || cache.unsent != 0 {
		t.Errorf("of nothing are cached %+v", cache)
	}
	for range 3 * maxCachedBytes / smallAnswer { // dispatches that come and go
		c := questionSet{cache: &cache}
		settle(t, &c, "x", smallAnswer+1)
		c.drop()
	}
	if len(cache.large) > 2*maxCachedBytes/smallAnswer {
		t.Errorf("%d answers that are gone are in order", len(cache.large))
	}
}

// The end of an attempt refuses each open question. A call whose child was accepted ends with
// the child's outcome, and an answered question gets no second answer.
func TestRefusals(t *testing.T) {
	accepted := arcp.Frame(arcp.JobAccepted, struct{}{})
	accepted.JobID = "child"
	a := questionSet{open: map[arcp.MessageID][]arcp.Envelope{
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
