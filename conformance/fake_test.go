package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

const fakeToken = "fake-token-0123456789abcdef"

// fakeTarget is a small server in this process. It passes the checks that detect the faults of
// fakeFaults.
func fakeTarget(t *testing.T, changes ...func(*fake)) Target {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return Target{Token: fakeToken, Dial: func(context.Context) (transport.Conn, error) {
		near, far := transport.Pipe(transport.Limits{})
		f := newFake(far)
		for _, change := range changes {
			change(f)
		}
		serving.Go(f.serve)
		return near, nil
	}}
}

// fake serves one client. Jobs run at once, except a long demo.sleep, which runs until it is
// cancelled.
type fake struct {
	conn     transport.Conn
	session  arcp.SessionID
	version  string
	seq      uint64
	received map[arcp.MessageID]bool
	early    []arcp.Envelope // messages received before session.open
	running  map[arcp.JobID]*fakeJob
	ended    map[arcp.JobID]bool
	hangsUp  bool // closes the connection after a message that it does not serve, or not yet
}

type fakeJob struct {
	id     arcp.JobID
	submit arcp.MessageID
	trace  string
	cause  arcp.MessageID
}

func newFake(conn transport.Conn) *fake {
	return &fake{conn: conn, received: map[arcp.MessageID]bool{}, running: map[arcp.JobID]*fakeJob{}, ended: map[arcp.JobID]bool{}}
}

func (f *fake) serve() {
	defer func() { _ = f.conn.Abort() }() // the client has disconnected
	for {
		frame, err := f.conn.Read()
		if err != nil {
			return
		}
		env, err := arcp.Decode(frame)
		if err == nil && f.handle(&env) {
			_ = f.conn.Close(transport.CloseNormal, "") // the client may have gone before
			return
		}
	}
}

// handle performs one message and reports whether it was the last.
func (f *fake) handle(env *arcp.Envelope) (last bool) {
	if f.session == "" {
		if env.Type != arcp.SessionOpen {
			f.early = append(f.early, *env)
			return f.hangsUp
		}
		f.open(env)
		for i := 0; i < len(f.early) && f.session != ""; i++ {
			f.answer(&f.early[i], arcp.Nack, arcp.Errorf(arcp.CodeFailedPrecondition, "sent before session.accepted"))
		}
		return false
	}
	if f.received[env.ID] {
		return false
	}
	f.received[env.ID] = true
	switch env.Type {
	case arcp.Ping:
		p, _ := arcp.DecodePayload[arcp.PingPayload](env) // checks send valid payloads
		f.answer(env, arcp.Pong, arcp.PongPayload(p))
	case arcp.SessionPing:
		p, _ := arcp.DecodePayload[arcp.SessionPingPayload](env) // checks send valid payloads
		f.answer(env, arcp.SessionPong, arcp.SessionPongPayload{PingNonce: p.Nonce, ReceivedAt: time.Now()})
	case arcp.SessionListJobs:
		f.list(env)
	case arcp.ToolInvoke:
		p, _ := arcp.DecodePayload[arcp.ToolInvokePayload](env) // checks send valid payloads
		f.invoke(env, p)
	case arcp.WorkflowStart:
		p, _ := arcp.DecodePayload[arcp.WorkflowStartPayload](env) // checks send valid payloads
		f.invoke(env, p.Invoke())
	case arcp.AgentDelegate:
		p, _ := arcp.DecodePayload[arcp.AgentDelegatePayload](env) // checks send valid payloads
		f.invoke(env, p.Invoke())
	case arcp.Cancel:
		f.cancel(env)
	case arcp.SessionClose:
		f.answer(env, arcp.SessionClosed, arcp.SessionClosedPayload{})
		return true
	default:
		if f.hangsUp {
			return true
		}
		f.unknown(env)
	}
	return false
}

func (f *fake) send(env arcp.Envelope) {
	env.ARCP, env.ID, env.SessionID = f.version, arcp.NewMessageID(), f.session
	env.Timestamp = time.Now()
	_ = f.conn.Write(env.Append(nil)) // the next read reports that the client has disconnected
	_ = f.conn.Flush()                // likewise
}

func (f *fake) answer(to *arcp.Envelope, typ arcp.Type, payload any) {
	env := arcp.Frame(typ, payload)
	env.CorrelationID = to.ID
	f.send(env)
}

func (f *fake) event(j *fakeJob, typ arcp.Type, payload any) {
	env := arcp.Frame(typ, payload)
	f.seq++
	env.EventSeq, env.CorrelationID, env.JobID, env.TraceID, env.CausationID = f.seq, j.submit, j.id, j.trace, j.cause
	f.send(env)
}

func (f *fake) open(env *arcp.Envelope) {
	f.version = env.ARCP
	p, err := arcp.DecodePayload[arcp.SessionOpenPayload](env)
	if err != nil || p.Auth.Token != fakeToken {
		f.answer(env, arcp.SessionRejected, arcp.Errorf(arcp.CodeUnauthenticated, "unknown bearer token"))
		return
	}
	f.session = arcp.NewSessionID()
	f.answer(env, arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: f.session,
		Runtime: arcp.RuntimeInfo{Kind: "fake", Version: "1"}, ResumeToken: "rt_" + string(f.session)})
}

