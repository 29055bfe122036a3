package chaos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// library is a client library. The runtime recognises one of the draft dialect by its first frame.
type library struct {
	profile string
	judge   strict.Library // decodes the frames of the runtime; empty: the library of the RFC's dialect
	can     abilities

	id      string // of the first frame, with %d
	members string // of the first frame, before its type
	hello   string // members of its payload; empty: as draft.ClientSession writes them
	resume  string // further members that resume a session
}

// rfc has the abilities of the RFC's dialect.
var rfc = library{profile: "rfc", can: abilities{direct: true, reopen: true, cancel: true, probe: true}}

func (l *library) dialect() Dialect {
	if l.judge == "" {
		return RFC
	}
	return Draft
}

// The forms of the first frames. The words in upper case are replaced by values.
const (
	uuidID, ulidID, messageID = "01980000-0000-7000-8000-%012d", "01JZ0000000000000000%06d", "msg_01JZ0000000000000000%06d"

	resumeObject  = `,"resume":{"session_id":"SESSION","resume_token":"RESUME","last_event_seq":POSITION}`
	resumeMembers = `,"resume_token":"RESUME","last_event_seq":POSITION`
	resumeShort   = `,"resume":{"token":"RESUME","last_event_seq":POSITION}`

	bearer       = `"auth":{"scheme":"bearer","token":"TOKEN"}`
	offer        = `"capabilities":{"encodings":["json"],"features":[FEATURES]`
	goHello      = `"client":{"name":"arcp-go-client","version":"1.1.0"},` + bearer + `,` + offer + `}`
	tsHello      = `"client":{"name":"ts","version":"2.0.0","fingerprint":"f"},` + bearer + `,` + offer + `}`
	offersNoList = `"capabilities":{"features":[FEATURES]}`
)

// libraries has the published libraries, a library that the runtime does not recognise, and the
// client of this module. Only the last is always told about a cancel. A refused job.subscribe is
// not sent to the libraries whose requests all fail then.
var libraries = []library{
	{"go", strict.Go, abilities{probe: true}, uuidID, "", goHello, resumeObject},
	{"typescript", strict.TypeScript, abilities{}, messageID, "", tsHello, resumeObject},
	{"python", strict.Python, abilities{}, ulidID, "", `"client":{"name":"py","version":"1.1.3"},` + bearer + `,` + offer + `,"agents":[]}`, resumeObject},
	{"java", strict.Java, abilities{probe: true}, ulidID, "", `"client":{"name":"arcp-client-java","version":"1.0.0"},` + bearer + `,` + offer + `}`, resumeMembers},
	{"csharp", strict.CSharp, abilities{}, messageID, `"timestamp":"2026-05-09T13:00:00.0000000+00:00",`,
		`"client":{"name":"cs","version":"1.0.0"},"auth":{"token":"TOKEN"},` + offer + `}`, resumeMembers},
	{"ruby", strict.Ruby, abilities{probe: true}, uuidID, `"session_id":"ses_mine",`,
		`"client_name":"rb","client_version":"1.0.0",` + bearer + `,` + offersNoList, resumeShort},
	{"php", strict.PHP, abilities{probe: true}, "msg_%d", `"timestamp":"2026-05-09T13:00:00Z","priority":"urgent",`,
		`"client":{"kind":"php","version":"1"},"auth":{"type":"bearer","token":"TOKEN"},"capabilities":{"features":{FLAGS}}`, resumeObject},
	{"arcp-client", strict.OwnClient, abilities{cancel: true, probe: true}, "msg_%d", "", "", ""},
	{"universal", strict.TypeScript, abilities{}, "unknown-%d", "", tsHello, resumeObject},
	{"fsharp", strict.FSharp, abilities{probe: true}, ulidID, "", `"client":{"name":"fs","version":"1.0.1"},` + bearer + `,` + offersNoList, resumeObject},
	{"go-1.1.0", strict.Go110, abilities{probe: true}, uuidID, "", goHello, resumeObject},
}

