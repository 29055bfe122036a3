package script

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// action is one use of a verb.
type action struct {
	*run
	step     *step
	scope    *scope
	conn     *conn
	args     []Value
	patterns []*expr // arguments that are patterns
}

// arg returns the i-th argument, or nil.
func (a *action) arg(i int) Value {
	if i < len(a.args) {
		return a.args[i]
	}
	return nil
}

// verb is a step of one connection.
type verb struct {
	least, most int // number of arguments
	values      int // arguments that are values; those behind them are patterns
	run         func(a *action) (Value, error)
}

// verbs are the steps of a connection:
//
//	submit TOOL [ARGUMENTS] [OPTIONS] [ENVELOPE]   sends tool.invoke; its value is the id
//	follow ID         reads until the job of a submit ends; its value is the events
//	invoke TOOL ...   is submit and follow
//	call TOOL [ARGUMENTS] [PATTERN] [OPTIONS]   is invoke of a job that completes; its value is the result
//	fails TOOL ARGUMENTS CODE         is invoke of a job that fails; its value is the error
//	refused CODE      the next frame refuses the last submit, or re ID
//	refusal CODE      the same for any command: nack or job.failed
//	started ID        reads until the job of a submit starts; its value is the job's id
//	quiet [TYPE|...]  nothing comes before the answer to a ping; telemetry and these types break a
//	                  house rule only
//	closed [CODE ...] the server closes the connection, and nothing comes before
//	drop              ends the connection without a farewell
//	ends [CODE ...]   frames may come, which are its value, then the server closes the connection
//	receive           its value is the next frame; nothing if the server closes the connection
//	redial            connects again for the same session, and sends nothing
//	resume AFTER      redials and sends session.resume
//	cut               drops and resumes after the last event
//	reopen [MEMBERS]  redials and sends session.open that names the session
//	events N          reads the next events
//	replays FIRST LAST  exactly these events come, then those of a new job
//	copies JOB        reads the events of a job until its end
//	jobs FILTER [LIMIT]  lists jobs, page by page
//	pages TOOL ARGUMENTS MEMBER  lists items of a tool, page by page, each once by a member
//	brings SUBSCRIPTION EVENTS   the subscription brings exactly these events next
//	brought SUBSCRIPTION         the next event that the subscription brings
//	version TEXT      stamps what is sent from now on
//
// redial, resume, cut and reopen rename the new connection with as, else it
// replaces the old one.
var verbs map[string]verb

func init() { // verbs refer to run, which refers to verbs
	verbs = map[string]verb{
		"submit":  {1, 4, 4, (*action).submit},
		"follow":  {1, 1, 1, func(a *action) (Value, error) { return a.follow(plain(a.arg(0))) }},
		"invoke":  {1, 4, 4, (*action).invoke},
		"call":    {1, 4, 2, (*action).call},
		"fails":   {3, 3, 2, (*action).fails},
		"refused": {1, 1, 0, func(a *action) (Value, error) { return a.refusal(arcp.JobFailed) }},
		"refusal": {1, 1, 0, func(a *action) (Value, error) { return a.refusal(arcp.Nack, arcp.JobFailed) }},
		"started": {1, 1, 1, (*action).started},
		"quiet":   {0, 1, 0, (*action).quiet},
		"closed":  {0, 4, 4, (*action).closed},
		"drop":    {0, 0, 0, func(a *action) (Value, error) { a.conn.Drop(); return nil, nil }},
		"ends":    {0, 4, 4, (*action).ends},
		"receive": {0, 0, 0, (*action).receive},
		"redial":  {0, 0, 0, func(a *action) (Value, error) { _, err := a.redial(); return nil, err }},
		"resume":  {1, 1, 1, (*action).resume},
		"cut":     {0, 0, 0, (*action).breakConnection},
		"reopen":  {0, 2, 2, (*action).reopen},
		"events":  {1, 1, 1, (*action).events},
		"replays": {2, 2, 2, (*action).replays},
		"copies":  {1, 1, 1, (*action).copies},
		"jobs":    {1, 2, 2, (*action).jobs},
		"pages":   {3, 3, 3, (*action).pages},
		"brings":  {2, 2, 2, (*action).brings},
		"brought": {1, 1, 1, (*action).brought},
		"version": {1, 1, 1, func(a *action) (Value, error) { a.conn.version = plain(a.arg(0)); return nil, nil }},
	}
}

