package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestDescribe(t *testing.T) {
	total, percent := 4.0, 12.4
	for _, c := range []struct {
		event   arcp.Type
		payload any
		want    string
	}{
		{arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1", Agent: "a@1"}, "accepted   job_1 a@1"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 1, Total: &total, Message: "copying"}, "progress   1/4 25% copying"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 2.5, Units: "MB"}, "progress   2.5 MB"},
		{arcp.JobProgress, arcp.JobProgressPayload{Current: 1, Percent: &percent}, "progress   1 12%"},
		{arcp.Log, arcp.LogPayload{Level: "warn", Message: "a\nb\x1b[31m\u009b", Attributes: arcp.Raw(`{ "k" : 1 }`)}, `warn       a b[31m {"k":1}`},
		{arcp.Metric, arcp.MetricPayload{Name: "cost.demo", Value: "1.50", Unit: "USD"}, "metric     cost.demo 1.50 USD"},
		{arcp.EventEmit, arcp.EventEmitPayload{Name: "found", Data: arcp.Raw(`{}`)}, "event      found"},
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

func TestProgressBar(t *testing.T) {
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
		{ResultID: "res_1", Data: "MX0=", Encoding: "base64"},
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
	env := arcp.Frame(arcp.JobResultChunk, arcp.JobResultChunkPayload{ResultID: "res_1", ChunkSeq: 2, Data: "!", Encoding: "base64"})
	p.event(&env)
	if err := a.printResult(r, p); err == nil || !strings.Contains(err.Error(), "part 2") {
		t.Errorf("err = %v, want one about part 2", err)
	}
}

func TestResultForms(t *testing.T) {
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
		{&client.CancelRefused{Reason: "permission_denied"}, exitDenied},
		{&client.CancelRefused{Reason: "not_found"}, exitFailed},
		{client.ErrConnectionLost, exitUnreachable},
		{errInterrupted, exitInterrupted},
		{usagef("x"), exitUsage},
	} {
		if got := exitCode(coded(c.err)); got != c.want {
			t.Errorf("exit code of %v = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestTail(t *testing.T) {
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
