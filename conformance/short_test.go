package conformance

import (
	"strings"
	"testing"
)

// A server that sends fewer events than a check looks at has a finding, and the check
// is not to blame.
func TestShortAnswerIsAFinding(t *testing.T) {
	tt := newT(t.Context(), &Target{Token: fakeToken}, &server{})
	for _, look := range []func(*Job){
		func(j *Job) { j.Event(3) },
		func(j *Job) { j.EventsFrom(4) },
	} {
		tt.failure = ""
		func() {
			defer tt.recover()
			look(&Job{ID: "job_1", Events: make([]*Frame, 3)})
		}()
		if !strings.Contains(tt.failure, "job job_1 has 3 events") || strings.Contains(tt.failure, "panicked") {
			t.Errorf("the finding is %q", tt.failure)
		}
	}
	if n := len((&Job{Events: make([]*Frame, 3)}).EventsFrom(3)); n != 0 {
		t.Errorf("%d events come after the last", n)
	}
}
