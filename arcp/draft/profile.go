package draft

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Profile is a client library, or a group of libraries that read the same frames.
type Profile uint8

// The profiles.
const (
	Universal Profile = iota // an unknown library: frames that most libraries read
	Go                       // v1.1.0 and later, which cannot be told apart
	TypeScript
	Python
	Java // and F#: answers have the id of the request
	CSharp
	Ruby
	PHP
	OwnClient // package client of this module: a nack names its request
)

// String returns the name of the profile.
func (p Profile) String() string { return p.quirks().name }

// ProfileNames returns the names that ParseProfile accepts, in the order of the profiles.
func ProfileNames() []string {
	names := make([]string, len(profiles))
	for p := range profiles {
		names[p] = profiles[p].name
	}
	return names
}

// ParseProfile returns the profile with a name. The error lists the names.
func ParseProfile(name string) (Profile, error) {
	for p := range profiles {
		if profiles[p].name == name {
			return Profile(p), nil
		}
	}
	return Universal, fmt.Errorf("draft: unknown profile %q; use one of %s", name, strings.Join(ProfileNames(), ", "))
}

// quirks are the ways in which the libraries of a profile differ from draft 1.1 or from each other.
// The comment of a member names the published libraries that need it; the universal profile has the
// quirks that most libraries tolerate.
type quirks struct {
	name string

	// Forms of failures, by the request that is refused.
	submit      failureForm
	list        failureForm
	subscribe   failureForm
	cancel      failureForm
	unknownType failureForm // also of malformed frames of the other types

	echoesRequestID    bool // Java, F#: an answer has the id of its request
	integerProgress    bool // Go: progress is decoded as unsigned integers
	finalStatusError   bool // Python: the only final_status of a job.error is error
	omitsLease         bool // Ruby: a lease without an id makes the frame invalid, so none is sent
	answersEveryCancel bool // arcp/client: the cancel of a job that has ended is answered
	bearerOnly         bool // TypeScript, Python: credentials of another scheme make the frame invalid
	resultInOutput     bool // Go: the value of a result is in output, not in result
	wrapsSubscribed    bool // PHP: events of jobs that the client has subscribed to are in a subscribe.event
	correlatesEnd      bool // PHP: the end of a job, not job.accepted, has the correlation_id of the submit
	budgetTexts        bool // Python: the amounts of a budget are texts, not numbers
}

// profiles has the quirks of each Profile.
var profiles = [...]quirks{
	Universal: {name: "universal",
		submit: submitComposite, list: emptyPage, subscribe: subscribeComposite, cancel: noAnswer, unknownType: noAnswer,
		echoesRequestID: true, integerProgress: true, bearerOnly: true},
	Go: {name: "go",
		submit: sessionError, list: sessionError, subscribe: sessionError, cancel: sessionError, unknownType: sessionError,
		integerProgress: true, resultInOutput: true},
	TypeScript: {name: "typescript",
		submit: jobErrorOfNewJob, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer,
		bearerOnly: true},
	Python: {name: "python",
		submit: acceptThenFail, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer,
		finalStatusError: true, bearerOnly: true, budgetTexts: true},
	Java: {name: "java",
		submit: jobErrorWithoutJob, list: emptyPage, subscribe: subscribeEcho, cancel: noAnswer, unknownType: noAnswer,
		echoesRequestID: true},
	CSharp: {name: "csharp",
		submit: acceptThenFail, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer},
	Ruby: {name: "ruby",
		submit: jobErrorOfNewJob, list: sessionError, subscribe: sessionError, cancel: sessionError, unknownType: noAnswer,
		omitsLease: true},
	PHP: {name: "php",
		submit: jobErrorWithoutJob, list: nack, subscribe: nack, cancel: nack, unknownType: nack,
		wrapsSubscribed: true, correlatesEnd: true},
	OwnClient: {name: "arcp-client",
		submit: nack, list: nack, subscribe: nack, cancel: nack, unknownType: nack,
		answersEveryCancel: true},
}

