package conformance

import (
	"errors"
	"io"
	"regexp"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// perform runs the steps of a script.
func (t *T) perform(c *script.Check) {
	err := c.Run(host{t})
	if skip, ok := errors.AsType[script.Skip](err); ok {
		t.Skipf("%s", string(skip))
	}
	if err != nil {
		t.Failf("%v", err)
	}
}

// host is a target as scripts see it.
type host struct{ t *T }

// Dial implements script.Host.
func (h host) Dial(earlier script.Conn) (script.Conn, error) {
	if earlier == nil {
		return h.t.Dial(), nil
	}
	return earlier.(*Conn).redial(), nil
}

// Open implements script.Host.
func (h host) Open(role string) (script.Value, error) {
	p := h.t.openPayload()
	switch role {
	case "":
	case "other":
		p.Auth.Token = h.t.target.OtherToken
	case "observer":
		p.Auth.Token = h.t.target.ObserverToken
	default:
		return nil, errors.New("there is no role " + role)
	}
	return arcp.Marshal(p)
}

// Restart implements script.Host.
func (h host) Restart() error {
	h.t.Restart(h.t.ctx)
	return nil
}

// Late implements script.Host.
func (h host) Late() time.Time { return h.t.late() }

// Var implements script.Host.
func (h host) Var(name string) (script.Value, bool) {
	tg := h.t.target
	switch name {
	case "principal":
		return value(tg.Principal), true
	case "token":
		return value(tg.Token), true
	case "ack_window":
		return value(tg.AckWindow), true
	case "frame_limit":
		return value(tg.frameLimit()), true
	case "local":
		return value(tg.local()), true
	case "codes":
		return value(failureCodes()), true
	}
	return nil, false
}

func value(v any) script.Value {
	raw, err := arcp.Marshal(v)
	if err != nil {
		panic(err) // v is made of texts and numbers
	}
	return raw
}

// Func implements script.Host.
func (h host) Func(name string) func([]script.Value) (script.Value, error) {
	if name != "offers" {
		return nil
	}
	return func(args []script.Value) (script.Value, error) {
		var f arcp.Feature
		err := arcp.Unmarshal(args[0], &f)
		return value(h.t.server.offers(f)), err
	}
}

// Verb implements script.Host.
func (h host) Verb(name string) func(script.Conn, []script.Value) (script.Value, error) {
	return func(c script.Conn, args []script.Value) (script.Value, error) {
		return hostVerbs[name](c.(*Conn), args)
	}
}

// hostVerbs are the steps of scripts that are about this suite:
//
//	catalogue    shows the check changes of the catalogue of tools
//	hush         shows no more signs of life
//	secret TEXT  must not come back
var hostVerbs = map[string]func(c *Conn, args []script.Value) (script.Value, error){
	"catalogue": func(c *Conn, _ []script.Value) (script.Value, error) { c.catalogue = true; return nil, nil },
	"hush":      func(c *Conn, _ []script.Value) (script.Value, error) { c.hush(); return nil, nil },
	"secret": func(c *Conn, args []script.Value) (script.Value, error) {
		var s string
		err := arcp.Unmarshal(args[0], &s)
		c.v.secrets = append(append([]string{}, c.v.secrets...), s)
		return nil, err
	},
}

// idOf finds the id of a frame that is no envelope.
var idOf = regexp.MustCompile(`"id"\s*:\s*"((?:[^"\\]|\\.)*)"`)

// WriteFrame implements script.Conn.
func (c *Conn) WriteFrame(frame []byte) error {
	if env, err := arcp.Decode(frame); err == nil {
		c.note(&env)
	} else if id := idOf.FindSubmatch(frame); id != nil {
		c.t.sent[string(id[1])], c.rec.own[string(id[1])] = true, true
	}
	c.write(frame)
	return nil
}

// ReadFrame implements script.Conn.
func (c *Conn) ReadFrame() ([]byte, error) {
	for {
		text, err := c.read()
		switch {
		case err == nil:
			if f := c.judge(text); c.catalogue || !f.changesTools() {
				return text, nil
			}
		case c.t.ctx.Err() != nil:
			return nil, errors.New(c.ending(err))
		case errors.Is(err, io.EOF) && c.t.target.local():
			return nil, &transport.Error{Err: err} // a unix socket has no codes
		default:
			return nil, err
		}
	}
}
