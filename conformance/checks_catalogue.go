package conformance

import (
	"context"
	"reflect"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// catalogueChecks makes negative checks from the catalogue of types, so that a
// new row is covered the day it is added.
func catalogueChecks() []Check {
	var list []Check
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		switch {
		case spec.From == arcp.FromRuntime:
			list = append(list, Check{ID: "direction." + string(spec.Type), Title: "a client that sends " + string(spec.Type) + " is nacked INVALID_ARGUMENT",
				Section: "SPEC " + spec.Section, Level: Should, Run: func(_ context.Context, t *T) { catalogueDirection(t, spec) }})
		case catalogueMustRefuse(spec):
			list = append(list, Check{ID: "empty." + string(spec.Type), Title: string(spec.Type) + " without its required members is refused",
				Section: "SPEC " + spec.Section, Level: Should, Run: func(_ context.Context, t *T) { catalogueEmpty(t, spec) }})
		}
	}
	return list
}

// catalogueMustRefuse reports whether an empty payload of the type is wrong
// and said to be so. Quiet types may be dropped, and the handshake has its own
// refusals.
func catalogueMustRefuse(spec *arcp.Spec) bool {
	return !spec.Quiet && spec.Phase&arcp.InAccepted != 0 && spec.Type != arcp.SessionAuthenticate &&
		len(missingMembers(reflect.TypeOf(spec.NewPayload()).Elem(), arcp.Raw(`{}`), "payload")) > 0
}

// fill adds the envelope members the type needs, naming things nobody has.
func fill(spec *arcp.Spec) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) {
		for _, name := range spec.Scope.Members() {
			switch name {
			case "job_id":
				env.JobID = nobodysJob
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

func catalogueDirection(t *T, spec *arcp.Spec) {
	c := t.Open()
	id := c.Send(spec.Type, spec.NewPayload(), fill(spec))
	c.ExpectNack("only a server sends "+string(spec.Type), id, arcp.CodeInvalidArgument)
	c.ExpectNothing("the session is unharmed")
}

func catalogueEmpty(t *T, spec *arcp.Spec) {
	c := t.Open()
	id := c.Send(spec.Type, struct{}{}, fill(spec))
	f := c.event("a payload without its required members is refused")
	want(t, "the refusal is correlated", f.CorrelationID, id)
	switch f.Type {
	case arcp.Nack, arcp.JobFailed, arcp.CancelRefused, arcp.StreamError:
	default:
		t.Failf("a payload without its required members is refused: got %s", f)
	}
	want(t, "a refusal is no event", f.EventSeq, 0)
	c.ExpectNothing("the session is unharmed")
}

func cataloguePhase(_ context.Context, t *T) {
	c := t.Dial()
	for i := range arcp.Catalog {
		spec := &arcp.Catalog[i]
		if spec.Phase&arcp.InOpening != 0 {
			continue
		}
		c.Send(spec.Type, spec.NewPayload(), fill(spec))
	}
	before := time.Now()
	c.Open()
	t.Want("a stranger does not hold up the server", time.Since(before) < 5*time.Second, "it took %v", time.Since(before))
}
