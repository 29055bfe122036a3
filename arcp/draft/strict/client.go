package strict

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// allFeatures are the features that most libraries offer.
var allFeatures = []string{"heartbeat", "ack", "list_jobs", "subscribe", "agent_versions", "lease_expires_at", "cost.budget", "model.use",
	"provisioned_credentials", "progress", "result_chunk"}

// pythonFeatures are those that the Python library offers.
var pythonFeatures = slices.DeleteFunc(slices.Clone(allFeatures), func(f string) bool { return f == "provisioned_credentials" })

// object is a JSON object.
type object = map[string]any

// form is how a library writes frames.
type form struct {
	newID    func() string
	envelope object // members of every frame beside those of draft 1.1
	hello    object // members of session.hello beside auth
	auth     object // members of auth beside token
	resume   func(session, token string, lastSeq uint64) object
}

// forms has the form of each library.
var forms = map[Library]form{
	Go:         {uuid, nil, client("arcp-go-client", "1.1.0", "encodings"), bearer, resumeObject},
	Go110:      {uuid, nil, client("arcp-go-client", "1.1.0", "encodings"), bearer, resumeObject},
	TypeScript: {prefixed, nil, client("ts", "2.0.0", "encodings"), bearer, resumeObject},
	Python:     {ulid, nil, offering(pythonFeatures, client("py", "1.1.3", "encodings", "agents")), bearer, resumeObject},
	Java:       {ulid, nil, client("arcp-client-java", "1.0.0", "encodings"), bearer, resumeMembers},
	CSharp:     {prefixed, object{"timestamp": now}, client("cs", "1.0.0", "encodings"), nil, resumeMembers},
	FSharp:     {ulid, nil, client("fs", "1.0.1"), bearer, resumeObject},
	Ruby: {uuid, object{"session_id": "ses_mine"},
		object{"client_name": "rb", "client_version": "1.0.0", "capabilities": object{"features": allFeatures}},
		bearer, resumeShort},
	PHP: {prefixed, object{"timestamp": now, "priority": "normal"},
		object{"client": object{"kind": "php", "version": "1"}, "capabilities": object{"features": flags(allFeatures)}},
		object{"type": "bearer"}, resumeObject},
}

var bearer = object{"scheme": "bearer"}

// now is a time of day that the runtime does not read.
const now = "2026-05-09T13:00:00Z"

func client(name, version string, lists ...string) object {
	capabilities := object{"features": allFeatures}
	for _, list := range lists {
		capabilities[list] = []string{}
	}
	if capabilities["encodings"] != nil {
		capabilities["encodings"] = []string{"json"}
	}
	return object{"client": object{"name": name, "version": version}, "capabilities": capabilities}
}

// offering replaces the features of a hello.
func offering(features []string, hello object) object {
	hello["capabilities"].(object)["features"] = features
	return hello
}

func flags(names []string) object {
	m := object{}
	for _, name := range names {
		m[name] = true
	}
	return m
}

func resumeObject(session, token string, lastSeq uint64) object {
	return object{"resume": object{"session_id": session, "resume_token": token, "last_event_seq": lastSeq}}
}

func resumeMembers(_, token string, lastSeq uint64) object {
	return object{"resume_token": token, "last_event_seq": lastSeq}
}

func resumeShort(_, token string, lastSeq uint64) object {
	return object{"resume": object{"token": token, "last_event_seq": lastSeq}}
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

func ulid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	var s strings.Builder
	for ms, shift := uint64(time.Now().UnixMilli()), 45; shift >= 0; shift -= 5 {
		s.WriteByte(crockford[ms>>shift&31])
	}
	for _, c := range b {
		s.WriteByte(crockford[c&31])
	}
	return s.String()
}

func prefixed() string { return "msg_" + ulid() }

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// NewID returns a new id of a frame in the form of the library.
func (l Library) NewID() string { return forms[l].newID() }

// Members returns the members that the library adds to the envelope of each frame. The result is
// a copy.
func (l Library) Members() map[string]any { return maps.Clone(forms[l].envelope) }

// Hello returns the payload of session.hello with a bearer token, offering all features.
func (l Library) Hello(token string) map[string]any {
	f := forms[l]
	auth := maps.Clone(f.auth)
	if auth == nil {
		auth = object{}
	}
	auth["token"] = token
	hello := maps.Clone(f.hello)
	hello["auth"] = auth
	return hello
}

// Resume returns the members that a session.hello of the library adds to resume a session after the
// event with the number lastSeq.
func (l Library) Resume(session, token string, lastSeq uint64) map[string]any {
	return forms[l].resume(session, token, lastSeq)
}

// Frame returns a frame of the library and its id. The members are added to the envelope.
func (l Library) Frame(typ string, payload any, members map[string]any) (frame []byte, id string) {
	env := l.Members()
	if env == nil {
		env = object{}
	}
	id = l.NewID()
	env["arcp"], env["id"], env["type"], env["payload"] = "1.1", id, typ, payload
	maps.Copy(env, members)
	frame, err := json.Marshal(env)
	if err != nil {
		panic(fmt.Sprintf("strict: encode %s: %v", typ, err)) // the caller passes a value that JSON cannot express
	}
	return frame, id
}
