package script

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// wire is a Conn over a pipe.
type wire struct {
	transport.Conn
	pending chan arrival // what a read that goes on brings
}

// arrival is the result of a read.
type arrival struct {
	frame []byte
	err   error
}

func (w *wire) WriteFrame(frame []byte) error {
	return errors.Join(w.Write(frame), w.Flush())
}

func (w *wire) ReadFrame() ([]byte, error) {
	if w.pending == nil {
		return w.Read()
	}
	got := <-w.pending
	w.pending = nil
	return got.frame, got.err
}

// ReadFrameSoon implements Waiter for tests in a bubble.
func (w *wire) ReadFrameSoon() ([]byte, error) {
	if w.pending == nil {
		pending := make(chan arrival, 1)
		w.pending = pending
		go func() {
			frame, err := w.Read()
			pending <- arrival{frame, err}
		}()
	}
	synctest.Wait()
	if len(w.pending) == 0 {
		return nil, nil
	}
	return w.ReadFrame()
}

func (w *wire) Drop() { _ = w.Abort() } // it is not needed any more

// fake is a host whose server serves one session on each connection.
type fake struct {
	serving sync.WaitGroup
	conns   []Conn
	tokens  int
	lenient bool // house steps are not judged
	barrier Barrier
}

func (f *fake) Dial(string, Conn) (Conn, error) {
	near, far := transport.Pipe(transport.Limits{})
	f.tokens++
	s := &server{conn: far, tokens: f.tokens}
	f.serving.Go(s.serve)
	w := &wire{Conn: near}
	f.conns = append(f.conns, w)
	return w, nil
}

func (f *fake) Open(role string) (Value, error) {
	if role != "" {
		return nil, errors.New("no role " + role)
	}
	return Value(`{"auth":{"scheme":"none"},"client":{"kind":"test","version":"1"}}`), nil
}

func (f *fake) Dialect(string) *Dialect { return RFC().With(f.barrier) }

func (f *fake) Restart() error { return nil }

func (f *fake) Var(name string) (Value, bool) { return Value(`"known"`), name == "host" }

func (f *fake) Func(string) func([]Value) (Value, error) { return nil }

func (f *fake) Verb(string) func(Conn, []Value) (Value, error) {
	return func(c Conn, args []Value) (Value, error) { return text(fmt.Sprint(c != nil, " ", plain(args[0]))), nil }
}

func (f *fake) PollDeadline() time.Time { return time.Time{} }

func (f *fake) House() bool { return !f.lenient }

// server answers as a small runtime does.
type server struct {
	conn   transport.Conn
	tokens int
	seq    int
}

func (s *server) serve() {
	defer func() { _ = s.conn.Abort() }() // the client has gone
	for {
		data, err := s.conn.Read()
		if err != nil {
			return
		}
		if env, err := arcp.Decode(data); err == nil {
			s.answer(&env)
		}
		if s.conn.Flush() != nil {
			return
		}
	}
}

func (s *server) send(typ, corr, payload string, more ...string) {
	_ = s.conn.Write(fmt.Appendf(nil, `{"arcp":"1.1","id":%q,"type":%q,"timestamp":"2026-01-02T03:04:05Z","session_id":"sess_1","correlation_id":%q,"payload":%s%s}`,
		arcp.NewMessageID(), typ, corr, payload, strings.Join(more, ""))) // reading says that the client has gone
}

func (s *server) event(typ, corr, payload string) {
	s.seq++
	s.send(typ, corr, payload, fmt.Sprintf(`,"event_seq":%d,"job_id":"job_%s"`, s.seq, corr))
}

