package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// attach opens or resumes the session (SPEC.md §5.10). It reports whether the session is attached.
func (c *client) attach(ctx context.Context) bool {
	if c.stream == nil {
		return c.openNew(ctx)
	}
	after := c.position()
	byOpen := c.library.can.reopen && (len(c.tokens) == 0 || c.rnd.IntN(10) == 0)
	token := ""
	var opening *arcp.Envelope
	if byOpen {
		c.unsure = true
		opening = c.open(c.stream.Session, &after)
	} else {
		token = c.tokens[0]
		opening = c.compose(arcp.SessionResume, arcp.SessionResumePayload{ResumeToken: token, LastEventSeq: after})
		opening.SessionID = c.stream.Session
	}
	if !c.conn.open(opening) || c.hangUp() {
		return false
	}
	answer, ok := c.next(ctx, answerWait)
	if !ok {
		return false
	}
	env := &answer.Envelope
	if env.Type != arcp.SessionResumed && env.Type != arcp.SessionAccepted {
		c.refused(env, byOpen, token, after)
		return false
	}
	return c.attached(env, byOpen, token, after)
}

// open sends the first message. It returns false if the connection is broken.
func (c *connection) open(env *arcp.Envelope) bool {
	return c.Write(c.encode(env)) == nil && c.Flush() == nil
}

// hangUp sometimes waits a moment and returns true: the caller drops the connection. The last
// command may or may not have been performed.
func (c *client) hangUp() bool {
	if c.phase.Load() != loading || c.rnd.IntN(12) != 0 {
		return false
	}
	sleep(context.Background(), time.Duration(c.rnd.Int64N(int64(5*time.Millisecond))))
	c.cuts.Add(1)
	return true
}

// position returns the event_seq to resume from. Usually this is the last event, sometimes an
// earlier one. While checking it is the last acknowledged event.
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

// open returns a session.open. A non-empty id attaches to that session.
func (c *client) open(id arcp.SessionID, after *uint64) *arcp.Envelope {
	env := c.compose(arcp.SessionOpen, arcp.SessionOpenPayload{
		Auth:         arcp.Auth{Scheme: "bearer", Token: c.principal.Token},
		Client:       arcp.ClientInfo{Kind: "chaos", Version: "1"},
		LastEventSeq: after,
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{
			arcp.FeatureDurableJobs: true, arcp.FeatureSubscriptions: true, arcp.FeatureScheduledJobs: c.library.can.schedule, arcp.FeatureArtifacts: true,
			arcp.FeatureCheckpoints: c.checkpoints(), arcp.FeatureStreaming: c.streams()}},
	})
	env.SessionID = id
	return env
}

// checkpoints reports whether the session receives checkpoints. Three of four sessions of the RFC's
// dialect negotiate them; in the draft dialect all sessions receive them.
func (c *client) checkpoints() bool { return c.library.dialect() == arcp.DialectDraft || c.n%4 != 3 }

// streams reports whether the session receives streams. Three of four sessions of the RFC's dialect
// negotiate them.
func (c *client) streams() bool { return c.library.dialect() == arcp.DialectRFC && c.n%4 != 2 }

func (c *client) openNew(ctx context.Context) bool {
	if !c.conn.open(c.open("", nil)) {
		return false
	}
	answer, ok := c.next(ctx, answerWait)
	if !ok {
		return false
	}
	p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&answer.Envelope)
	if err != nil || answer.Type != arcp.SessionAccepted {
		c.report(Finding{RuleAnswer, c.String(), "session.open was answered with " + string(answer.frame)})
		return false
	}
	var others []string
	for _, o := range c.others {
		others = append(others, o.Name)
	}
	c.stream = NewStream(c.String(), c.principal.Name, p.SessionID, others)
	c.stream.Dialect, c.stream.Checkpoints, c.stream.Streams = c.library.dialect(), c.checkpoints(), c.streams()
	c.tokens = []string{p.ResumeToken}
	return true
}

// attached continues the session after the answer. The previous token stays valid until the runtime
// receives a message on this connection. A client that loses the answer uses the previous token.
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
		c.stream.find(RuleLost, "the session is lost: %s names %s", env.Type, id)
		return false
	}
	c.unsure = false
	if byOpen && len(c.tokens) > 0 {
		used = c.tokens[0]
	}
	c.tokens = []string{token, used}
	if c.phase.Load() == loading && c.rnd.IntN(20) == 0 { // pretend that the answer was lost
		c.tokens[0], c.tokens[1] = c.tokens[1], c.tokens[0]
		c.cuts.Add(1)
		return false
	}
	c.stream.Attach(after)
	return true
}

// refused tries the next candidate token on the next connection. Without another candidate the
// runtime has lost the session.
func (c *client) refused(env *arcp.Envelope, byOpen bool, token string, after uint64) {
	e, err := arcp.DecodePayload[arcp.Error](env)
	switch {
	case err == nil && e.Code == arcp.CodeUnavailable:
	case err == nil && e.Code == arcp.CodeResumeWindowExpired && !byOpen && (len(c.tokens) > 1 || c.unsure):
		c.tokens = slices.DeleteFunc(c.tokens, func(t string) bool { return t == token })
	default:
		c.stream.find(RuleLost, "resume after event %d of %d was refused: %s %s", after, c.stream.Last(), env.Type, env.Payload)
	}
}
