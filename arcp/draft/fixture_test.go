package draft_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantLines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wantLines) || line != wantLines[i] {
			t.Fatalf("%s, line %d is now\n%s\nRun the test with -update if this is meant.", path, i+1, line)
		}
	}
	if got != string(want) {
		t.Fatalf("%s: lines are missing at the end", path)
	}
}

const (
	ulid  = "01JZ0000000000000000000001"
	uuid7 = "01980000-0000-7000-8000-000000000001"
	trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	job   = arcp.JobID("job_01JZ0000000000000000000009")
)

var moment = time.Date(2026, 5, 9, 15, 0, 0, 20_500_000, time.FixedZone("", 2*3600)) // written in UTC

// library is a published client library and what it sends.
type library struct {
	name    strict.Library
	profile draft.Profile
	id      string // of its frames, with %d
	hello   string // without the last brace
}

const features = `["heartbeat","ack","list_jobs","subscribe","agent_versions","lease_expires_at","cost.budget","model.use","provisioned_credentials","progress","result_chunk"]`

var libraries = []library{
	{strict.Go, draft.Go, "01980000-0000-7000-8000-%012d",
		`"type":"session.hello","payload":{"client":{"name":"arcp-go-client","version":"1.1.0"},"auth":{"scheme":"bearer","token":"tok"},"capabilities":{"encodings":["json"],"features":` + features + `}`},
	{strict.Go110, draft.Go, "01980000-0000-7000-8000-%012d",
		`"type":"session.hello","payload":{"client":{"name":"arcp-go-client","version":"1.1.0"},"auth":{"scheme":"bearer","token":"tok"},"capabilities":{"encodings":["json"],"features":` + features + `}`},
	{strict.TypeScript, draft.TypeScript, "msg_01JZ0000000000000000%06d",
		`"type":"session.hello","payload":{"client":{"name":"ts","version":"2.0.0","fingerprint":"f"},"auth":{"scheme":"bearer","token":"tok"},"capabilities":{"encodings":["json"],"features":` + features + `}`},
	{strict.Python, draft.Python, "01JZ0000000000000000%06d",
		`"type":"session.hello","payload":{"client":{"name":"py","version":"1.1.3"},"auth":{"scheme":"bearer","token":"tok"},"capabilities":{"encodings":["json"],"features":` + features + `,"agents":[]}`},
	{strict.Java, draft.Java, "01JZ0000000000000000%06d",
		`"type":"session.hello","payload":{"client":{"name":"arcp-client-java","version":"1.0.0"},"auth":{"scheme":"anonymous"},"capabilities":{"encodings":["json"],"features":` + features + `}`},
	{strict.FSharp, draft.Java, "01JZ0000000000000000%06d",
		`"type":"session.hello","payload":{"client":{"name":"fs","version":"1.0.1"},"auth":{"scheme":"none"},"capabilities":{"features":` + features + `}`},
	{strict.CSharp, draft.CSharp, "msg_01JZ0000000000000000%06d",
		`"timestamp":"2026-05-09T13:00:00.0000000+00:00","type":"session.hello","payload":{"client":{"name":"cs","version":"1.0.0"},"capabilities":{"encodings":["json"],"features":` + features + `}`},
	{strict.Ruby, draft.Ruby, "01980000-0000-7000-8000-%012d",
		`"type":"session.hello","session_id":"ses_mine","payload":{"client_name":"rb","client_version":"1.0.0","auth":{"scheme":"bearer","token":"tok"},"capabilities":{"features":` + features + `}`},
	{strict.PHP, draft.PHP, "msg_%d",
		`"timestamp":"2026-05-09T13:00:00Z","priority":"urgent","type":"session.hello","payload":{"client":{"kind":"php","version":"1"},"auth":{"type":"bearer","token":"tok"},"capabilities":{"features":{"heartbeat":true,"ack":true,"list_jobs":true,"subscribe":true,"progress":true,"result_chunk":true,"model.use":false}}`},
}

