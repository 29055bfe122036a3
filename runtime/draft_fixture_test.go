package runtime_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/transport"
)

// draftLibrary is a published client library of the draft dialect, with the forms of its frames.
type draftLibrary struct {
	name    strict.Library
	id      string // of its frames, with %d
	members string // of its frames, before the type
	hello   string // members of the payload, with %s for the credential
	resume  string // members that a resume adds to the payload, with the session, the token and the position
}

const (
	draftFeatures = `["heartbeat","ack","list_jobs","subscribe","agent_versions","lease_expires_at","cost.budget","model.use","provisioned_credentials","progress","result_chunk"]`

	uuidID, ulidID, messageID = "01980000-0000-7000-8000-%012d", "01JZ0000000000000000%06d", "msg_01JZ0000000000000000%06d"

	resumeObject  = `,"resume":{"session_id":%[1]q,"resume_token":%[2]q,"last_event_seq":%[3]d}`
	resumeMembers = `,"resume_token":%[2]q,"last_event_seq":%[3]d`
	resumeShort   = `,"resume":{"token":%[2]q,"last_event_seq":%[3]d}`
)

// largeLibraries returns how many of draftLibraries a test of large frames needs. The race detector watches code that is
// the same for each library, and makes large frames ten times as slow.
func largeLibraries() int {
	if race.Enabled {
		return 2
	}
	return len(draftLibraries)
}

