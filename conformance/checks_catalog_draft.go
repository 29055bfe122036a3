package conformance

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/conformance/script"
)

// noonUTC is a time of day that a server does not judge.
const noonUTC = "2026-01-02T12:00:00Z"

// draftMessages are messages of each type that draft 1.1 has a client send in a session. The agent and
// the job that they name do not exist.
var draftMessages = []message{
	{arcp.SessionPing, map[string]any{"nonce": messageNonce, "sent_at": noonUTC}, nil},
	{arcp.SessionPong, map[string]any{"ping_nonce": messageNonce, "received_at": noonUTC}, nil},
	{arcp.SessionAck, map[string]any{"last_processed_seq": 0}, nil},
	{arcp.SessionListJobs, map[string]any{"limit": 1}, nil},
	{arcp.SessionClose, map[string]any{"reason": closeReason}, nil},
	{script.JobSubmit, map[string]any{"agent": "no.such.agent", "input": struct{}{}}, nil},
	{script.JobCancel, map[string]any{"job_id": unknownJob, "reason": closeReason}, inJob},
	{arcp.JobSubscribe, map[string]any{"job_id": unknownJob}, inJob},
	{arcp.JobUnsubscribe, map[string]any{"job_id": unknownJob}, inJob},
}

// messageNonce is the nonce of the ping in draftMessages.
const messageNonce = "conformance-message"

// draftAnswers are the types that end the wait for the answer to a message, beside draftRefusals. A
// job.accepted may precede the refusal of a submit.
var draftAnswers = map[arcp.Type]arcp.Type{
	arcp.SessionPing: arcp.SessionPong, arcp.SessionListJobs: arcp.SessionJobs, arcp.SessionClose: arcp.SessionClosed,
	script.JobSubmit: script.JobResult, script.JobCancel: arcp.JobCancelled, arcp.JobSubscribe: arcp.JobSubscribed,
}

// draftRefusals are the types of frames that refuse a message. Draft 1.1 names none for an error outside of
// a job.
var draftRefusals = []arcp.Type{script.SessionError, script.JobError, arcp.Nack}

// draftCatalogChecks generates checks from the message catalog of the draft dialect.
func draftCatalogChecks() []Check {
	var all []catalogRow
	for i := range draft.Messages {
		row := &draft.Messages[i]
		s := catalogRow{message{arcp.Type(row.Type), struct{}{}, nil}, row.From, row.Phase, ""}
		if at := slices.IndexFunc(draftMessages, func(m message) bool { return m.typ == s.typ }); at >= 0 {
			s.message = draftMessages[at]
		} else if !ofServer(&s) {
			continue // opens a session, or is no type of draft 1.1
		}
		all = append(all, s)
	}
	return generate(all,
		family{"newer", "unknown members of the envelope of TYPE change nothing in its answer", "ARCP 1.1 §5", Must, inSession, draftNewer},
		family{"no-object", "TYPE whose payload is no object is refused at most", "ARCP 1.1 §5", House, keepsSession, draftWithoutObject},
		family{"no-id", "TYPE without an id is dropped without an answer", "ARCP 1.1 §5", House, keepsSession, draftWithoutID},
		family{"early", "TYPE before session.hello is not performed", "ARCP 1.1 §6.2", House, inSession, draftEarly},
		family{"direction", "a client that sends TYPE is refused at most", "ARCP 1.1 §5", House, ofServer, draftDirection})
}

// draftClient is a session of the draft dialect.
type draftClient struct {
	*draftConn
	id arcp.SessionID
}

// OpenDraft connects and opens a session of the draft dialect.
func (run *checkRun) OpenDraft() draftClient {
	c := run.DialDraft(nil)
	c.send(script.SessionHello, run.target.library().Hello(run.target.Token))
	welcome := c.readWelcome()
	if welcome == nil {
		run.Failf("session.hello with a valid token is answered by session.welcome")
	}
	return draftClient{c, welcome.SessionID}
}

// post sends a message in the form of the library. change edits the members of its envelope, unless it is nil.
func (c draftClient) post(m message, change func(members map[string]arcp.Raw)) {
	var env arcp.Envelope
	if m.with != nil {
		m.with(&env)
	}
	extra := map[string]any{}
	if env.JobID != "" {
		extra["job_id"] = env.JobID
	}
	if c.id != "" {
		extra["session_id"] = c.id
	}
	frame, _ := c.t.target.library().Frame(string(m.typ), m.payload, extra)
	if change != nil {
		var members map[string]arcp.Raw
		_ = arcp.Unmarshal(frame, &members) // Frame returns an object
		change(members)
		frame, _ = json.Marshal(members) // of JSON
	}
	_ = c.WriteFrame(frame) // a failed write shows in the next read
}

// barrierNonce is the nonce of the ping whose pong ends untilPong.
const barrierNonce = "conformance-barrier"

func (r *received) endsBarrier(b script.Barrier) bool {
	return r.Type == arcp.SessionPong && (b == script.ByOrder || pongNonce(&r.Envelope) == barrierNonce)
}

// untilPong pings. It returns the first frame before the pong for which selects is true; nil if there is none. It
// returns an error if the connection ends.
func (c draftClient) untilPong(selects func(f *received) bool) (*received, error) {
	barrier := c.t.server.draftBarrier()
	if barrier == script.ByTime {
		return c.find(c.ReadFrameSoon, selects)
	}
	c.post(message{arcp.SessionPing, map[string]any{"nonce": barrierNonce, "sent_at": noonUTC}, nil}, nil)
	f, err := c.find(c.ReadFrame, func(f *received) bool { return selects(f) || f.endsBarrier(barrier) })
	if f != nil && !selects(f) {
		f = nil
	}
	return f, err
}