// everyProfile has one library for each profile, and the universal profile.
var everyProfile = func() []library {
	list := []library{{strict.TypeScript, draft.Universal, "unknown-%d", libraries[2].hello}}
	for _, l := range libraries {
		if l.name != strict.Go110 && l.name != strict.FSharp {
			list = append(list, l)
		}
	}
	return list
}()

// connection is a client of a library, a session that encodes for it and a checker that decodes.
type connection struct {
	t       testing.TB
	lib     library
	s       *draft.ServerCodec
	checker *strict.Checker
	n       int // frames of the client
	minted  uint64
	seq     uint64
	submits map[arcp.JobID]arcp.MessageID
	log     strings.Builder // frames of the runtime
}

func (l library) connect(t testing.TB) *connection { return l.connectWith(t, "") }

// connectWith adds members to the payload of the hello.
func (l library) connectWith(t testing.TB, members string) *connection {
	t.Helper()
	c := &connection{t: t, lib: l, checker: strict.New(l.name)}
	hello := c.frame(l.hello + members + "}")
	s, err := draft.NewServerCodec(hello)
	if err != nil {
		t.Fatalf("%s: NewServerCodec: %v", l.name, err)
	}
	if s.Profile() != l.profile {
		t.Fatalf("%s is recognised as %v, want %v", l.name, s.Profile(), l.profile)
	}
	s.SetIDs(func(prefix string) string {
		c.minted++
		var u [16]byte
		binary.BigEndian.PutUint64(u[8:], c.minted)
		return prefix + string(arcp.AppendIDBody(nil, u))
	})
	c.s = s
	c.send(hello)
	return c
}

// frame completes a frame of the client: members are those after the id.
func (c *connection) frame(members string) []byte {
	c.n++
	return fmt.Appendf(nil, `{"arcp":"1.1","id":"`+c.lib.id+`",%s}`, c.n, members)
}

// request sends a frame of the client and returns its id.
func (c *connection) request(members string) arcp.MessageID {
	c.t.Helper()
	return c.send(c.frame(members)).ID
}

func (c *connection) send(frame []byte) arcp.Envelope {
	c.t.Helper()
	c.checker.Sent(frame)
	env, err := c.s.Decode(frame)
	if err != nil {
		c.t.Fatalf("%s: Decode(%s): %v", c.lib.name, frame, err)
	}
	return env
}

// answer encodes a message of the runtime and checks its frames.
func (c *connection) answer(t arcp.Type, corr arcp.MessageID, payload any) [][]byte {
	c.t.Helper()
	env := arcp.Frame(t, payload)
	env.CorrelationID = corr
	env.TraceID = trace
	frames, err := answerFrames(c.s, &env)
	if err != nil {
		c.t.Fatalf("%s: AppendAnswer(%s): %v", c.lib.name, t, err)
	}
	for _, frame := range frames {
		c.received(frame)
	}
	return frames
}

// answerFrames returns the frames of a message of the runtime.
func answerFrames(s *draft.ServerCodec, env *arcp.Envelope) ([][]byte, error) {
	var frames draft.Frames
	err := s.AppendAnswer(&frames, moment, env)
	return slices.Collect(frames.All()), err
}

// received checks a frame with the library and with the payload type of its message.
func (c *connection) received(frame []byte) {
	c.t.Helper()
	fmt.Fprintf(&c.log, "%s\n", frame)
	env, err := arcp.DecodeDraft(frame)
	if err != nil {
		c.t.Fatalf("%s: %v", frame, err)
	}
	p := draft.Lookup(draft.Type(env.Type)).NewPayload()
	if err := arcp.UnmarshalStrict(env.Payload, p); err != nil {
		c.t.Errorf("%s is not a %T: %v", env.Payload, p, err)
	}
	if name := arcp.MissingMember(env.Payload, reflect.ValueOf(p).Elem().Interface()); name != "" && name != "next_cursor" {
		c.t.Errorf("%s has no %s", env.Payload, name)
	}
	for _, v := range c.checker.Received(frame) {
		c.t.Errorf("%s: %v in %s", c.lib.name, v, frame)
	}
}

