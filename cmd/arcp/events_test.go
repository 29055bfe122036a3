package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// The snapshot of host.subscribe is a table for each list, and JSON only with -o json.
func TestSnapshotIsShownAsTables(t *testing.T) {
	const snapshot = `{"agents":[{"id":"kid","name":"Kid","kind":"worker","executes":["py.rev@1.0.0"],"running":1,"status":"running"}],` +
		`"approvals":[{"approval_id":"approval-1","kind":"gate","job_id":"job_1","action":"deploy","created_at":"2030-01-02T15:04:05Z"}],"events":[],"more":true}`
	env := arcp.Frame(arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventHostSnapshot, Data: arcp.Raw(snapshot)})
	var out bytes.Buffer
	p := eventPrinter{w: &out}
	p.event(&env)
	want := "snapshot   1 agent, 1 approval, 0 past events; another part follows\n" +
		"        AGENT  NAME  KIND    STATUS   RUNNING  TASK\n" +
		"        kid    Kid   worker  running  1        -\n" +
		"        APPROVAL    KIND  JOB    CREATED              ACTION\n" +
		"        approval-1  gate  job_1  " + clock(time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)) + "  deploy\n"
	if out.String() != want {
		t.Errorf("the snapshot is shown as\n%s\nwant\n%s", &out, want)
	}
	out.Reset()
	p = eventPrinter{w: &out, json: true}
	if p.event(&env); !strings.Contains(out.String(), snapshot) {
		t.Errorf("the snapshot as JSON is %s", &out)
	}
}

func TestDescribeShowsEachEvent(t *testing.T) {
	total, percent := 4.0, 12.4
	day := time.Date(2030, 1, 2, 15, 4, 5, 0, time.Local)
	for _, c := range []struct {
		event   arcp.Type
		payload any
		want    string
	}{
		{arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1", Agent: "a@1"}, "accepted   job_1 a@1"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 1, Total: &total, Message: "copying"}, "progress   1/4 25% copying"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 2.5, Units: "MB"}, "progress   2.5 MB"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 1, Percent: &percent}, "progress   1 12%"},
		{arcp.Log, arcp.LogPayload{Level: "warn", Message: "a\nb\x1b[31m\u009b", Attributes: arcp.Raw(`{ "k" : 1 }`)},
			`warn       a b[31m {"k":1}`},
		{arcp.Metric, arcp.MetricPayload{Name: "cost.demo", Value: "1.50", Unit: "USD"}, "metric     cost.demo 1.50 USD"},
		{arcp.Metric, arcp.MetricPayload{Name: "cost.budget.remaining", Value: "4.50", Unit: "USD"}, "budget     4.50 USD left"},
		{arcp.TraceSpan, arcp.TraceSpanPayload{Name: "db", TraceID: "t", SpanID: "s", StartTime: day, EndTime: day.Add(1500 * time.Microsecond),
			Attributes: arcp.Raw(`{"rows":3}`)}, `span       db 1.5ms {"rows":3}`},
		{arcp.PermissionRequest,
			arcp.PermissionRequestPayload{Permission: "p", Resource: "r", Operation: "o", RequestedLeaseSeconds: new(uint64(90)), Reason: "so"},
			"permission p on r to o for 1m30s? so"},
		{arcp.HumanInputRequest, arcp.HumanInputRequestPayload{Prompt: "Branch?"}, "input      Branch?"},
		{arcp.HumanChoiceRequest,
			arcp.HumanChoiceRequestPayload{Prompt: "Go?", Options: []arcp.Option{{ID: "y", Label: "Yes"}, {ID: "n"}}, Details: arcp.Raw(`{"a":1}`)},
			`choice     Go? [y (Yes), n] {"a":1}`},
		{arcp.HumanInputCancelled, arcp.HumanInputCancelledPayload{Code: arcp.CodeCancelled, Reason: "answered"}, "withdrawn  answered"},
		{arcp.HumanInputCancelled, arcp.HumanInputCancelledPayload{Code: arcp.CodeDeadlineExceeded}, "withdrawn  DEADLINE_EXCEEDED"},
		{arcp.LeaseGranted,
			arcp.LeaseGrantedPayload{LeaseID: "lease_1", Permission: "p", Resource: "r", Operation: "o", ExpiresAt: day},
			"lease      lease_1 granted until 2030-01-02 15:04:05: p on r to o"},
		{arcp.LeaseExtended, arcp.LeaseExtendedPayload{LeaseID: "lease_1", ExpiresAt: day},
			"lease      lease_1 extended until 2030-01-02 15:04:05"},
		{arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: "lease_1", Reason: "enough"}, "lease      lease_1 revoked enough"},
		{arcp.JobHeartbeat, arcp.JobHeartbeatPayload{Sequence: 3, State: "blocked"}, "heartbeat  the job is blocked"},
		{arcp.EventEmit, arcp.EventEmitPayload{Name: "found", Data: arcp.Raw(`{}`)}, "event      found"},
		{arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventWaiting, Data: arcp.Raw(`{"reason":"worker","since":"2030-01-02T15:04:05Z","message":"start one"}`)},
			"waiting    start one"},
		{arcp.EventEmit, arcp.EventEmitPayload{Name: arcp.EventHost, Data: arcp.Raw(`{"id":"event-1","kind":"agent.registered","agent_id":"a","message":"A is registered","payload":{}}`)},
			"host       agent.registered a A is registered"},
		{arcp.ArtifactRef, arcp.ArtifactRefPayload{Artifact: arcp.ArtifactObject{ArtifactID: "art_1", MediaType: "text/plain", Size: 5, ExpiresAt: day}},
			"artifact   art_1 text/plain 5 bytes, kept until 2030-01-02 15:04:05"},
		{arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", ChunkSeq: 3}, "result     part 3 of res_1"},
		{arcp.JobFailed, arcp.ErrorPayload{Code: arcp.CodeAborted, Message: "gone"}, "failed     ABORTED gone"},
		{arcp.JobCancelled, arcp.JobCancelledPayload{Code: arcp.CodeCancelled, Reason: "enough"}, "cancelled  CANCELLED enough"},
		{arcp.StreamClose, struct {
			A int `json:"a"`
		}{1}, `stream.close {"a":1}`},
	} {
		env := arcp.Frame(c.event, c.payload)
		if got, _ := describe(&env); got != c.want {
			t.Errorf("describe(%s) = %q, want %q", c.event, got, c.want)
		}
	}
}

