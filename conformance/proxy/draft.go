package proxy

import "github.com/arcpd/arcpd/conformance/script"

// draftFaults are defects of a server of the draft dialect. Each of their checks must detect them.
var draftFaults = [][]Fault{
	draftHelloFaults, draftJobFaults, draftAcrossFaults, draftWelcomeFaults, draftRefusalFaults,
	draftHostileFaults, draftSubmitFaults, draftEventFaults, draftResultFaults, draftErrorFaults,
	draftCancelFaults, draftTimeoutFaults, draftKeyFaults, draftLeaseFaults, draftBudgetFaults, draftCredentialFaults,
	draftQuestionFaults, draftListFaults, draftSubscribeFaults, draftResumeFaults, draftCloseFaults,
	draftPingFaults, draftAckFaults, draftEnvelopeFaults, draftCatalogFaults, draftSecretFaults, draftNumberFaults,
	draftBuiltinFaults, draftVisibilityFaults, draftRecoveryFaults,
}

// draftHelloFaults are defects of the handshake.
var draftHelloFaults = []Fault{
	{Defect: "session.welcome has no resume_token", Checks: []string{"draft.hello.welcome"},
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("resume_token", nil) })},
	{Defect: "session.welcome has no runtime", Checks: []string{"draft.hello.identity"},
		newRewriter: editReceived(script.SessionWelcome, func(f frame) frame { return f.withPayload("runtime", nil) })},
}

// draftJobFaults are defects of jobs.
var draftJobFaults = []Fault{
	{Defect: "job.result has another value", Checks: []string{"draft.jobs.life"},
		newRewriter: editReceived(script.JobResult, func(f frame) frame { return f.withPayload("result", 1).withPayload("output", 1) })},
}
