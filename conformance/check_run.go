package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/transport"
)

// checkRun is one run of a check. It belongs to the goroutine of the check. A method that finds a
// violation ends that goroutine.
type checkRun struct {
	ctx    context.Context
	id     string // of the check; "" for the probe
	target *Target
	server *server
	tr     *transcript
	conns  []connection
	sent   map[string]bool // ids of messages sent on any connection
	levels []Level         // whose rules are judged

	findings *findings // violated rules of frames
	shapes   shapes    // of the received frames; nil: not needed

	active *link // the connection that was used last

	failure   string
	rule, got string // of the failure; rule is "" if the title of the check is the rule
	broke     Level  // level of the violated rule; empty: the level of the check
	skip      string
	need      string // the missing precondition behind skip; may be ""
	timedOut  bool   // the failure is that no frame came before the end of ctx
	closed    bool   // the server closed a connection
	optional  bool   // the check sends a type that a server need not know
	opening   bool   // a valid session.open or session.hello has no acceptance
}

func newCheckRun(ctx context.Context, target *Target, s *server) *checkRun {
	return &checkRun{ctx: ctx, target: target, server: s, tr: newTranscript(target.secrets()), sent: map[string]bool{},
		levels: Levels, findings: &findings{}}
}

// execute runs fn on a new goroutine, because Failf and Skipf end their goroutine. It then closes
// all sessions that have a connection. At the end of a passed check each session must still answer
// a ping.
func (run *checkRun) execute(fn func(ctx context.Context, t *checkRun)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer run.cleanup()
		defer run.recover()
		fn(run.ctx, run)
		for _, c := range run.conns {
			c.checkAlive()
		}
	}()
	<-done
}

// recover reports a panic of a check as its failure.
func (run *checkRun) recover() {
	switch r := recover().(type) {
	case nil:
	default:
		run.failure = fmt.Sprintf("the check itself panicked: %v\n%s", r, debug.Stack())
	}
}

func (run *checkRun) cleanup() {
	for _, c := range run.conns {
		closeSession(c)
	}
	run.addOutput()
}

// closeSession ends the session of a connection, so that it does not stay on the server, and drops
// the connection. The answer is not judged. A process of Target.Exec ends with its session.
func closeSession(c connection) {
	l := c.transportLink()
	if _, ends := l.tc.(*processConn); !ends && !l.gone && c.accepted() {
		_ = l.tc.Write(c.closing())               // the server may have closed the connection
		_ = l.tc.Close(transport.CloseNormal, "") // the answer is not judged
	}
	c.Drop()
}

// closeReason is the reason of the messages that close sessions.
const closeReason = "the check has ended"

// Failf records a violation by the server and ends the check. If the format begins with "%s: ", the
// first argument is the violated rule.
func (run *checkRun) Failf(format string, args ...any) {
	rule, got := splitViolation(format, args)
	run.rule, run.got = run.tr.redact(rule), clip.Ellipsis(run.tr.redact(got), maxGot)
	run.failure = run.tr.redact(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Skipf records a missing precondition and ends the check.
func (run *checkRun) Skipf(format string, args ...any) {
	run.skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// SkipWithout ends the check unless the target meets a precondition, as in Check.Needs.
func (run *checkRun) SkipWithout(need string) {
	if reason := run.server.missing(run.target, need); reason != "" {
		run.need = need
		run.Skipf("%s", reason)
	}
}

// pollDeadline returns the time when a check stops polling, one second before its timeout.
func (run *checkRun) pollDeadline() time.Time {
	const reportTime = time.Second
	end, bounded := run.ctx.Deadline()
	if !bounded {
		end = time.Now().Add(DefaultTimeout)
	}
	return end.Add(-reportTime)
}

// Want fails the check unless ok. rule is the rule that the server violates; format describes the
// observation.
func (run *checkRun) Want(rule string, ok bool, format string, args ...any) {
	if !ok {
		run.Failf("%s: %s", rule, fmt.Sprintf(format, args...))
	}
}

// HouseWant is Want for a rule of SPEC.md only. It does nothing unless the level House is judged.
func (run *checkRun) HouseWant(rule string, ok bool, format string, args ...any) {
	if ok || !run.judges(House) {
		return
	}
	run.broke = House
	run.Want(rule, false, format, args...)
}

// judges reports whether the rules of a level are judged.
func (run *checkRun) judges(l Level) bool { return slices.Contains(run.levels, l) }

// want fails the check unless got equals expected. rule is the rule that the server violates.
func want[V comparable](t *checkRun, rule string, got, expected V) {
	if got != expected {
		t.Failf("%s: got %v, want %v", rule, quoted(got), quoted(expected))
	}
}

func quoted(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// Dial connects and sends nothing.
func (run *checkRun) Dial() *checkConn {
	run.needsShared()
	tc, err := run.target.dial(run.ctx)
	if err != nil {
		run.Failf("connect to the server: %v", err)
	}
	return run.connected(tc)
}

// DialDraft connects for a client of the draft dialect and sends nothing. The connection is for the
// session of an earlier one unless that is nil.
func (run *checkRun) DialDraft(earlier *draftConn) *draftConn {
	run.needsShared()
	tc, err := run.target.dial(run.ctx)
	if err != nil {
		run.Failf("connect to the server: %v", err)
	}
	c := newDraftConn(newLink(run, tc), earlier)
	run.conns = append(run.conns, c)
	return c
}

// Restart kills and starts the server, and drops the connections of the check.
func (run *checkRun) Restart(ctx context.Context) {
	if err := run.target.Restart(ctx); err != nil {
		run.Failf("restart the server: %v", err)
	}
	for _, c := range run.conns {
		c.Drop()
	}
}

// DialSocket connects with a client that can also send binary and malformed frames.
func (run *checkRun) DialSocket() *checkConn {
	s, err := run.target.dialSocket(run.ctx)
	if err != nil {
		run.Failf("connect to the server: %v", err)
	}
	return run.connected(s)
}

func (run *checkRun) connected(tc transport.Conn) *checkConn {
	c := newConn(newLink(run, tc))
	run.conns = append(run.conns, c)
	return c
}

// Open connects and opens a session.
func (run *checkRun) Open(with ...func(*arcp.SessionOpenPayload)) *checkConn {
	c := run.Dial()
	c.Open(with...)
	return c
}

// openPayload returns the payload of a valid session.open.
func (run *checkRun) openPayload() arcp.SessionOpenPayload {
	p := arcp.SessionOpenPayload{
		Auth:   arcp.Auth{Scheme: "bearer", Token: run.target.Token},
		Client: arcp.ClientInfo{Kind: "arcp-conformance", Version: "1.0.0"},
	}
	if run.target.Token == "" { // a server on a unix socket uses the peer credentials
		p.Auth.Scheme = "none"
	}
	return p
}

// offer adds features to the capabilities of a session.open.
func offer(features ...arcp.Feature) func(*arcp.SessionOpenPayload) {
	return func(p *arcp.SessionOpenPayload) {
		p.Capabilities.Flags = map[arcp.Feature]bool{}
		for _, f := range features {
			p.Capabilities.Flags[f] = true
		}
	}
}
