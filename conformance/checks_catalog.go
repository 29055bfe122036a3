package conformance

import (
	"context"
	"reflect"

	"github.com/arcpd/arcpd/arcp"
)

// catalogChecks generates negative checks from the message catalog: one for each row that they
// apply to.
func catalogChecks() []Check {
	list := messageChecks()
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		switch {
		case spec.From == arcp.FromRuntime:
			list = append(list, Check{ID: "direction." + string(spec.Type), Title: "a client that sends " + string(spec.Type) + " is nacked INVALID_ARGUMENT",
				Section: "SPEC " + spec.Section, Level: House, run: func(_ context.Context, t *checkRun) { catalogDirection(t, spec) }})
		case catalogMustRefuse(spec):
			list = append(list, Check{ID: "empty." + string(spec.Type), Title: string(spec.Type) + " without its required members is refused",
				Section: "SPEC " + spec.Section, Level: House, run: func(_ context.Context, t *checkRun) { catalogEmpty(t, spec) }})
		}
	}
	return list
}

// catalogMustRefuse reports whether the server must refuse an empty payload of the type. Quiet
// types may be dropped, and the handshake has its own refusals.
func catalogMustRefuse(spec *arcp.Spec) bool {
	return !spec.Quiet && spec.Phase&arcp.InAccepted != 0 && spec.Type != arcp.SessionAuthenticate &&
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

func catalogDirection(t *checkRun, spec *arcp.Spec) {
	c := t.Open()
	id := c.sendWith(spec.Type, spec.NewPayload(), fillScope(spec))
	c.ExpectNack("only a server sends "+string(spec.Type), id, arcp.CodeInvalidArgument)
	c.ExpectNothing("the session still works")
}

func catalogEmpty(t *checkRun, spec *arcp.Spec) {
	c := t.Open()
	id := c.sendWith(spec.Type, struct{}{}, fillScope(spec))
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
