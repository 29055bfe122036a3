package conformance

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
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

// Dial implements script.Host. The role socket can send what is no text frame.
func (h host) Dial(role string, earlier script.Conn) (script.Conn, error) {
	switch {
	case earlier != nil:
		return earlier.(*Conn).redial(), nil
	case role == "socket":
		return h.t.DialSocket(), nil
	}
	return h.t.Dial(), nil
}

// Open implements script.Host.
func (h host) Open(role string) (script.Value, error) {
	p := h.t.openPayload()
	switch role {
	case "", "socket":
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

// PollDeadline implements script.Host.
func (h host) PollDeadline() time.Time { return h.t.pollDeadline() }

// Var implements script.Host.
func (h host) Var(name string) (script.Value, bool) {
	if v := variables[name]; v != nil {
		return value(v(h.t)), true
	}
	return nil, false
}

// variables are what scripts know of a target.
var variables = map[string]func(t *T) any{
	"principal": func(t *T) any { return t.target.Principal },
	"token":     func(t *T) any { return t.target.Token },
	"opening":   func(t *T) any { return t.openPayload() },
	"opening_other": func(t *T) any {
		p := t.openPayload()
		p.Auth.Token = t.target.OtherToken
		return p
	},
	"ack_window":  func(t *T) any { return t.target.AckWindow },
	"frame_limit": func(t *T) any { return t.target.frameLimit() },
	"has_other":   func(t *T) any { return t.target.OtherToken != "" },
	"local":       func(t *T) any { return t.target.local() },
	"codes": func(*T) any { // that a job can fail with, and whether they may be retried
		var list []map[string]any
		for _, info := range arcp.Codes {
			if info.Code != arcp.CodeOK && info.Code != arcp.CodeCancelled {
				list = append(list, map[string]any{"code": info.Code, "retryable": info.Retryable})
			}
		}
		return list
	},
	"features": func(t *T) any { return t.server.accepted.Capabilities.Flags },
	"refused_features": func(*T) any {
		flags := map[arcp.Feature]bool{}
		for _, f := range arcp.Features {
			flags[f] = false
		}
		return flags
	},
	"unconfigured": func(t *T) any { // known schemes of authentication
		return slices.DeleteFunc([]string{"signed_jwt", "oauth2", "mtls"}, func(scheme string) bool {
			return slices.Contains(t.target.Schemes, scheme) || scheme == "signed_jwt" && t.target.JWT != nil
		})
	},
	"audience": func(t *T) any { return t.target.audience() },
	"issuer":   func(t *T) any { return t.target.JWT.Issuer },
	"subject":  func(t *T) any { return t.target.subject() },
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
	switch name {
	case "offers": // whether the server has a feature
		return func(args []script.Value) (script.Value, error) {
			return value(h.t.server.offers(arcp.Feature(text(args[0])))), nil
		}
	case "proof": // of having a token, for a challenge
		return func(args []script.Value) (script.Value, error) {
			return value(proof(text(args[0]), text(args[1]))), nil
		}
	case "jwt":
		return h.jwt
	case "steady": // names of tools that do not come and go with other checks
		return func(args []script.Value) (script.Value, error) {
			var names []string
			err := arcp.Unmarshal(args[0], &names)
			return value(slices.DeleteFunc(names, func(name string) bool {
				return strings.HasPrefix(name, workerTools) || strings.HasPrefix(name, mcpTools)
			})), err
		}
	}
	return nil
}

// jwt signs a valid token but for changed claims, with the kind of key.
func (h host) jwt(args []script.Value) (script.Value, error) {
	changes := claims{}
	if err := arcp.Unmarshal(args[0], &changes); err != nil {
		return nil, err
	}
	key, err := h.t.target.JWT.Key, error(nil)
	if len(args) > 1 {
		switch text(args[1]) {
		case "another":
			key, err = key.another()
		case "unsigned":
			key = unsigned()
		case "misused":
			key = key.misused()
		}
	}
	if err != nil {
		return nil, script.Skip("no other key can be made: " + err.Error())
	}
	return value(h.t.token(key, h.t.claims(changes))), nil
}

// text is the content of a string; "" of what is none.
func text(v script.Value) (s string) {
	_ = arcp.Unmarshal(v, &s) // what is no string has no content
	return s
}

// Verb implements script.Host.
func (h host) Verb(name string) func(script.Conn, []script.Value) (script.Value, error) {
	return func(c script.Conn, args []script.Value) (script.Value, error) {
		if c == nil {
			return nil, errors.New(name + " is a step of a connection")
		}
		return hostVerbs[name](c.(*Conn), args)
	}
}

// hostVerbs are the steps of scripts that are about this suite:
//
//	catalogue    does not leave out tools.changed
//	silent       sends no more pings of the transport
//	secret TEXT  must not come back
//	hangup       closes the connection with 1000
//	binary       sends a binary frame, by a socket
//	not_utf8     sends a text frame that is not UTF-8, by a socket
var hostVerbs = map[string]func(c *Conn, args []script.Value) (script.Value, error){
	"catalogue": func(c *Conn, _ []script.Value) (script.Value, error) { c.catalogue = true; return nil, nil },
	"silent":    func(c *Conn, _ []script.Value) (script.Value, error) { c.stopKeepalive(); return nil, nil },
	"hangup": func(c *Conn, _ []script.Value) (script.Value, error) {
		c.gone = true
		_ = c.tc.Close(transport.CloseNormal, "bye") // whether the farewell arrives does not matter
		return nil, nil
	},
	"binary": func(c *Conn, _ []script.Value) (script.Value, error) {
		return nil, c.tc.(*socket).send(opBinary, []byte{1, 2, 3})
	},
	"not_utf8": func(c *Conn, _ []script.Value) (script.Value, error) {
		return nil, c.tc.(*socket).send(opText, []byte("{\"arcp\":\"1.1\",\"id\":\"msg_\xff\xfe\"}"))
	},
	"secret": func(c *Conn, args []script.Value) (script.Value, error) {
		c.v.secrets = append(slices.Clone(c.v.secrets), text(args[0]))
		return nil, nil
	},
}

// redial makes a connection for the session of c and sends nothing.
func (c *Conn) redial() *Conn {
	d := c.t.Dial()
	d.rec = c.rec
	d.v.attach(c.rec)
	return d
}

// idOf finds the id of a frame that is no envelope.
var idOf = regexp.MustCompile(`"id"\s*:\s*"((?:[^"\\]|\\.)*)"`)

// WriteFrame implements script.Conn.
func (c *Conn) WriteFrame(frame []byte) error {
	if env, err := arcp.Decode(frame); err == nil {
		c.recordSent(&env)
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
			if f := c.validate(text); c.catalogue || !f.changesTools() {
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
