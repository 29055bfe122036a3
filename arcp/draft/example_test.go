package draft_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
)

// A server decodes the frames of a client to envelopes, and encodes answers and events.
func Example() {
	hello := []byte(`{"arcp":"1.1","id":"01980000-0000-7000-8000-000000000001","type":"session.hello",
		"payload":{"client":{"name":"example","version":"1"},"capabilities":{"features":["progress"]}}}`)
	if !draft.Opens(hello) {
		return // the other dialect
	}
	s, err := draft.NewSession(hello)
	if err != nil {
		return
	}
	env, err := s.Decode(hello)
	if refusal, ok := errors.AsType[*draft.Refusal](err); ok {
		env = refusal.Nack() // answered by AppendAnswer
	}
	fmt.Println(s.Profile(), env.Type, string(env.Payload))

	now := time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)
	answer := arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: arcp.NewSessionID(), ResumeToken: "secret", ResumeWindowSec: 600})
	answer.CorrelationID = env.ID
	frames, err := s.AppendAnswer(nil, now, &answer)
	fmt.Println(len(frames), err)

	progress := arcp.Frame(arcp.JobProgress, arcp.JobProgressPayload{Current: 3.5, Total: new(10.0)})
	_, err = s.AppendEvent(nil, 1, &draft.Event{ID: arcp.NewMessageID(), Type: progress.Type, Time: now, JobID: "job_1", Payload: progress.Payload})
	fmt.Println(err)

	// Output:
	// go session.open {"auth":{"scheme":"none"},"client":{"kind":"example","version":"1"},"capabilities":{"features":["progress"],"encodings":["json"]}}
	// 1 <nil>
	// <nil>
}
