package proxy

import "github.com/arcpd/arcpd/arcp"

// Types of the draft dialect that the RFC does not have.
const (
	sessionHello   arcp.Type = "session.hello"
	sessionWelcome arcp.Type = "session.welcome"
	sessionError   arcp.Type = "session.error"
	sessionBye     arcp.Type = "session.bye"
	jobSubmit      arcp.Type = "job.submit"
	jobEvent       arcp.Type = "job.event"
	jobResult      arcp.Type = "job.result"
	jobError       arcp.Type = "job.error"
	jobCancel      arcp.Type = "job.cancel"
)

// draftFaults are defects of a server of the draft dialect. Each of their checks must detect them.
var draftFaults = [][]Fault{
	draftHelloFaults, draftJobFaults, draftAcrossFaults, draftWelcomeFaults, draftRefusalFaults,
	draftHostileFaults, draftSubmitFaults, draftEventFaults, draftResultFaults, draftErrorFaults,
	draftCancelFaults, draftTimeoutFaults, draftKeyFaults, draftLeaseFaults, draftBudgetFaults,
	draftQuestionFaults, draftListFaults, draftSubscribeFaults, draftResumeFaults, draftCloseFaults,
	draftPingFaults, draftAckFaults, draftEnvelopeFaults, draftSecretFaults, draftNumberFaults,
	draftBuiltinFaults, draftVisibilityFaults, draftRecoveryFaults,
}

// draftHelloFaults are defects of the handshake.
var draftHelloFaults = []Fault{
	{Defect: "session.welcome has no resume_token", Checks: []string{"draft.hello.welcome"},
		newRewriter: editReceived(sessionWelcome, func(f frame) frame { return f.withPayload("resume_token", nil) })},
}

// draftJobFaults are defects of jobs.
var draftJobFaults = []Fault{
	{Defect: "job.result has another value", Checks: []string{"draft.jobs.life"},
		newRewriter: editReceived(jobResult, func(f frame) frame { return f.withPayload("result", 1).withPayload("output", 1) })},
}