// event encodes an event of the job and checks its frame.
func (c *connection) event(id arcp.JobID, t arcp.Type, payload any) {
	c.t.Helper()
	c.seq++
	e := newEvent(id, t, payload)
	frame, err := c.s.AppendEvent(nil, c.seq, c.submits[id], e)
	if err != nil {
		c.t.Fatalf("%s: AppendEvent(%s): %v", c.lib.name, t, err)
	}
	body, err := draft.EventBody(e, c.lib.profile)
	if err != nil {
		c.t.Fatalf("%s: EventBody(%s): %v", c.lib.name, t, err)
	}
	if strings.Contains(string(frame), `"subscribe.event"`) && t.Terminal() { // the first frame has ended the subscription
		c.s.AddJobs(nil, []arcp.JobID{id})
	}
	if second := c.s.AppendEventFrame(nil, c.seq, c.submits[id], body); string(second) != string(frame) {
		c.t.Errorf("%s: the shared body makes\n%s, want\n%s", c.lib.name, second, frame)
	}
	c.received(frame)
}

func newEvent(id arcp.JobID, t arcp.Type, payload any) *draft.Event {
	e := rawEvent(t, arcp.Frame(t, payload).Payload)
	e.JobID = arcp.AppendString(nil, string(id))
	return e
}

func rawEvent(t arcp.Type, payload arcp.Raw) *draft.Event {
	return new(draft.EventOf(&arcp.Envelope{
		ID:        "msg_01JZ0000000000000000000077",
		Type:      t,
		Timestamp: moment,
		JobID:     job,
		TraceID:   trace,
		Payload:   payload,
	}))
}

// accept answers the hello.
func (c *connection) accept() *connection {
	c.t.Helper()
	c.answer(arcp.SessionAccepted, c.firstID(), acceptedSession())
	return c
}

func (c *connection) firstID() arcp.MessageID { return arcp.MessageID(fmt.Sprintf(c.lib.id, 1)) }

func acceptedSession() arcp.SessionAcceptedPayload {
	list := make([]string, len(draft.Features))
	for i, f := range draft.Features {
		list[i] = string(f)
	}
	return arcp.SessionAcceptedPayload{SessionID: "sess_01JZ0000000000000000000003", Runtime: arcp.RuntimeInfo{Kind: "arcp-go", Version: "0.1.0"},
		ResumeToken: "token", ResumeWindowSec: 600, HeartbeatIntervalSec: 30,
		Capabilities: arcp.Capabilities{Features: list, Flags: map[arcp.Feature]bool{arcp.FeatureHeartbeat: true},
			Agents: []arcp.Agent{{Name: "echo", Versions: []string{"1.0.0"}, Default: "1.0.0"}, {Name: "bare"}}}}
}

// submit submits a job and accepts it.
func (c *connection) submit(id arcp.JobID) {
	c.t.Helper()
	request := c.request(`"type":"job.submit","trace_id":"` + trace + `","payload":{"agent":"echo","input":{"x":1}}`)
	if c.submits == nil {
		c.submits = make(map[arcp.JobID]arcp.MessageID)
	}
	c.submits[id] = request
	c.answer(arcp.JobAccepted, request, acceptedJob(id))
}

func acceptedJob(id arcp.JobID) arcp.JobAcceptedPayload {
	return arcp.JobAcceptedPayload{JobID: id, Agent: "echo@1.0.0",
		Lease:            arcp.Raw(`{"cost.budget":["USD:5.00"],"cost_budget":["USD:5.00"],"expires_at":"2026-05-09T14:00:00.000000Z","fs.read":["/a/**"],"fs_read":["/a/**"]}`),
		LeaseConstraints: &arcp.LeaseConstraints{ExpiresAt: moment}, Budget: arcp.Raw(`{"USD":5.00}`),
		Credentials: []arcp.Credential{{ID: "cred_1", Scheme: "bearer", Value: "v", Endpoint: "https://e"}, {ID: "cred_2", Scheme: "basic", Value: "v", Endpoint: "https://e"}, {ID: "cred_3", Scheme: "bearer", Endpoint: "https://e"}},
		AcceptedAt:  moment, TraceID: trace}
}
