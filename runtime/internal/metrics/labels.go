package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
)

// Results of a dispatch of a job to a worker, the label result.
const (
	DispatchOK        = "ok"        // the worker sent a result
	DispatchError     = "error"     // the worker sent an error
	DispatchRefused   = "refused"   // the worker refused it, or did not confirm it in time
	DispatchLost      = "lost"      // the worker disconnected
	DispatchWithdrawn = "withdrawn" // the attempt ended before: cancelled, timed out or paused
)

// What became of an occurrence of a schedule, the label result.
const (
	ScheduleFired          = "fired"
	ScheduleLate           = "late"            // fired more than a minute late
	ScheduleSkippedLate    = "skipped_late"    // a later one was due, too, or it was more than an hour late
	ScheduleSkippedOverlap = "skipped_overlap" // the previous job was running
	ScheduleFailed         = "failed"          // its job was refused
)

// Reasons of rejected handshakes other than those of the messages, the label reason.
const (
	RejectedLimit           = "limit"           // a limit of sessions, or the disk is nearly full
	RejectedResumeWindow    = "resume_window"   // the token or the position resumes no session
	RejectedUnauthenticated = "unauthenticated" // the stored identity of the session is no longer valid
	RejectedDialect         = "dialect"         // the session has the other dialect
	RejectedUnavailable     = "unavailable"     // a failed store, or the runtime stops
	RejectedOther           = "other"
)

// Label sets that several metrics have in common.
var (
	schemes  = []string{"bearer", "signed_jwt", "oauth2", "mtls", "none", "program", "other"}
	dialects = []string{"rfc", "draft"}
	// protocolErrors are the reasons of frames that are dropped or refused.
	protocolErrors = []string{arcp.ReasonNotJSON, arcp.ReasonTooDeep, arcp.ReasonEnvelope, arcp.ReasonPayload, arcp.ReasonVersion,
		arcp.ReasonBadID, arcp.ReasonPriority, arcp.ReasonSidecar, "before_accepted", "capability", "direction", "duplicate_id",
		"experimental", "extension", "handshake_timeout", "ignored", "malformed_type", "no_challenge", "not_served", "phase",
		"role", "stale_work", "unknown_type"}
	rejections = []string{arcp.ReasonPayload, arcp.ReasonVersion, "capability", "handshake_timeout", RejectedLimit,
		RejectedResumeWindow, RejectedUnauthenticated, RejectedDialect, RejectedUnavailable, RejectedOther}
	// limits are the names of the limits of jobs, sessions and connections.
	limits = []string{"arguments", "arguments_per_principal", "builtins_per_principal", "connections", "data", "disk", "frames", "jobs",
		"jobs_per_principal", "jobs_per_session", "schedules", "schedules_per_principal", "sessions",
		"sessions_per_principal", "tool_queue", "tool_rate", "unauthenticated", "unauthenticated_per_address"}
	errorCodes = func() (list []string) {
		for _, c := range arcp.Codes {
			if c.Code != arcp.CodeOK {
				list = append(list, string(c.Code))
			}
		}
		return list
	}()
	resourceStatuses = []string{"active", "completed", "failed", "released", "unknown"}
)

