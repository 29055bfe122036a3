package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp/draft/strict"
)

// The credential of a job is issued and rotated in the draft dialect. Only sessions
// of the submitter that have offered the feature are sent values, and only the submitting session is
// sent a rotated one, also after a resume.
func TestDraftCredentialsReachTheSubmitter(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			m, log := newMinter(), new(syncBuffer)
			inBubble(t, withMinter(t, m, log), func(f *fixture) { f.credentials(lib) })
			if strings.Contains(log.String(), "sk-minted") {
				t.Errorf("a secret is in the log: %s", log.String())
			}
		})
	}
}

func (f *fixture) credentials(lib *draftLibrary) {
	const first, second, third = "sk-minted-000001", "sk-minted-000002", "sk-minted-000003"
	offers := strings.Contains(lib.hello, "provisioned_credentials")
	p, other, foreign, root := f.dialDraft(lib, "alice"), f.dialDraft(lib, "alice"), f.dialDraft(lib, "root"), f.human("root")
	request := p.submit("demo.sleep", `{"ms":600000}`, "")
	accepted := p.until("job.accepted", func(frame *draftFrame) bool {
		return frame.Type == "job.accepted" && frame.Payload.RequestID == request
	})
	if strings.Contains(accepted.raw, first) != offers {
		f.Errorf("%s: %s, and the library offers the feature: %v", lib.name, accepted.raw, offers)
	}
	job := accepted.JobID
	for _, q := range []*draftPeer{other, foreign} {
		request := q.send("job.subscribe", fmt.Sprintf(`"job_id":%q,`, job), fmt.Sprintf(`"job_id":%q,"history":true`, job))
		frame := q.until("job.subscribed", func(frame *draftFrame) bool { return frame.CorrelationID == request })
		if strings.Contains(frame.raw, first) != (offers && q == other) {
			f.Errorf("%s: %s, and the session is of the submitter: %v", lib.name, frame.raw, q == other)
		}
	}
	isRotation := func(frame *draftFrame) bool { return strings.Contains(frame.raw, "credential_rotated") }
	rotate := func(value string) {
		seq := p.seq
		root.must("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, job))
		if frame := p.until("the rotation", isRotation); strings.Contains(frame.raw, value) != offers {
			f.Errorf("%s: the submitter is sent %s, want the value: %v", lib.name, frame.raw, offers)
		}
		for _, q := range []*draftPeer{other, foreign} {
			if frame := q.until("the rotation", isRotation); strings.Contains(frame.raw, "sk-minted") {
				f.Errorf("%s: another session is sent %s", lib.name, frame.raw)
			}
		}
		p.seq = min(p.seq, seq)
	}
	rotate(second)
	p.abort()
	p = p.resumed()
	if frame := p.until("the rotation again", isRotation); strings.Contains(frame.raw, second) != offers {
		f.Errorf("%s: a replay is %s, want the value: %v", lib.name, frame.raw, offers)
	}
	rotate(third)
	p.abort()
	p = p.resumed()
	if frame := p.until("the rotation again", isRotation); strings.Contains(frame.raw, third) != offers {
		f.Errorf("%s: a replay is %s, want the value: %v", lib.name, frame.raw, offers)
	}
	p.cancel(job)
	p.end(job)
}

// A client that does not offer the feature receives no credential.
func TestDraftCredentialsNeedTheFeature(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	inBubble(t, withMinter(t, m, log), func(f *fixture) {
		lib := draftLibraries[0]
		if lib.name != strict.Go {
			t.Fatalf("the first library is %s", lib.name)
		}
		lib.hello = strings.Replace(lib.hello, `"provisioned_credentials",`, "", 1)
		p := f.dialDraft(&lib, "alice")
		request := p.submit("demo.sleep", `{"ms":10}`, "")
		frame := p.until("job.accepted", func(frame *draftFrame) bool {
			return frame.Type == "job.accepted" && frame.Payload.RequestID == request
		})
		if strings.Contains(frame.raw, "credentials") {
			t.Errorf("%s has credentials", frame.raw)
		}
		p.end(frame.JobID)
	})
}
