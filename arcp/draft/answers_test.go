package draft_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// conversation makes the runtime send every answer of a session that works.
func conversation(c *connection) {
	c.accept()
	c.submit(job)
	c.answer(arcp.SessionPing, "", arcp.SessionPingPayload{Nonce: "p_1", SentAt: moment})
	c.answer(arcp.Ping, "", arcp.PingPayload{})
	ping := c.request(`"type":"session.ping","payload":{"nonce":"n","sent_at":"2026-05-09T13:00:00Z"}`)
	c.answer(arcp.SessionPong, ping, arcp.SessionPongPayload{PingNonce: "n", ReceivedAt: moment})
	c.answer(arcp.Pong, ping, arcp.PongPayload{Nonce: "n"})
	list := c.request(`"type":"session.list_jobs","payload":{"filter":{"status":["running"]},"limit":1,"cursor":null}`)
	c.answer(arcp.SessionJobs, list, arcp.SessionJobsPayload{RequestID: list, NextCursor: new("more"), Jobs: []arcp.JobEntry{
		{JobID: job, Agent: "echo@1.0.0", Status: "blocked", Lease: arcp.Raw(`{"fs.read":["/a"],"fs_read":["/a"]}`), ParentJobID: "job_p", CreatedAt: moment, TraceID: trace, LastEventSeq: 3}}})
	list = c.request(`"type":"session.list_jobs","payload":{}`)
	c.answer(arcp.SessionJobs, list, arcp.SessionJobsPayload{RequestID: list, Jobs: []arcp.JobEntry{}})
	c.event(job, arcp.JobStarted, arcp.JobStartedPayload{})
	const other = arcp.JobID("job_01JZ0000000000000000000008")
	subscribe := c.request(`"type":"job.subscribe","job_id":"` + string(other) + `","payload":{"job_id":"` + string(other) + `","history":true}`)
	c.answer(arcp.JobSubscribed, subscribe, arcp.JobSubscribedPayload{JobID: other, CurrentStatus: "queued", Agent: "echo@1.0.0", TraceID: "not hex", Budget: arcp.Raw(`{"USD":4.5}`), SubscribedFrom: 17, Replayed: true})
	c.event(other, arcp.JobStarted, arcp.JobStartedPayload{Description: "two"})
	cancel := c.request(`"type":"job.cancel","job_id":"` + string(job) + `","payload":{"reason":"user"}`)
	c.answer(arcp.CancelAccepted, cancel, arcp.CancelAcceptedPayload{})
	c.event(job, arcp.JobCancelled, arcp.JobCancelledPayload{Reason: "user"})
	c.event(other, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw(`{"x":1}`), Summary: "done"})
	for _, t := range []arcp.Type{arcp.Backpressure, arcp.Ack, arcp.SubscribeEvent, arcp.JobHeartbeat} {
		if frames := c.answer(t, "", struct{}{}); len(frames) > 0 {
			c.t.Errorf("%s: %s has the frames %s", c.lib.name, t, frames)
		}
	}
	closing := c.request(`"type":"session.close","payload":{"reason":"bye"}`)
	c.answer(arcp.SessionClosed, closing, arcp.SessionClosedPayload{})
	c.answer(arcp.SessionClose, "", arcp.SessionClosePayload{Reason: "shutdown"})
	if left := c.checker.Unanswered(); len(left) > 0 {
		c.t.Errorf("%s: without an answer: %v", c.lib.name, left)
	}
}

func TestAnswersAreTheSame(t *testing.T) {
	var b strings.Builder
	for _, l := range everyProfile {
		c := l.connect(t)
		conversation(c)
		fmt.Fprintf(&b, "# %v\n%s\n", l.profile, c.log.String())
	}
	golden(t, "answers.golden", b.String())
}

func TestAnswersSatisfyEveryLibrary(t *testing.T) {
	for _, l := range libraries {
		conversation(l.connect(t))
	}
}

// refusal is a request that the runtime refuses.
type refusal struct {
	name    string
	request string // members of the frame
}

const unknownJob = `job_01JZ0000000000000000000005`

