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

// answerQuestion begins a question and ends it with an answer of size bytes.
func answerQuestion(t *testing.T, a *questionSet, id arcp.MessageID, size int) {
	t.Helper()
	if before, err := a.begin(id); before != nil || err != nil {
		t.Fatalf("begin(%s) of a new question = %v, %v, want no cached answer and no error", id, before, err)
	}
	a.open[id] = append(a.open[id], answer(size))
	a.end(id)
}

// Answers are cached, up to a bound, for a worker that repeats its question.
func TestAnswersAreCached(t *testing.T) {
	var cache answerCache
	a := questionSet{cache: &cache}
	for n := range maxAnswers + 1 {
		answerQuestion(t, &a, ids(n), 10)
	}
	if before, _ := a.begin(ids(1)); len(before) != 1 {
		t.Errorf("the second of %d questions has %d cached answers, want 1", maxAnswers+1, len(before))
	}
	if before, _ := a.begin(ids(0)); before != nil {
		t.Errorf("the oldest of %d questions has %d cached answers, want none", maxAnswers+1, len(before))
	}
	a.end(ids(0))
	for n := range maxOpen {
		if _, err := a.begin(ids(1000 + n)); err != nil {
			t.Fatalf("question %d of %d is refused: %v, want no error", n+1, maxOpen, err)
		}
	}
	if _, err := a.begin("one more"); err == nil || err.Code != arcp.CodeResourceExhausted {
		t.Errorf("question %d while %d are open: error = %v, want RESOURCE_EXHAUSTED", maxOpen+1, maxOpen, err)
	}
	if repeated, err := a.begin(ids(1000)); repeated == nil || err != nil {
		t.Errorf("a repeated open question = %v, %v, want an empty list and no error", repeated, err)
	}
	if a.drop(); cache.cached != 0 || cache.unsent != 0 {
		t.Errorf("the cache of dropped dispatches has %d bytes, and %d unsent, want 0 and 0", cache.cached, cache.unsent)
	}
}

// The answers of all dispatches of a session share one size bound; the oldest are evicted. A
// question whose answer was evicted is refused: asking again would repeat a call.
func TestAnswersOfASessionAreBounded(t *testing.T) {
	var cache answerCache
	a, b := questionSet{cache: &cache}, questionSet{cache: &cache}
	answerQuestion(t, &a, "first", maxCachedBytes/2)
	answerQuestion(t, &a, "second", maxCachedBytes/2)
	answerQuestion(t, &a, "small", smallAnswer)
	answerQuestion(t, &b, "other", smallAnswer+1)
	if before, err := a.begin("first"); before != nil || err == nil || err.Code != arcp.CodeFailedPrecondition {
		t.Errorf("a question whose answer was evicted = %v, %v, want FAILED_PRECONDITION", before, err)
	}
	for id, asked := range map[arcp.MessageID]*questionSet{"second": &a, "small": &a, "other": &b} {
		if before, err := asked.begin(id); len(before) != 1 || err != nil {
			t.Errorf("question %s has %d cached answers, %v, want 1", id, len(before), err)
		}
	}
	if want := maxCachedBytes/2 + smallAnswer + 1; cache.cached != want || len(cache.large) != 2 {
		t.Errorf("the cache has %d bytes and %d large answers, want %d and 2", cache.cached, len(cache.large), want)
	}
	a.queue(answer(7))
	if cache.unsent != 7 {
		t.Errorf("unsent = %d bytes after one answer of 7 was queued, want 7", cache.unsent)
	}
	if envs := a.dequeue(); len(envs) != 1 || cache.unsent != 0 {
		t.Errorf("dequeue returns %d answers and leaves %d bytes, want 1 and 0", len(envs), cache.unsent)
	}
	a.queue(answer(7))
	a.drop()
	b.drop()
	if cache.cached != 0 || cache.unsent != 0 {
		t.Errorf("the cache of dropped dispatches has %d bytes, and %d unsent, want 0 and 0", cache.cached, cache.unsent)
	}
	for range 3 * maxCachedBytes / smallAnswer { // dispatches that end
		c := questionSet{cache: &cache}
		answerQuestion(t, &c, "x", smallAnswer+1)
		c.drop()
	}
	if len(cache.large) > 2*maxCachedBytes/smallAnswer {
		t.Errorf("the cache lists %d large answers of dropped dispatches, want at most %d", len(cache.large), 2*maxCachedBytes/smallAnswer)
	}
}

// The end of an attempt refuses each open question. A call whose child was accepted ends with
// the child's outcome, and an answered question gets no second answer.
func TestEndOfAttemptRefusesOpenQuestions(t *testing.T) {
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
		t.Errorf("the end of the attempt refuses %v, want %v", got, want)
	}
}
