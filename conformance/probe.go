package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
)

// probe opens a session with all features, observes the habits of the server, and looks for each
// tool that the checks need. No rule of frames is judged during the probe.
func probe(t *checkRun, checks []Check, s *server) {
	if t.target.Dialect == arcp.DialectDraft {
		probeDraft(t, s)
		return
	}
	c := t.Dial()
	c.v.lenient = true
	s.accepted = c.openAny(s)
	c.probePing(s)
	c = c.probeTools(s, neededTools(checks))
	s.saw("events have an event_seq", s.numbered)
	closeSession(c)
}

// probeTools observes which of the tools the server has, and which it runs without a job (RFC §6.3). It returns the
// connection that is open afterwards.
func (c *checkConn) probeTools(s *server, names []string) *checkConn {
	s.tools, s.direct = map[string]bool{}, map[string]bool{}
	answers := map[arcp.Type][]string{}
	for _, name := range names {
		if c.gone {
			c = c.t.Dial()
			c.v.lenient = true
			c.Open()
		}
		exists, answer := c.tryTool(name)
		if s.tools[name] = exists; exists {
			answers[answer] = append(answers[answer], name)
		}
		s.numbered = s.numbered || c.numbers
	}
	direct, jobs := answers[arcp.ToolResult], len(answers[arcp.JobAccepted])+len(answers[arcp.JobFailed]) > 0
	habit := "yes"
	switch {
	case len(direct) > 0 && jobs:
		habit = "for some tools"
	case len(direct) > 0:
		habit = "no"
		direct = append(direct, answers[arcp.ToolError]...) // a server that makes jobs may refuse arguments before
	}
	for _, name := range direct {
		s.direct[name] = true
	}
	s.habits = append(s.habits, "tool.invoke makes a job: "+habit)
	return c
}

// probeNewer observes which of the messages that RFC 0001 does not have the server serves.
func probeNewer(t *checkRun, s *server) {
	s.served = map[arcp.Type]bool{}
	if t.target.Dialect == arcp.DialectDraft {
		return
	}
	for _, m := range []struct {
		typ     arcp.Type
		payload any
		serves  func(c *checkConn) bool
	}{
		{arcp.SessionPing, arcp.SessionPingPayload{Nonce: "conformance", SentAt: time.Now().UTC()},
			func(c *checkConn) bool { return c.answerOf(arcp.SessionPong) != nil }},
		{arcp.SessionAck, arcp.SessionAckPayload{},
			func(c *checkConn) bool { return !c.refuses(s) }},
		{arcp.SessionListJobs, arcp.SessionListJobsPayload{},
			func(c *checkConn) bool { return c.answerOf(arcp.SessionJobs) != nil }},
		{arcp.JobSubscribe, arcp.JobSubscribePayload{JobID: unknownJob},
			func(c *checkConn) bool { return c.missesJob() }},
	} {
		c := t.Dial()
		c.v.lenient = true
		c.Open()
		c.Send(m.typ, m.payload)
		s.served[m.typ] = m.serves(c)
		s.saw("the server serves "+string(m.typ), s.served[m.typ])
		closeSession(c)
	}
}

// refuses reports whether the last message is refused, or ends the connection.
func (c *checkConn) refuses(s *server) bool {
	if s.barrier != script.ByTime {
		c.Ping()
		return c.answerOf(arcp.Pong) == nil
	}
	text, err := c.readSoon(s.wait())
	return err != nil || text != nil
}

// missesJob reports whether the next answer says that a job does not exist, or may not be seen.
func (c *checkConn) missesJob() bool {
	f := c.soon()
	return f != nil && slices.Contains(missingJob, f.errorCode())
}

// missingJob are the codes of a request that names a job that the client cannot see.
var missingJob = []arcp.Code{arcp.CodeJobNotFound, arcp.CodeNotFound, arcp.CodePermissionDenied}

