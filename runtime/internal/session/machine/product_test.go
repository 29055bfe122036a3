package machine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The message types by sender and effect, as the specification says, listed independently of the
// catalog.
var (
	handshakeTypes = words("session.open session.resume") // begin a session
	runtimeOnly    = words(`session.challenge session.accepted session.unauthenticated session.rejected session.refresh
		session.evicted session.closed session.resumed session.jobs cancel.accepted cancel.refused job.accepted job.started
		job.completed job.failed job.cancelled job.subscribed workflow.complete human.input.cancelled lease.granted
		lease.extended subscribe.accepted subscribe.event subscribe.closed artifact.ref`)
	silent = words("log metric trace.span event.emit ack nack pong session.pong") // no answer, SPEC.md §6.4
	acted  = words(`ping session.ping session.close session.ack session.list_jobs tool.invoke cancel job.subscribe
		job.unsubscribe resume subscribe unsubscribe backpressure checkpoint.create checkpoint.restore
		artifact.put artifact.fetch artifact.release interrupt human.input.response human.choice.response permission.request permission.grant permission.deny
		lease.refresh lease.revoked workflow.start agent.delegate job.schedule stream.open stream.chunk
		stream.close stream.error agent.handoff`)
	dropped = words("session.authenticate") // without a challenge, SPEC.md §6.4
)

func words(s string) (types []arcp.Type) {
	for len(s) > 0 {
		var w string
		if n, _ := fmt.Sscan(s, &w); n == 0 {
			break
		}
		types = append(types, arcp.Type(w))
		s = s[indexAfter(s, w):]
	}
	return types
}

func indexAfter(s, w string) int {
	for i := range s {
		if len(s)-i >= len(w) && s[i:i+len(w)] == w {
			return i + len(w)
		}
	}
	return len(s)
}

// samples are payloads that make sense, for the types that are acted upon.
var samples = map[arcp.Type]string{
	arcp.SessionOpen:       `{"auth":{"scheme":"bearer","token":"t"},"client":{"kind":"k","version":"1"}}`,
	arcp.SessionResume:     `{"resume_token":"rt","last_event_seq":0}`,
	arcp.SessionPing:       `{"nonce":"n","sent_at":"2030-01-01T00:00:00Z"}`,
	arcp.SessionAck:        `{"last_processed_seq":0}`,
	arcp.ToolInvoke:        `{"tool":"echo","arguments":{}}`,
	arcp.Cancel:            `{"target":"job","target_id":"job_1"}`,
	arcp.JobSubscribe:      `{"job_id":"job_1"}`,
	arcp.JobUnsubscribe:    `{"job_id":"job_1"}`,
	arcp.Unsubscribe:       `{"subscription_id":"sub_1"}`,
	arcp.CheckpointRestore: `{"checkpoint_id":"chk_1"}`,
	arcp.Backpressure:      `{"desired_rate_per_second":1}`,

	arcp.ArtifactPut:     `{"media_type":"text/plain","data":""}`,
	arcp.ArtifactFetch:   `{"artifact_id":"art_1"}`,
	arcp.ArtifactRelease: `{"artifact_id":"art_1"}`,

	arcp.Interrupt:           `{"target":"job","target_id":"job_1","prompt":"stop"}`,
	arcp.HumanInputResponse:  `{"value":1}`,
	arcp.HumanChoiceResponse: `{"choice_id":"a"}`,
	arcp.PermissionRequest:   `{"permission":"trust.elevate.privileged","resource":"session","operation":"elevate"}`,
	arcp.PermissionGrant:     `{"permission":"p","resource":"r","operation":"o","lease_seconds":1}`,
	arcp.PermissionDeny:      `{"permission":"p","reason":"no"}`,
	arcp.LeaseRefresh:        `{"lease_id":"lease_1","additional_seconds":1}`,
	arcp.LeaseRevoked:        `{"lease_id":"lease_1","reason":"over"}`,
}

// scopeOf returns the members that the envelope of a type must have.
func scopeOf(typ arcp.Type) string {
	scope := arcp.Lookup(typ).Scope
	switch {
	case scope&arcp.ScopeJob != 0:
		return " job=job_1"
	case scope&arcp.ScopeStream != 0:
		return " stream=str_1"
	case scope&arcp.ScopeCorrelation != 0:
		return " correlation_id=msg_q"
	}
	return ""
}