// closedSets creates the series of all closed label sets, so that a rate of a series includes its first event.
// Only the labels tool and currency have values that appear later.
func (m *Metrics) closedSets() {
	for _, c := range []struct {
		vec  *prometheus.CounterVec
		sets [][]string
	}{
		{m.Handshakes, [][]string{schemes, dialects, {"accepted", "refused", "rejected", "failed"}}},
		{m.HandshakesRejected, [][]string{rejections}},
		{m.AuthFailures, [][]string{schemes, {"anonymous", "invalid", "missing", "not_configured", "principal", "response",
			"stale", "unavailable", "unknown", "unsupported"}}},
		{m.Resumes, [][]string{{"ok", "expired", "unauthenticated", "unavailable"}}},
		{m.SlowConsumers, [][]string{{"ack_lag", "backlog_overflow", "feed_closed", "feed_gap"}}},
		{m.Evictions, [][]string{{"cancelled", "credential_expired", "credential_refused", "credential_revoked", "evicted",
			"expired", "idle", "lease_expired", "limit"}}},
		{m.JobsRecovered, [][]string{{"checkpoint", "fail", "rerun", "start"}}},
		{m.Approvals, [][]string{{"permission", "input", "choice", "gate", "owned"}, {"resolved", "expired", "cancelled", "refused"}}},
		{m.Denials, [][]string{append(slices.Clip(namespaces), "other"), {"expired", "revoked", "not_covered", "exhausted"}}},
		{m.RateLimited, [][]string{limits}},
		{m.UpgradesRefused, [][]string{{"handshake", "host", "origin", "path"}}},
		{m.Errors, [][]string{errorCodes}},
		{m.ProtocolErrors, [][]string{protocolErrors}},
		{m.WorkerDispatches, [][]string{{DispatchOK, DispatchError, DispatchRefused, DispatchLost, DispatchWithdrawn}}},
		{m.SchedulesFired, [][]string{{ScheduleFired, ScheduleLate, ScheduleSkippedLate, ScheduleSkippedOverlap, ScheduleFailed}}},
		{m.CredentialOperations, [][]string{{"issue", "rotate", "revoke"}, {"ok", "refused", "error"}}},
		{m.ResourceCleanup, [][]string{{"claimed", "released", "failed", "skipped"}}},
	} {
		combine(c.sets, func(values []string) { c.vec.WithLabelValues(values...) })
	}
	for _, g := range []struct {
		vec  *prometheus.GaugeVec
		sets [][]string
	}{
		{m.ConnectionsOpen, [][]string{{"pipe", "stdio", "unix", "websocket"}}},
		{m.Leases, [][]string{{"permission"}}},
		{m.Resources, [][]string{append(slices.Clip(kindClasses), "other"), resourceStatuses}},
		{m.ResourceLeases, [][]string{{"active", "cleaning", "cleanup_failed", "unknown"}}},
		{m.Agents, [][]string{{"idle", "running", "waiting_for_approval", "paused", "completed", "errored", "stopped", "disconnected"}}},
	} {
		combine(g.sets, func(values []string) { g.vec.WithLabelValues(values...) })
	}
}

// combine calls f for each combination of one value of each set. f must not keep values.
func combine(sets [][]string, f func(values []string)) {
	values := make([]string, len(sets))
	var choose func(i int)
	choose = func(i int) {
		if i == len(sets) {
			f(values)
			return
		}
		for _, values[i] = range sets[i] {
			choose(i + 1)
		}
	}
	choose(0)
}

// namespaces are the values of the label namespace. Another namespace is counted as "other".
var namespaces = append(slices.Clip(arcp.Namespaces), LeaseRequest)

// LeaseRequest is the namespace label of a submit whose lease_request exceeds the principal's
// lease.
const LeaseRequest = "lease_request"

// CountDenial counts an operation that the lease of its job does not allow.
func (m *Metrics) CountDenial(namespace, reason string) {
	if !slices.Contains(namespaces, namespace) {
		namespace = "other"
	}
	m.Denials.WithLabelValues(namespace, reason).Inc()
}

// kindClasses are the values of the label kind_class. Another kind is counted as "other".
var kindClasses = []string{"sandbox", "subagent", "browser_session", "process", "directory"}

// Resource returns the gauge of the registered resources of a kind and a status. Another
// status is counted as "unknown".
func (m *Metrics) Resource(kind, status string) prometheus.Gauge {
	if !slices.Contains(kindClasses, kind) {
		kind = "other"
	}
	if !slices.Contains(resourceStatuses, status) {
		status = "unknown"
	}
	return m.Resources.WithLabelValues(kind, status)
}
