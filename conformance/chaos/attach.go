package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// attach does the handshake of a connection: it opens the session or resumes it
// (SPEC.md §5.10). It reports whether the session is attached.
func (c *client) attach(ctx context.Context) bool {
	if c.stream == nil {
		return c.openNew(ctx)
	}
	after := c.position()
	byOpen := len(c.tokens) == 0 || c.rnd.IntN(10) == 0
	token := ""
	var hello []byte
	if byOpen {
		c.doubt = true
		hello = c.hello(c.stream.Session, &after)
	} else {
		token = c.tokens[0]
		hello = c.frame(c.id(), arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token, LastEventSeq: after}, nil)
	}
	if !c.say(hello) || c.hangsUp() {
		return false
	}
	frame, ok := c.next(ctx, answerWait)
	if !ok {
		return false
	}
	env, err := arcp.Decode(frame)
	if err != nil {
		c.stream.find(RuleAnswer, "a frame of the runtime is none: %s: %v", frame, err)
		return false
	}
	if env.Type != arcp.SessionResumed && env.Type != arcp.SessionAccepted {
		c.refused(&env, byOpen, token, after)
		return false
	}
	return c.attached(&env, byOpen, token, after)
}

// say sends a frame of the handshake.
func (c *client) say(frame []byte) bool {
	return c.visit.conn.Write(frame) == nil && c.visit.conn.Flush() == nil
}

// hangsUp sometimes ends the connection at about the time when the answer to the last command
// arrives: the command may or may not have been performed.
func (c *client) hangsUp() bool {
	if c.phase.Load() != loading || c.rnd.IntN(12) != 0 {
		return false
	}
	sleep(context.Background(), time.Duration(c.rnd.Int64N(int64(5*time.Millisecond))))
	c.cuts.Add(1)
	return true
}

// position is from where on the client wants the session's events: as a rule
// after the last one it has, sometimes some it has once more, and in the end all
// that it has not acknowledged.
func (c *client) position() uint64 {
	last := c.stream.Last()
	switch {
	case c.phase.Load() == checking:
		return c.acked
	case c.rnd.IntN(3) == 0:
		return max(c.acked, last-min(last, c.rnd.Uint64N(300)))
	}
	return last
}

// hello is a session.open. With a session it asks for that one.
func (c *client) hello(id arcp.SessionID, after *uint64) []byte {
	return c.frame(c.id(), arcp.SessionOpen, arcp.SessionOpenPayload{
		Auth:         arcp.Auth{Scheme: "bearer", Token: c.principal.Token},
		Client:       arcp.ClientInfo{Kind: "chaos", Version: "1"},
		LastEventSeq: after,
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{
			arcp.FeatureDurableJobs: true, arcp.FeatureSubscriptions: true, arcp.FeatureCheckpoints: c.checkpoints()}},
	}, func(env *arcp.Envelope) { env.SessionID = id })
}

// checkpoints reports whether the session negotiates checkpoints: three in four do.
func (c *client) checkpoints() bool { return c.n%4 != 3 }

func (c *client) openNew(ctx context.Context) bool {
	if !c.say(c.hello("", nil)) {
		return false
	}
	frame, ok := c.next(ctx, answerWait)
	if !ok {
		return false
	}
	env, err := arcp.Decode(frame)
	p, bad := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
	if err != nil || bad != nil || env.Type != arcp.SessionAccepted {
		c.found(Finding{RuleAnswer, c.String(), "session.open was answered with " + string(frame)})
		return false
	}
	var others []string
	for _, o := range c.others {
		others = append(others, o.Name)
	}
	c.stream = NewStream(c.String(), c.principal.Name, p.SessionID, others)
	c.stream.Checkpoints = c.checkpoints()
	c.tokens = []string{p.ResumeToken}
	return true
}

// attached continues the session. The previous token is valid until the runtime has received a
// message on this connection: a client that lost the answer uses that.
func (c *client) attached(env *arcp.Envelope, byOpen bool, used string, after uint64) bool {
	id, token := env.SessionID, ""
	if byOpen {
		p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](env)
		if id, token = p.SessionID, p.ResumeToken; err != nil {
			token = ""
		}
	} else if p, err := arcp.DecodePayload[arcp.SessionResumedPayload](env); err == nil {
		id, token = p.SessionID, p.ResumeToken
	}
	if id != c.stream.Session || token == "" {
		c.stream.find(RuleLost, "the session is gone: %s was answered for %s", env.Type, id)
		return false
	}
	c.doubt = false
	if byOpen && len(c.tokens) > 0 {
		used = c.tokens[0]
	}
	c.tokens = []string{token, used}
	if c.phase.Load() == loading && c.rnd.IntN(20) == 0 { // as if the answer had been lost
		c.tokens[0], c.tokens[1] = c.tokens[1], c.tokens[0]
		c.cuts.Add(1)
		return false
	}
	c.stream.Attach(after)
	return true
}

// refused tries the next token that may be good. When none is, or the position
// is not accepted, the runtime has lost something.
func (c *client) refused(env *arcp.Envelope, byOpen bool, token string, after uint64) {
	e, err := arcp.DecodePayload[arcp.Error](env)
	switch {
	case err == nil && e.Code == arcp.CodeUnavailable:
	case err == nil && e.Code == arcp.CodeResumeWindowExpired && !byOpen && (len(c.tokens) > 1 || c.doubt):
		c.tokens = slices.DeleteFunc(c.tokens, func(t string) bool { return t == token })
	default:
		c.stream.find(RuleLost, "not resumed after %d, of %d events: %s %s", after, c.stream.Last(), env.Type, env.Payload)
	}
}
