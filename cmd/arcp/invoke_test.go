package main

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

func TestInvokeSurvivesItsConnection(t *testing.T) {
	var request arcp.MessageID
	handle := func(c *fakeConn, env *arcp.Envelope) {
		switch env.Type {
		case arcp.ToolInvoke:
			request = env.ID
			c.event(request, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
			c.Close(transport.CloseGoingAway, "shutdown")
		case arcp.SessionResume:
			c.event(request, arcp.JobCompleted, arcp.JobCompletedPayload{Value: arcp.Raw("7")})
		}
	}
	o := newFakeRuntime(t, handle).cli("invoke", "demo.echo")
	wantOutcome(t, "text", o, exitOK, "7\n", "connection lost, reconnecting: closed by peer")
	if n := strings.Count(o.stderr, "\n"); n != 1 {
		t.Errorf("stderr has %d lines, want one:\n%s", n, o.stderr)
	}
	o = newFakeRuntime(t, handle).cli("invoke", "demo.echo", "-o", "json")
	wantOutcome(t, "JSON", o, exitOK, "7\n", `{"connection":{"message":"closed by peer`)

	r := newFakeRuntime(t, handle)
	r.refuse = true
	wantOutcome(t, "no way back", r.cli("invoke", "demo.echo"), exitUnreachable, "", "job_1 continues: `arcp jobs watch job_1` follows it")
}
