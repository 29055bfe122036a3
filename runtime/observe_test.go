package runtime_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// auditRecords removes the new records from the log and returns them in short: decision,
// actor, target.
func auditRecords(t *testing.T, log *bytes.Buffer) (list []string) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var r struct {
			Logger, Action, Decision, Actor, Target, Owner string
			JobID                                          string `json:"job_id"`
			Jobs                                           []string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Logger == "audit" {
			list = append(list, fmt.Sprintf("%s %s by %s: %s", r.Action, r.Decision, r.Actor, cmp.Or(r.Target, r.JobID, strings.Join(r.Jobs, " "), r.Owner)))
		}
	}
	log.Reset()
	return list
}
