package client_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/transport"
)

// A script is the behaviour of a fake runtime, a line a step:
//
//	C open: session.open {"auth":{"scheme":"bearer"}}
//
// waits for the client's next message, which must have this type and at least these payload
// members, and names it "open";
//
//	S: session.accepted corr=open {"session_id":"sess_1",…}
//
// sends a message: corr names a message of the client (or is an id), job, seq, sub, stream and session
// set members of the envelope, and id its id. Further steps are
//
//	raw TEXT      sends TEXT as a frame
//	close CODE [REASON] closes the connection
//	abort         drops the connection
//	wait DURATION lets time pass
//	hang          stops reading
//
// After its last line a runtime answers session.close, and ignores other messages.
const opened = `
	C open: session.open
	S: session.accepted corr=open {"session_id":"sess_1","runtime":{"kind":"fake","version":"1"},"capabilities":{}}
`

// fake is a scripted runtime at the other end of a pipe.
type fake struct {
	t        *testing.T
	conn     transport.Conn
	names    *names
	received []arcp.Envelope
	n        int
	donec    chan struct{}
}

// names maps the names in scripts to the ids of the client's messages.
type names struct{ ids sync.Map }

func (n *names) set(name string, id arcp.MessageID) { n.ids.Store(name, id) }

func (n *names) get(name string) arcp.MessageID {
	id, _ := n.ids.Load(name)
	known, _ := id.(arcp.MessageID) // empty: there is none
	return known
}

// start runs a script and returns the client's end of the connection. It needs a synctest bubble.
func start(t *testing.T, script string) (transport.Conn, *fake) {
	t.Helper()
	return startNext(t, script, new(names))
}

// startNext is start for a further connection, with the names of the earlier connections.
func startNext(t *testing.T, script string, known *names) (transport.Conn, *fake) {
	t.Helper()
	near, far := transport.Pipe(transport.Limits{})
	f := &fake{t: t, conn: far, names: known, donec: make(chan struct{})}
	go func() {
		defer close(f.donec)
		for line := range strings.Lines(script) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if more, err := f.step(line); err != nil {
				t.Errorf("runtime: %s: %v", line, err)
				far.Abort()
				return
			} else if !more {
				return
			}
		}
		f.answerClose()
	}()
	return near, f
}

func (f *fake) step(line string) (more bool, err error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch strings.TrimSuffix(verb, ":") {
	case "C":
		name, message, _ := strings.Cut(rest, ": ")
		return true, f.expect(name, message)
	case "S":
		return true, f.send(rest)
	case "raw":
		return true, f.write([]byte(rest))
	case "close":
		number, reason, _ := strings.Cut(rest, " ")
		code, err := strconv.Atoi(number)
		f.conn.Close(transport.CloseCode(code), cmp.Or(reason, "scripted"))
		return false, err
	case "abort":
		return false, f.conn.Abort()
	case "wait":
		d, err := time.ParseDuration(rest)
		time.Sleep(d)
		return true, err
	case "hang":
		return false, nil
	}
	return false, fmt.Errorf("no such step")
}

func (f *fake) expect(name, message string) error {
	env, err := f.read()
	if err != nil {
		return err
	}
	want, payload, _ := strings.Cut(message, " ")
	if string(env.Type) != want {
		return fmt.Errorf("got %s %s", env.Type, env.Payload)
	}
	f.names.set(name, env.ID)
	if payload == "" {
		return nil
	}
	return contains([]byte(env.Payload), []byte(payload))
}

func (f *fake) read() (arcp.Envelope, error) {
	frame, err := f.conn.Read()
	if err != nil {
		return arcp.Envelope{}, err
	}
	env, err := arcp.Decode(frame)
	f.received = append(f.received, env)
	return env, err
}

func (f *fake) send(message string) error {
	f.n++
	head, payload, _ := strings.Cut(message, "{")
	words := strings.Fields(head)
	env := arcp.Envelope{ARCP: "1.1", ID: arcp.MessageID(fmt.Sprintf("msg_%d", f.n)), Type: arcp.Type(words[0]),
		Timestamp: time.Now(), SessionID: "sess_1", Payload: arcp.Raw("{" + payload)}
	if payload == "" {
		env.Payload = arcp.Raw("{}")
	}
	for _, w := range words[1:] {
		if err := f.set(&env, w); err != nil {
			return err
		}
	}
	return f.write(env.Append(nil))
}

func (f *fake) set(env *arcp.Envelope, word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "corr":
		env.CorrelationID = arcp.MessageID(value)
		if id := f.names.get(value); id != "" {
			env.CorrelationID = id
		}
	case "id":
		env.ID = arcp.MessageID(value)
	case "job":
		env.JobID = arcp.JobID(value)
	case "stream":
		env.StreamID = arcp.StreamID(value)
	case "sub":
		env.SubscriptionID = arcp.SubscriptionID(value)
	case "session":
		env.SessionID = arcp.SessionID(value)
	case "seq":
		env.EventSeq, err = strconv.ParseUint(value, 10, 64)
	default:
		err = fmt.Errorf("unknown member %s", name)
	}
	return err
}

func (f *fake) write(frame []byte) error {
	if err := f.conn.Write(frame); err != nil {
		return err
	}
	return f.conn.Flush()
}

func (f *fake) answerClose() {
	for {
		env, err := f.read()
		if err != nil {
			return
		}
		if env.Type == arcp.SessionClose {
			f.names.set("close", env.ID)
			_ = f.send("session.closed corr=close")
			f.conn.Close(transport.CloseNormal, "")
			return
		}
	}
}

// types lists the types of the client's messages so far.
func (f *fake) types() (list []arcp.Type) {
	for _, env := range f.received {
		list = append(list, env.Type)
	}
	return list
}

// contains reports whether JSON object got has at least the members of want.
func contains(got, want []byte) error {
	var g, w any
	if err := errors.Join(json.Unmarshal(got, &g), json.Unmarshal(want, &w)); err != nil {
		return err
	}
	if !covers(g, w) {
		return fmt.Errorf("got payload %s", got)
	}
	return nil
}

func covers(got, want any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want)
	}
	g, ok := got.(map[string]any)
	for name, value := range w {
		member, has := g[name]
		if absent := value == nil && !has; !ok || !absent && (!has || !covers(member, value)) {
			return false
		}
	}
	return ok
}

var bearer = client.Options{Auth: client.Auth{Token: "tok"}}

// scripted runs a test in a synctest bubble with a client of a fake runtime and closes the client. The
// bubble checks that no goroutine is left.
func scripted(t *testing.T, opts client.Options, script string, test func(t *testing.T, c *client.Client, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn, f := start(t, opened+script)
		c, err := client.New(t.Context(), conn, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer f.conn.Abort()
		defer c.Abort()
		test(t, c, f)
	})
}

func want[T any](t *testing.T, why string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", why, got, want)
	}
}

func wantIs(t *testing.T, why string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", why, err, target)
	}
}

func wantAs[E error](t *testing.T, why string, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%s: got error %v, want a %T", why, err, e)
	}
	return e
}

func collect(t *testing.T, j *client.Job) (types []arcp.Type, err error) {
	t.Helper()
	for env, e := range j.Events(t.Context()) {
		if e != nil {
			return types, e
		}
		types = append(types, env.Type)
	}
	return types, nil
}
