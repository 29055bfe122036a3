package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// subject selects the frames to which a rule of frames applies. A rule without a subject applies to every frame.
type subject struct {
	missing string // sentence: no frame of the subject was sent
	has     func(f *judged) bool
}

// judged is a received frame to which rules were applied.
type judged struct {
	arcp.Envelope
	repeated bool // an event with its event_seq was received on an earlier connection
}

// subjects are the subjects of the rules of frames, by the id of the check.
var subjects = map[string]subject{
	"frames.scope":          {"no event of a job or a stream and no subscribe.event was sent", isScoped},
	"frames.answers":        ofTypes(answerTypes...),
	"frames.errors":         ofTypes(errorTypes...),
	"frames.codes":          {"no frame with a code was sent", hasMembers("code")},
	"frames.stated-members": ofTypes(slices.Sorted(maps.Keys(statedMembers))...),
	"frames.one-end":        {"no end of a job was sent", func(f *judged) bool { return f.JobID != "" && f.Type.Terminal() }},
	"frames.replay":         sentAgain,
	"frames.numbers":        numberedEvent,
	"frames.priority":       {"no frame with a priority was sent", func(f *judged) bool { return f.Priority != "" }},
	"frames.states":         ofTypes(arcp.JobHeartbeat, arcp.JobSubscribed, arcp.SessionJobs),
	"frames.log-levels":     ofTypes(arcp.Log),
	"frames.stream-kinds":   ofTypes(arcp.StreamOpen),
	"frames.negotiated":     {"no type of a capability was sent", needsCapability},
	"frames.same-ids":       {"no payload with an id of the envelope was sent", hasMembers("session_id", "job_id", "subscription_id")},
	"frames.correlation":    {"no frame with a correlation_id was sent", func(f *judged) bool { return f.CorrelationID != "" }},
	"frames.first-number":   numberedEvent,
	"frames.order":          numberedEvent,
	"frames.trace":          {"no event of a job with a trace_id was sent", func(f *judged) bool { return f.JobID != "" && f.TraceID != "" }},
	"frames.forwarded":      ofTypes(arcp.SubscribeEvent),

	"draft.frames.handshake":  ofTypes(script.SessionWelcome, script.SessionError),
	"draft.frames.seq":        numberedEvent,
	"draft.frames.chunk":      ofKind("result_chunk"),
	"draft.frames.result":     ofTypes(script.JobResult),
	"draft.frames.replay":     sentAgain,
	"draft.frames.body":       ofTypes(script.JobEvent),
	"draft.frames.job":        numberedEvent,
	"draft.frames.retryable":  ofTypes(script.JobError),
	"draft.frames.error":      ofTypes(script.SessionError),
	"draft.frames.heartbeat":  ofTypes(script.SessionWelcome),
	"draft.frames.toolresult": ofKind("tool_result"),
}

var (
	sentAgain     = subject{"no event was sent again", func(f *judged) bool { return f.repeated }}
	numberedEvent = subject{"no event with an event_seq was sent", func(f *judged) bool { return f.EventSeq > 0 }}
)

// ofTypes returns the subject of a rule about some types.
func ofTypes(types ...arcp.Type) subject {
	names := make([]string, len(types))
	for i, typ := range types {
		names[i] = string(typ)
	}
	list := names[len(names)-1]
	if head := names[:len(names)-1]; len(head) > 0 {
		list = strings.Join(head, ", ") + " or " + list
	}
	return subject{"no " + list + " was sent", func(f *judged) bool { return slices.Contains(types, f.Type) }}
}

// ofKind returns the subject of a rule about the events of a kind in the draft dialect.
func ofKind(kind string) subject {
	return subject{"no event of the kind " + kind + " was sent", func(f *judged) bool {
		return f.Type == script.JobEvent && (&received{Envelope: f.Envelope}).text("kind") == kind
	}}
}

// hasMembers reports whether the payload has one of the members.
func hasMembers(names ...string) func(f *judged) bool {
	return func(f *judged) bool {
		return slices.ContainsFunc(names, func(name string) bool { return hasMember(f.Payload, name) })
	}
}

func isScoped(f *judged) bool {
	return f.Type == arcp.SubscribeEvent || f.EventSeq > 0 || strings.HasPrefix(string(f.Type), "stream.") || f.Type == arcp.JobHeartbeat
}

func needsCapability(f *judged) bool {
	spec := arcp.Lookup(f.Type)
	return spec != nil && spec.Need != ""
}

// spokenOf reports whether a rule speaks of a frame, or of the event inside it.
func (r *rule) spokenOf(s subject, f, inside *judged) bool {
	return s.has(f) || inside != nil && (r.inside || r.draft) && s.has(inside)
}

// inside returns the event inside a subscribe.event; nil for any other frame.
func (f *judged) inside() *judged {
	if f.Type != arcp.SubscribeEvent {
		return nil
	}
	var p arcp.SubscribeEventPayload
	if arcp.Unmarshal(f.Payload, &p) != nil {
		return nil
	}
	env, err := script.DecodeLoosely(p.Event)
	if err != nil {
		return nil
	}
	return &judged{Envelope: env}
}