var refusals = []refusal{
	{name: "submit", request: `"type":"job.submit","trace_id":"4bf92f3577b34da6a3ce929d0e0e4737","payload":{"agent":"nobody"}`},
	{name: "list", request: `"type":"session.list_jobs","payload":{"cursor":"x"}`},
	{name: "subscribe", request: `"type":"job.subscribe","job_id":"` + unknownJob + `","payload":{"job_id":"` + unknownJob + `"}`},
	{name: "cancel", request: `"type":"job.cancel","job_id":"` + unknownJob + `","payload":{"job_id":"` + unknownJob + `"}`},
}

// A refusal resolves the request in every library, and nothing else, unless the library has no
// message for that.
func TestRefusalResolvesOnlyItsRequest(t *testing.T) {
	hangs := map[string]bool{"typescript subscribe": true, "csharp subscribe": true, "python subscribe": true}
	var b strings.Builder
	for _, l := range append(libraries[:len(libraries):len(libraries)], everyProfile[0]) {
		for _, r := range refusals {
			for _, alone := range []bool{true, false} {
				c := l.connect(t).accept()
				if !alone {
					c.submit(job)
				}
				c.log.Reset()
				id := c.request(r.request)
				c.answer(arcp.Nack, id, arcp.Errorf(arcp.CodeNotFound, "there is none"))
				fmt.Fprintf(&b, "# %v, %s, alone: %v\n%s\n", l.name, r.name, alone, c.log.String())
				left, hung := c.checker.Unanswered(), !alone && hangs[l.profile.String()+" "+r.name]
				if hung != (len(left) > 0) && l.profile.String() != "universal" {
					t.Errorf("%s, %s, alone: %v: without an answer: %v", l.name, r.name, alone, left)
				}
			}
		}
	}
	golden(t, "refusals.golden", b.String())
}

// The universal form resolves a submit and a list of these libraries.
func TestUniversalFormResolvesARefusedRequest(t *testing.T) {
	for _, l := range libraries {
		switch l.name {
		case "go", "typescript", "java", "fsharp":
		default:
			continue
		}
		universal := everyProfile[0]
		universal.name = l.name
		c := universal.connect(t).accept()
		c.submit(job)
		for _, r := range refusals[:3] {
			id := c.request(r.request)
			c.answer(arcp.Nack, id, arcp.Errorf(arcp.CodeInternal, "failed"))
			if left := c.checker.Unanswered(); len(left) > 0 && (l.name != "typescript" || r.name != "subscribe") {
				t.Errorf("%s, %s: without an answer: %v", l.name, r.name, left)
			}
		}
	}
}

func TestCancelOfEndedJobHasNoAnswer(t *testing.T) {
	for _, l := range libraries {
		for _, reason := range []string{"already_terminal", "not_found", "permission_denied", "unavailable"} {
			c := l.connect(t).accept()
			c.submit(job)
			id := c.request(`"type":"job.cancel","payload":{"job_id":"` + string(job) + `"}`)
			frames := c.answer(arcp.CancelRefused, id, arcp.CancelRefusedPayload{TargetID: string(job), Reason: reason})
			if reason == "already_terminal" && len(frames) > 0 {
				t.Errorf("%s: the cancel of a job that is %s is answered by %s, want no answer", l.name, reason, frames)
			}
		}
	}
}

func TestHandshakeFailureNamesTheHello(t *testing.T) {
	for _, l := range append(libraries[:len(libraries):len(libraries)], everyProfile[0]) {
		for kind, refused := range map[arcp.Type]*arcp.Error{
			arcp.SessionRejected:        arcp.Errorf(arcp.CodeResourceExhausted, "full"),
			arcp.SessionUnauthenticated: arcp.Errorf(arcp.CodeUnauthenticated, "wrong token"),
			arcp.Nack:                   arcp.Errorf(arcp.CodeDataLoss, "gone"),
		} {
			c := l.connect(t)
			frames := c.answer(kind, c.firstID(), refused)
			if len(frames) != 2 || !strings.Contains(string(frames[0]), `"id":"`+string(c.firstID())+`"`) || !strings.Contains(string(frames[0]), `"session_id":"sess_`) {
				t.Errorf("%s: %s has the frames %s", l.name, kind, frames)
			}
		}
		c := l.connect(t)
		if frames := c.answer(arcp.SessionChallenge, c.firstID(), arcp.SessionChallengePayload{Challenge: "x"}); len(frames) != 2 || !strings.Contains(string(frames[0]), "UNAUTHENTICATED") {
			t.Errorf("%s: a challenge has the frames %s", l.name, frames)
		}
	}
}

