package conformance

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// catalogRow is a message type of a dialect that checks are generated of.
type catalogRow struct {
	message // a message of the type
	from    arcp.Direction
	phase   arcp.Phase // when a client may send the type; 0: never
	section string     // of the type
}

// family is a kind of generated check: one for each message type that it applies to.
type family struct {
	name    string // the id of a check is NAME.TYPE
	title   string // TYPE stands for the type
	section string // in the report; empty: the section of the message type
	level   Level
	applies func(s *catalogRow) bool
	run     func(t *checkRun, m message)
}

// generate returns the checks of the families, ordered by message type.
func generate(rows []catalogRow, families ...family) []Check {
	var list []Check
	for i := range rows {
		s := &rows[i]
		for _, f := range families {
			if !f.applies(s) {
				continue
			}
			list = append(list, Check{ID: f.name + "." + string(s.typ), Title: strings.ReplaceAll(f.title, "TYPE", string(s.typ)),
				Section: cmp.Or(f.section, s.section), Level: f.level, run: func(_ context.Context, t *checkRun) { f.run(t, s.message) }})
		}
	}
	return list
}

// inSession selects the types that a client may send in a session.
func inSession(s *catalogRow) bool { return s.phase&arcp.InAccepted != 0 }

// keepsSession selects the types that a client may send in a session and that do not end it.
func keepsSession(s *catalogRow) bool { return inSession(s) && s.typ != arcp.SessionClose }

// ofServer selects the types that only a server sends.
func ofServer(s *catalogRow) bool { return s.from == arcp.FromRuntime }

// catalogChecks generates checks from the message catalog of the RFC's dialect.
func catalogChecks() []Check {
	var all, answered []catalogRow
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		all = append(all, catalogRow{messageOf(spec), spec.From, spec.Phase, "SPEC " + spec.Section})
	}
	for _, m := range answeredMessages() {
		answered = append(answered, catalogRow{message: m})
	}
	return slices.Concat(
		generate(all,
			family{"early", "TYPE before session.open is not performed", "RFC §4.6", Must, inSession, messageEarly},
			family{"no-id", "TYPE without an id is dropped without an answer", "SPEC §2.2", House, keepsSession, messageWithoutID},
			family{"no-object", "TYPE whose payload is no object is nacked INVALID_REQUEST", "SPEC §2.1", House, keepsSession, messageWithoutObject}),
		generate(answered,
			family{"newer", "unknown members of TYPE change nothing in its answer", "SPEC §2.1", House, func(*catalogRow) bool { return true }, messageNewer}),
		generate(all,
			family{"direction", "a client that sends TYPE is nacked INVALID_ARGUMENT", "", House, ofServer, catalogDirection},
			family{"empty", "TYPE without its required members is refused", "", House, catalogMustRefuse, catalogEmpty}))
}

// catalogMustRefuse reports whether the server must refuse an empty payload of the type. Quiet
// types may be dropped, and the handshake has its own refusals.
func catalogMustRefuse(s *catalogRow) bool {
	spec := arcp.Lookup(s.typ)
	return !ofServer(s) && !spec.Quiet && inSession(s) && s.typ != arcp.SessionAuthenticate &&
		len(missingMembers(reflect.TypeOf(spec.NewPayload()).Elem(), arcp.Raw(`{}`), "payload")) > 0
}

// fillScope sets the envelope members that the type requires to ids that do not exist.
func fillScope(spec *arcp.Spec) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) {
		for _, name := range spec.Scope.Members() {
			switch name {
			case "job_id":
				env.JobID = unknownJob
			case "stream_id":
				env.StreamID = "str_00000000000000000000000000"
			case "subscription_id":
				env.SubscriptionID = "sub_00000000000000000000000000"
			case "correlation_id":
				env.CorrelationID = "msg_00000000000000000000000000"
			}
		}
	}
}

func catalogDirection(t *checkRun, m message) {
	c := t.Open()
	id := c.sendWith(m.typ, m.payload, m.with)
	c.ExpectNack("only a server sends "+string(m.typ), id, arcp.CodeInvalidArgument)
	c.ExpectNothing("the session still works")
}

func catalogEmpty(t *checkRun, m message) {
	c := t.Open()
	id := c.sendWith(m.typ, struct{}{}, fillScope(arcp.Lookup(m.typ)))
	f := c.event("a payload without its required members is refused")
	want(t, "the refusal is correlated", f.CorrelationID, id)
	switch f.Type {
	case arcp.Nack, arcp.JobFailed, arcp.CancelRefused, arcp.StreamError:
	default:
		t.Failf("a payload without its required members is refused: got %s", f)
	}
	want(t, "a refusal has no event_seq", f.EventSeq, 0)
	c.ExpectNothing("the session still works")
}

// catalogPhase sends each type that is not of the handshake before session.open. RFC §8.1 demands that the server drops
// them. That the connection is usable afterwards is a rule of SPEC.md.
func catalogPhase(_ context.Context, t *checkRun) {
	c := t.Dial()
	var early []arcp.MessageID
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		if spec.Phase&arcp.InOpening != 0 {
			continue
		}
		early = append(early, c.Send(spec.Type, spec.NewPayload(), fillScope(spec)))
	}
	accepted := c.opensAfter(early)
	t.HouseWant("the connection is usable after messages that came too early", accepted, "session.open is not accepted")
}