func (s *server) answer(env *arcp.Envelope) {
	id, p := string(env.ID), members(env.Payload)
	switch env.Type {
	case arcp.SessionOpen:
		s.send("session.accepted", id, fmt.Sprintf(`{"session_id":"sess_1","resume_token":"rt_%d"}`, s.tokens))
	case arcp.SessionResume:
		s.seq = 3
		s.send("session.resumed", id, fmt.Sprintf(`{"session_id":"sess_1","resume_token":"rt_%d","replayed_from":%s}`, s.tokens, p["last_event_seq"]))
	case arcp.Ping:
		s.send("pong", id, string(env.Payload))
	case arcp.SessionListJobs:
		s.send("session.jobs", id, fmt.Sprintf(`{"request_id":%q,"jobs":[{"job_id":"job_a","status":"running"}]}`, id))
	case arcp.SessionClose:
		s.send("session.closed", id, `{}`)
		_ = s.conn.Close(transport.CloseNormal, "") // the client may have gone before
	case arcp.Subscribe:
		s.send("subscribe.accepted", id, `{"subscription_id":"sub_1"}`)
		s.send("subscribe.event", "", `{"event":{"id":"msg_1","type":"log"}}`, `,"subscription_id":"sub_1"`)
	case arcp.Cancel:
		s.send("session.ping", "", `{"nonce":"n"}`)
		s.send("nack", id, `{"code":"DATA_LOSS","message":"gone","retryable":false,"details":{"code":"RESUME_WINDOW_EXPIRED","n":1}}`)
	case arcp.ToolInvoke:
		switch plain(p["tool"]) {
		case "none":
			s.send("job.failed", id, `{"code":"NOT_FOUND","message":"none","retryable":false}`)
			return
		case "page":
			cursor := `,"next_cursor":"more"`
			if members(p["arguments"])["cursor"] != nil {
				cursor = ""
			}
			p["arguments"] = Value(fmt.Sprintf(`{"items":[{"id":"%d"}]%s}`, len(cursor), cursor))
		}
		s.event("job.accepted", id, fmt.Sprintf(`{"job_id":"job_%s"}`, id))
		s.event("job.started", id, `{}`)
		if plain(p["tool"]) == "fails" {
			s.event("job.failed", id, `{"code":"INTERNAL","message":"broken","retryable":false}`)
			return
		}
		s.event("job.completed", id, fmt.Sprintf(`{"value":%s}`, p["arguments"]))
	}
}

// play runs steps against the fake server.
func play(t *testing.T, steps string) error { return playWith(t, steps, &fake{}) }

func playWith(t *testing.T, steps string, h *fake) error {
	t.Helper()
	f, err := Parse("t.txt", "def c twice n\n    return $n * 2\ndef c deep\n    c deep\ndef c differs a b\n    want $a == $b  -- it differs\n    return $b\n== x: the title\n"+steps, nil, func(name string) bool { return name == "wave" })
	if err != nil {
		return err
	}
	err = f.Checks[0].Run(h)
	for _, c := range h.conns {
		c.Drop()
	}
	h.serving.Wait()
	return err
}