func TestEvictionIsASessionError(t *testing.T) {
	c := libraries[2].connect(t).accept()
	frames := c.answer(arcp.SessionEvicted, "", arcp.SessionEvictedPayload{Code: arcp.CodeHeartbeatLost, Reason: "silent"})
	if len(frames) != 1 || !strings.Contains(string(frames[0]), `"payload":{"code":"HEARTBEAT_LOST","message":"silent","retryable":true`) {
		t.Errorf("got %s", frames)
	}
}

// A library gives an accept that it did not ask for to another submit.
func TestUnsolicitedAcceptIsDropped(t *testing.T) {
	c := libraries[0].connect(t).accept()
	for _, corr := range []arcp.MessageID{"", "msg_of_an_older_connection"} {
		if frames := c.answer(arcp.JobAccepted, corr, acceptedJob(job)); len(frames) > 0 {
			t.Errorf("correlation %q: %s", corr, frames)
		}
	}
	if frames := c.answer(arcp.Nack, "msg_of_an_older_connection", arcp.Errorf(arcp.CodeInternal, "x")); len(frames) > 0 {
		t.Errorf("got %s", frames)
	}
}

// Two submits with the same idempotency key wait. Each is answered for itself.
func TestAcceptedHasTheTraceOfItsRequest(t *testing.T) {
	for _, l := range libraries {
		c := l.connect(t).accept()
		repeated := c.request(`"type":"job.submit","trace_id":"` + strings.Repeat("a", 32) + `","payload":{"agent":"echo","idempotency_key":"k"}`)
		original := c.request(`"type":"job.submit","trace_id":"` + trace + `","payload":{"agent":"echo","idempotency_key":"k"}`) // also sent on an earlier connection
		// The accept of the job has the trace of the original.
		for _, request := range []arcp.MessageID{repeated, original} {
			c.answer(arcp.JobAccepted, request, acceptedJob(job))
		}
		if left := c.checker.Unanswered(); len(left) > 0 {
			t.Errorf("%s: without an answer: %v", l.name, left)
		}
	}
}

// An answer is encoded even if so many requests wait that the codec has forgotten its own.
func TestForgottenRequestIsAnswered(t *testing.T) {
	c := libraries[0].connect(t).accept()
	first := c.request(`"type":"job.submit","payload":{"agent":"echo"}`)
	for range 300 {
		c.request(`"type":"job.submit","payload":{"agent":"echo"}`)
	}
	if frames := c.answer(arcp.JobAccepted, first, acceptedJob(job)); len(frames) != 1 {
		t.Errorf("got %s", frames)
	}
}

// Jobs of an earlier connection are not given up for a refusal.
func TestRefusalIsSilentWhileAResumedJobRuns(t *testing.T) {
	c := libraries[2].connectWith(t, `,"resume":{"resume_token":"t","last_event_seq":7}`)
	c.s.Describe(acceptedSession())
	c.s.AddJobs([]arcp.JobID{job}, nil)
	c.answer(arcp.SessionResumed, c.firstID(), arcp.SessionResumedPayload{SessionID: acceptedSession().SessionID, ResumeToken: "next", ReplayedFrom: 7})
	subscribe := refusals[2].request
	id := c.request(subscribe)
	if frames := c.answer(arcp.Nack, id, arcp.Errorf(arcp.CodeNotFound, "x")); len(frames) > 0 {
		t.Errorf("got %s", frames)
	}
	c.checker.Abandon(string(id))
	c.seq = 7
	c.event(job, arcp.JobCompleted, arcp.JobCompletedPayload{})
	if frames := c.answer(arcp.Nack, c.request(subscribe), arcp.Errorf(arcp.CodeNotFound, "x")); len(frames) != 1 {
		t.Errorf("got %s", frames)
	}
}