func (a *action) submit() (Value, error) {
	arguments := a.arg(1)
	if arguments == nil {
		arguments = Value("{}")
	}
	var payload strings.Builder
	payload.WriteString(`{"tool":` + string(a.arg(0)) + `,"arguments":` + string(arguments))
	for name, v := range members(a.arg(2)) {
		payload.WriteString("," + string(text(name)) + ":" + string(v))
	}
	err := a.send(a.conn, text(string(arcp.ToolInvoke)), Value(payload.String()+"}"), members(a.arg(3)))
	return text(a.conn.sent), err
}

func (a *action) invoke() (Value, error) {
	id, err := a.submit()
	if err != nil {
		return nil, err
	}
	return a.follow(plain(id))
}

// follow collects the events of a job that its session was sent, also before, and
// reads until its end. Heartbeats and events waiting are left out.
func (a *action) follow(submit string) (Value, error) {
	var job []Value
	var id arcp.JobID
	for _, f := range a.conn.session.list() {
		if !a.ofSubmit(f, submit, &id) || f.Type == arcp.JobHeartbeat || f.saysWhyItWaits() {
			continue
		}
		if job = append(job, f.text); f.Type.Terminal() {
			return array(job), nil
		}
	}
	for {
		f, err := a.event(a.conn)
		switch {
		case err != nil:
			return nil, err
		case !a.ofSubmit(f, submit, &id):
			continue
		case f.Type == arcp.Nack:
			a.houseRule("a tool.invoke is refused with job.failed: got %s", f)
		}
		if job = append(job, f.text); f.Type.Terminal() || f.Type == arcp.Nack {
			return array(job), nil
		}
	}
}

// ofSubmit reports whether a frame is about the job of a submit, whose id it learns. That the events of a job have the
// correlation_id of the submit is a house rule.
func (a *action) ofSubmit(f *frame, submit string, id *arcp.JobID) bool {
	switch {
	case string(f.CorrelationID) == submit:
		*id = f.JobID
		return true
	case f.CorrelationID != "" || f.JobID == "" || f.JobID != *id:
		return false
	}
	a.houseRule("an event of a job has the correlation_id of the submit: got %s", f)
	return true
}

// end is the last event of a job.
func end(job Value) *frame {
	f := &frame{text: member(job, []string{"-1"})}
	f.Envelope, _ = arcp.Decode(f.text) // it was decoded when it came
	return f
}

func (a *action) call() (Value, error) {
	if len(a.patterns) > 1 {
		options, err := a.scope.eval(a.patterns[1])
		if err != nil {
			return nil, err
		}
		a.args = append(a.args, options)
	}
	job, err := a.invoke()
	if err != nil {
		return nil, err
	}
	f := end(job)
	if f.Type != arcp.JobCompleted {
		return nil, a.failf("%s ends well: got %s", plain(a.arg(0)), f)
	}
	p := members(f.Payload)
	result := or(or(p["value"], p["result"]), p["output"])
	if len(a.patterns) > 0 {
		err = a.scope.match(a.patterns[0], result, "")
	}
	return result, err
}

func (a *action) fails() (Value, error) {
	job, err := a.invoke()
	if err != nil {
		return nil, err
	}
	f := end(job)
	switch f.Type {
	case arcp.JobFailed:
	case arcp.Nack, arcp.ToolError:
		a.houseRule("got %s, want job.failed", f)
	default:
		return nil, a.failf("got %s, want job.failed", f)
	}
	return f.Payload, a.code(f, a.patterns[0])
}

// code wants a frame to have a code that fits.
func (a *action) code(f *frame, pattern *expr) error {
	err := a.scope.matchCode(pattern, field(members(f.Payload), "code"), "code")
	if wrong, ok := errors.AsType[*mismatch](err); ok {
		return a.lenient(a.failf("got %s, want %s", f, wrong.want))
	}
	return err
}

// refusal expects that the next frame refuses a message. A server may accept a job before it fails.
func (a *action) refusal(types ...arcp.Type) (Value, error) {
	corr, err := a.correlation(&step{re: a.step.re, args: []*expr{{kind: wildcard}}}, a.scope, a.conn)
	if err != nil {
		return nil, err
	}
	for {
		f, err := a.event(a.conn)
		if err != nil {
			return nil, err
		}
		answers := string(f.CorrelationID) == corr
		switch {
		case answers && (f.Type == arcp.JobAccepted || f.Type == arcp.JobStarted):
			a.houseRule("a job that is refused is not accepted before: got %s", f)
			continue
		case answers && !slices.Contains(types, f.Type) && slices.Contains(refusing, f.Type):
			a.houseRule("got %s, want %v", f, types)
		case !slices.Contains(types, f.Type):
			return nil, a.failf("got %s, want %v", f, types)
		case !answers:
			return nil, a.failf("%s is correlated to %q, want %q", f, f.CorrelationID, corr)
		}
		if f.EventSeq != 0 {
			a.houseRule("a refusal is no event of a job: got %s", f)
		}
		return f.Payload, a.code(f, a.patterns[0])
	}
}