func (f *fake) unknown(env *arcp.Envelope) {
	class := arcp.Classify(env.Type)
	if class == arcp.ClassExperimental || class == arcp.ClassExtension && env.OptionalExtension() {
		return
	}
	f.answer(env, arcp.Nack, arcp.Errorf(arcp.CodeUnimplemented, "%s is not offered", env.Type))
}

func (f *fake) list(env *arcp.Envelope) {
	page := arcp.SessionJobsPayload{RequestID: env.ID, Jobs: []arcp.JobEntry{}}
	for id := range f.ended {
		page.Jobs = append(page.Jobs, arcp.JobEntry{JobID: id, Agent: "demo.echo@1.0.0", Status: "completed", CreatedAt: time.Now()})
	}
	f.answer(env, arcp.SessionJobs, page)
}

var fakeVersions = map[string][]string{"demo.echo": {"1.0.0", "0.9.0"}, "demo.emit": {"1.0.0"}, "demo.progress": {"1.0.0"},
	"demo.sleep": {"1.0.0"}, "demo.fail": {"1.0.0"}, "demo.stubborn": {"1.0.0"}}

func (f *fake) invoke(env *arcp.Envelope, p arcp.ToolInvokePayload) {
	ref, err := arcp.ParseAgentRef(p.Tool)
	switch versions := fakeVersions[ref.Name]; {
	case err != nil:
		f.answer(env, arcp.JobFailed, arcp.Errorf(arcp.CodeInvalidArgument, "%v", err))
	case versions == nil:
		f.answer(env, arcp.JobFailed, arcp.Errorf(arcp.CodeAgentNotAvailable, "no tool %s", ref.Name))
	case ref.Version != "" && !slices.Contains(versions, ref.Version):
		f.answer(env, arcp.JobFailed, arcp.Errorf(arcp.CodeAgentVersionNotAvailable, "no tool %s", ref))
	default:
		if ref.Version == "" {
			ref.Version = versions[0]
		}
		f.run(env, ref, p.Arguments)
	}
}

func (f *fake) run(env *arcp.Envelope, ref arcp.AgentRef, args arcp.Raw) {
	j := &fakeJob{id: arcp.NewJobID(), submit: env.ID, trace: env.TraceID, cause: env.CausationID}
	if j.trace == "" {
		j.trace = fmt.Sprintf("%032x", f.seq+1)
	}
	f.event(j, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: j.id, Agent: ref.String()})
	f.event(j, arcp.JobStarted, arcp.JobStartedPayload{})
	var a struct {
		Count, Steps, Bytes, MS int
		Code                    string
		Message                 string
		Retryable               *bool
	}
	_ = json.Unmarshal(args, &a) // other members are other tools'
	switch ref.Name {
	case "demo.emit":
		for i := range min(a.Count, 1000) {
			f.event(j, arcp.Log, arcp.LogPayload{Level: "info", Message: string(make([]byte, a.Bytes)), Attributes: arcp.Raw(fmt.Sprintf(`{"n":%d}`, i))})
		}
		args = arcp.Raw(fmt.Sprintf(`{"emitted":%d}`, a.Count))
	case "demo.progress":
		for i := range a.Steps {
			f.event(j, arcp.JobProgress, arcp.JobProgressPayload{Current: float64(i + 1), Total: new(float64(a.Steps))})
		}
	case "demo.fail":
		f.fail(j, a.Code, a.Message, a.Retryable)
		return
	case "demo.sleep", "demo.stubborn":
		if a.MS > 1000 {
			f.running[j.id] = j
			return
		}
	}
	if ref.Version == "0.9.0" {
		args = arcp.Raw(`{"legacy":` + string(args) + `}`)
	}
	end := arcp.JobCompleted
	if env.Type == arcp.WorkflowStart {
		end = arcp.WorkflowComplete
	}
	f.end(j, end, arcp.JobCompletedPayload{Value: args})
}

func (f *fake) fail(j *fakeJob, code, message string, retryable *bool) {
	e := arcp.Errorf(arcp.Code(code), "%s", message)
	if !e.Code.Known() {
		e.Code = arcp.CodeUnknown
	}
	if retryable != nil {
		e.Retryable = *retryable
	}
	f.end(j, arcp.JobFailed, e)
}

func (f *fake) end(j *fakeJob, typ arcp.Type, payload any) {
	f.event(j, typ, payload)
	delete(f.running, j.id)
	f.ended[j.id] = true
}

func (f *fake) cancel(env *arcp.Envelope) {
	p, _ := arcp.DecodePayload[arcp.CancelPayload](env) // checks send valid payloads
	j := f.running[arcp.JobID(p.TargetID)]
	if j == nil {
		reason := "not_found"
		if f.ended[arcp.JobID(p.TargetID)] {
			reason = "already_terminal"
		}
		f.answer(env, arcp.CancelRefused, arcp.CancelRefusedPayload{TargetID: p.TargetID, Reason: reason})
		return
	}
	f.answer(env, arcp.CancelAccepted, arcp.CancelAcceptedPayload{TargetID: p.TargetID})
	code := arcp.CodeCancelled
	if p.DeadlineMS != nil && *p.DeadlineMS < 1000 {
		code = arcp.CodeAborted
	}
	f.end(j, arcp.JobCancelled, arcp.JobCancelledPayload{Reason: p.Reason, Code: code})
}
