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
	s, err := draft.NewServerCodec(hello)
	if err != nil {
		return // the other dialect
	}
	env, err := s.Decode(hello)
	if refusal, ok := errors.AsType[*draft.Refusal](err); ok {
		env = refusal.Nack() // answered by AppendAnswer
	}
	fmt.Println(s.Profile(), env.Type, string(env.Payload))

	now := time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)
	answer := arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: arcp.NewSessionID(), ResumeToken: "secret", ResumeWindowSec: 600})
	answer.CorrelationID = env.ID
	var frames draft.Frames
	err = s.AppendAnswer(&frames, now, &answer)
	fmt.Println(len(frames.Ends), err)

	progress := arcp.Frame(arcp.JobProgress, arcp.JobProgressPayload{Current: 3.5, Total: new(10.0)})
	progress.ID, progress.Timestamp, progress.JobID = arcp.NewMessageID(), now, "job_1"
	event := draft.EventOf(&progress)
	_, err = s.AppendEvent(nil, 1, "", &event)
	fmt.Println(err)

	// Output:
	// go session.open {"auth":{"scheme":"none"},"client":{"kind":"example","version":"1"},"capabilities":{"features":["progress"],"encodings":["json"]}}
	// 1 <nil>
	// <nil>
}

// A client encodes its requests to frames, and decodes the frames of a runtime to envelopes.
func ExampleClientCodec() {
	c := draft.NewClientCodec()
	now := time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)
	send := func(id arcp.MessageID, t arcp.Type, payload any) {
		env := arcp.Frame(t, payload)
		env.ID, env.Timestamp = id, now
		if _, err := c.Append(nil, &env); err != nil {
			fmt.Println(err)
		}
	}
	send("msg_1", arcp.SessionOpen, arcp.SessionOpenPayload{Auth: arcp.Auth{Scheme: "none"}, Client: arcp.ClientInfo{Kind: "example", Version: "1"}})
	send("msg_2", arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: "demo.echo"})
	send("msg_3", arcp.AgentDelegate, struct{}{})
	for _, frame := range []string{
		`{"arcp":"1.1","id":"1","type":"session.welcome","correlation_id":"msg_1","payload":{"session_id":"sess_1"}}`,
		`{"arcp":"1.1","id":"2","type":"job.accepted","correlation_id":"msg_2","payload":{"job_id":"job_1","agent":"demo.echo@1"}}`,
		`{"arcp":"1.1","id":"3","type":"job.result","event_seq":1,"job_id":"job_1","payload":{"final_status":"success","result":{"n":1}}}`,
	} {
		env, ok, err := c.Decode([]byte(frame))
		fmt.Println(env.Type, env.CorrelationID, ok, err)
	}

	// Output:
	// the draft dialect has no agent.delegate
	// session.accepted msg_1 true <nil>
	// job.accepted msg_2 true <nil>
	// job.completed msg_2 true <nil>
}