// refusing are the types that refuse a command.
var refusing = []arcp.Type{arcp.Nack, arcp.JobFailed, arcp.ToolError}

func (a *action) started() (Value, error) {
	for {
		f, err := a.event(a.conn)
		switch {
		case err != nil:
			return nil, err
		case string(f.CorrelationID) != plain(a.arg(0)):
		case f.Type == arcp.JobStarted:
			return text(string(f.JobID)), nil
		case f.Type == arcp.Nack || f.Type.Terminal():
			return nil, a.failf("an accepted job is started: got %s", f)
		}
	}
}

func (a *action) quiet() (Value, error) {
	return nil, a.upToBarrier(a.conn, func(f *frame) error {
		if slices.Contains(telemetry, f.Type) || len(a.patterns) > 0 && f.named(a.patterns[0]) {
			a.houseRule("got %s, want the answer to a ping", f)
			return nil
		}
		return a.lenient(a.failf("got %s, want the answer to a ping", f))
	})
}

// telemetry are types that a server may send at any time (RFC §17).
var telemetry = []arcp.Type{arcp.Log, arcp.Metric, arcp.TraceSpan, arcp.EventEmit}

func (a *action) closed() (Value, error) {
	data, err := a.readToEnd()
	switch {
	case errors.Is(err, errSilent):
		return nil, nil
	case err != nil:
		return nil, a.closedWith(err, a.args...)
	}
	return nil, a.lenient(a.failf("got a frame: %s", show(data)))
}

// readToEnd reads the next frame of a connection that the server should close. A house step that is
// not judged waits for it no longer than a Waiter does; then the error is errSilent.
func (a *action) readToEnd() ([]byte, error) {
	if w, ok := a.conn.Conn.(Waiter); ok && a.house && !a.host.House() {
		data, err := w.ReadFrameSoon()
		if data == nil && err == nil {
			err = errSilent
		}
		return data, err
	}
	return a.conn.ReadFrame()
}

// receive reads the next frame, which may be the end of the connection.
func (a *action) receive() (Value, error) {
	data, err := a.conn.readFrame()
	if _, closed := errors.AsType[*transport.Error](err); closed {
		return nil, nil
	}
	if err != nil {
		return nil, a.failf("%v", err)
	}
	f := &frame{text: slices.Clone(data)}
	if f.Envelope, err = a.conn.dialect.decode(data); err != nil {
		return nil, a.failf("the frame %s: %v", show(data), err)
	}
	a.conn.record(f)
	return f.text, nil
}

// closedWith wants an error of reading to be the server's closing the connection
// with one of the codes. Transports without codes have code 0.
func (a *action) closedWith(err error, codes ...Value) error {
	closed, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return a.lenient(a.failf("%v", err))
	}
	code := marshal(closed.Code)
	if closed.Code != 0 && len(codes) > 0 && !slices.ContainsFunc(codes, func(v Value) bool { return same(v, code) }) {
		return a.lenient(a.failf("closed with %s, want %s", code, array(codes)))
	}
	return nil
}

func (a *action) ends() (Value, error) {
	var list []Value
	for {
		data, err := a.readToEnd()
		switch {
		case errors.Is(err, errSilent):
			return array(list), nil
		case err != nil:
			return array(list), a.closedWith(err, a.args...)
		}
		list = append(list, slices.Clone(data))
	}
}

// redial makes a connection for the session of the step's one.
func (a *action) redial() (*conn, error) {
	wire, err := a.host.Dial("", a.conn.Conn)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: wire, dialect: a.conn.dialect, name: a.conn.name, session: a.conn.session, version: arcp.Version}
	if a.step.as != "" {
		c.name = a.step.as
	}
	a.conns[c.name] = c
	return c, nil
}

