package runtime_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
)

// completed reads events until a job has completed.
func (p *peer) completed() (done arcp.JobCompletedPayload) {
	p.Helper()
	env := p.until(arcp.JobCompleted)
	if err := arcp.Unmarshal(env.Payload, &done); err != nil {
		p.Fatal(err)
	}
	return done
}

// report returns what demo.report writes.
func report(size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size; n++ {
		fmt.Fprintf(&b, "line %d\n", n)
	}
	return b.String()[:size]
}

const largeReport = 9_000_000 // bytes: no frame has them

// The artifact of a result has all of it, belongs to the principal of the job, and is made again when it is
// gone.
func TestResultReferenceHasTheResult(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p, token := f.dialToken("alice")
		p.submit("demo.report", fmt.Sprintf(`{"bytes":%d}`, largeReport))
		done := p.completed()
		want := fmt.Sprintf("%x", sha256.Sum256([]byte(report(largeReport))))
		if done.ResultRef == nil || done.ResultRef.SHA256 != want || done.Value != nil || done.ResultID != "" ||
			!done.ResultRef.ExpiresAt.Equal(time.Now().Add(time.Hour).UTC()) {
			t.Fatalf("job.completed has %+v with %+v, want the digest %s", done, done.ResultRef, want)
		}
		bob, _ := f.client("bob", client.Handlers{})
		defer bob.Abort()
		_, err := bob.Artifacts().Get(f.Context(), done.ResultRef.ArtifactID)
		if e := reported(err); e == nil || e.Code != arcp.CodeNotFound {
			t.Errorf("another principal reads the result: %v", err)
		}

		alice, _ := f.client("alice", client.Handlers{})
		defer alice.Abort()
		if err := alice.Artifacts().Release(done.ResultRef.ArtifactID); err != nil {
			t.Fatal(err)
		}
		if _, err := alice.Artifacts().Get(f.Context(), done.ResultRef.ArtifactID); err == nil {
			t.Error("the released artifact is there")
		}
		p.conn.Abort()
		again := f.resume(token, 0).completed()
		if again.ResultRef == nil || again.ResultRef.ArtifactID == done.ResultRef.ArtifactID || again.ResultRef.SHA256 != want {
			t.Errorf("after the release job.completed has %+v", again.ResultRef)
		}
	})
}

// A job completes also if its principal has no space for the artifact. The event says why there is no result,
// and has it when there is space.
func TestResultReferenceWithoutSpace(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxArtifactPerPrincipal = 1 << 20 }, func(f *fixture) {
		p, token := f.dialToken("alice")
		p.submit("demo.report", fmt.Sprintf(`{"bytes":%d}`, largeReport))
		done := p.completed()
		if done.Value != nil || done.ResultRef != nil || done.ResultID == "" || *done.ResultSize != largeReport ||
			!strings.Contains(done.Summary, "RESOURCE_EXHAUSTED: the artifacts of a principal") || !strings.Contains(done.Summary, "a report of 9000000 bytes") {
			t.Errorf("job.completed = %+v", done)
		}
		if n := p.must("artifact.list", "{}")["items"]; n != nil && len(n.([]any)) != 0 {
			t.Errorf("an artifact is left of the refused one: %v", n)
		}
		p.conn.Abort()
		f.rt.SetLimits(runtime.Limits{})
		if again := f.resume(token, 0).completed(); again.ResultRef == nil || again.Summary != "a report of 9000000 bytes" {
			t.Errorf("with space job.completed = %+v", again)
		}
	})
}

// Sessions that read the result at the same time get one artifact.
func TestResultReferenceOfTwoSessions(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		submitter, watcher := f.dial("alice"), f.dial("alice")
		watcher.subscribe(`{"filter":{"types":["job.completed"]}}`)
		submitter.submit("demo.report", fmt.Sprintf(`{"bytes":%d,"encoding":"base64"}`, largeReport))
		first := submitter.completed()
		event := watcher.until(arcp.SubscribeEvent)
		if first.ResultRef == nil || !strings.Contains(string(event.Payload), string(first.ResultRef.ArtifactID)) {
			t.Errorf("the submitter has %+v, and the watcher %s", first.ResultRef, event.Payload)
		}
		if artifacts := submitter.must("artifact.list", "{}")["items"].([]any); len(artifacts) != 1 {
			t.Errorf("there are %d artifacts", len(artifacts))
		}
	})
}

// In the draft dialect a result that no frame has is an artifact, too. Its frames are smaller.
func TestResultReferenceInDraft(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		for size, asReference := range map[int]bool{600_000: false, 3_000_000: true} {
			p := f.connect(nil)
			write := func(typ, payload string) {
				frame := fmt.Sprintf(`{"arcp":"1.1","id":"m-%s","type":%q,"payload":%s}`, typ, typ, payload)
				if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
					t.Fatal(err)
				}
			}
			write("session.hello", fmt.Sprintf(`{"client":{"name":"t","version":"1"},"auth":{"scheme":"bearer","token":"alice-%s"},"capabilities":{"encodings":["json"],"features":[]}}`, token))
			if _, err := p.conn.Read(); err != nil { // session.welcome
				t.Fatal(err)
			}
			write("job.submit", fmt.Sprintf(`{"agent":"demo.report","input":{"bytes":%d}}`, size))
			for {
				frame, err := p.conn.Read()
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(frame), `"type":"job.error"`) {
					t.Fatalf("%d bytes: %.500s", size, frame)
				}
				if strings.Contains(string(frame), `"type":"job.result"`) {
					if got := strings.Contains(string(frame), `"result_ref":{"artifact_id":"art_`); got != asReference {
						t.Errorf("%d bytes are sent as a reference: %v: %.300s", size, got, frame)
					}
					break
				}
			}
		}
	})
}
