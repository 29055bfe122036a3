package script

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Conn is one connection to a server. The run that has it is its only user.
type Conn interface {
	WriteFrame(frame []byte) error
	ReadFrame() ([]byte, error)
	Drop() // ends the connection without a farewell
}

// Host gives scripts a server. Its methods may end the goroutine of Run.
type Host interface {
	// Dial connects as a role does. The connection continues the session of an
	// earlier one unless that is nil.
	Dial(role string, earlier Conn) (Conn, error)

	// Open returns the payload of a valid session.open or session.hello of a role; "" is the
	// ordinary client.
	Open(role string) (Value, error)

	// Dialect returns the dialect of the connections of a role.
	Dialect(role string) *Dialect

	// Restart ends the server and starts it again.
	Restart() error

	// Var returns the value of a variable that no step sets.
	Var(name string) (Value, bool)

	// Func returns a function that the language does not have, or nil.
	Func(name string) func(args []Value) (Value, error)

	// Verb returns a step that the language does not have, or nil. The connection is nil
	// if the step is one of the server.
	Verb(name string) func(c Conn, args []Value) (Value, error)

	// PollDeadline returns when steps stop waiting for what comes by itself.
	PollDeadline() time.Time

	// House reports whether house steps are judged.
	House() bool
}

// Failure says which rule a server breaks.
type Failure struct {
	Why    string // the rule
	Found  string // and what came instead
	At     string // file:line
	Source string // the step
	House  bool   // the rule is one of SPEC.md only
	Open   bool   // a valid session.open or session.hello was not accepted
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s: %s\n%s: %s", f.Why, f.Found, f.At, f.Source)
}

// Skip is the error of a check that cannot be made.
type Skip string

func (s Skip) Error() string { return string(s) }

// Run performs the steps of a check. The error is a *Failure if the server is at
// fault, and a Skip if the check cannot be made. A check goes on after a house step
// that fails, so its failure is the error only if no other step fails.
func (c *Check) Run(h Host) error {
	r := &run{host: h, file: c.file, title: c.Title, conns: map[string]*conn{}}
	err := r.block(c.steps, r.scope(nil))
	if _, ok := errors.AsType[*jump](err); ok {
		err = nil // a return at the top ends the check
	}
	if err == nil && r.broken != nil {
		return r.broken
	}
	return err
}

// run is one check that is being performed.
type run struct {
	host  Host
	file  *File
	title string
	conns map[string]*conn
	at    *step  // the innermost step with a text after --, else the current one
	round string // variables of the innermost for loop with their values; "": none
	depth int    // of macro calls

	house  bool     // the step, or a macro around it, is a house step
	broken *Failure // the first house step that failed

	barriers int // pings that no step asked for
}

// session is the state that the connections of one session share.
type session struct {
	role   string
	id     string
	token  string            // newest resume token
	events map[uint64]*frame // by event_seq
	last   uint64

	unnumbered []*frame // frames of jobs without event_seq, from a server that numbers no events
}

// list returns the events in their order.
func (s *session) list() (events []*frame) {
	if s.last == 0 {
		return s.unnumbered
	}
	for seq := uint64(1); seq <= s.last; seq++ {
		if f := s.events[seq]; f != nil {
			events = append(events, f)
		}
	}
	return events
}

// conn is a named connection.
type conn struct {
	Conn
	dialect  *Dialect
	name     string
	session  *session
	version  string
	sent     string // id of the last message
	accepted Value  // payload of session.accepted
	soon     bool   // the next read ends at the barrier ByTime
}

// frame is a received frame.
type frame struct {
	text Value
	arcp.Envelope
}

func (f *frame) String() string {
	s := string(f.Type)
	if f.EventSeq > 0 {
		s += fmt.Sprintf(" %d", f.EventSeq)
	}
	p := members(f.Payload)
	if code := field(p, "code"); code != nil {
		s += " " + plain(code)
		if message := p["message"]; message != nil {
			s += " " + show(message)
		}
	}
	return s
}