func (a *action) resume() (Value, error) {
	after := a.arg(0)
	if plain(after) == "last" {
		after = marshal(a.conn.session.last)
	}
	c, err := a.redial()
	if err != nil {
		return nil, err
	}
	before := c.session.token
	if before == "" {
		return nil, Skip("session.accepted has no resume_token")
	}
	err = a.send(c, text(string(arcp.SessionResume)), join(map[string]Value{"resume_token": text(before), "last_event_seq": after}), nil)
	if err != nil {
		return nil, err
	}
	f, err := a.event(c)
	if err != nil {
		return nil, err
	}
	p := members(f.Payload)
	switch {
	case f.Type != arcp.SessionResumed || string(f.CorrelationID) != c.sent:
		err = a.failf("session.resume is answered before anything is replayed: got %s", f)
	case !same(p["replayed_from"], after):
		a.houseRule("the answer repeats the position: got %s, want %s", show(p["replayed_from"]), after)
	case c.session.token == "" || c.session.token == before:
		err = a.failf("every resume gives a new token: it is the one that was used")
	}
	return f.Payload, err
}

func (a *action) breakConnection() (Value, error) {
	a.conn.Drop()
	a.args = []Value{text("last")}
	return a.resume()
}

func (a *action) reopen() (Value, error) {
	id, args := text(a.conn.session.id), a.step.args
	c, err := a.redial()
	if err != nil {
		return nil, err
	}
	if err := a.open(&step{args: args}, a.scope, c, map[string]Value{"session_id": id}); err != nil {
		return nil, err
	}
	if c.session.id != plain(id) {
		err = a.failf("an own session is taken over: it is %s, want %s", c.session.id, id)
	}
	return c.accepted, err
}

func (a *action) events() (Value, error) {
	n, err := integer(a.arg(0))
	var list []Value
	for err == nil && len(list) < n {
		var f *frame
		if f, err = a.event(a.conn); err == nil && (f.EventSeq > 0 || a.conn.dialect.correlated && a.conn.session.last == 0 && f.JobID != "") {
			list = append(list, f.text)
		}
	}
	return array(list), err
}

func (a *action) replays() (Value, error) {
	first, err := integer(a.arg(0))
	last, e := integer(a.arg(1))
	if err = errors.Join(err, e); err != nil {
		return nil, err
	}
	for seq := first; seq <= last; seq++ {
		f, err := a.event(a.conn)
		if err != nil {
			return nil, err
		}
		if f.EventSeq != uint64(seq) {
			return nil, a.failf("got %s, want event %d", f, seq)
		}
	}
	a.args = []Value{text("demo.echo")}
	if _, err = a.submit(); err != nil {
		return nil, err
	}
	f, err := a.event(a.conn)
	if err != nil {
		return nil, err
	}
	if f.Type != arcp.JobAccepted || string(f.CorrelationID) != a.conn.sent || f.EventSeq != uint64(last+1) {
		return nil, a.failf("after the replay comes what is new: got %s, want job.accepted %d", f, last+1)
	}
	return a.follow(a.conn.sent)
}

func (a *action) copies() (Value, error) {
	var list []Value
	for {
		f, err := a.event(a.conn)
		if err != nil {
			return nil, err
		}
		if string(f.JobID) != plain(a.arg(0)) {
			continue
		}
		if list = append(list, f.text); a.conn.dialect.isFinal(f) {
			return array(list), nil
		}
	}
}

func (a *action) jobs() (Value, error) {
	limit := a.arg(1)
	if limit == nil {
		limit = Value("1000")
	}
	most, err := integer(limit)
	if err != nil {
		return nil, err
	}
	p := map[string]Value{"filter": a.arg(0), "limit": limit}
	var all []Value
	listed, repeated := map[string]bool{}, 0
	for {
		if err := a.send(a.conn, text(string(arcp.SessionListJobs)), join(p), nil); err != nil {
			return nil, err
		}
		f, err := a.answer(a.conn.sent)
		if err != nil {
			return nil, err
		}
		page := members(f.Payload)
		jobs, cursor := items(page["jobs"]), page["next_cursor"]
		switch {
		case f.Type != arcp.SessionJobs:
			return nil, a.failf("session.list_jobs is answered: got %s", f)
		case plain(page["request_id"]) != a.conn.sent:
			return nil, a.failf("the page names its request: it names %s", show(page["request_id"]))
		case len(jobs) > most:
			return nil, a.failf("a page is not longer than asked for: got %d jobs, want at most %d", len(jobs), most)
		}
		all = append(all, jobs...)
		if cursor.Kind() != '"' {
			return array(all), nil
		}
		before := len(listed)
		for _, job := range jobs {
			listed[plain(members(job)["job_id"])] = true
		}
		if repeated++; len(listed) > before {
			repeated = 0
		}
		if repeated == maxRepeatedPages {
			return nil, a.failf("a page has jobs that were not on the pages before: the last %d pages have none", repeated)
		}
		if plain(cursor) == "" || same(cursor, p["cursor"]) {
			return nil, a.failf("the cursor moves on: it is %s again", show(cursor))
		}
		p["cursor"] = cursor
	}
}