// TestSteps: each step passes where it should, and fails where it should.
func TestSteps(t *testing.T) {
	for _, test := range []struct{ steps, failure string }{
		{"open a\na> ping {nonce: n} as id\na< pong {nonce: n}\nwant $a.sent == $id", ""},
		{"open a\na> ping\na< ack  -- it is acked", `it is acked: got pong: type is "pong", want "ack"` + "\nt.txt:11: a< ack"},
		{"open a\na> ping {nonce: n}\na< pong {nonce: m}", `the title: got pong: payload.nonce is "n", want "m"`},
		{"open a\na> ping\na< pong re msg_other", "correlation_id is"},
		{"open a\na> ping\na> ping\na<< pong", ""},
		{"open a\na> cancel {target: job}\na< nack {code: RESUME_WINDOW_EXPIRED, details: {n: 1, code: absent}}", ""},
		{"open a\na> cancel {target: job}\na<< ack", "got nack RESUME_WINDOW_EXPIRED"},
		{"open a\na> cancel {target: job}\na< session.ping re any {nonce: n}", ""},
		{"open a\na>> \"{\"\na quiet", ""},
		{"open a\na> cancel {target: job}\na quiet", "want the answer to a ping"},
		{"open a\na> ping\na! ack", ""},
		{"open a\na> ping\na! pong", "got pong"},
		{"open a\na! ack", ""},
		{"open a by nobody", "no role nobody"},
		{"let role = some\nopen a by $role + body", "no role somebody"},
		{"open a\na wave 1 as v\nwant $v == \"true 1\"", ""},
		{"server wave 1 as v\nwant $v == \"false 1\"", ""},
		{"server quiet", "quiet is no step"},
		{"open a\na submit demo.echo {n: 1} as id\na follow $id as job\nwant types($job) == [job.accepted, job.started, job.completed]", ""},
		{"open a\na call demo.echo {n: 1} {n: 1} as v\nwant $v === `{\"n\":1}`", ""},
		{"open a\na call demo.echo {n: 1} {n: 2}", "n is 1, want 2"},
		{"open a\na call fails", `fails ends well: got job.failed 3 INTERNAL "broken"`},
		{"open a\na fails fails {} INTERNAL|NOT_FOUND as e\nwant $e.message == broken", ""},
		{"open a\na fails fails {} NOT_FOUND", `got job.failed 3 INTERNAL "broken", want "NOT_FOUND"`},
		{"open a\na fails demo.echo {} INTERNAL", "want job.failed"},
		{"open a\na submit none\na refused NOT_FOUND", ""},
		{"open a\na submit none\na refusal INTERNAL", "want \"INTERNAL\""},
		{"open a\na submit fails\na refused INTERNAL", "a job that is refused is not accepted before"},
		{"open a\na submit demo.echo as id\na started $id as job\nwant $job == \"job_${id}\"", ""},
		{"open a\na submit none as id\na started $id", "an accepted job is started: got job.failed"},
		{"open a\na> session.close\na< session.closed\na closed 1000", ""},
		{"open a\na> session.close\na< session.closed\na closed 1008", "closed with 1000, want [1008]"},
		{"open a\na> ping\na closed", "got a frame"},
		{"open a\na> session.close\na ends 1008", "closed with 1000, want [1008]"},
		{"open a\na> ping\na> session.close\na ends 1000", ""},
		{"open a\na redial as b\nwant $b.session == $a.session", ""},
		{"open a\na twice 2 as a\nwant $a == 4", ""},
		{"open a\na wave 1 as a\nwant $a == \"true 1\"", ""}, // a variable may have the name of a connection
		{"open a\na invoke demo.echo\na cut\na replays 4 3\nwant $a.last == 6", ""},
		{"open a\na resume 0 as b\nb submit demo.echo\nb replays 1 3", "want event 1"},
		{"open a\nlet one = $a.token\na reopen as b\nwant $b.token != $one", ""},
		{"open a\na invoke demo.echo\nwant pluck(seen(a), event_seq) == [1, 2, 3]", ""},
		{"open a\na submit demo.echo as id\na copies \"job_${id}\" as list\nwant len($list) == 3", ""},
		{"open a\na submit demo.echo as id\na events 2 as list\nwant types($list) == [job.accepted, job.started]", ""},
		{"open a\na jobs {} as list\nwant $list ~ [{job_id: job_a}]", ""},
		{"open a\na jobs {} 0", "a page is not longer than asked for"},
		{"open a\na pages page {} id as list\nwant len($list) == 2", ""},
		{"open a\na> subscribe\na< subscribe.accepted {subscription_id: ?sub}\na brings $sub [{id: msg_1, type: log}]", ""},
		{"open a\na> subscribe\na< subscribe.accepted\na brings sub_1 [{id: msg_2, type: log}]", "id is \"msg_1\", want \"msg_2\""},
		{"open a\na> subscribe\na< subscribe.accepted\na brought sub_2", "want subscribe.event of sub_2"},
		{"open a\na version \"1.0\"\na twice 4 as n\nwant $n == 8", ""},
		{"open a\na deep", "macros call each other without end"},
		{"want $host == known", ""},
		{"want 1 == 2  -- one is two", "one is two: got 1, want 2"},
		{"want {a: [1, {b: x}]} ~ {a: [1, {b: y}]}", "a.1.b is \"x\", want \"y\""},
		{"want \"2026-01-02T03:04:05Z\" + 60 == \"2026-01-02T03:05:05Z\"", ""},
		{"want [1, 2] + [3] == [1, 2, 3]", ""},
		{"want {a: 1} + {b: absent} === `{\"a\":1}`", ""},
		{"want 0.1 + 0.2 == 0.3", ""},
		{"want \"Some Text\" ~ ~text", ""},
		{"want \"Some Text\" !~ ~text", "want anything else"},
		{"want 3 ~ >=4", "want >= 4"},
		{"want {} ~ {a: !=1}", "a is absent"},
		{"want {} + 1 == 2", "has no meaning"},
		{"want $nothing == 1", "no variable $nothing"},
		{"want nothing(1) == 1", "no such function"},
		{"want len() == 1", "too few arguments"},
		{"c quiet", "no connection c"},
		{"let n = 0\nfor x in [1, 2, 3]\n    if $x == 2\n        continue\n    let n = $n + $x\nwant $n == 4", ""},
		{"let n = 0\nfor [name, v] in {a: 1, b: 2}\n    let n = $n + $v\nwant $n == 3", ""},
		{"for x in [1, 2]\n    want $x == 1", "want 1 (with x=2)"},
		{"for [name, v] in {a: 1}\n    want $v == 2", `want 2 (with name="a", v=1)`},
		{"want among([{n: 1}, {n: 2}, {n: 3}], n, [3, 1, 4]) == [{n: 1}, {n: 3}]", ""},
		{"let n = 0\nrepeat 3\n    let n = $n + 1\n    break\nwant $n == 1", ""},
		{"let n = 0\nuntil $n == 1\n    let n = $n + 1", ""},
		{"until 1 == 2  -- it comes\n    break", ""},
		{"until 1 == 2  -- it comes\n    let n = 1", "it comes: 1, want 2"},
		{"if 1 == 2\n    fail no\nelse\n    restart", ""},
		{"fail no  -- never", "never: no"},
		{"skip \"the moon is full\"\nfail no", "the moon is full"},
	} {
		err := play(t, test.steps)
		switch {
		case test.failure == "" && err != nil:
			t.Errorf("%s\nfails: %v", test.steps, err)
		case test.failure != "" && (err == nil || !strings.Contains(err.Error(), test.failure)):
			t.Errorf("%s\nError = %v, want %q", test.steps, err, test.failure)
		}
	}
}

