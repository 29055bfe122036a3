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
			inBubble(t, withMinter(t, m, log), func(b *fixture) { b.credentials(lib) })
			if strings.Contains(log.String(), "sk-minted") {
				t.Errorf("a secret is in the log: %s", log.String())
			}
		})
	}
}

func (b *fixture) credentials(lib *draftLibrary) {
	const first, second, third = "sk-minted-000001", "sk-minted-000002", "sk-minted-000003"
	offers := strings.Contains(lib.hello, "provisioned_credentials")
	p, other, foreign, root := b.dialDraft(lib, "alice"), b.dialDraft(lib, "alice"), b.dialDraft(lib, "root"), b.human("root")
	request := p.submit("demo.sleep", `{"ms":600000}`, "")
	accepted := p.until("job.accepted", func(f *draftFrame) bool { return f.Type == "job.accepted" && f.Payload.RequestID == request })
	if strings.Contains(accepted.raw, first) != offers {
		b.Errorf("%s: %s, and the library offers the feature: %v", lib.name, accepted.raw, offers)
	}
	job := accepted.JobID
	for _, q := range []*draftPeer{other, foreign} {
		request := q.send("job.subscribe", fmt.Sprintf(`"job_id":%q,`, job), fmt.Sprintf(`"job_id":%q,"history":true`, job))
		f := q.until("job.subscribed", func(f *draftFrame) bool { return f.CorrelationID == request })
		if strings.Contains(f.raw, first) != (offers && q == other) {
			b.Errorf("%s: %s, and the session is of the submitter: %v", lib.name, f.raw, q == other)
		}
	}
	isRotation := func(f *draftFrame) bool { return strings.Contains(f.raw, "credential_rotated") }
	rotate := func(value string) {
		seq := p.seq
		root.must("jobs.rotate_credentials", fmt.Sprintf(`{"job_id":%q}`, job))
		if f := p.until("the rotation", isRotation); strings.Contains(f.raw, value) != offers {
			b.Errorf("%s: the submitter is sent %s, want the value: %v", lib.name, f.raw, offers)
		}
		for _, q := range []*draftPeer{other, foreign} {
			if f := q.until("the rotation", isRotation); strings.Contains(f.raw, "sk-minted") {
				b.Errorf("%s: another session is sent %s", lib.name, f.raw)
			}
		}
		p.seq = min(p.seq, seq)
	}
	rotate(second)
	p.abort()
	p = p.resumed()
	if f := p.until("the rotation again", isRotation); strings.Contains(f.raw, second) != offers {
		b.Errorf("%s: a replay is %s, want the value: %v", lib.name, f.raw, offers)
	}
	rotate(third)
	p.abort()
	p = p.resumed()
	if f := p.until("the rotation again", isRotation); strings.Contains(f.raw, third) != offers {
		b.Errorf("%s: a replay is %s, want the value: %v", lib.name, f.raw, offers)
	}
	p.cancel(job)
	p.end(job)
}

// A client that does not offer the feature receives no credential.
func TestDraftCredentialsNeedTheFeature(t *testing.T) {
	m, log := newMinter(), new(syncBuffer)
	inBubble(t, withMinter(t, m, log), func(b *fixture) {
		lib := draftLibraries[0]
		if lib.name != strict.Go {
			t.Fatalf("the first library is %s", lib.name)
		}
		lib.hello = strings.Replace(lib.hello, `"provisioned_credentials",`, "", 1)
		p := b.dialDraft(&lib, "alice")
		request := p.submit("demo.sleep", `{"ms":10}`, "")
		f := p.until("job.accepted", func(f *draftFrame) bool { return f.Type == "job.accepted" && f.Payload.RequestID == request })
		if strings.Contains(f.raw, "credentials") {
			t.Errorf("%s has credentials", f.raw)
		}
		p.end(f.JobID)
	})
}