func (p Profile) quirks() *quirks {
	if int(p) >= len(profiles) {
		p = Universal
	}
	return &profiles[p]
}

// firstFrame has the members of a first frame that tell the libraries apart.
type firstFrame struct {
	id         string
	timestamp  bool
	clientName bool   // payload.client_name
	clientKind bool   // payload.client.kind
	ownClient  bool   // payload.client.name is payload.client.kind, as arcp/client sends them
	agents     bool   // payload.capabilities.agents
	features   bool   // payload.capabilities.features is a list
	order      string // of the members auth, client and capabilities of the payload: their initial letters
}

// orderPHP is the order in which the newest PHP client writes the members of session.hello. The C#
// client, whose hello has the same members, writes client first.
const orderPHP = "aCc"

// recognition lists the profiles with their tests; the first test that holds decides.
var recognition = []struct {
	profile Profile
	test    func(f *firstFrame) bool
}{
	{Ruby, func(f *firstFrame) bool { return f.clientName }},
	{OwnClient, func(f *firstFrame) bool { return f.timestamp && f.ownClient }},
	{PHP, func(f *firstFrame) bool { return f.timestamp && (f.clientKind || !f.features || f.order == orderPHP) }},
	{CSharp, func(f *firstFrame) bool { return f.timestamp && strings.HasPrefix(f.id, arcp.MessagePrefix) }},
	{Go, func(f *firstFrame) bool { return isUUID(f.id) }},
	{TypeScript, func(f *firstFrame) bool {
		body, ok := strings.CutPrefix(f.id, arcp.MessagePrefix)
		return ok && isULID(body) && !f.timestamp
	}},
	{Python, func(f *firstFrame) bool { return isULID(f.id) && f.agents }},
	{Java, func(f *firstFrame) bool { return isULID(f.id) }},
}

// Recognise returns the profile of the client that has sent a first frame.
func Recognise(first *arcp.Envelope) Profile {
	f := firstFrame{id: string(first.ID), timestamp: !first.Timestamp.IsZero()}
	arcp.EachMember(first.Payload, func(name []byte, value arcp.Raw) bool {
		switch string(name) {
		case "client_name":
			f.clientName = true
		case "auth":
			f.order += "a"
		case "client":
			f.order += "C"
			var clientName, kind arcp.Raw
			arcp.EachMember(value, func(name []byte, value arcp.Raw) bool {
				switch string(name) {
				case "kind":
					kind = value
				case "name":
					clientName = value
				}
				return true
			})
			f.clientKind = kind != nil
			f.ownClient = f.clientKind && bytes.Equal(kind, clientName)
		case "capabilities":
			f.order += "c"
			f.agents = memberOf(value, "agents") != nil
			f.features = memberOf(value, "features").Kind() == '['
		}
		return true
	})
	for i := range recognition {
		if recognition[i].test(&f) {
			return recognition[i].profile
		}
	}
	return Universal
}

// memberOf returns a member of an object; nil if raw has no such member.
func memberOf(raw arcp.Raw, member string) (found arcp.Raw) {
	if raw.Kind() == '{' {
		arcp.EachMember(raw, func(name []byte, value arcp.Raw) bool {
			if string(name) == member {
				found = value
			}
			return found == nil
		})
	}
	return found
}

func isULID(s string) bool {
	_, ok := arcp.ParseIDBody(s)
	return ok
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && bytes.IndexByte([]byte("0123456789abcdefABCDEF"), s[i]) < 0 {
			return false
		}
	}
	return true
}

// validTrace reports whether a trace id has the only form that all libraries accept: 32
// lower-case hexadecimal digits that are not all zero.
func validTrace[T string | []byte](s T) bool {
	some := false
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		some = some || c != '0'
	}
	return len(s) == 32 && some
}

// traceOrNone returns a trace id that may be sent, or nothing.
func traceOrNone(s string) string {
	if validTrace(s) {
		return s
	}
	return ""
}