// TestHouseSteps: a house step that fails is a failure of the level house, or none. Any other step
// that fails is the failure of the check.
func TestHouseSteps(t *testing.T) {
	for _, test := range []struct{ steps, house, other string }{
		{"open a\na> ping {nonce: n}\nhouse a< pong {nonce: n}", "", ""},
		{"open a\na> ping {nonce: n}\nhouse a< pong {nonce: m}", `payload.nonce is "n", want "m"`, ""},
		{"open a\na> ping {nonce: n}\nhouse a< pong {nonce: m}\nwant 1 == 2", "", "got 1, want 2"},
		{"open a\na> ping\nhouse a< pong {nonce: ?n} as f\nwant $f.type == pong", "payload.nonce is absent", ""},
		{"open a\na> ping\nhouse a< ack", "", `type is "pong"`},
		{"open a\na> ping\nhouse a< pong re msg_other", "", "correlation_id is"},
		{"open a\na> ping {nonce: n}\nhouse a<< pong {nonce: m}\na quiet", `payload.nonce is "n", want "m"`, ""},
		{"house want 1 == 2  -- one is two\nhouse want 1 == 3", "one is two: got 1, want 2", ""},
		{"open a\na> cancel {target: job}\nhouse a quiet\na quiet", "want the answer to a ping", ""},
		{"open a\na> cancel {target: job}\na quiet ack|nack", "want the answer to a ping", ""},
		{"open a\na> cancel {target: job}\na quiet ack", "", "want the answer to a ping"},
		{"open a\na> ping\nhouse a! pong\na quiet", "got pong", ""},
		{"open a\na submit none\nhouse a refused INTERNAL\na quiet", `want "INTERNAL"`, ""},
		{"open a\na submit demo.echo\nhouse a refused INTERNAL", "", "want [job.failed]"},
		{"open a\nhouse a call demo.echo {n: 1} {n: 2}", "n is 1, want 2", ""},
		{"open a\na> session.close\na< session.closed\nhouse a closed 1008", "closed with 1000, want [1008]", ""},
		{"open a\na> ping {nonce: n}\nhouse a closed 1008\na quiet", "got a frame", ""},
		{"open a\na> session.close\na< session.closed\nhouse a ends 1008 as rest\nwant $rest == []", "closed with 1000, want [1008]", ""},
		{"open a\na> session.close\na< session.closed\na receive as f\nwant $f == absent", "", ""},
		{"open a\na> ping {nonce: n}\na receive as f\nwant $f ~ {type: pong, payload: {nonce: n}}\na quiet", "", ""},
		{"open a\nhouse a differs 1 2 as v\nwant $v == 2", "it differs: got 1, want 2", ""},
		{"house\n    want 1 == 2", "got 1, want 2", ""},
	} {
		for _, lenient := range []bool{false, true} {
			var err error
			synctest.Test(t, func(t *testing.T) { err = playWith(t, test.steps, &fake{lenient: lenient}) })
			want, house := test.other, false
			if want == "" && !lenient {
				want, house = test.house, test.house != ""
			}
			failed, _ := errors.AsType[*Failure](err)
			if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || failed == nil || failed.House != house) {
				t.Errorf("%s (house steps are judged: %v)\nError = %+v, want %q of a house step %v", test.steps, !lenient, err, want, house)
			}
		}
	}
}