// jump leaves a block.
type jump struct {
	verb  string // break, continue or return
	value Value
}

func (j *jump) Error() string { return j.verb + " stands outside of a block" }

func (r *run) scope(vars map[string]Value) *scope {
	if vars == nil {
		vars = map[string]Value{}
	}
	return &scope{vars: vars, lookup: r.lookup, house: func(wrong *mismatch) { r.houseRule("%v", wrong) }, funcs: func(name string) func([]Value) (Value, error) {
		if name == "seen" { // the events that a connection's session was sent
			return func(args []Value) (Value, error) {
				c := r.conns[plain(args[0])]
				if c == nil {
					return nil, errors.New("no such connection")
				}
				var events []Value
				for _, f := range c.session.list() {
					events = append(events, f.text)
				}
				return array(events), nil
			}
		}
		if f := r.host.Func(name); f != nil {
			return f
		}
		if f := functions[name]; f != nil {
			return func(args []Value) (v Value, err error) {
				defer func() {
					if recover() != nil {
						err = errors.New("too few arguments")
					}
				}()
				return f(args)
			}
		}
		return func([]Value) (Value, error) { return nil, errors.New("no such function") }
	}}
}

// lookup finds a name that is not a variable of a scope: a connection or a variable of the host.
func (r *run) lookup(name string) (Value, bool) {
	if c := r.conns[name]; c != nil {
		return join(map[string]Value{"session": text(c.session.id), "token": text(c.session.token), "sent": text(c.sent),
			"accepted": orNull(c.accepted), "last": marshal(c.session.last)}), true
	}
	return r.host.Var(name)
}

func (r *run) block(steps []*step, s *scope) error {
	for _, st := range steps {
		if err := r.step(st, s); err != nil {
			return err
		}
	}
	return nil
}

// failf returns the failure of the current step.
func (r *run) failf(format string, args ...any) error {
	why := r.at.why
	if why == "" {
		why = r.title
	}
	found := fmt.Sprintf(format, args...)
	if r.round != "" {
		found += " (with " + r.round + ")"
	}
	return &Failure{Why: why, Found: found, At: r.at.at, Source: r.at.source}
}

func (r *run) step(st *step, s *scope) error {
	before, outer := r.at, r.house
	if st.why != "" || r.at == nil || r.depth == 0 {
		r.at = st
	}
	r.house = r.house || st.house
	err := r.perform(st, s)
	if wrong, ok := errors.AsType[*mismatch](err); ok {
		err = r.lenient(r.failf("%v", wrong))
	}
	r.house = outer
	if err != nil && !isFinal(err) { // a value has the wrong type for the step
		err = r.failf("%v", err)
	}
	if r.depth > 0 {
		r.at = before
	}
	return err
}

// lenient keeps the failure of a house step and returns nil. Other errors are returned.
func (r *run) lenient(err error) error {
	failed, ok := errors.AsType[*Failure](err)
	if !r.house || !ok {
		return err
	}
	r.recordHouse(failed)
	return nil
}

// recordHouse records the failure of a house rule.
func (r *run) recordHouse(failed *Failure) {
	if failed.House = true; r.broken == nil && r.host.House() {
		r.broken = failed
	}
}

// houseRule keeps a failure of the current step as one of a house rule.
func (r *run) houseRule(format string, args ...any) {
	failed, _ := errors.AsType[*Failure](r.failf(format, args...)) // it is one
	r.recordHouse(failed)
}

// houseBlock performs a block of house steps if they are judged. A failure ends the check.
func (r *run) houseBlock(st *step, s *scope) error {
	if !r.host.House() {
		return nil
	}
	err := r.block(st.body, s)
	if failed, ok := errors.AsType[*Failure](err); ok {
		failed.House = true
	}
	return err
}

// isFinal reports whether an error needs no position: a failure, a skip or a jump.
func isFinal(err error) bool {
	_, failed := errors.AsType[*Failure](err)
	_, skipped := errors.AsType[Skip](err)
	_, jumps := errors.AsType[*jump](err)
	return failed || skipped || jumps
}