// neededTools returns the tools that the checks need.
func neededTools(checks []Check) (names []string) {
	for _, check := range checks {
		for _, need := range check.Needs {
			if name, ok := strings.CutPrefix(need, toolPrefix); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// saw adds a habit.
func (s *server) saw(habit string, seen bool) {
	answer := "no"
	if seen {
		answer = "yes"
	}
	s.habits = append(s.habits, habit+": "+answer)
}

// openAny opens a session, with a challenge if the server sends one.
func (c *checkConn) openAny(s *server) arcp.SessionAcceptedPayload {
	const rule = "session.open with a valid token is accepted"
	open := c.t.openPayload()
	open.Capabilities = offerEverything()
	id := c.Send(arcp.SessionOpen, open)
	f := c.next(rule)
	s.saw("session.open brings a session.challenge", f.Type == arcp.SessionChallenge)
	if f.Type == arcp.SessionChallenge {
		answer := map[string]any{"auth": open.Auth, "response": proof(open.Auth.Token, f.text("challenge"))}
		c.Send(arcp.SessionAuthenticate, answer, func(env *arcp.Envelope) { env.SessionID = f.SessionID })
		f = c.next(rule)
	}
	if f.Type != arcp.SessionAccepted {
		s.refused = refusal(f)
		c.t.Failf("%s: got %s", rule, f)
	}
	s.saw("session.accepted has the correlation_id of session.open", f.CorrelationID == id)
	accepted := f.accepted()
	s.saw("session.accepted has a resume_token", accepted.ResumeToken != "")
	return accepted
}

// probeWait bounds the wait for an answer that a server need not send.
const probeWait = 3 * time.Second

// answerOf returns the next frame of a type, or a nack, within probeWait; nil if there is none.
func (c *checkConn) answerOf(typ arcp.Type) *received {
	for {
		f := c.soon()
		switch {
		case f == nil || f.Type == typ:
			return f
		case f.Type == arcp.Nack:
			return nil
		}
	}
}

// probePing chooses the barrier: the strongest one that the server lets a client observe.
func (c *checkConn) probePing(s *server) {
	id, nonce := c.Ping()
	f := c.answerOf(arcp.Pong)
	s.saw("a ping is answered by pong", f != nil)
	if f != nil {
		s.saw("a pong has the correlation_id of its ping", f.CorrelationID == id)
		s.saw("a pong repeats the nonce", f.text("nonce") == nonce)
	}
	switch {
	case f == nil:
		s.barrier = script.ByTime
		s.habits = append(s.habits, "the checks know that nothing comes by waiting "+s.wait().String())
	case f.CorrelationID == id:
		s.barrier = script.ByCorrelation
	case f.text("nonce") == nonce:
		s.barrier = script.ByNonce
	default:
		s.barrier = script.ByOrder
	}
}

// survives reports whether a session goes on after a frame, and whether the server closes its connection.
func survives(t *checkRun, s *server, frame string) (goesOn, closed bool) {
	c := t.Dial()
	c.v.lenient = true
	defer closeSession(c)
	c.Send(arcp.SessionOpen, t.openPayload())
	if c.answerOf(arcp.SessionAccepted) == nil {
		return false, false
	}
	c.write([]byte(frame))
	if s.barrier == script.ByTime {
		_, err := c.readSoon(s.wait())
		return err == nil, c.gone
	}
	c.Ping()
	return c.answerAfterNack(arcp.Pong) != nil, c.gone
}

// answerAfterNack is answerOf for a type that may come after the nack of an earlier frame.
func (c *checkConn) answerAfterNack(typ arcp.Type) *received {
	if f := c.answerOf(typ); f != nil || c.gone {
		return f
	}
	return c.answerOf(typ)
}

// probeSurvival observes whether a session survives frames that the server does not understand.
func probeSurvival(t *checkRun, s *server) {
	if t.target.Dialect == arcp.DialectDraft {
		return
	}
	unknown := arcp.Envelope{ARCP: arcp.Version, ID: arcp.NewMessageID(), Type: "job.conformance_probe", Timestamp: time.Now(), Payload: arcp.Raw(`{}`)}
	_, s.hangsUp = survives(t, s, string(unknown.Append(nil)))
	s.saw("the server keeps the connection after a message of a type that it does not know", !s.hangsUp)
	goesOn, _ := survives(t, s, "{")
	s.saw("a session survives a frame that is no JSON", goesOn)
}

// probe observes the server once. A server that accepts no session has no capabilities and tools:
// checks with needs are skipped, and the others run.
func (r *runner) probe(ctx context.Context, checks []Check) *server {
	s := &server{quiet: r.opts.Quiet}
	if err := r.observe(ctx, s, func(t *checkRun) { probe(t, checks, s) }); err != "" {
		s.err = "the server refuses session.open: " + err
		return s
	}
	for _, observe := range []func(*checkRun, *server){probeSurvival, probeNewer} {
		r.observe(ctx, s, func(t *checkRun) { observe(t, s) }) // what it could not observe, the server does not have
	}
	return s
}

// observe runs fn as a check that judges no rule, and returns its failure, or "".
func (r *runner) observe(ctx context.Context, s *server, fn func(t *checkRun)) (failure string) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	t := newCheckRun(ctx, r.target, s)
	t.levels = nil
	t.execute(func(_ context.Context, t *checkRun) { fn(t) })
	return t.failure
}

// tryTool reports whether the tool exists, and the type of the first of toolAnswers; "" if none came. It submits the tool
// with an argument that most tools refuse. Any outcome except "no such tool" proves that the tool exists. A server may accept
// the job before it looks for the tool; only an existing tool can be cancelled.
func (c *checkConn) tryTool(name string) (exists bool, answer arcp.Type) {
	id := c.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: name, Arguments: arcp.Raw(`{"conformance_probe":true}`)})
	var cancel arcp.MessageID
	for {
		f := c.soon()
		if f == nil {
			return false, ""
		}
		if f.CorrelationID == id && answer == "" && slices.Contains(toolAnswers, f.Type) {
			answer = f.Type
		}
		switch {
		case f.CorrelationID == id && f.Type == arcp.JobAccepted:
			cancel = c.Send(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(f.JobID)})
		case f.CorrelationID == id && (f.Type == arcp.JobFailed || f.Type == arcp.Nack || f.Type == arcp.ToolError):
			return !slices.Contains(noTool, f.errorCode()), answer
		case f.CorrelationID == id && f.Type.Terminal(), cancel != "" && f.CorrelationID == cancel && f.Type == arcp.CancelAccepted:
			return true, answer
		}
	}
}