// find reads until a frame that selects reports; nil if read returns none. It skips the pings of the server.
func (c draftClient) find(read func() ([]byte, error), selects func(f *received) bool) (*received, error) {
	for {
		text, err := read()
		if err != nil || text == nil {
			return nil, err
		}
		env, err := decodeDraft(text)
		if err != nil {
			continue // a rule of frames is about it
		}
		if f := (&received{Envelope: env, Text: text}); env.Type != arcp.SessionPing && selects(f) {
			return f, nil
		}
	}
}

// draftNewer compares the answers to a message with and without unknown members.
func draftNewer(t *checkRun, m message) {
	plain := draftAnswer(t, m, nil, false)
	same := func(change func(members map[string]arcp.Raw)) (ok bool, got string) {
		got = draftAnswer(t, m, change, plain != noAnswer)
		return got == plain, got
	}
	ok, got := same(func(members map[string]arcp.Raw) { members["x_conformance_unknown"] = arcp.Raw(`{"a":[1,null]}`) })
	t.Want("unknown members of the envelope are ignored", ok, "got %s, and without them %s", got, plain)
	if !t.judges(House) {
		return
	}
	ok, got = same(func(members map[string]arcp.Raw) { members["payload"] = withMember(members["payload"]) })
	t.HouseWant("unknown members of the payload are ignored", ok, "got %s, and without them %s", got, plain)
}

// noAnswer describes that a message is not answered.
const noAnswer = "no answer"

// draftAnswer sends a message in a new session and describes its answer by the type and the code. If the
// message must be answered, draftAnswer waits as long as the check runs.
func draftAnswer(t *checkRun, m message, change func(members map[string]arcp.Raw), answered bool) string {
	c := t.OpenDraft()
	c.post(m, change)
	answers := func(f *received) bool {
		return f.Type == draftAnswers[m.typ] && pongNonce(&f.Envelope) != barrierNonce || slices.Contains(draftRefusals, f.Type)
	}
	f, err := c.untilPong(answers)
	if f == nil && err == nil { // a server may answer a ping first
		read := c.ReadFrameSoon
		if answered {
			read = c.ReadFrame
		}
		f, err = c.find(read, answers)
	}
	if t.ctx.Err() != nil {
		t.Failf("%s: %v", "a message with unknown members is answered as one without them", err)
	}
	if m.typ == arcp.SessionClose {
		c.Drop()
	}
	switch {
	case f == nil && err != nil:
		return "the end of the connection"
	case f == nil:
		return noAnswer
	}
	return strings.TrimSpace(string(f.Type) + " " + string(f.errorCode()))
}

// wantNone wants no frame that selects reports between a message that was sent and a later ping's pong.
func (c draftClient) wantNone(rule string, selects func(f *received) bool) {
	f, err := c.untilPong(selects)
	if err != nil {
		c.t.Failf("%s: %v", rule, err)
	}
	if f != nil {
		c.t.Failf("%s: got %s", rule, f)
	}
}

// performs reports whether a frame is anything but a refusal of an invalid message. A session.jobs without jobs
// is a refusal for libraries that know no other, as is a job that is accepted and then fails.
func (r *received) performs() bool {
	switch r.Type {
	case script.SessionError, script.JobError, arcp.Nack:
		return r.errorCode() != arcp.CodeInvalidRequest
	case arcp.SessionJobs:
		var page struct {
			Jobs []arcp.Raw `json:"jobs"`
		}
		return arcp.Unmarshal(r.Payload, &page) != nil || len(page.Jobs) > 0
	}
	return r.Type != arcp.JobAccepted && (r.Type != arcp.SessionPong || pongNonce(&r.Envelope) == messageNonce)
}

func draftWithoutObject(t *checkRun, m message) {
	c := t.OpenDraft()
	for _, payload := range []arcp.Raw{arcp.Raw(`[]`), arcp.Raw(`"text"`), arcp.Raw(`1`)} {
		c.post(message{m.typ, payload, m.with}, nil)
		c.wantNone("a message whose payload is no object is refused as an invalid request at most", (*received).performs)
	}
}

func draftWithoutID(t *checkRun, m message) {
	c := t.OpenDraft()
	c.post(m, func(members map[string]arcp.Raw) { delete(members, "id") })
	barrier := c.t.server.draftBarrier()
	c.wantNone("there is no id to answer to", func(f *received) bool { return !f.endsBarrier(barrier) })
}

func draftDirection(t *checkRun, m message) {
	c := t.OpenDraft()
	c.post(m, nil)
	c.wantNone("only a server sends "+string(m.typ), (*received).performs)
}

// draftEarly sends a message before session.hello. A server may refuse it, drop it or hang up, and may then open
// no session.
func draftEarly(t *checkRun, m message) {
	c := draftClient{draftConn: t.DialDraft(nil)}
	c.post(m, nil)
	c.send(script.SessionHello, t.target.library().Hello(t.target.Token))
	f, _ := c.find(c.ReadFrameSoon, func(f *received) bool { return !slices.Contains(draftRefusals, f.Type) }) // the server may hang up
	t.Want("nothing is performed before the session is welcomed", f == nil || f.Type == script.SessionWelcome, "got %s", f)
}