// A job that is followed and left is not a reason to stay silent; one that was submitted is.
func TestUnsubscribedJobDoesNotSilenceRefusals(t *testing.T) {
	c := libraries[2].connect(t).accept()
	follow := func(id arcp.JobID) {
		c.answer(arcp.JobSubscribed, c.request(`"type":"job.subscribe","payload":{"job_id":"`+string(id)+`"}`), arcp.JobSubscribedPayload{JobID: id, CurrentStatus: "running", Agent: "a"})
	}
	leave := func(id arcp.JobID) { c.request(`"type":"job.unsubscribe","payload":{"job_id":"` + string(id) + `"}`) }
	follow(eventJob(1))
	leave(eventJob(1))
	env := arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeNotFound, "x"))
	env.CorrelationID = c.request(refusals[2].request)
	if frames, err := answerFrames(c.s, &env); len(frames) != 1 || err != nil {
		t.Errorf("got %s, %v", frames, err)
	}
	c.submit(job)
	follow(job)
	leave(job)
	env.CorrelationID = c.request(refusals[2].request)
	if frames, err := answerFrames(c.s, &env); len(frames) != 0 || err != nil {
		t.Errorf("got %s, %v", frames, err)
	}
}

func TestResumeIsWelcomedWithTheNextToken(t *testing.T) {
	for _, l := range libraries {
		c := l.connectWith(t, `,"resume":{"session_id":"sess_01JZ0000000000000000000003","resume_token":"t","last_event_seq":7}`)
		described := acceptedSession()
		c.s.Describe(described)
		c.seq = 7
		c.answer(arcp.SessionResumed, c.firstID(), arcp.SessionResumedPayload{SessionID: described.SessionID, ResumeToken: "next", ReplayedFrom: 7})
		if !strings.Contains(c.log.String(), `"resume_token":"next","resume_window_sec":600,"heartbeat_interval_sec":30`) {
			t.Errorf("%s: got %s", l.name, c.log.String())
		}
		c.event(job, arcp.JobStarted, arcp.JobStartedPayload{})
		id := c.request(`"type":"job.subscribe","payload":{"job_id":"` + string(job) + `"}`)
		frames := c.answer(arcp.JobSubscribed, id, arcp.JobSubscribedPayload{JobID: job, CurrentStatus: "running", Agent: "a@1", SubscribedFrom: 99})
		if len(frames) != 1 || !strings.Contains(string(frames[0]), `"subscribed_from":8`) {
			t.Errorf("%s: got %s", l.name, frames)
		}
	}
}

func TestWelcomeOmitsHeartbeatThatIsNotOffered(t *testing.T) {
	l := libraries[2]
	l.hello = `"type":"session.hello","payload":{"client":{"name":"ts","version":"2"},"capabilities":{"features":["progress"]}`
	c := l.connect(t).accept()
	if log := c.log.String(); strings.Contains(log, "heartbeat_interval_sec") || !strings.Contains(log, `"features":["progress"]`) {
		t.Errorf("got %s", log)
	}
}

// Whatever the runtime sends, no answer panics, and an error leaves the frames as they were.
func TestAnswerErrorLeavesTheFrames(t *testing.T) {
	for _, l := range libraries {
		for i := range arcp.Catalog {
			for _, payload := range []string{`{}`, `{"session_id":7,"reason":7,"nonce":7,"jobs":7,"code":7,"target_id":7,"job_id":7,"ping_nonce":7}`} {
				c := l.connect(t).accept()
				env := arcp.Envelope{Type: arcp.Catalog[i].Type, CorrelationID: c.request(refusals[0].request), Payload: arcp.Raw(payload)}
				frames := draft.Frames{Data: []byte("{}"), Ends: []int{2}}
				err := c.s.AppendAnswer(&frames, moment, &env)
				if err != nil && (len(frames.Ends) != 1 || len(frames.Data) != 2) {
					t.Errorf("%s: %v and the frames %s", env.Type, err, frames.Data)
				}
			}
		}
	}
}

func TestPageTooLargeIsAnError(t *testing.T) {
	c := libraries[0].connect(t).accept()
	entries := make([]arcp.JobEntry, 10)
	for i := range entries {
		entries[i] = arcp.JobEntry{JobID: job, Agent: "a", Status: "running", CreatedAt: moment, Lease: arcp.Raw(`{"fs.read":["` + strings.Repeat("x", 110_000) + `"]}`)}
	}
	env := arcp.Frame(arcp.SessionJobs, arcp.SessionJobsPayload{Jobs: entries})
	if frames, err := answerFrames(c.s, &env); err == nil || len(frames) > 0 || !strings.Contains(err.Error(), "session.jobs has 11") {
		t.Errorf("got %d frames, %v", len(frames), err)
	}
}