// features are the features that all libraries offer. A client that acknowledges also offers ack.
var features = []string{"heartbeat", "list_jobs", "subscribe", "agent_versions", "lease_expires_at", "cost.budget", "model.use",
	"provisioned_credentials", "progress", "result_chunk"}

// first returns the first frame of a connection, which opens or resumes a session.
func (l *library) first(id arcp.MessageID, credential string, acks bool, resume *arcp.SessionResumePayload, session arcp.SessionID) []byte {
	offered := features
	if acks {
		offered = append([]string{"ack"}, features...)
	}
	text := l.hello
	values := []string{"TOKEN", credential, "FEATURES", `"` + strings.Join(offered, `","`) + `"`, "FLAGS", `"` + strings.Join(offered, `":true,"`) + `":true`}
	if resume != nil {
		text += l.resume
		values = append(values, "SESSION", string(session), "RESUME", resume.ResumeToken, "POSITION", strconv.FormatUint(resume.LastEventSeq, 10))
	}
	return fmt.Appendf(nil, `{"arcp":"1.1","id":%q,%s"type":"session.hello","payload":{%s}}`, id, l.members, strings.NewReplacer(values...).Replace(text))
}

// draftCodec plays a library on one connection. It judges each frame of the runtime as the library
// decodes it.
type draftCodec struct {
	library    *library
	credential string
	acks       bool
	number     int  // of the first frame
	short      bool // a session is resumed by session.resume, not by session.hello
	client     *draft.ClientSession
	checker    *strict.Checker
}

// newCodec returns the codec of a connection.
func (l *library) newCodec(credential string, acks bool, number int, short bool) codec {
	if l.dialect() == RFC {
		return rfcCodec{}
	}
	return &draftCodec{library: l, credential: credential, acks: acks, number: number, short: short, client: draft.NewClientSession(), checker: strict.New(l.judge)}
}

func (d *draftCodec) encode(env *arcp.Envelope) ([]byte, error) {
	opens, resumes := env.Type == arcp.SessionOpen, env.Type == arcp.SessionResume
	if opens || resumes {
		renamed := *env
		renamed.ID = arcp.MessageID(fmt.Sprintf(d.library.id, d.number))
		env = &renamed
	}
	frame, err := d.client.Append(nil, env)
	if err != nil {
		return nil, err
	}
	var resume *arcp.SessionResumePayload
	if resumes {
		p, err := arcp.DecodePayload[arcp.SessionResumePayload](env)
		if err != nil {
			return nil, err
		}
		resume = &p
	}
	switch {
	case resumes && d.short:
		frame = fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":"session.resume","payload":{"resume_token":%q,"last_event_seq":%d}}`, env.ID, resume.ResumeToken, resume.LastEventSeq)
	case (opens || resumes) && d.library.hello != "":
		frame = d.library.first(env.ID, d.credential, d.acks, resume, env.SessionID)
	}
	d.checker.Sent(frame)
	return frame, nil
}

func (d *draftCodec) decode(frame []byte) (m *message, problems []Finding) {
	for _, v := range d.checker.Received(frame) {
		problems = append(problems, Finding{Rule: RuleLibrary, Detail: fmt.Sprintf("%s: %v: %s", d.library.profile, v, frame)})
	}
	event, err := unwrap(frame)
	if err != nil {
		return nil, append(problems, undecodable(frame, err))
	}
	env, ok, err := d.client.Decode(event)
	if err != nil {
		return nil, append(problems, undecodable(frame, err))
	}
	if !ok {
		return nil, problems
	}
	return &message{env, event}, problems
}

// unwrap returns the frame of the event in a subscribe.event, and any other frame as it is.
func unwrap(frame []byte) ([]byte, error) {
	env, err := arcp.DecodeDraftFromRuntime(frame)
	if err != nil || draft.Type(env.Type) != draft.SubscribeEvent {
		return frame, err
	}
	p, err := arcp.DecodePayload[struct {
		Event arcp.Raw `json:"event"`
	}](&env)
	return p.Event, err
}
