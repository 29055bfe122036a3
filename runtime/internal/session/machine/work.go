package machine

import "github.com/arcpd/arcpd/arcp"

// aboutWork are the types that a worker sends about a job that it was given (§7.8).
var aboutWork = map[arcp.Type]bool{
	arcp.Ack: true, arcp.Nack: true, arcp.ToolResult: true, arcp.ToolError: true,
	arcp.JobProgress: true, arcp.JobHeartbeat: true, arcp.JobCheckpoint: true, arcp.JobResultChunk: true,
	arcp.Log: true, arcp.Metric: true, arcp.EventEmit: true, arcp.TraceSpan: true,
	arcp.PermissionRequest: true, arcp.HumanInputRequest: true, arcp.HumanChoiceRequest: true,
	arcp.StreamOpen: true, arcp.StreamChunk: true, arcp.StreamClose: true, arcp.StreamError: true, arcp.ArtifactPut: true,
}

// works reports whether a frame is from a worker and about a job that it executes. The session
// has negotiated executes. The frame has the job's id and the id of the dispatch; an answer
// needs only the latter, a call on behalf of the job only the former.
func (m *Machine) works(env *arcp.Envelope) bool {
	switch {
	case !m.negotiate.has(arcp.FeatureExecutes):
		return false
	case env.Type == arcp.ToolInvoke:
		return env.JobID != ""
	case env.Type == arcp.Ack || env.Type == arcp.Nack:
		return env.CorrelationID != ""
	}
	return aboutWork[env.Type] && env.JobID != "" && env.CorrelationID != ""
}
