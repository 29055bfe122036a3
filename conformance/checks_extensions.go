package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

// extensionNames are well-formed names no server has.
var extensionNames = []arcp.Type{"arcpx.conformance.v1", "arcpx.acme.workflow.v3", "com.acme.workflow.v2", "arcpx.a-b.c_d.v10"}

func extensionUnknownCore(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range []arcp.Type{"session.teleport", "job.explode", "tool.sharpen", "stream.cross", "human.sigh", "lease.burn",
		"artifact.hide", "permission.beg", "agent.smith", "checkpoint.charlie", "workflow.flow", "cancel.everything", "subscribe.never"} {
		c.ExpectNack(string(typ)+" is not known", c.Send(typ, struct{}{}), arcp.CodeUnimplemented)
	}
	c.ExpectNothing("an unknown type harms nothing")
}

func extensionUnadvertised(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range extensionNames {
		c.ExpectNack(string(typ)+" was not advertised", c.Send(typ, struct{}{}), arcp.CodeUnimplemented)
	}
	c.ExpectNothing("an unknown extension harms nothing")
}

func extensions(raw string) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.Extensions = arcp.Raw(raw) }
}

func extensionOptional(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range extensionNames {
		c.Send(typ, struct{}{}, extensions(`{"optional":true}`))
		c.Send(typ, struct{}{}, extensions(`{"other":1,"optional":true}`))
	}
	c.ExpectNothing("who says optional does not mind being ignored")
}

func extensionOptionalOnlyTrue(_ context.Context, t *T) {
	c := t.Open()
	for _, ext := range []string{`{"optional":false}`, `{"optional":"true"}`, `{"optional":1}`, `{"optional":null}`, `{}`,
		`{"Optional":true}`, `{"nested":{"optional":true}}`} {
		id := c.Send("arcpx.conformance.v1", struct{}{}, extensions(ext))
		c.ExpectNack("extensions "+ext+" is not optional", id, arcp.CodeUnimplemented)
	}
}

func extensionOptionalCore(_ context.Context, t *T) {
	c := t.Open()
	id := c.Send("session.teleport", struct{}{}, extensions(`{"optional":true}`))
	c.ExpectNack("only extensions can be optional", id, arcp.CodeUnimplemented)
	id = c.Send(arcp.Ping, arcp.PingPayload{}, extensions(`{"optional":true}`))
	c.Expect("a known type is performed", arcp.Pong, id)
}

func extensionExperimental(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range []arcp.Type{"x-anything", "x-", "x-a.b.c", "x-session.open"} {
		c.Send(typ, struct{}{})
	}
	c.ExpectNothing("experiments are nobody's business")
}

func extensionMalformed(_ context.Context, t *T) {
	c := t.Open()
	for _, typ := range []arcp.Type{"nonsense", "arcpx.example", "com.acme.workflow", "arcpx.foo.bar.v1.x", "1.2.v3", "a..b", ".", "ping.",
		"Ping", "tool invoke", "X-upper", "toolonglabel.acme.v1"} {
		c.ExpectNack(string(typ)+" is no name", c.Send(typ, struct{}{}), arcp.CodeInvalidArgument)
	}
}

func extensionNotNegotiated(_ context.Context, t *T) {
	c := t.Open(func(p *arcp.SessionOpenPayload) { p.Capabilities.Extensions = []string{"arcpx.conformance.v1"} })
	for _, name := range c.Accepted.Capabilities.Extensions {
		t.Want("both sides must have an extension", name != "arcpx.conformance.v1", "the server agrees to it")
	}
	c.ExpectNack("asking does not make it there", c.Send("arcpx.conformance.v1", struct{}{}), arcp.CodeUnimplemented)
}

func extensionMember(_ context.Context, t *T) {
	c := t.Open()
	for _, ext := range []string{`{}`, `{"arcpx.conformance.v1":{"a":[1,null]}}`, `{"optional":"maybe"}`} {
		id := c.Send(arcp.Ping, arcp.PingPayload{}, extensions(ext))
		c.Expect("extensions "+ext+" change nothing", arcp.Pong, id)
	}
}