func frameOf(t *testing.T, typ arcp.Type) *arcp.Envelope {
	t.Helper()
	payload := samples[typ]
	if payload == "" {
		payload = "{}"
	}
	env, err := envelope("msg_x " + string(typ) + scopeOf(typ) + " " + payload)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// reach returns a machine in a phase.
func reach(t *testing.T, p Phase) *Machine {
	t.Helper()
	s := newScript()
	path := map[Phase][]string{
		Opening:        nil,
		Authenticating: {"C msg_o session.open " + samples[arcp.SessionOpen]},
		Challenged:     {"C msg_o session.open " + samples[arcp.SessionOpen], "authenticated challenge n"},
		Establishing:   {"C msg_o session.open " + samples[arcp.SessionOpen], "authenticated alice"},
		Accepted:       {"accept human_input"},
		Closing:        {"accept", `C msg_o session.close {"forget":true}`},
		Closed:         {"accept", "evict CANCELLED over"},
	}[p]
	for _, line := range path {
		if err := s.step(line); err != nil {
			t.Fatal(err)
		}
		s.m.TakeOutput()
	}
	if s.m.Phase() != p {
		t.Fatalf("phase = %v, want %v", s.m.Phase(), p)
	}
	return s.m
}

// reaction is the effect of a frame.
type reaction string

const (
	nothing  reaction = "nothing"   // not even a note
	drop     reaction = "drop"      // a note, no answer
	nack     reaction = "nack "     // and the code
	question reaction = "question"  // the handshake continues
	rejected reaction = "rejected " // a rejected handshake, which never answers a valid frame
	serve    reaction = "serve"     // an answer or a message to handle, no refusal
)

// wanted returns the effect of a type in a phase by the specification.
func wanted(p Phase, t arcp.Type) reaction {
	switch {
	case p == Closing, p == Closed:
		return nothing
	case p != Accepted:
		return wantedBefore(p, t)
	case slices.Contains(runtimeOnly, t):
		return nack + reaction(arcp.CodeInvalidArgument)
	case slices.Contains(handshakeTypes, t):
		return nack + reaction(arcp.CodeFailedPrecondition)
	case slices.Contains(silent, t), slices.Contains(dropped, t):
		return drop
	case slices.Contains(acted, t):
		return serve
	case t == arcp.ToolResult || t == arcp.ToolError: // of a session that executes nothing
		return nack + reaction(arcp.CodeFailedPrecondition)
	}
	return nack + reaction(arcp.CodeUnimplemented) // not offered yet
}

func wantedBefore(p Phase, t arcp.Type) reaction {
	switch {
	case t == arcp.SessionOpen && (p == Opening || p == Challenged):
		return question
	case t == arcp.SessionResume && p == Opening:
		return question
	case t == arcp.SessionAuthenticate && p == Challenged:
		return question
	}
	return drop
}

// observed returns the effect of a frame on the machine.
func observed(out Output) reaction {
	for i := range out.Send {
		e, err := arcp.DecodePayload[arcp.Error](&out.Send[i])
		switch out.Send[i].Type {
		case arcp.Nack:
			if err == nil && out.Send[i].CorrelationID == "msg_x" {
				return nack + reaction(e.Code)
			}
		case arcp.SessionRejected:
			return rejected + reaction(e.Code)
		}
	}
	switch {
	case out.Request != nil:
		return question
	case len(out.Send) > 0 || out.Admitted.Envelope != nil:
		return serve
	case len(out.Incidents) > 0:
		return drop
	}
	return nothing
}

func TestEveryTypeInEveryPhase(t *testing.T) {
	for p := Opening; p <= Closed; p++ {
		for i := range arcp.Catalog {
			typ := arcp.Catalog[i].Type
			m := reach(t, p)
			m.Receive(t0, frameOf(t, typ))
			out := m.TakeOutput()
			if got, want := observed(out), wanted(p, typ); got != want {
				t.Errorf("%s while %v: %q, want %q (%+v)", typ, p, got, want, out)
			}
			if p != Accepted && p != Closed && out.Admitted.Envelope != nil {
				t.Errorf("%s while %v: a message is handled of a peer that is not authenticated", typ, p)
			}
		}
	}
}

// The lists above contain each existing type once; otherwise the product test would be
// incomplete.
func TestListsOfTypes(t *testing.T) {
	seen := make(map[arcp.Type]bool)
	for _, list := range [][]arcp.Type{handshakeTypes, runtimeOnly, silent, acted, dropped} {
		for _, typ := range list {
			if arcp.Lookup(typ) == nil || seen[typ] {
				t.Errorf("%s: not a message type, or listed twice", typ)
			}
			seen[typ] = true
		}
	}
	if len(runtimeOnly) != 25 {
		t.Errorf("%d types that only the runtime sends, want 25", len(runtimeOnly))
	}
}
