package conformance

import "context"

// inGo are the checks that a script cannot say, by id.
var inGo = map[string]func(ctx context.Context, t *T){
	"handshake.capabilities-tolerant": handshakeCapabilitiesTolerant,
	"limits.binary":                   limitBinary,
	"limits.not-utf8":                 limitNotUTF8,
	"limits.frame-over":               limitFrameOver,
	"limits.frame-before-open":        limitFrameBeforeOpen,
	"limits.session-survives":         limitSessionSurvives,
	"jobs.large-result":               jobLargeResult,
	"jobs.heartbeat":                  jobHeartbeat,
	"takeover.race":                   takeoverRace,
	"liveness.ping":                   livenessPing,
	"liveness.silence":                livenessSilence,
	"liveness.negotiated":             livenessNegotiated,
	"catalogue.phase":                 cataloguePhase,
	"close.transport":                 closeTransport,
}
