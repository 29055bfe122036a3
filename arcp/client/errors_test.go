package client_test

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestRemoteErrorOf(t *testing.T) {
	for _, c := range []struct {
		env  arcp.Envelope
		want string
		code arcp.Code
	}{
		{arcp.Frame(arcp.Nack, arcp.Errorf(arcp.CodeUnavailable, "later")), "nack: UNAVAILABLE: later", arcp.CodeUnavailable},
		{arcp.Envelope{Type: arcp.JobFailed, Payload: arcp.Raw(`{"code":"MY_CODE","message":"m"}`)}, "job.failed: MY_CODE: m", arcp.CodeUnknown},
		{arcp.Envelope{Type: arcp.JobCancelled, Payload: arcp.Raw(`{"reason":"why"}`)}, "job.cancelled: CANCELLED: why", arcp.CodeCancelled},
		{arcp.Envelope{Type: arcp.JobFailed, Payload: arcp.Raw(`{"code":"DEADLINE_EXCEEDED","message":"m","details":{"code":"TIMEOUT"}}`)}, "job.failed: TIMEOUT: m", arcp.CodeTimeout},
		{arcp.Envelope{Type: arcp.JobFailed, Payload: arcp.Raw(`{"code":"DEADLINE_EXCEEDED","message":"m","details":{"arcp_code":"TIMEOUT","code":"SLOW"}}`)}, "job.failed: TIMEOUT: m", arcp.CodeTimeout},
		{arcp.Envelope{Type: arcp.JobFailed, Payload: arcp.Raw(`{"code":"TIMEOUT","message":"m"}`)}, "job.failed: TIMEOUT: m", arcp.CodeTimeout},
		{arcp.Envelope{Type: arcp.JobFailed, Payload: arcp.Raw(`{"code":"INTERNAL","message":"m","details":{"code":"TIMEOUT"}}`)}, "job.failed: INTERNAL: m", arcp.CodeInternal},
		{arcp.Envelope{Type: arcp.Nack, Payload: arcp.Raw(`{"code":7}`)},
			`nack: UNKNOWN: invalid payload: `, arcp.CodeUnknown},
	} {
		e := client.RemoteErrorOf(&c.env)
		if !strings.HasPrefix(e.Error(), c.want) || e.Code != c.code {
			t.Errorf("RemoteErrorOf(%s %s) = %v with code %s, want %s with code %s", c.env.Type, c.env.Payload, e, e.Code, c.want, c.code)
		}
	}
	if e := client.RemoteErrorOf(&arcp.Envelope{Type: arcp.Log}); e != nil {
		t.Errorf("RemoteErrorOf(log) = %v, want nil", e)
	}
	retryable := client.RemoteErrorOf(&arcp.Envelope{Type: arcp.Nack, Payload: arcp.Raw(`{"code":"INTERNAL"}`)}).Retryable
	want(t, "without a retryable member the code decides", retryable, true)
	retryable = client.RemoteErrorOf(&arcp.Envelope{Type: arcp.Nack, Payload: arcp.Raw(`{"code":"INTERNAL","retryable":false}`)}).Retryable
	want(t, "the member wins", retryable, false)
}
