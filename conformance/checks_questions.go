package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// ask submits a job that asks for a value.
func (c *Conn) ask(with ...func(map[string]any)) arcp.MessageID {
	args := map[string]any{"prompt": "which?", "expires_in_ms": askMS}
	for _, change := range with {
		change(args)
	}
	return c.Submit("demo.ask", args)
}

// asked submits a job that asks for a value and returns the question.
func (c *Conn) asked(with ...func(map[string]any)) (submit arcp.MessageID, question *Frame) {
	submit = c.ask(with...)
	question = c.about("the job asks", arcp.HumanInputRequest, c.AwaitStarted(submit))
	p := payload[arcp.HumanInputRequestPayload](c.t, question)
	c.t.Want("a schema of the answer is always there", p.ResponseSchema.Kind() == '{', "it is %s", p.ResponseSchema)
	return submit, question
}

// answered wants demo.ask to have got a value and returns who has answered.
func (c *Conn) answered(submit arcp.MessageID, value string) string {
	var result struct {
		Value       arcp.Raw `json:"value"`
		RespondedBy string   `json:"responded_by"`
	}
	c.result(&result, c.outcomeOf(submit))
	want(c.t, "the tool gets the answer as it is", string(result.Value), value)
	return result.RespondedBy
}

func containsID(text string, id arcp.SessionID) bool { return strings.Contains(text, string(id)) }

func questionAsk(_ context.Context, t *T) {
	c := t.Human()
	schema := `{"type":"object","properties":{"n":{"type":"number"}}}`
	submit, f := c.asked(argument("prompt", "how many?"), argument("response_schema", arcp.Raw(schema)))
	p := payload[arcp.HumanInputRequestPayload](t, f)
	want(t, "the prompt is the job's", p.Prompt, "how many?")
	want(t, "what is asked of people is critical", f.Priority, arcp.PriorityCritical)
	t.Want("the schema is the job's", string(p.ResponseSchema) == schema, "got %s", p.ResponseSchema)
	end := f.Timestamp.Add(askMS * time.Millisecond)
	t.Want("the question says when it expires", p.ExpiresAt.After(end.Add(-time.Minute/2)) && p.ExpiresAt.Before(end.Add(time.Second)), "at %v, asked at %v", p.ExpiresAt, f.Timestamp)
	t.Want("the question has a name for the tools", p.ApprovalID != "", "approval_id is empty")
	id := c.respond(f, arcp.Raw(`{"n":1.50,"m":"ü","b":18014398509481985}`))
	c.taken(id)
	c.answered(submit, `{"n":1.50,"m":"ü","b":18014398509481985}`)
	c.nothingAbout("nothing follows", f.JobID)
	c.wantSeen("a question is asked once, and its answer is no event", f.JobID, arcp.JobAccepted, arcp.JobStarted, arcp.HumanInputRequest, arcp.JobCompleted)
}

func questionBlocked(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked()
	want(t, "a job that asks is blocked", c.stateOf(question.JobID), string(arcp.StateBlocked))
	c.taken(c.respond(question, 1))
	c.answered(submit, "1")
	want(t, "then it goes on", c.stateOf(question.JobID), string(arcp.StateCompleted))
}

func questionTime(_ context.Context, t *T) {
	c, watch := t.Human(), t.Open()
	second := arcp.Number("1")
	submit := c.submitWith("demo.ask", map[string]any{"prompt": "?", "expires_in_ms": askMS}, arcp.SubmitOptions{MaxRuntimeSec: &second})
	question := c.about("the job asks", arcp.HumanInputRequest, c.AwaitStarted(submit))
	watch.passes(1200)
	want(t, "the job waits still", c.stateOf(question.JobID), string(arcp.StateBlocked))
	c.taken(c.respond(question, 1))
	c.answered(submit, "1")
}

func questionNegotiated(_ context.Context, t *T) {
	owner, person := t.Open(), t.Human()
	submit := owner.ask()
	job := owner.AwaitStarted(submit)
	question := person.about("sessions with a person are asked", arcp.HumanInputRequest, job)
	owner.ExpectNothing("a session without a person is not asked")
	person.taken(person.respond(question, 1))
	f := owner.Expect("it is told the end", arcp.JobCompleted, submit) // the validator looks for gaps
	want(t, "questions are not counted", f.EventSeq, 3)
}

