package conformance

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/proxy"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// perform runs the steps of a script.
func (run *checkRun) perform(c *script.Check) {
	var h script.Host = host{run}
	if run.target.Dialect == arcp.DialectDraft {
		h = draftHost{host{run}}
	}
	err := c.Run(h)
	if skip, ok := errors.AsType[script.Skip](err); ok {
		run.Skipf("%s", string(skip))
	}
	if failed, ok := errors.AsType[*script.Failure](err); ok {
		run.opening = failed.Open
		if failed.House {
			run.broke = House
		}
		run.Failf("%s: %s\n%s: %s", failed.Why, failed.Found, failed.At, failed.Source)
	}
	if err != nil {
		run.Failf("%v", err)
	}
}

// host implements script.Host for a target that is checked in the RFC's dialect.
type host struct{ t *checkRun }

// Dialect implements script.Host.
func (h host) Dialect(string) *script.Dialect { return script.RFC().With(h.t.server.barrier) }

// Dial implements script.Host. A connection of the role socket can send binary frames.
func (h host) Dial(role string, earlier script.Conn) (script.Conn, error) {
	switch {
	case earlier != nil:
		return earlier.(*checkConn).redial(), nil
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

// House implements script.Host.
func (h host) House() bool { return h.t.judges(House) }

// Var implements script.Host.
func (h host) Var(name string) (script.Value, bool) {
	if v := variables[name]; v != nil {
		return value(v(h.t)), true
	}
	return nil, false
}

// variables are the variables of scripts, by name.
var variables = map[string]func(t *checkRun) any{
	"principal": func(t *checkRun) any { return t.target.Principal },
	"token":     func(t *checkRun) any { return t.target.Token },
	"opening":   func(t *checkRun) any { return t.openPayload() },
	"opening_other": func(t *checkRun) any {
		p := t.openPayload()
		p.Auth.Token = t.target.OtherToken
		return p
	},
	"ack_window":  func(t *checkRun) any { return t.target.AckWindow },
	"frame_limit": func(t *checkRun) any { return t.target.FrameLimit },
	"has_other":   func(t *checkRun) any { return t.target.OtherToken != "" },
	"local":       func(t *checkRun) any { return t.target.local() },
	"codes": func(*checkRun) any { // error codes of jobs and whether they are retryable
		var list []map[string]any
		for _, info := range arcp.Codes {
			if info.Code != arcp.CodeOK && info.Code != arcp.CodeCancelled {
				list = append(list, map[string]any{"code": info.Code, "retryable": info.Retryable})
			}
		}
		return list
	},
	"features": func(t *checkRun) any { return t.server.accepted.Capabilities.Flags },
	"refused_features": func(*checkRun) any {
		flags := map[arcp.Feature]bool{}
		for _, f := range arcp.Features {
			flags[f] = false
		}
		return flags
	},
	"unconfigured": func(t *checkRun) any { // authentication schemes that the server must refuse
		return slices.DeleteFunc([]string{"signed_jwt", "oauth2", "mtls"}, func(scheme string) bool {
			return slices.Contains(t.target.Schemes, scheme) || scheme == "signed_jwt" && t.target.JWT != nil
		})
	},
	"audience": func(t *checkRun) any { return t.target.audience() },
	"issuer":   func(t *checkRun) any { return t.target.JWT.Issuer },
	"subject":  func(t *checkRun) any { return t.target.subject() },
}

func value(v any) script.Value {
	raw, err := arcp.Marshal(v)
	if err != nil {
		panic(err) // v contains only strings, numbers and structs
	}
	return raw
}

// Func implements script.Host.
func (h host) Func(name string) func([]script.Value) (script.Value, error) {
	switch name {
	case "offers": // reports whether the server offers a feature
		return func(args []script.Value) (script.Value, error) {
			return value(h.t.server.offers(arcp.Feature(text(args[0])))), nil
		}
	case "proof": // proves possession of a token, in answer to a challenge
		return func(args []script.Value) (script.Value, error) {
			return value(proof(text(args[0]), text(args[1]))), nil
		}
	case "jwt":
		return h.jwt
	case "seconds_left": // until steps stop waiting for what comes by itself
		return func([]script.Value) (script.Value, error) { return value(time.Until(h.PollDeadline()).Seconds()), nil }
	case "download": // requests a link to an artifact
		return h.download
	case "steady": // drops names of tools that other checks register
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

// jwt signs a token. args[0] are changes to the claims of a valid token. args[1], if present,
// selects another key.
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
		return nil, fmt.Errorf("generate another key: %w", err)
	}
	return value(h.t.token(key, h.t.claims(changes))), nil
}

// text returns the content of a JSON string; "" for any other value.
func text(v script.Value) (s string) {
	_ = arcp.Unmarshal(v, &s) // any other value leaves s empty
	return s
}

// Verb implements script.Host.
func (h host) Verb(name string) func(script.Conn, []script.Value) (script.Value, error) {
	return func(c script.Conn, args []script.Value) (script.Value, error) {
		if c == nil {
			return nil, errors.New(name + " is a step of a connection")
		}
		return hostVerbs[name](c.(connection), args)
	}
}

// hostVerbs are the steps that this suite adds to the script language:
//
//	catalogue    receives tools.changed from now on
//	silent       stops the transport pings
//	secret TEXT  declares a text that the server must not send
//	hangup       closes the connection with code 1000
//	binary       sends a binary frame (role socket)
//	sidecar KIND ID SEQUENCE DATA  sends a binary frame of a stream or a message (role socket)
//	not_utf8     sends a text frame that is not UTF-8 (role socket)
var hostVerbs = map[string]func(c connection, args []script.Value) (script.Value, error){
	"catalogue": func(c connection, _ []script.Value) (script.Value, error) {
		c.(*checkConn).catalog = true
		return nil, nil
	},
	"silent": func(c connection, _ []script.Value) (script.Value, error) {
		c.transportLink().stopKeepalive()
		return nil, nil
	},
	"hangup": func(c connection, _ []script.Value) (script.Value, error) {
		l := c.transportLink()
		l.gone = true
		_ = l.tc.Close(transport.CloseNormal, "bye") // the check does not depend on the close frame
		return nil, nil
	},
	"binary": func(c connection, _ []script.Value) (script.Value, error) {
		c.transportLink().setSent(binaryFrame)
		return nil, c.transportLink().tc.(proxy.BinaryWriter).WriteBinary([]byte{1, 2, 3})
	},
	"sidecar": sendSidecar,
	"not_utf8": func(c connection, _ []script.Value) (script.Value, error) {
		c.transportLink().setSent(malformedFrame)
		return nil, c.transportLink().tc.Write([]byte("{\"arcp\":\"1.1\",\"id\":\"msg_\xff\xfe\"}"))
	},
	"secret": func(c connection, args []script.Value) (script.Value, error) {
		c.forbid(text(args[0]))
		return nil, nil
	},
}

// redial connects again for the session of c and sends nothing.
func (c *checkConn) redial() *checkConn {
	d := c.t.Dial()
	d.rec = c.rec
	d.v.attach(c.rec)
	return d
}

// idOf finds the id in a frame that is not a valid envelope.
var idOf = regexp.MustCompile(`"id"\s*:\s*"((?:[^"\\]|\\.)*)"`)

// WriteFrame implements script.Conn.
func (c *checkConn) WriteFrame(frame []byte) error {
	if env, err := arcp.Decode(frame); err == nil {
		c.recordSent(&env)
	} else if id := idOf.FindSubmatch(frame); id != nil {
		c.t.sent[string(id[1])], c.rec.own[string(id[1])] = true, true
	}
	c.write(frame)
	return nil
}

// ReadFrame implements script.Conn.
func (c *checkConn) ReadFrame() ([]byte, error) {
	for {
		text, err := c.read()
		if err != nil {
			return nil, c.readError(err)
		}
		if f := c.validate(text); f != nil && (c.catalog || !f.changesTools()) {
			return text, nil
		}
	}
}

// readError returns the error of a script for the error of a read.
func (l *link) readError(err error) error {
	switch {
	case l.t.ctx.Err() != nil:
		return errors.New(l.ending(err))
	case errors.Is(err, io.EOF) && l.t.target.local():
		return &transport.Error{Err: err} // a unix socket has no close codes
	}
	return l.closedAfter(err)
}
