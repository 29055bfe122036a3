package proxy

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// artifactFaults are defects of artifacts.
var artifactFaults = []Fault{
	{Defect: "the content of an artifact changes", Checks: []string{"artifacts.fetch"},
		newRewriter: editReceived(arcp.ArtifactPut, func(f frame) frame { return f.replace("aGVsbG8=", "aGVsbG9v") })},
	{Defect: "the digest is of other content", Checks: []string{"artifacts.fetch"}, House: true,
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame { return f.replace("2cf24dba", "3cf24dba") })},
	{Defect: "a fetched artifact has no digest", Checks: []string{"artifacts.fetch", "artifacts.of-a-job"}, House: true,
		newRewriter: editReceived(arcp.ArtifactPut, func(f frame) frame { return f.withPayload("sha256", nil) })},
	{Defect: "the answer to a put has an event_seq", Checks: []string{"artifacts.fetch"},
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame { return f.with("event_seq", 1) })},
	{Defect: "the expected digest of a put is ignored", Checks: []string{"artifacts.digest"}, House: true,
		newRewriter: editSent(arcp.ArtifactPut, func(f frame) frame { return f.withPayload("sha256", nil) })},
	{Defect: "content without its padding is accepted", Checks: []string{"artifacts.base64"}, House: true,
		newRewriter: editSent(arcp.ArtifactPut, func(f frame) frame {
			p, _ := arcp.DecodePayload[arcp.ArtifactPutPayload](&f.Envelope) // without content nothing is added
			return f.withPayload("data", p.Data+strings.Repeat("=", -len(p.Data)&3))
		})},
	{Defect: "artifact.release is ignored", Checks: []string{"artifacts.released"}, House: true,
		newRewriter: dropSent(arcp.ArtifactRelease)},
	{Defect: "artifact.release is answered", Checks: []string{"artifacts.released"}, House: true,
		newRewriter: editSent(arcp.ArtifactRelease, func(f frame) frame {
			return f.with("type", arcp.Ping).with("payload", arcp.PingPayload{})
		})},
	{Defect: "an artifact that is not found is a failure of the runtime", Checks: []string{"artifacts.released", "artifacts.foreign"}, House: true,
		newRewriter: editReceived(arcp.Nack, func(f frame) frame { return f.withPayload("code", arcp.CodeInternal) })},
	{Defect: "a job does not announce its artifact and later events are renumbered to hide it", Checks: []string{"artifacts.of-a-job"}, House: true,
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.ArtifactRef && f.EventSeq > 0 })},
	{Defect: "an artifact is announced after the end of its job", Checks: []string{"artifacts.of-a-job"}, House: true,
		newRewriter: swap(func(f frame) bool { return f.Type == arcp.ArtifactRef && f.EventSeq > 0 }, isType(arcp.JobCompleted), true)},
	{Defect: "artifacts are kept for an unknown time", Checks: []string{"artifacts.retention"},
		newRewriter: replaceReceived(`"artifact_retention":`, `"no_retention":`)},
	{Defect: "an artifact is found after its time", Checks: []string{"artifacts.expired"}, Silent: true,
		newRewriter: editReceived(arcp.Nack, func(f frame) frame { return f.withPayload("code", arcp.CodeUnavailable) })},
	{Defect: "artifact.put answers with the digest of other content", Checks: []string{"artifacts.put-in-chunks"}, House: true,
		newRewriter: replaceResult(`"sha256":"2cf24dba`, `"sha256":"3cf24dba`)},
	{Defect: "a chunk with another offset is appended", Checks: []string{"artifacts.put-in-chunks"}, House: true, newRewriter: replaceSent(`"offset":4`, `"offset":3`)},
	{Defect: "the expected digest of chunks is ignored", Checks: []string{"artifacts.digest-of-chunks"}, House: true, newRewriter: replaceSent(`"sha256":"0cf24dba`, `"sha256":"2cf24dba`)},
	{Defect: "a range past the end is empty", Checks: []string{"artifacts.get-a-range"}, House: true, newRewriter: replaceSent(`"offset":6`, `"offset":5`)},
	{Defect: "the offset of artifact.get is ignored", Checks: []string{"artifacts.get-a-range"}, House: true, newRewriter: replaceSent(`"offset":1`, `"offset":0`)},
	{Defect: "the cursor of artifact.list is ignored", Checks: []string{"artifacts.list"}, House: true, newRewriter: replaceSent(`"cursor":`, `"no_cursor":`)},
	{Defect: "artifact.release reads the artifact", Checks: []string{"artifacts.release", "artifacts.released"}, House: true, newRewriter: replaceSent(`"artifact.release"`, `"artifact.get"`)},
}
