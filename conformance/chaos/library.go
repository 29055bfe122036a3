package chaos

import (
	"fmt"
	"maps"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// library is a client library. The runtime recognises one of the draft dialect by its first frame.
type library struct {
	name   string
	strict strict.Library // writes the first frame and decodes the frames of the runtime; empty: the RFC's dialect
	can    abilities
}

// rfc has the abilities of the RFC's dialect.
var rfc = library{"rfc", "", abilities{direct: true, start: true, schedule: true, reopen: true, cancel: true, probe: true}}

// unknown is a library that the runtime does not recognise.
const unknown = "unknown"

// libraries has the libraries of the draft dialect: the published ones, the client of this module and
// one that the runtime does not recognise. Only the client of this module is answered when it cancels
// a job that has ended. A refused job.subscribe would fail all requests of the libraries without probe.
var libraries = []library{
	{"go", strict.Go, abilities{probe: true}},
	{"typescript", strict.TypeScript, abilities{}},
	{"python", strict.Python, abilities{}},
	{"java", strict.Java, abilities{probe: true}},
	{"csharp", strict.CSharp, abilities{}},
	{"ruby", strict.Ruby, abilities{probe: true}},
	{"php", strict.PHP, abilities{probe: true}},
	{"arcp-client", strict.OwnClient, abilities{cancel: true, probe: true}},
	{unknown, strict.TypeScript, abilities{}},
	{"fsharp", strict.FSharp, abilities{probe: true}},
	{"go-1.1.0", strict.Go110, abilities{probe: true}},
}

func (l *library) dialect() arcp.Dialect {
	if l.strict == "" {
		return arcp.DialectRFC
	}
	return arcp.DialectDraft
}

// newCodec returns the codec of a connection. With short it resumes a session by session.resume, else
// by session.hello.
func (l *library) newCodec(credential string, short bool) codec {
	if l.dialect() == arcp.DialectRFC {
		return rfcCodec{}
	}
	return &draftCodec{library: l, credential: credential, short: short, client: draft.NewClientCodec(), checker: strict.New(l.strict)}
}

// draftCodec plays a library on one connection. It judges each frame of the runtime as the library
// decodes it.
type draftCodec struct {
	library    *library
	credential string
	short      bool
	client     *draft.ClientCodec
	checker    *strict.Checker
}

func (d *draftCodec) encode(env *arcp.Envelope) ([]byte, error) {
	first, id, err := d.first(env)
	if err != nil {
		return nil, err
	}
	renamed := *env
	if first != nil {
		renamed.ID = id
	}
	frame, err := d.client.Append(nil, &renamed)
	if err != nil {
		return nil, err
	}
	if first != nil {
		frame = first
	}
	d.checker.Sent(frame)
	return frame, nil
}

// first returns the frame that opens or resumes a session, and its id. The frame is nil for another
// message, and for one that draft.ClientCodec writes.
func (d *draftCodec) first(env *arcp.Envelope) (frame []byte, id arcp.MessageID, err error) {
	lib := d.library.strict
	if lib == strict.OwnClient || env.Type != arcp.SessionOpen && env.Type != arcp.SessionResume {
		return nil, "", nil
	}
	typ, payload, members := string(draft.SessionHello), lib.Hello(d.credential), map[string]any{}
	if env.Type == arcp.SessionResume {
		p, err := arcp.DecodePayload[arcp.SessionResumePayload](env)
		if err != nil {
			return nil, "", err
		}
		maps.Copy(payload, lib.Resume(string(env.SessionID), p.ResumeToken, p.LastEventSeq))
		if d.short {
			typ, payload = string(draft.SessionResume), map[string]any{"resume_token": p.ResumeToken, "last_event_seq": p.LastEventSeq}
		}
	}
	if d.library.name == unknown {
		members["id"] = "unknown-" + string(env.ID)
	}
	frame, text := lib.Frame(typ, payload, members)
	if name, ok := members["id"].(string); ok {
		text = name
	}
	return frame, arcp.MessageID(text), nil
}

func (d *draftCodec) decode(frame []byte) (m *message, problems []Finding) {
	for _, v := range d.checker.Received(frame) {
		problems = append(problems, Finding{Rule: RuleLibrary, Detail: fmt.Sprintf("%s: %v: %s", d.library.name, v, frame)})
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