func questionForeign(_ context.Context, t *T) {
	owner, stranger := t.Human(), t.Human(as(t.target.OtherToken))
	submit, question := owner.asked()
	stranger.nothingAbout("another principal is not asked", question.JobID)
	stranger.refuses("what one may not see is not there", stranger.respond(question, 1), arcp.CodeNotFound)
	t.Human(as(t.target.OtherToken)).nothingAbout("nor one that comes later", question.JobID)
	owner.taken(owner.respond(question, 2))
	owner.answered(submit, "2")
}

func questionNotFollowed(_ context.Context, t *T) {
	owner, follower, late := t.Human(), t.Open(), t.Open()
	submit, question := owner.asked()
	follower.subscribe(arcp.JobSubscribePayload{JobID: question.JobID, History: true})
	owner.taken(owner.respond(question, 1))
	owner.answered(submit, "1")
	late.subscribe(arcp.JobSubscribePayload{JobID: question.JobID, History: true})
	for _, c := range []*Conn{follower, late} {
		c.copies(question.JobID)
		c.wantSeen("a follower is not asked", question.JobID, arcp.JobAccepted, arcp.JobStarted, arcp.JobCompleted)
	}
}

func questionSchema(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked(argument("response_schema", arcp.Raw(`{"type":"object","properties":{"color":{"enum":["red","blue"]}},"required":["color"],"additionalProperties":false}`)))
	for _, bad := range []string{`"red"`, `{}`, `{"color":"green"}`, `{"color":"red","x":1}`, `null`, `[{"color":"red"}]`, `{"Color":"red"}`} {
		c.refuses("the answer has to fit the schema, unlike "+bad, c.respond(question, arcp.Raw(bad)), arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	}
	want(t, "the question stays", c.stateOf(question.JobID), string(arcp.StateBlocked))
	c.taken(c.respond(question, arcp.Raw(`{"color":"red"}`)))
	c.answered(submit, `{"color":"red"}`)
}

func questionNoValue(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked()
	id := c.Send(arcp.HumanInputResponse, struct{}{}, answeringTo(question))
	c.refuses("an answer has a value", id, arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	c.taken(c.respond(question, false))
	c.answered(submit, "false")
}

func questionWrongAnswer(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked()
	c.refuses("a value is no choice", c.choose(question, "which?"), arcp.CodeInvalidArgument)
	c.refuses("a value is no permission", c.grant(question, refund), arcp.CodeInvalidArgument)
	c.taken(c.respond(question, 1))
	c.answered(submit, "1")
	submit, question = c.chosen()
	c.refuses("a choice is no value", c.respond(question, "a"), arcp.CodeInvalidArgument)
	c.taken(c.choose(question, "a"))
	c.outcomeOf(submit)
}

func questionResponder(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked()
	c.taken(c.respond(question, 1))
	want(t, "who answers says who it is", c.answered(submit, "1"), "conformance")
	if t.target.Principal == "" {
		return
	}
	submit, question = c.asked()
	c.taken(c.Send(arcp.HumanInputResponse, map[string]any{"value": 1}, answeringTo(question)))
	want(t, "and else it is the principal", c.answered(submit, "1"), t.target.Principal)
}

func questionFirstWins(_ context.Context, t *T) {
	owner, winner, loser := t.Human(), t.Human(), t.Human()
	submit, question := owner.asked()
	for _, c := range []*Conn{winner, loser} {
		f := c.about("every person is asked", arcp.HumanInputRequest, question.JobID)
		want(t, "the question is the same message", f.ID, question.ID)
		want(t, "and says the same", string(f.Payload), string(question.Payload))
	}
	winner.taken(winner.respond(question, "mine"))
	for _, c := range []*Conn{owner, loser} {
		c.withdrawn("the others are told that it is answered", question, arcp.CodeCancelled)
		c.refuses("it is too late then", c.respond(question, "mine"), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	}
	owner.answered(submit, `"mine"`)
	winner.nothingAbout("who has answered is not told, nor who follows nothing", question.JobID)
	loser.nothingAbout("it is told once", question.JobID)
	winner.wantSeen("who has answered saw the question", question.JobID, arcp.HumanInputRequest)
	loser.wantSeen("who has not was told once", question.JobID, arcp.HumanInputRequest, arcp.HumanInputCancelled)
}

func questionRace(_ context.Context, t *T) {
	a, b := t.Human(), t.Human()
	for range 3 {
		submit, question := a.asked()
		b.about("every person is asked", arcp.HumanInputRequest, question.JobID)
		ids := map[*Conn]arcp.MessageID{a: a.respond(question, "a"), b: b.respond(question, "b")}
		won := ""
		for c, id := range ids {
			f := c.Answer("each is answered", id)
			switch {
			case f.Type == arcp.Ack && won == "":
				won = map[*Conn]string{a: `"a"`, b: `"b"`}[c]
			case f.Type == arcp.Ack:
				t.Failf("one answer counts: both were taken")
			default:
				want(t, "the other is refused", f.Type, arcp.Nack)
			}
		}
		t.Want("one answer counts", won != "", "none was taken")
		a.answered(submit, won)
	}
}

func questionLate(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked()
	c.taken(c.respond(question, 1))
	c.answered(submit, "1")
	c.refuses("a question is answered once", c.respond(question, 2), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
}

func questionUnknown(_ context.Context, t *T) {
	c := t.Human()
	answer := arcp.HumanInputResponsePayload{Value: arcp.Raw(`1`), RespondedBy: "x", RespondedAt: time.Now().UTC()}
	c.refuses("nothing was asked", c.Send(arcp.HumanInputResponse, answer, toNobody), arcp.CodeNotFound)
	c.refuses("nothing was asked", c.Send(arcp.HumanChoiceResponse, arcp.HumanChoiceResponsePayload{ChoiceID: "a"}, toNobody), arcp.CodeNotFound)
}

func questionExpires(_ context.Context, t *T) {
	owner, other := t.Human(), t.Human()
	submit := owner.ask(argument("expires_in_ms", 50))
	job := owner.AwaitStarted(submit)
	for _, c := range []*Conn{owner, other} {
		question := c.about("every person is asked", arcp.HumanInputRequest, job)
		c.withdrawn("and told that it is over", question, arcp.CodeDeadlineExceeded)
		c.refuses("it is too late then", c.respond(question, 1), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	}
	owner.endsWith("nobody has answered", submit, arcp.CodeDeadlineExceeded)
}

func questionDefault(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.asked(argument("expires_in_ms", 50), argument("default", arcp.Raw(`{"n":1.50}`)))
	t.Want("the question says what the default is", string(payload[arcp.HumanInputRequestPayload](t, question).Default) == `{"n":1.50}`, "got %s", question.Payload)
	c.withdrawn("who was asked is told that it is over", question, arcp.CodeDeadlineExceeded)
	want(t, "nobody has answered", c.answered(submit, `{"n":1.50}`), "default")
}

func questionDefaultWrong(_ context.Context, t *T) {
	c := t.Human()
	for _, change := range []func(map[string]any){argument("default", "x"), argument("response_schema", arcp.Raw(`{"type":"nonsense"}`))} {
		job := c.Follow(c.ask(argument("response_schema", arcp.Raw(`{"type":"number"}`)), change))
		c.failedWith("what cannot be answered is not asked", job, arcp.CodeInvalidArgument)
		want(t, "what cannot be answered is not asked", len(job.Of(arcp.HumanInputRequest)), 0)
	}
}

// options are those of the checks' choices.
var options = []arcp.Option{{ID: "b", Label: "Bee"}, {ID: "a", Label: "Ay"}, {ID: "c", Label: ""}}

// chosen submits a job that asks for a choice and returns the question.
func (c *Conn) chosen(with ...func(map[string]any)) (submit arcp.MessageID, question *Frame) {
	args := map[string]any{"prompt": "which?", "options": options, "expires_in_ms": askMS}
	for _, change := range with {
		change(args)
	}
	submit = c.Submit("demo.choose", args)
	return submit, c.about("the job asks", arcp.HumanChoiceRequest, c.AwaitStarted(submit))
}

func questionChoose(_ context.Context, t *T) {
	c, other := t.Human(), t.Human()
	submit, question := c.chosen()
	p := payload[arcp.HumanChoiceRequestPayload](t, question)
	want(t, "the prompt is the job's", p.Prompt, "which?")
	want(t, "what is asked of people is critical", question.Priority, arcp.PriorityCritical)
	want(t, "the options are the job's, in their order", fmt.Sprint(p.Options), fmt.Sprint(options))
	for _, bad := range []string{"d", "A", "Bee", " a"} {
		c.refuses("a choice is one of the options", c.choose(question, bad), arcp.CodeInvalidArgument)
	}
	c.taken(c.choose(question, "a"))
	var result struct {
		ChoiceID string `json:"choice_id"`
	}
	c.result(&result, c.outcomeOf(submit))
	want(t, "the tool gets the choice", result.ChoiceID, "a")
	other.withdrawn("the others are told", other.about("every person is asked", arcp.HumanChoiceRequest, question.JobID), arcp.CodeCancelled)
}

func questionChooseExpires(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.chosen(argument("expires_in_ms", 50))
	c.withdrawn("who was asked is told that it is over", question, arcp.CodeDeadlineExceeded)
	c.endsWith("nobody has chosen", submit, arcp.CodeDeadlineExceeded)
}

func questionLater(_ context.Context, t *T) {
	owner := t.Human()
	submit, question := owner.asked()
	late := t.Human()
	f := late.about("who comes later is asked", arcp.HumanInputRequest, question.JobID)
	want(t, "with the same message", f.ID, question.ID)
	want(t, "which says the same", string(f.Payload), string(question.Payload))
	t.Open().nothingAbout("but not without a person", question.JobID)
	late.taken(late.respond(f, 1))
	owner.withdrawn("the others are told", question, arcp.CodeCancelled)
	owner.answered(submit, "1")
	t.Human().nothingAbout("what is answered is not asked", question.JobID)
}

func questionResumed(_ context.Context, t *T) {
	owner, other := t.Human(), t.Human()
	submit, question := owner.asked()
	other.about("every person is asked", arcp.HumanInputRequest, question.JobID)
	other.Drop()
	back := other.Resume(0)
	f := back.about("what was asked comes again with the rest", arcp.HumanInputRequest, question.JobID)
	want(t, "with the same message", f.ID, question.ID)
	back.nothingAbout("and once", question.JobID)
	back = back.Cut()
	back.nothingAbout("who knows the question is not asked again", question.JobID)
	back.taken(back.respond(question, 1))
	owner.answered(submit, "1")
}

func questionSubmitterGone(_ context.Context, t *T) {
	owner, other := t.Open(), t.Human()
	submit := owner.ask()
	job := owner.AwaitStarted(submit)
	owner.Drop()
	other.taken(other.respond(other.about("every person is asked", arcp.HumanInputRequest, job), 1))
	owner = owner.Resume(owner.rec.last())
	owner.Expect("the end is told to who comes back", arcp.JobCompleted, submit)
}

func questionCancelled(_ context.Context, t *T) {
	owner, other := t.Human(), t.Human()
	submit, question := owner.asked()
	other.about("every person is asked", arcp.HumanInputRequest, question.JobID)
	owner.Await("a job that asks may be cancelled", arcp.CancelAccepted, owner.Cancel(question.JobID, 5000))
	for _, c := range []*Conn{owner, other} {
		c.withdrawn("then its question is withdrawn", question, arcp.CodeCancelled)
	}
	want(t, "and the job ends", owner.outcomeOf(submit).End().Type, arcp.JobCancelled)
	other.refuses("it is too late then", other.respond(question, 1), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	t.Human().nothingAbout("nobody is asked any more", question.JobID)
}

func questionSeveral(_ context.Context, t *T) {
	c := t.Human()
	submits, asked := make([]arcp.MessageID, 4), make([]*Frame, 4)
	for i := range submits {
		submits[i], asked[i] = c.asked()
	}
	for i := len(asked) - 1; i >= 0; i-- {
		c.taken(c.respond(asked[i], i))
		c.answered(submits[i], fmt.Sprint(i))
	}
}

func questionRestart(ctx context.Context, t *T) {
	owner, other := t.Open(), t.Human()
	submit := owner.ask()
	job := owner.AwaitStarted(submit)
	question := other.about("every person is asked", arcp.HumanInputRequest, job)
	t.Restart(ctx)
	late := t.Human()
	f := late.about("who comes after the restart is asked", arcp.HumanInputRequest, job)
	want(t, "with the same message", f.ID, question.ID)
	want(t, "which says the same", string(f.Payload), string(question.Payload))
	late.nothingAbout("and once", job)
	other = other.Cut()
	other.taken(other.respond(question, "after"))
	late.withdrawn("the others are told", question, arcp.CodeCancelled)
	owner = owner.Cut()
	end := owner.Await("the job ends well", arcp.JobCompleted, submit)
	wantText(t, "with the answer", string(end.Payload), `"value":"after"`)
	other.nothingAbout("nobody is asked anew", job)
}

func questionRestartAnswered(ctx context.Context, t *T) {
	owner := t.Human()
	submit, question := owner.asked()
	owner.taken(owner.respond(question, "before"))
	end := t.restarted(ctx, owner).outcomeOf(submit).End()
	want(t, "the job ends well", end.Type, arcp.JobCompleted)
	wantText(t, "the answer that was taken counts", string(end.Payload), `"value":"before"`)
	t.Human().nothingAbout("nobody is asked anew", question.JobID)
}