// perform performs a step of the language, or passes it to the connection's verb.
func (r *run) perform(st *step, s *scope) error {
	switch st.verb {
	case "let":
		return r.set(st, s, st.args[0])
	case "want":
		return r.lenient(r.want(st, s))
	case houseVerb:
		return r.houseBlock(st, s)
	case "if":
		if err := r.holds(st, s); err == nil {
			return r.block(st.body, s)
		} else if _, ok := errors.AsType[*mismatch](err); !ok {
			return err
		}
		return r.block(st.orElse, s)
	case "for", "repeat":
		return r.loop(st, s)
	case "until":
		return r.until(st, s)
	case "break", "continue":
		return &jump{verb: st.verb}
	case "return", "skip", "fail":
		v, err := s.eval(st.args[0])
		switch {
		case err != nil:
			return err
		case st.verb == "skip":
			return Skip(plain(v))
		case st.verb == "fail":
			return r.failf("%s", plain(v))
		}
		return &jump{verb: st.verb, value: v}
	case "restart":
		err := r.host.Restart()
		for _, c := range r.conns {
			c.Drop()
		}
		return err
	case "dial", "open":
		for _, name := range st.names {
			if err := r.dial(st, s, name); err != nil {
				return err
			}
		}
		return nil
	}
	if st.conn == serverName {
		return r.act(st, s, nil)
	}
	c, err := r.connOf(st.conn, s)
	if err != nil {
		return err
	}
	return r.onConn(st, s, c)
}

func (r *run) set(st *step, s *scope, e *expr) error {
	v, err := s.eval(e)
	if err == nil {
		s.vars[st.as] = v
	}
	return err
}

// connOf finds a connection by its name or by a variable that holds its name.
func (r *run) connOf(name string, s *scope) (*conn, error) {
	name = strings.TrimPrefix(name, "$")
	if v, ok := s.vars[name]; ok && r.conns[plain(v)] != nil {
		name = plain(v)
	}
	if c := r.conns[name]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no connection %s", name)
}

// holds returns a mismatch unless the condition of a step holds.
func (r *run) holds(st *step, s *scope) error {
	got, err := s.eval(st.args[0])
	if err != nil {
		return err
	}
	switch st.op {
	case "~":
		return s.match(st.args[1], got, "")
	case "!~":
		err := s.match(st.args[1], got, "")
		if _, ok := errors.AsType[*mismatch](err); ok {
			return nil
		}
		if err == nil {
			return &mismatch{want: "anything else", got: got}
		}
		return err
	}
	want, err := s.eval(st.args[1])
	if err != nil {
		return err
	}
	op := st.op
	if op == "===" && same(got, want) {
		if string(got) != string(want) {
			s.house(&mismatch{"", show(want) + " byte for byte", got})
		}
		return nil
	}
	ok, err := compare(op, got, want)
	if err != nil || !ok {
		op := st.op + " "
		if strings.HasPrefix(op, "==") {
			op = ""
		}
		return &mismatch{want: op + show(want), got: got}
	}
	return nil
}

func (r *run) want(st *step, s *scope) error {
	err := r.holds(st, s)
	if wrong, ok := errors.AsType[*mismatch](err); ok {
		if wrong.path == "" {
			return r.failf("got %s, want %s", show(wrong.got), wrong.want)
		}
		return r.failf("%v", wrong)
	}
	return err
}

// maxRounds bounds the blocks of a loop.
const maxRounds = 100_000