func TestProgressBarIsRedrawn(t *testing.T) {
	var b bytes.Buffer
	bar := &progressBar{w: &b}
	total := 2.0
	bar.show(arcp.JobProgressPayload{Current: 1, Total: &total})
	if want := "\r\x1b[K[" + strings.Repeat("█", 15) + strings.Repeat("·", 15) + "] 1/2 50%"; b.String() != want {
		t.Errorf("bar = %q, want %q", b.String(), want)
	}
	b.Reset()
	bar.clear()
	bar.clear()
	if want := "\r\x1b[K"; b.String() != want {
		t.Errorf("clearing = %q, want %q once", b.String(), want)
	}
	for current, want := range map[float64]string{-1: strings.Repeat("·", barWidth), 9: strings.Repeat("█", barWidth)} {
		if got := barText(arcp.JobProgressPayload{Current: current, Total: &total}); !strings.Contains(got, "["+want+"]") {
			t.Errorf("bar of %g of 2 = %q, want %q", current, got, want)
		}
	}
}

// A result in parts is put together again.
func TestResultInParts(t *testing.T) {
	var stdout bytes.Buffer
	a := &app{stdout: &stdout}
	p := new(eventPrinter)
	for i, c := range []arcp.JobResultChunkPayload{
		{ResultID: "res_1", Data: `{"a":`, Encoding: "utf8", More: true},
		{ResultID: "res_1", Data: "1}", Encoding: "utf8"},
	} {
		c.ChunkSeq = uint64(i)
		env := arcp.Frame(arcp.JobResultChunk, c)
		p.event(&env)
	}
	var r client.Result
	r.ResultID = "res_1"
	if err := a.printResult(r, p); err != nil || stdout.String() != "{\"a\":1}\n" {
		t.Errorf("result = %q, %v, want the parts together", stdout.String(), err)
	}
	stdout.Reset()
	r.ContentType = "text/plain"
	if err := a.printResult(r, p); err != nil || stdout.String() != `{"a":1}` {
		t.Errorf("content = %q, %v, want it as it is", stdout.String(), err)
	}
	env := arcp.Frame(arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", ChunkSeq: 2, Encoding: "utf8"})
	p.event(&env)
	if err := a.printResult(r, p); err == nil || !strings.Contains(err.Error(), "a part follows the last one") {
		t.Errorf("err = %v, want one about the part after the last", err)
	}
}

func TestResultIsPrintedAsJSON(t *testing.T) {
	for _, c := range []struct {
		result arcp.JobCompletedPayload
		want   string
	}{
		{arcp.JobCompletedPayload{}, "null\n"},
		{arcp.JobCompletedPayload{Value: arcp.Raw(`[1]`)}, "[1]\n"},
		{arcp.JobCompletedPayload{ResultRef: &arcp.ArtifactObject{}}, "{"},
	} {
		var stdout bytes.Buffer
		err := (&app{stdout: &stdout}).printResult(client.Result{JobCompletedPayload: c.result}, new(eventPrinter))
		if err != nil || !strings.HasPrefix(stdout.String(), c.want) {
			t.Errorf("result %+v = %q, %v, want %q", c.result, stdout.String(), err, c.want)
		}
	}
}

// A chunk whose content came in a binary frame is printed with its content.
func TestBinaryChunkIsPrintedInBase64(t *testing.T) {
	var out bytes.Buffer
	p := eventPrinter{w: &out, json: true}
	env := arcp.Frame(arcp.StreamChunk, arcp.StreamChunkPayload{Encoding: arcp.EncodingSidecar, Size: 2, Sidecar: []byte{0xff, 0}})
	env.StreamID = "str_1"
	p.event(&env)
	if want := `"payload":{"sequence":0,"data":"/wA=","encoding":"base64","size":2}}`; !strings.Contains(out.String(), want) {
		t.Errorf("the chunk is printed as %s, want %s", out.String(), want)
	}
}

// Heartbeats are for programs: text leaves them out.
func TestHeartbeatsAreOnlyInJSON(t *testing.T) {
	for _, json := range []bool{false, true} {
		var out bytes.Buffer
		p := eventPrinter{w: &out, json: json, all: true}
		env := arcp.Frame(arcp.JobHeartbeat, arcp.JobHeartbeatPayload{Sequence: 1, State: "blocked"})
		p.event(&env)
		if got := out.String(); strings.Contains(got, `"type":"job.heartbeat"`) != json || !json && got != "" {
			t.Errorf("with JSON %t a heartbeat is printed as %q", json, got)
		}
	}
}

func TestExitCodeOf(t *testing.T) {
	remote := func(code arcp.Code) error { return &client.RemoteError{Code: code} }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailed},
		{remote(arcp.CodeUnauthenticated), exitAuth},
		{remote(arcp.CodeLeaseSubsetViolation), exitDenied},
		{remote(arcp.CodeCancelled), exitCancelled},
		{&client.JobError{State: arcp.StateCancelled, RemoteError: &client.RemoteError{Code: arcp.CodeAborted}}, exitCancelled},
		{&client.JobError{State: arcp.StateFailed, RemoteError: &client.RemoteError{Code: arcp.CodeTimeout}}, exitTimeout},
		{&client.CancelRefusedError{Reason: "permission_denied"}, exitDenied},
		{&client.CancelRefusedError{Reason: "not_found"}, exitFailed},
		{client.ErrConnectionLost, exitUnreachable},
		{client.ErrSessionLost, exitUnreachable},
		{fmt.Errorf("%w: %w", client.ErrSessionLost, remote(arcp.CodeResumeWindowExpired)), exitUnreachable},
		{fmt.Errorf("%w: %w", client.ErrSessionLost, remote(arcp.CodeUnauthenticated)), exitAuth},
		{errInterrupted, exitInterrupted},
		{usagef("x"), exitUsage},
	} {
		if got := exitCode(withExitCode(c.err)); got != c.want {
			t.Errorf("exit code of %v = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestTailKeepsTheLastBytes(t *testing.T) {
	var l tail
	for range 3 {
		if _, err := l.Write(bytes.Repeat([]byte("x"), tailSize-10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Write([]byte("end\n")); err != nil {
		t.Fatal(err)
	}
	if got := l.String(); len(got) > tailSize || !strings.HasSuffix(got, "xend") {
		t.Errorf("tail has %d bytes and ends %q, want at most %d and the end", len(got), got[max(0, len(got)-8):], tailSize)
	}
}

// A failure is described by its reason, without message ids; a lost position with the position
// to continue from.
func TestFailuresAreReadable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&client.RemoteError{Type: "job.failed", Code: "INTERNAL", RawCode: "INTERNAL", Message: "the tool\npanicked"},
			"INTERNAL: the tool panicked"},
		{fmt.Errorf("tool.invoke: %w", &client.RemoteError{Type: "nack", Code: "NOT_FOUND", RawCode: "NOT_FOUND"}), "NOT_FOUND"},
		{fmt.Errorf("read x: %w", &client.RemoteError{Type: "nack", Code: "NOT_FOUND", RawCode: "NOT_FOUND"}), "read x: NOT_FOUND"},
		{&client.RemoteError{Type: "nack", Code: arcp.CodeDataLoss, RawCode: "DATA_LOSS", Message: "gone",
			Details: arcp.Raw(`{"oldest_message_id":"msg_7"}`)},
			"DATA_LOSS: gone; the oldest available event is msg_7"},
		{errors.New("tool.invoke: here"), "tool.invoke: here"},
	} {
		if got := readable(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
