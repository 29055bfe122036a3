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
func (p Profile) String() string { return p.facts().name }

// ParseProfile returns the profile with a name.
func ParseProfile(name string) (Profile, error) {
	for p := range profiles {
		if profiles[p].name == name {
			return Profile(p), nil
		}
	}
	return Universal, fmt.Errorf("draft: unknown profile %q", name)
}

// budgetForm is how amounts of a budget are written.
type budgetForm uint8

const (
	budgetNumbers budgetForm = iota
	budgetTexts              // Python declares dict[str, str]
)

// facts are the differences between the libraries.
type facts struct {
	name string

	// Forms of failures.
	submit      failureForm
	list        failureForm
	subscribe   failureForm
	cancel      failureForm
	unknownType failureForm // also of malformed frames of the other types

	echoID        bool // an answer has the id of its request
	wholeProgress bool // progress is decoded as unsigned integers
	errorStatus   bool // final_status of a job.error is always error
	noLease       bool // a lease must be omitted
	cancelAlways  bool // the cancel of a job that has ended is answered
	bearerOnly    bool // credentials of another scheme make the frame invalid
	readsOutput   bool // the value of a result is in output, not in result
	wrapsFollowed bool // events of jobs that the client has subscribed to are in a subscribe.event
	endAnswers    bool // the end of a job, and not job.accepted, has the correlation_id of the submit
	budget        budgetForm
}

// profiles has the facts of each Profile.
var profiles = [...]facts{
	Universal: {name: "universal", submit: submitComposite, list: emptyPage, subscribe: subscribeComposite, cancel: noAnswer, unknownType: noAnswer,
		echoID: true, wholeProgress: true, bearerOnly: true},
	Go: {name: "go", submit: sessionError, list: sessionError, subscribe: sessionError, cancel: sessionError, unknownType: sessionError,
		wholeProgress: true, readsOutput: true},
	TypeScript: {name: "typescript", submit: jobErrorOfNewJob, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer,
		bearerOnly: true},
	Python: {name: "python", submit: acceptThenFail, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer,
		errorStatus: true, bearerOnly: true, budget: budgetTexts},
	Java: {name: "java", submit: jobErrorWithoutJob, list: emptyPage, subscribe: subscribeEcho, cancel: noAnswer, unknownType: noAnswer,
		echoID: true},
	CSharp: {name: "csharp", submit: acceptThenFail, list: emptyPage, subscribe: sessionErrorIfAlone, cancel: noAnswer, unknownType: noAnswer},
	Ruby: {name: "ruby", submit: jobErrorOfNewJob, list: sessionError, subscribe: sessionError, cancel: sessionError, unknownType: noAnswer,
		noLease: true},
	PHP: {name: "php", submit: jobErrorWithoutJob, list: nack, subscribe: nack, cancel: nack, unknownType: nack,
		wrapsFollowed: true, endAnswers: true},
	OwnClient: {name: "arcp-client", submit: nack, list: nack, subscribe: nack, cancel: nack, unknownType: nack,
		cancelAlways: true},
}

func (p Profile) facts() *facts {
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