// maxRepeatedPages bounds how many pages in a row have no job that an earlier page does not have. Jobs that begin and end
// meanwhile may move others to another page.
const maxRepeatedPages = 20

// answer reads until the answer to a list request with an id comes.
func (a *action) answer(id string) (*frame, error) {
	for {
		f, err := a.event(a.conn)
		if err != nil || a.conn.dialect.correlated && string(f.CorrelationID) == id || !a.conn.dialect.correlated && f.Type == arcp.SessionJobs {
			return f, err
		}
	}
}

func (a *action) pages() (Value, error) {
	tool, arguments, key := a.arg(0), members(a.arg(1)), plain(a.arg(2))
	most, _ := integer(arguments["limit"]) // without one a page is not bounded
	seen := map[string]bool{}
	var all []Value
	for {
		a.args = []Value{tool, join(arguments)}
		page, err := a.call()
		if err != nil {
			return nil, err
		}
		list := items(member(page, []string{"items"}))
		if most > 0 && len(list) > most {
			return nil, a.failf("a page holds no more than was asked for: it holds %d", len(list))
		}
		for _, item := range list {
			id := plain(members(item)[key])
			if seen[id] {
				return nil, a.failf("each is listed once: %s is listed twice", id)
			}
			seen[id] = true
		}
		all = append(all, list...)
		cursor := members(page)["next_cursor"]
		if plain(cursor) == "" || cursor.Kind() != '"' {
			return array(all), nil
		}
		arguments["cursor"] = cursor
	}
}

// brought reads the next event that a subscription brings. Events of the session
// itself may come between, those of other subscriptions not.
func (a *action) brought() (Value, error) {
	for {
		f, err := a.event(a.conn)
		if err != nil {
			return nil, err
		}
		if f.EventSeq > 0 && f.Type != arcp.SubscribeEvent {
			continue
		}
		if f.EventSeq > 0 {
			a.houseRule("subscribe.event has no event_seq: got %s", f)
		}
		if f.Type != arcp.SubscribeEvent || string(f.SubscriptionID) != plain(a.arg(0)) {
			return nil, a.failf("got %s of subscription %q, want subscribe.event of %s", f, f.SubscriptionID, plain(a.arg(0)))
		}
		return members(f.Payload)["event"], nil
	}
}

func (a *action) brings() (Value, error) {
	for _, want := range items(a.arg(1)) {
		got, err := a.brought()
		for err == nil && slices.Contains(commands, arcp.Type(plain(members(got)["type"]))) {
			a.houseRule("a subscription has no commands: got %s", show(got))
			got, err = a.brought()
		}
		if err != nil {
			return nil, err
		}
		if err := wantOriginal(a, got, want); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// commands are messages of clients that a server may send to subscriptions beside events.
var commands = []arcp.Type{arcp.SessionOpen, arcp.ToolInvoke, arcp.Cancel, arcp.Subscribe, arcp.Unsubscribe, arcp.Ping}

// identity are the members of an event that each copy of it has.
var identity = []string{"id", "type", "session_id", "job_id", "stream_id", "payload"}

// wantOriginal wants the event in a subscription to have the identity of the original. That it is the same
// byte by byte, and has the same other members, is a house rule.
func wantOriginal(a *action, got, want Value) error {
	const rule = "an event in a subscription is the original: "
	g, w := members(got), members(want)
	for _, name := range sorted(w) {
		switch {
		case !same(g[name], w[name]) && !slices.Contains(identity, name):
			a.houseRule(rule+"%s is %s, want %s", name, show(g[name]), show(w[name]))
		case !same(g[name], w[name]):
			return a.failf(rule+"%s is %s, want %s", name, show(g[name]), show(w[name]))
		case string(g[name]) != string(w[name]):
			a.houseRule(rule+"%s is %s, want %s byte for byte", name, show(g[name]), show(w[name]))
		}
	}
	if len(g) != len(w) {
		a.houseRule(rule+"it has members %s", strings.Join(sorted(g), " "))
	}
	return nil
}

func sorted(m map[string]Value) []string { return slices.Sorted(maps.Keys(m)) }