// Each barrier is the answer to a ping of servers that do less and less.
func TestBarriers(t *testing.T) {
	for barrier := ByCorrelation; barrier <= ByTime; barrier++ {
		synctest.Test(t, func(t *testing.T) {
			h := &fake{barrier: barrier}
			if err := playWith(t, "open a\na> ping {nonce: n}\na< pong re any\na quiet\na! ack\na> ping\na< pong re any", h); err != nil {
				t.Errorf("barrier %d: %v", barrier, err)
			}
			if err := playWith(t, "open a\na> subscribe\na quiet", h); err == nil || !strings.Contains(err.Error(), "got subscribe.accepted") {
				t.Errorf("barrier %d: error = %v, want the frame that came", barrier, err)
			}
		})
	}
}

func TestDecodeLoosely(t *testing.T) {
	env, err := DecodeLoosely([]byte(`{"type":"pong","id":5,"event_seq":"x","correlation_id":"msg_1","payload":null}`))
	if err != nil || env.Type != arcp.Pong || env.ID != "" || env.EventSeq != 0 || env.CorrelationID != "msg_1" || string(env.Payload) != "{}" {
		t.Errorf("DecodeLoosely = %+v, %v", env, err)
	}
	for _, frame := range []string{`[]`, `{`, `{"type":5}`, `{}`} {
		if _, err := DecodeLoosely([]byte(frame)); err == nil {
			t.Errorf("DecodeLoosely(%s): error = nil", frame)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"want 1 == 1":                       "t.txt:1: want stands outside of a check",
		"== X: y":                           "t.txt:1: want == ID",
		"== x: y\nwant 1 = 1":               "t.txt:2: want a comparison",
		"== x: y\n  want 1 == 1\n want":     "t.txt:3: the indentation fits no block",
		"== x: y\nfor x in [1]":             "t.txt:2: for has no block",
		"== x: y\nelse":                     "t.txt:2: else follows no if",
		"== x: y\nlet a = {b: 1":            "t.txt:2: a bracket is not closed",
		"== x: y\nlet a = \"b":              "t.txt:2: a quote is not closed",
		"== x: y\nlet a = \"\\x\"":          "t.txt:2: \"\\x\" is no JSON string",
		"== x: y\nlet a = \"${b\"":          "t.txt:2: ${ is not closed",
		"== x: y\nlet a = 1 2":              "t.txt:2: unexpected \"2\"",
		"== x: y\na dance":                  "t.txt:2: dance is no step",
		"== x: y\nhouse let a = 1":          "t.txt:2: house stands before",
		"== x: y\nhouse a> ping":            "t.txt:2: house stands before",
		"== x: y\nhouse open a":             "t.txt:2: house stands before",
		"== x: y\nhouse":                    "t.txt:2: house has no block",
		"== x: y\na follow":                 "t.txt:2: follow has 0 arguments, want 1 to 1",
		"== x: y\na> ping {} {} {}":         "t.txt:2: want a type, a payload",
		"== x: y\nlet a = [1 2]":            "t.txt:2: want ]",
		"== x: y\nopen a offer =":           "t.txt:2: want a feature",
		"== x (needs @y): z":                "t.txt:1: there is no set y",
		"def a":                             "t.txt:1: want def",
		"== x: y\nlet a = " + deep(200):     "t.txt:2: values nest too deep",
		"== x: y\na quiet\n\n# c\nb quiet?": "t.txt:5: want a name",
	} {
		if _, err := Parse("t.txt", text, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error = %v, want %q", text, err, want)
		}
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestHeaders(t *testing.T) {
	f, err := Parse("g.txt", "section RFC §1\nlevel should\nset two a.b c.d\nneeds a.b\n== one: first\n\n== two (must, SPEC §2, needs @two e): second (of two)", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, c := range f.Checks {
		fmt.Fprintf(&got, "%s|%s|%s|%s|%v|%v\n", c.ID, c.Title, c.Level, c.Section, c.Needs, c.Scripted())
	}
	if want := "g.one|first|should|RFC §1|[a.b]|false\ng.two|second (of two)|must|SPEC §2|[a.b c.d e]|false\n"; got.String() != want {
		t.Errorf("checks are %s, want %s", got.String(), want)
	}
}

// Sends has the types of the steps and of the macros, without house steps.
func TestSends(t *testing.T) {
	f, err := Parse("g.txt", "def c asks\n    c> ping\n    c asks\ndef c lists\n    c jobs {}\n\n== one: first\nopen a\na> cancel\nhouse\n    a> interrupt\n"+
		"house a lists\nif 1 == 1\n    a asks\nelse\n    a> cancel\n\n== two: second\nopen a\na lists", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]arcp.Type{{arcp.Cancel, arcp.Ping}, {arcp.SessionListJobs}} {
		if got := f.Checks[i].Sends(); !slices.Equal(got, want) {
			t.Errorf("%s: Sends() = %v, want %v", f.Checks[i].ID, got, want)
		}
	}
}

// FuzzParse: any text is parsed, or refused with its line.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"common", "cancel", "leases", "host", "handshake"} {
		data, err := os.ReadFile("../scripts/" + name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "\n\n") { // small seeds are minimized soon
			f.Add(part)
		}
	}
	f.Add("== a: b\na< x|y re $z.0 {b: [~\"c\", >=1, ?d, absent, _]} as e  -- why")
	f.Fuzz(func(t *testing.T, data string) {
		_, err := Parse("t.txt", data, nil, nil)
		if err != nil && !strings.HasPrefix(err.Error(), "t.txt:") {
			t.Errorf("error %v names no line", err)
		}
	})
}
