package proxy

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// draftCredentialFaults are defects of the credentials of jobs.
var draftCredentialFaults = []Fault{
	{Defect: "job.accepted has no credentials", Checks: []string{"draft.credentials.issued", "draft.credentials.members", "draft.credentials.unique"},
		newRewriter: editCredentials(func([]map[string]any) []map[string]any { return nil })},
	{Defect: "a credential has no endpoint", Checks: []string{"draft.credentials.members"},
		newRewriter: editCredentials(func(list []map[string]any) []map[string]any { delete(list[0], "endpoint"); return list })},
	{Defect: "a credential has no value", Checks: []string{"draft.credentials.members"},
		newRewriter: editCredentials(func(list []map[string]any) []map[string]any { delete(list[0], "value"); return list })},
	{Defect: "two credentials of a job have the same id", Checks: []string{"draft.credentials.members"},
		newRewriter: editCredentials(func(list []map[string]any) []map[string]any { return append(list, list[0]) })},
	{Defect: "two jobs have the same credential", Checks: []string{"draft.credentials.unique"}, newRewriter: shareCredentials},
	{Defect: "a session without the feature provisioned_credentials is sent credentials", Checks: []string{"draft.credentials.unnegotiated"},
		newRewriter: editReceived(arcp.JobAccepted, func(f frame) frame {
			return f.withPayload("credentials", []map[string]string{{"id": "cred_1", "scheme": "bearer", "value": "key", "endpoint": "https://conformance.invalid"}})
		})},
	{Defect: "job.subscribed has the credentials of another principal's job", Checks: []string{"draft.credentials.observed"},
		newShared: leakCredentials(arcp.JobSubscribed, "credentials")},
	{Defect: "an observer is sent the value of a credential in an event", Checks: []string{"draft.credentials.observed"},
		newShared: leakCredentials(script.JobError, "details")},
	{Defect: "nobody is told the new value of a credential", Checks: []string{"draft.credentials.rotated"}, Silent: true, newRewriter: dropEvents(hasPhase("credential_rotated"))},
	{Defect: "the event of a new credential has no value", Checks: []string{"draft.credentials.rotated"},
		newRewriter: editBody("status", func(body map[string]any) { delete(body, "value") })},
	{Defect: "a new credential has another id", Checks: []string{"draft.credentials.rotated"},
		newRewriter: editBody("status", func(body map[string]any) { body["id"] = "cred_of_another" })},
}

// credentials returns the credentials in job.accepted; nil if it has none.
func (f frame) credentials() (list []map[string]any) {
	var p struct {
		Credentials []map[string]any `json:"credentials"`
	}
	if f.Type == arcp.JobAccepted && json.Unmarshal(f.Payload, &p) == nil {
		list = p.Credentials
	}
	return list
}

// editCredentials returns rewriters that edit the credentials in each job.accepted that has some.
func editCredentials(edit func(list []map[string]any) []map[string]any) func() rewriter {
	return editReceived(arcp.JobAccepted, func(f frame) frame {
		list := f.credentials()
		if len(list) == 0 {
			return f
		}
		if list = edit(list); len(list) == 0 {
			return f.withPayload("credentials", nil)
		}
		return f.withPayload("credentials", list)
	})
}

// shareCredentials gives every job the credentials of the first one.
func shareCredentials() rewriter {
	var first []map[string]any
	return editCredentials(func(list []map[string]any) []map[string]any {
		if first == nil {
			first = list
		}
		return first
	})()
}

// leakCredentials returns rewriters that add the credentials of a job to a member of frames of type typ in other sessions.
func leakCredentials(typ arcp.Type, member string) func() func() rewriter {
	return func() func() rewriter {
		var accepted frame
		return rewriteReceived(func(f frame) []frame {
			if f.credentials() != nil {
				accepted = f
			}
			if f.Type == typ && f.SessionID != accepted.SessionID {
				f = f.withPayload(member, accepted.credentials())
			}
			return []frame{f}
		})
	}
}