func (r *run) loop(st *step, s *scope) error {
	over, err := s.eval(st.args[len(st.args)-1])
	if err != nil {
		return err
	}
	list := items(over)
	if st.verb == "repeat" {
		n, err := integer(over)
		if err != nil || n > maxRounds {
			return fmt.Errorf("repeat %s: want a number of rounds", show(over))
		}
		list = slices.Repeat([]Value{Value("null")}, n)
	} else if over.Kind() == '{' {
		m := members(over)
		for _, name := range sorted(m) {
			list = append(list, array([]Value{text(name), m[name]}))
		}
	}
	outer := r.round
	defer func() { r.round = outer }()
	for _, item := range list {
		if st.verb == "for" {
			if err := s.match(st.args[0], item, ""); err != nil {
				return err
			}
			r.round = describeRound(st.args[0], item)
		}
		err := r.block(st.body, s)
		if j, ok := errors.AsType[*jump](err); ok && j.verb == "continue" {
			continue
		} else if ok && j.verb == "break" {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// describeRound returns the variables that a for loop sets to an item, as "name=value, name=value".
func describeRound(names *expr, item Value) string {
	switch names.kind {
	case binding:
		return names.text + "=" + show(item)
	case list:
		var parts []string
		for i, value := range items(item) {
			parts = append(parts, describeRound(names.args[i], value))
		}
		return strings.Join(parts, ", ")
	}
	return show(item)
}

// until repeats a block until the condition holds, or reports what it found last.
func (r *run) until(st *step, s *scope) error {
	for late := r.host.PollDeadline(); ; {
		if err := r.block(st.body, s); err != nil {
			if j, ok := errors.AsType[*jump](err); ok && j.verb == "break" {
				return nil
			}
			return err
		}
		r.at = st
		err := r.holds(st, s)
		if _, ok := errors.AsType[*mismatch](err); !ok || time.Now().After(late) {
			return err
		}
	}
}

// dial connects under a name and opens a session if the step says so.
func (r *run) dial(st *step, s *scope, name string) error {
	role, err := r.role(st, s)
	if err != nil {
		return err
	}
	wire, err := r.host.Dial(role, nil)
	if err != nil {
		return err
	}
	c := &conn{Conn: wire, dialect: r.host.Dialect(role), name: name, session: &session{role: role, events: map[uint64]*frame{}}, version: arcp.Version}
	r.conns[name] = c
	if st.verb == "dial" {
		return nil
	}
	return r.open(st, s, c, nil)
}

// role returns the role of the connections that a step makes.
func (r *run) role(st *step, s *scope) (string, error) {
	if st.by == nil {
		return "", nil
	}
	v, err := s.eval(st.by)
	return plain(v), err
}

// open sends session.open with the step's members and expects its acceptance.
func (r *run) open(st *step, s *scope, c *conn, env map[string]Value) error {
	payload, err := r.openPayload(st, s, c.session.role)
	if err != nil {
		return err
	}
	if err := r.send(c, text(string(c.dialect.open)), payload, env); err != nil {
		return err
	}
	f, err := r.event(c)
	if err == nil && f.Type == arcp.SessionChallenge {
		f, err = r.authenticate(c, payload, f)
	}
	if err == nil && f.Type != c.dialect.accepted {
		err = r.failf("a valid %s is accepted: got %s", c.dialect.open, f)
	}
	if failed, ok := errors.AsType[*Failure](err); ok {
		failed.Open = len(st.args) == 0 && len(env) == 0
	}
	return err
}

// authenticate answers a challenge with the credentials of a session.open, and returns the next
// frame.
func (r *run) authenticate(c *conn, open Value, challenge *frame) (*frame, error) {
	auth := members(open)["auth"]
	token, nonce := field(members(auth), "token"), members(challenge.Payload)["challenge"]
	answer := map[string]Value{"auth": orNull(auth), "response": orNull(token)}
	if proof := r.host.Func("proof"); proof != nil && token != nil && nonce != nil {
		response, err := proof([]Value{token, nonce})
		if err != nil {
			return nil, err
		}
		answer["response"] = response
	}
	env := map[string]Value{}
	if challenge.SessionID != "" {
		env["session_id"] = text(string(challenge.SessionID))
	}
	if err := r.send(c, text(string(arcp.SessionAuthenticate)), join(answer), env); err != nil {
		return nil, err
	}
	return r.event(c)
}

// openPayload is the session.open of a role with the step's members.
func (r *run) openPayload(st *step, s *scope, role string) (Value, error) {
	payload, err := r.host.Open(role)
	for _, a := range st.args {
		more, e := s.eval(a)
		if err == nil {
			err = e
		}
		payload = merge(payload, more)
	}
	return payload, err
}

// merge is a with the members of b, at any depth.
func merge(a, b Value) Value {
	if b == nil || a.Kind() != '{' || b.Kind() != '{' {
		return or(b, a)
	}
	m := members(a)
	for name, v := range members(b) {
		m[name] = merge(m[name], v)
	}
	return join(m)
}

func or(a, b Value) Value {
	if a == nil {
		return b
	}
	return a
}

// send sends a message whose envelope is right but for the members of env. A nil
// member is left out.
func (r *run) send(c *conn, typ, payload Value, env map[string]Value) error {
	m := map[string]Value{"arcp": text(c.version), "id": text(c.dialect.newID()), "type": typ, "payload": payload}
	if c.dialect.timestamps {
		m["timestamp"] = text(time.Now().UTC().Format(time.RFC3339Nano))
	}
	maps.Copy(m, c.dialect.members)
	if t := arcp.Type(plain(typ)); c.session.id != "" && t != c.dialect.open && t != arcp.SessionResume {
		m["session_id"] = text(c.session.id)
	}
	for name, v := range env {
		m[name] = v
		if v == nil {
			delete(m, name)
		}
	}
	c.sent = plain(m["id"])
	return c.write(join(m))
}

func (c *conn) write(frame []byte) error {
	_ = c.WriteFrame(frame) // the reason is better learned from reading, which comes next
	return nil
}

// next reads the next frame.
func (r *run) next(c *conn) (*frame, error) {
	data, err := c.readFrame()
	switch {
	case errors.Is(err, errSilent):
		return nil, err
	case err != nil:
		return nil, r.failf("%v", err)
	}
	f := &frame{text: data}
	if f.Envelope, err = c.dialect.decode(data); err != nil {
		return nil, r.failf("the frame %s: %v", show(data), err)
	}
	c.record(f)
	return f, nil
}

// event reads the next frame other than those that may come at any time: heartbeats of
// jobs, events that say why a job waits, and session.ping, which it answers. It returns
// those that the type of a step names.
func (r *run) event(c *conn, named ...*expr) (*frame, error) {
	for {
		f, err := r.next(c)
		if err != nil || f.Type != arcp.JobHeartbeat && f.Type != arcp.SessionPing && !f.saysWhyItWaits() || slices.ContainsFunc(named, f.named) {
			return f, err
		}
		if f.Type != arcp.SessionPing {
			continue
		}
		sent := c.sent
		err = r.send(c, text(string(arcp.SessionPong)), join(map[string]Value{"ping_nonce": orNull(members(f.Payload)["nonce"]),
			"received_at": text(time.Now().UTC().Format(time.RFC3339Nano))}), map[string]Value{"correlation_id": text(string(f.ID))})
		if c.sent = sent; err != nil {
			return nil, err
		}
	}
}

// record stores what a frame tells of its session.
func (c *conn) record(f *frame) {
	switch f.Type {
	case c.dialect.accepted, c.dialect.resumed:
		if f.Type == c.dialect.accepted {
			c.accepted = f.Payload
		}
		p := members(f.Payload)
		c.session.id, c.session.token = plain(p["session_id"]), plain(p["resume_token"])
		if c.session.id == "" { // the envelope may name the session alone
			c.session.id = string(f.SessionID)
		}
	}
	switch {
	case f.EventSeq > 0:
		c.session.events[f.EventSeq] = f
		c.session.last = max(c.session.last, f.EventSeq)
	case c.dialect.correlated && c.session.last == 0 && f.JobID != "":
		c.session.unnumbered = append(c.session.unnumbered, f)
	}
}

// saysWhyItWaits reports whether a frame is the event waiting of a job.
func (f *frame) saysWhyItWaits() bool {
	if f.Type != arcp.EventEmit || f.JobID == "" {
		return false
	}
	p, err := arcp.DecodePayload[arcp.EventEmitPayload](&f.Envelope)
	return err == nil && p.Name == arcp.EventWaiting
}

// named reports whether a type pattern names the type of the frame.
func (f *frame) named(p *expr) bool {
	typ := text(string(f.Type))
	return p.kind == constant && same(p.value, typ) || slices.ContainsFunc(p.args, func(a *expr) bool { return same(a.value, typ) })
}

// onConn performs a step of one connection.
func (r *run) onConn(st *step, s *scope, c *conn) error {
	switch st.verb {
	case ">":
		return r.sends(st, s, c)
	case ">>":
		v, err := s.eval(st.args[0])
		if err != nil {
			return err
		}
		return c.write([]byte(plain(v)))
	case "<", "<<":
		f, err := r.expect(st, s, c)
		if err == nil && st.as != "" {
			s.vars[st.as] = f.text
		}
		return err
	case "!":
		return r.never(st, s, c)
	}
	if m := r.file.macro(st.verb); m != nil {
		return r.call(m, st, s, c)
	}
	return r.act(st, s, c)
}

// act performs a verb; c is nil for a step of the server.
func (r *run) act(st *step, s *scope, c *conn) error {
	v, err := r.verb(st, s, c)
	connection := v == nil && r.conns[st.as] != nil // redial names a connection
	if err == nil && st.as != "" && !connection {
		s.vars[st.as] = v
	}
	return err
}

func (r *run) verb(st *step, s *scope, c *conn) (Value, error) {
	v, known := verbs[st.verb]
	known = known && c != nil
	patterns := len(st.args)
	if known {
		patterns = min(v.values, patterns)
	}
	var args []Value
	for _, a := range st.args[:patterns] {
		value, err := s.eval(a)
		if err != nil {
			return nil, err
		}
		args = append(args, value)
	}
	switch {
	case c == nil:
		return r.host.Verb(st.verb)(nil, args)
	case !known:
		return r.host.Verb(st.verb)(c.Conn, args)
	}
	perform := v.run
	if own := c.dialect.verbs[st.verb]; own != nil {
		perform = own
	}
	return perform(&action{run: r, step: st, scope: s, conn: c, args: args, patterns: st.args[patterns:]})
}

// maxDepth bounds macros that call macros.
const maxDepth = 20

func (r *run) call(m *macro, st *step, s *scope, c *conn) error {
	vars := map[string]Value{m.conn: text(c.name)}
	for i, name := range m.params {
		vars[name] = nil
		if i < len(st.args) {
			v, err := s.eval(st.args[i])
			if err != nil {
				return err
			}
			vars[name] = v
		}
	}
	if r.depth++; r.depth > maxDepth {
		return errors.New("macros call each other without end")
	}
	err := r.block(m.steps, r.scope(vars))
	r.depth--
	j, ok := errors.AsType[*jump](err)
	if ok && j.verb == "return" {
		if st.as != "" {
			s.vars[st.as] = j.value
		}
		return nil
	}
	return err
}

func (r *run) sends(st *step, s *scope, c *conn) error {
	typ, err := s.eval(st.args[0])
	payload, env := Value("{}"), map[string]Value{}
	if err == nil && len(st.args) > 1 {
		payload, err = s.eval(st.args[1])
	}
	if err == nil && len(st.args) > 2 {
		env, err = s.envelope(st.args[2])
	}
	if err == nil {
		err = r.send(c, typ, payload, env)
	}
	if err == nil && st.as != "" {
		s.vars[st.as] = text(c.sent)
	}
	return err
}

// envelope evaluates members of an envelope; absent ones are nil.
func (s *scope) envelope(e *expr) (map[string]Value, error) {
	if e.kind != object {
		v, err := s.eval(e)
		return members(v), err
	}
	env := map[string]Value{}
	for i, key := range e.keys {
		name, err := s.eval(key)
		if err != nil {
			return nil, err
		}
		if env[plain(name)], err = s.eval(e.args[i]); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// correlation returns the id that a step's frame has to name; "" is any.
func (r *run) correlation(st *step, s *scope, c *conn) (string, error) {
	switch {
	case st.re != nil && st.re.kind == wildcard, st.re == nil && (len(st.args) > 2 || !c.dialect.correlated):
		return "", nil
	case st.re == nil && handshake(st.args[0]):
		return "", nil // the connection has one handshake
	case st.re == nil:
		return c.sent, nil
	}
	v, err := s.eval(st.re)
	return plain(v), err
}

// handshake reports whether a type pattern names types that answer session.open.
func handshake(p *expr) bool {
	types := append([]*expr{p}, p.args...)
	return slices.ContainsFunc(types, func(e *expr) bool {
		return slices.Contains([]arcp.Type{arcp.SessionAccepted, arcp.SessionRejected, arcp.SessionUnauthenticated, arcp.SessionChallenge}, arcp.Type(plain(e.value)))
	})
}

// expect reads the frame of a step: the next one, or for << one that comes.
func (r *run) expect(st *step, s *scope, c *conn) (*frame, error) {
	corr, err := r.correlation(st, s, c)
	if err != nil {
		return nil, err
	}
	for {
		f, err := r.event(c, st.args[0])
		if err != nil {
			return nil, err
		}
		err = r.arrives(st, s, f, corr)
		wrong, mismatched := errors.AsType[*mismatch](err)
		if !mismatched {
			return f, err
		}
		if st.verb == "<" || corr != "" && string(f.CorrelationID) == corr && slices.Contains(c.dialect.refusals, f.Type) {
			return nil, r.failf("got %s: %v", f, wrong)
		}
		if job := jobOf(st, s); job != "" && string(f.JobID) == job && c.dialect.isFinal(f) {
			return nil, r.failf("got %s: %v", f, wrong)
		}
	}
}

// jobOf is the job_id in the envelope pattern of a step.
func jobOf(st *step, s *scope) string {
	if len(st.args) < 3 {
		return ""
	}
	for i, key := range st.args[2].keys {
		if plain(key.value) == "job_id" {
			v, _ := s.eval(st.args[2].args[i]) // a pattern names no job
			return plain(v)
		}
	}
	return ""
}

// arrives compares a frame with a step that receives. A house step receives by type and
// correlation_id; that the other members differ is kept as its failure.
func (r *run) arrives(st *step, s *scope, f *frame, corr string) error {
	if !r.house {
		return r.fits(st, s, f, corr)
	}
	typed := *st
	typed.args = st.args[:1]
	if err := r.fits(&typed, s, f, corr); err != nil {
		return err
	}
	err := r.fits(st, s, f, corr)
	if wrong, ok := errors.AsType[*mismatch](err); ok {
		return r.lenient(r.failf("got %s: %v", f, wrong))
	}
	return err
}

// fits compares a frame with a step.
func (r *run) fits(st *step, s *scope, f *frame, corr string) error {
	if err := s.match(st.args[0], text(string(f.Type)), "type"); err != nil {
		return err
	}
	if corr != "" && string(f.CorrelationID) != corr {
		return &mismatch{"correlation_id", corr, text(string(f.CorrelationID))}
	}
	if len(st.args) > 2 {
		if err := s.match(st.args[2], f.text, ""); err != nil {
			return err
		}
	}
	if len(st.args) > 1 {
		return s.match(st.args[1], f.Payload, "payload")
	}
	return nil
}

// never reads up to the answer to a ping, and wants no frame that fits.
func (r *run) never(st *step, s *scope, c *conn) error {
	return r.upToBarrier(c, func(f *frame) error {
		err := r.fits(st, s, f, "")
		if err == nil {
			return r.lenient(r.failf("got %s", f))
		}
		if _, ok := errors.AsType[*mismatch](err); ok {
			return nil
		}
		return err
	})
}