// toolAnswers are the answers that show how a server runs a tool: the first two are those of a job.
var toolAnswers = []arcp.Type{arcp.JobAccepted, arcp.JobFailed, arcp.ToolResult, arcp.ToolError}

// noTool are the codes of a submit whose tool does not exist.
var noTool = []arcp.Code{arcp.CodeAgentNotAvailable, arcp.CodeNotFound, arcp.CodeUnimplemented}

// errorCode returns the specific code of an error.
func (r *received) errorCode() arcp.Code {
	var p struct {
		Code    arcp.Code `json:"code"`
		Details arcp.Raw  `json:"details"`
	}
	_ = arcp.Unmarshal(r.Payload, &p) // an error without a code has the code ""
	code, _ := arcp.SpecificCode(p.Code, p.Details)
	return code
}

// soon returns the next frame that comes within probeWait; nil if none comes. It answers
// session.ping.
func (c *checkConn) soon() *received {
	for end := time.Now().Add(probeWait); ; {
		text, err := c.readSoon(time.Until(end))
		if err != nil || text == nil {
			return nil
		}
		f := c.validate(text)
		if f != nil && f.Type != arcp.SessionPing {
			return f
		}
		if f != nil {
			c.pong(f)
		}
	}
}

// offerEverything returns every feature except anonymous, which changes the identity of the client.
func offerEverything() arcp.Capabilities {
	caps := arcp.Capabilities{Flags: map[arcp.Feature]bool{}}
	for _, f := range arcp.Features {
		caps.Flags[f] = f != arcp.FeatureAnonymous
	}
	return caps
}