// draftLibraries has a row for each of strict.Libraries.
var draftLibraries = []draftLibrary{
	{strict.Go, uuidID, "",
		`"client":{"name":"arcp-go-client","version":"1.1.0"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `}`, resumeObject},
	{strict.Go110, uuidID, "",
		`"client":{"name":"arcp-go-client","version":"1.1.0"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `}`, resumeObject},
	{strict.TypeScript, messageID, "",
		`"client":{"name":"ts","version":"2.0.0","fingerprint":"f"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `}`, resumeObject},
	{strict.Python, ulidID, "",
		`"client":{"name":"py","version":"1.1.3"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `,"agents":[]}`, resumeObject},
	{strict.Java, ulidID, "",
		`"client":{"name":"arcp-client-java","version":"1.0.0"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `}`, resumeMembers},
	{strict.CSharp, messageID, `"timestamp":"2026-05-09T13:00:00.0000000+00:00",`,
		`"client":{"name":"cs","version":"1.0.0"},"auth":{"token":"%s"},"capabilities":{"encodings":["json"],"features":` + draftFeatures + `}`, resumeMembers},
	{strict.FSharp, ulidID, "",
		`"client":{"name":"fs","version":"1.0.1"},"auth":{"scheme":"bearer","token":"%s"},"capabilities":{"features":` + draftFeatures + `}`, resumeObject},
	{strict.Ruby, uuidID, `"session_id":"ses_mine",`,
		`"client_name":"rb","client_version":"1.0.0","auth":{"scheme":"bearer","token":"%s"},"capabilities":{"features":` + draftFeatures + `}`, resumeShort},
	{strict.PHP, "msg_%d", `"timestamp":"2026-05-09T13:00:00Z","priority":"urgent",`,
		`"client":{"kind":"php","version":"1"},"auth":{"type":"bearer","token":"%s"},"capabilities":{"features":{"heartbeat":true,"ack":true,"list_jobs":true,"subscribe":true,"progress":true,"result_chunk":true,"model.use":false}}`, resumeObject},
}

// draftPeer is a client of a library. Its checker judges every frame of the runtime.
type draftPeer struct {
	*fixture
	lib      *draftLibrary
	conn     transport.Conn
	checker  *strict.Checker
	n        int // frames of the client
	session  string
	token    string // to resume the session
	seq      uint64 // of the last event
	pings    int    // that were answered
	followed int    // frames subscribe.event
	progress map[string][]float64
	features []string // of the welcome
}

// draftFrame is a frame of the runtime.
type draftFrame struct {
	ID, Type      string
	JobID         string  `json:"job_id"`
	CorrelationID string  `json:"correlation_id"`
	EventSeq      *uint64 `json:"event_seq"`
	Extensions    map[string]json.RawMessage
	Payload       struct {
		Capabilities struct {
			Features []string
			Agents   []struct{ Name string }
		}
		SessionID   string `json:"session_id"`
		ResumeToken string `json:"resume_token"`
		RequestID   string `json:"request_id"`
		Nonce       string
		PingNonce   string          `json:"ping_nonce"`
		Event       json.RawMessage // of a subscribe.event
		Kind        string
		Body        struct {
			Current float64
			Details struct {
				ApprovalID string `json:"approval_id"`
			}
		}
		Code        string
		FinalStatus string `json:"final_status"`
		Result      json.RawMessage
		Output      json.RawMessage
		ResultID    string `json:"result_id"`
		Jobs        []struct {
			JobID  string `json:"job_id"`
			Status string
		}
		NextCursor *string `json:"next_cursor"`
	}
	raw string
}

// ends reports whether the frame ends a job.
func (frame *draftFrame) ends(job string) bool {
	return frame.EventSeq != nil && frame.JobID == job && (frame.Type == "job.result" || frame.Type == "job.error")
}

// connectDraft makes a connection of a library that has sent n frames before.
func (f *fixture) connectDraft(lib *draftLibrary, n int) *draftPeer {
	p := f.connect(nil)
	return &draftPeer{fixture: f, lib: lib, conn: p.conn, checker: strict.New(lib.name), n: n, progress: make(map[string][]float64)}
}

// dialDraft opens a session of a principal.
func (f *fixture) dialDraft(lib *draftLibrary, name string) *draftPeer {
	f.Helper()
	p := f.connectDraft(lib, 0)
	p.hello(name+"-"+token, "")
	p.wantWelcome()
	return p
}

func (p *draftPeer) hello(credential, more string) {
	p.Helper()
	p.send("session.hello", "", fmt.Sprintf(p.lib.hello, credential)+more)
}

func (p *draftPeer) wantWelcome() {
	p.Helper()
	frame := p.read()
	if frame.Type != "session.welcome" || frame.Payload.SessionID == "" || frame.Payload.ResumeToken == "" {
		p.Fatalf("%s: the hello is answered by %s", p.lib.name, frame.raw)
	}
	p.session, p.token, p.features = frame.Payload.SessionID, frame.Payload.ResumeToken, frame.Payload.Capabilities.Features
}

// resumed makes another connection of the session, which goes on after the last event.
func (p *draftPeer) resumed() *draftPeer {
	p.Helper()
	q := p.connectDraft(p.lib, p.n+1000)
	q.seq, q.progress = p.seq, p.progress
	q.hello("alice-"+token, fmt.Sprintf(p.lib.resume, p.session, p.token, p.seq))
	q.wantWelcome()
	if q.session != p.session || q.token == p.token {
		p.Errorf("%s: the resume of %s brings the session %s, with a new token: %v", p.lib.name, p.session, q.session, q.token != p.token)
	}
	if len(q.features) == 0 || !slices.Equal(q.features, p.features) {
		p.Errorf("%s: the resume agrees to the features %v, want those of the session: %v", p.lib.name, q.features, p.features)
	}
	return q
}

// send sends a frame and returns its id. The members of the envelope end with a comma.
func (p *draftPeer) send(typ, members, payload string) string {
	p.Helper()
	p.n++
	id := fmt.Sprintf(p.lib.id, p.n)
	frame := fmt.Appendf(nil, `{"arcp":"1.1","id":%q,%s%s"type":%q,"payload":{%s}}`, id, p.lib.members, members, typ, payload)
	p.checker.Sent(frame)
	if err := errors.Join(p.conn.Write(frame), p.conn.Flush()); err != nil {
		p.Fatalf("%s: send %s: %v", p.lib.name, typ, err)
	}
	return id
}

func (p *draftPeer) submit(agent, input, more string) (request string) {
	p.Helper()
	return p.send("job.submit", "", fmt.Sprintf(`"agent":%q,"input":%s%s`, agent, input, more))
}

// accepted submits a job and reads up to its job.accepted.
func (p *draftPeer) accepted(agent, input, more string) (job string) {
	p.Helper()
	request := p.submit(agent, input, more)
	return p.until("job.accepted", func(frame *draftFrame) bool {
		return frame.Type == "job.accepted" && frame.Payload.RequestID == request
	}).JobID
}

// run submits a job and reads up to its end.
func (p *draftPeer) run(agent, input string) *draftFrame {
	p.Helper()
	return p.end(p.accepted(agent, input, ""))
}

func (p *draftPeer) end(job string) *draftFrame {
	p.Helper()
	return p.until("the end of "+job, func(frame *draftFrame) bool { return frame.ends(job) })
}

// next reads a frame and answers pings.
func (p *draftPeer) next() (*draftFrame, error) {
	p.Helper()
	raw, err := p.conn.Read()
	if err != nil {
		return nil, err
	}
	frame := &draftFrame{raw: string(raw)}
	for _, v := range p.checker.Received(raw) {
		p.Errorf("%s: %v in %s", p.lib.name, v, raw)
	}
	if err := json.Unmarshal(raw, frame); err != nil {
		p.Fatalf("%s: %s: %v", p.lib.name, raw, err)
	}
	if frame.Type == "subscribe.event" {
		if p.followed++; p.lib.name != strict.PHP {
			p.Errorf("%s: only PHP expects a subscribe.event, but this is %s", p.lib.name, raw)
		}
		if err := json.Unmarshal(frame.Payload.Event, frame); err != nil {
			p.Fatalf("%s: %s: %v", p.lib.name, raw, err)
		}
	}
	if frame.EventSeq != nil {
		if *frame.EventSeq != p.seq+1 {
			p.Errorf("%s: event_seq %d after %d: %s", p.lib.name, *frame.EventSeq, p.seq, raw)
		}
		p.seq = *frame.EventSeq
	}
	if frame.Payload.Kind == "progress" {
		p.progress[frame.JobID] = append(p.progress[frame.JobID], frame.Payload.Body.Current)
	}
	if frame.Type == "session.ping" {
		p.pings++
		p.send("session.pong", "", fmt.Sprintf(`"ping_nonce":%q,"received_at":"2026-05-09T13:00:00Z"`, frame.Payload.Nonce))
		return p.next()
	}
	return frame, nil
}

func (p *draftPeer) read() *draftFrame {
	p.Helper()
	frame, err := p.next()
	if err != nil {
		p.Fatalf("%s: read: %v", p.lib.name, err)
	}
	return frame
}

// until reads up to a frame and returns it.
func (p *draftPeer) until(why string, is func(*draftFrame) bool) *draftFrame {
	p.Helper()
	for {
		frame, err := p.next()
		if err != nil {
			p.Fatalf("%s: the connection ends with %v before %s", p.lib.name, err, why)
		}
		if is(frame) {
			return frame
		}
	}
}

// pong sends a ping and returns the frames before the pong.
func (p *draftPeer) pong() (frames []*draftFrame) {
	p.Helper()
	p.send("session.ping", "", `"nonce":"n","sent_at":"2026-05-09T13:00:00Z"`)
	for {
		frame := p.read()
		if frame.Type == "session.pong" && frame.Payload.PingNonce == "n" {
			return frames
		}
		frames = append(frames, frame)
	}
}

// refused reads the answer to a request that fails. No request remains unanswered.
func (p *draftPeer) refused(why, code string) {
	p.Helper()
	var frames []*draftFrame
	for len(p.checker.Unanswered()) > 0 {
		frames = append(frames, p.read())
	}
	frames = append(frames, p.pong()...)
	if code != "" && !slices.ContainsFunc(frames, func(frame *draftFrame) bool { return frame.Payload.Code == code }) {
		p.Errorf("%s: %s: no frame of %d has the code %s", p.lib.name, why, len(frames), code)
	}
}

// handshakeFails reads the frames of a failed handshake, and that the runtime closes the connection.
func (p *draftPeer) handshakeFails(why, code string) {
	p.Helper()
	var types []string
	for {
		frame, err := p.next()
		if err != nil {
			p.closedBy(why, err, transport.ClosePolicy)
			break
		}
		if types = append(types, frame.Type); frame.Payload.Code != code {
			p.Errorf("%s: %s: the code is %q, want %q", p.lib.name, why, frame.Payload.Code, code)
		}
	}
	if !slices.Equal(types, []string{"session.error", "job.error"}) {
		p.Errorf("%s: %s: answered by %v", p.lib.name, why, types)
	}
}

func (p *draftPeer) closedBy(why string, err error, code transport.CloseCode) {
	p.Helper()
	if te, ok := errors.AsType[*transport.Error](err); !ok || !te.Remote || te.Code != code {
		p.Errorf("%s: %s: the connection ends with %v, want the runtime to close it with %d", p.lib.name, why, err, code)
	}
}

// abort ends the connection without a close frame.
func (p *draftPeer) abort() { _ = p.conn.Abort() } // it may have ended

// close ends the connection with a message.
func (p *draftPeer) close(typ string) {
	p.Helper()
	p.send(typ, "", `"reason":"done"`)
	p.until("session.closed", func(frame *draftFrame) bool { return frame.Type == "session.closed" })
	frame, err := p.next()
	if err == nil {
		p.Fatalf("%s: after session.closed: %s", p.lib.name, frame.raw)
	}
	p.closedBy(typ, err, transport.CloseNormal)
	if left := p.checker.Unanswered(); len(left) > 0 {
		p.Errorf("%s: never answered: %v", p.lib.name, left)
	}
}

// list lists all jobs in pages.
func (p *draftPeer) list(limit int) (status map[string]string) {
	p.Helper()
	status = make(map[string]string)
	for cursor := ""; ; {
		request := p.send("session.list_jobs", "", fmt.Sprintf(`"limit":%d%s`, limit, cursor))
		page := p.until("session.jobs", func(frame *draftFrame) bool { return frame.Type == "session.jobs" && frame.CorrelationID == request }).Payload
		if len(page.Jobs) > limit {
			p.Errorf("%s: a page of %d jobs, want at most %d", p.lib.name, len(page.Jobs), limit)
		}
		for _, j := range page.Jobs {
			if status[j.JobID] != "" {
				p.Errorf("%s: %s is listed twice", p.lib.name, j.JobID)
			}
			status[j.JobID] = j.Status
		}
		if page.NextCursor == nil {
			return status
		}
		cursor = fmt.Sprintf(`,"cursor":%q`, *page.NextCursor)
	}
}

// follow subscribes to a job with its history.
func (p *draftPeer) follow(job string) {
	p.Helper()
	request := p.send("job.subscribe", fmt.Sprintf(`"job_id":%q,`, job), fmt.Sprintf(`"job_id":%q,"history":true`, job))
	p.until("job.subscribed", func(frame *draftFrame) bool { return frame.Type == "job.subscribed" && frame.CorrelationID == request })
}

func (p *draftPeer) cancel(job string) {
	p.Helper()
	request := p.send("job.cancel", fmt.Sprintf(`"job_id":%q,`, job), `"reason":"enough"`)
	p.until("job.cancelled", func(frame *draftFrame) bool { return frame.Type == "job.cancelled" && frame.CorrelationID == request })
}

// counted checks that the progress of a job has come once and in order.
func (p *draftPeer) counted(job string, to int) {
	p.Helper()
	got := p.progress[job]
	if len(got) != to {
		p.Fatalf("%s: the progress of %s is %v, want 1 to %d", p.lib.name, job, got, to)
	}
	for i, n := range got {
		if n != float64(i+1) {
			p.Fatalf("%s: the progress of %s is %v, want 1 to %d", p.lib.name, job, got, to)
		}
	}
}
