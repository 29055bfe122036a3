package script

import (
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// draftVerbs are the steps whose meaning differs in the draft dialect:
//
//	submit AGENT [INPUT] [OPTIONS] [ENVELOPE]  sends job.submit; its value is the id
//	started ID        reads until job.accepted; its value is the job's id
//	follow JOB        reads until a job ends; its value is the events, without job.accepted
//	invoke AGENT ...  is submit, started and follow; its value begins with job.accepted
//	call AGENT [INPUT] [PATTERN] [OPTIONS]  is invoke of a job that succeeds; its value is the result
//	fails AGENT INPUT CODE   is invoke of a job that fails; its value is the error
//	refused CODE      the last message is refused, in the form that the client reads
//	resume AFTER      redials and sends session.hello with a resume
//	replays FIRST LAST  exactly these events come
//	copies JOB        follow for a subscribed job: its replay may come before the answer to job.subscribe
//
// An answer is not correlated, so steps of a session come one after the other.
var draftVerbs map[string]func(a *action) (Value, error)

func init() { // draftVerbs refer to action, which refers to draftVerbs
	draftVerbs = map[string]func(a *action) (Value, error){
		"submit":  (*action).submitDraft,
		"started": (*action).startedDraft,
		"follow":  func(a *action) (Value, error) { return a.followJob(plain(a.arg(0)), nil) },
		"invoke":  (*action).invokeDraft,
		"call":    (*action).callDraft,
		"fails":   (*action).failsDraft,
		"refused": (*action).refusedDraft,
		"resume":  (*action).resumeDraft,
		"cut":     (*action).cutDraft,
		"replays": (*action).replaysDraft,
		"copies":  func(a *action) (Value, error) { return a.followJob(plain(a.arg(0)), nil) },
	}
	for _, name := range []string{"refusal", "reopen", "pages", "brings", "brought"} {
		draftVerbs[name] = func(a *action) (Value, error) { return nil, a.failf("%s is no step of the draft dialect", a.step.verb) }
	}
}

func (a *action) submitDraft() (Value, error) {
	var payload strings.Builder
	payload.WriteString(`{"agent":` + string(a.arg(0)))
	if input := a.arg(1); input != nil {
		payload.WriteString(`,"input":` + string(input))
	}
	for name, v := range members(a.arg(2)) {
		payload.WriteString("," + string(text(name)) + ":" + string(v))
	}
	err := a.send(a.conn, text(string(JobSubmit)), Value(payload.String()+"}"), members(a.arg(3)))
	return text(a.conn.sent), err
}

// acceptance reads until a job is accepted.
func (a *action) acceptance() (*frame, error) {
	for {
		f, err := a.event(a.conn)
		switch {
		case err != nil, f.Type == arcp.JobAccepted:
			return f, err
		case slices.Contains(a.conn.dialect.refusals, f.Type) && f.EventSeq == 0:
			return nil, a.failf("job.submit is accepted: got %s", f)
		}
	}
}

func (a *action) startedDraft() (Value, error) {
	f, err := a.acceptance()
	if err != nil {
		return nil, err
	}
	return text(string(f.JobID)), nil
}

// followJob collects the events of a job that its session was sent, also before, after the frames in
// list, and reads until the job ends.
func (a *action) followJob(job string, list []Value) (Value, error) {
	for _, f := range a.conn.session.list() {
		if string(f.JobID) != job {
			continue
		}
		if list = append(list, f.text); a.conn.dialect.isFinal(f) {
			return array(list), nil
		}
	}
	for {
		f, err := a.event(a.conn)
		switch {
		case err != nil:
			return nil, err
		case string(f.JobID) != job || f.EventSeq == 0 && !a.conn.dialect.isFinal(f):
			continue
		}
		if list = append(list, f.text); a.conn.dialect.isFinal(f) {
			return array(list), nil
		}
	}
}

func (a *action) invokeDraft() (Value, error) {
	if _, err := a.submitDraft(); err != nil {
		return nil, err
	}
	f, err := a.acceptance()
	if err != nil {
		return nil, err
	}
	return a.followJob(string(f.JobID), []Value{f.text})
}

// outcome runs a job whose last event is of a type, and returns that event.
func (a *action) outcome(typ arcp.Type) (*frame, error) {
	job, err := a.invokeDraft()
	if err != nil {
		return nil, err
	}
	f := &frame{text: member(job, []string{"-1"})}
	f.Envelope, _ = arcp.DecodeDraftFromRuntime(f.text) // it was decoded when it came
	if f.Type != typ {
		return nil, a.failf("%s ends with %s: got %s", plain(a.arg(0)), typ, f)
	}
	return f, nil
}

func (a *action) callDraft() (Value, error) {
	if len(a.patterns) > 1 {
		options, err := a.scope.eval(a.patterns[1])
		if err != nil {
			return nil, err
		}
		a.args = append(a.args, options)
	}
	f, err := a.outcome(JobResult)
	if err != nil {
		return nil, err
	}
	p := members(f.Payload)
	result := or(p["result"], p["output"])
	if len(a.patterns) > 0 {
		err = a.scope.match(a.patterns[0], result, "")
	}
	return result, err
}

func (a *action) failsDraft() (Value, error) {
	f, err := a.outcome(JobError)
	if err != nil {
		return nil, err
	}
	return f.Payload, a.code(f, a.patterns[0])
}

// refusedDraft expects the refusal of the last message. A job may be accepted only to fail, because
// some clients cannot relate any other frame to their submit.
func (a *action) refusedDraft() (Value, error) {
	for {
		f, err := a.event(a.conn)
		switch {
		case err != nil:
			return nil, err
		case f.Type == arcp.JobAccepted, f.Type == JobEvent: // events of other jobs may come before the answer
		case slices.Contains(a.conn.dialect.refusals, f.Type):
			return f.Payload, a.code(f, a.patterns[0])
		default:
			return nil, a.failf("got %s, want %v", f, a.conn.dialect.refusals)
		}
	}
}

func (a *action) resumeDraft() (Value, error) {
	after := a.arg(0)
	if plain(after) == "last" {
		after = marshal(a.conn.session.last)
	}
	c, err := a.redial()
	if err != nil {
		return nil, err
	}
	before, id := c.session.token, c.session.id
	hello, err := a.host.Open(c.session.role)
	if err == nil {
		hello, err = a.host.Func("resuming")([]Value{hello, text(id), text(before), after})
	}
	if err == nil {
		err = a.send(c, text(string(SessionHello)), hello, nil)
	}
	if err != nil {
		return nil, err
	}
	f, err := a.event(c)
	switch {
	case err != nil:
	case f.Type != SessionWelcome:
		err = a.failf("a resume is answered by session.welcome before anything is replayed: got %s", f)
	case c.session.id != id:
		err = a.failf("a resume goes on with its session: it is %s, want %s", c.session.id, id)
	case c.session.token == "" || c.session.token == before:
		err = a.failf("every resume gives a new token: it is the one that was used")
	}
	if err != nil {
		return nil, err
	}
	return f.Payload, nil
}

func (a *action) cutDraft() (Value, error) {
	a.conn.Drop()
	a.args = []Value{text("last")}
	return a.resumeDraft()
}

func (a *action) replaysDraft() (Value, error) {
	first, err := integer(a.arg(0))
	if err != nil {
		return nil, err
	}
	last, err := integer(a.arg(1))
	if err != nil {
		return nil, err
	}
	var list []Value
	for seq := first; seq <= last; seq++ {
		f, err := a.event(a.conn)
		if err != nil {
			return nil, err
		}
		if f.EventSeq != uint64(seq) {
			return nil, a.failf("got %s, want event %d", f, seq)
		}
		list = append(list, f.text)
	}
	return array(list), nil
}
