package conformance

import (
	"context"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// Target is the server to check and what is known about it beforehand.
type Target struct {
	URL       string // ws:// or wss://
	Token     string // bearer token of a client, worker and approver
	Principal string // the token's principal; empty: not known

	OtherToken string // bearer token of another principal; empty: checks that need one are skipped

	// ObserverToken is the bearer token of a principal with no role but observer, that
	// sees the principal of Token and not the one of OtherToken. Empty: checks that
	// need it are skipped.
	ObserverToken string

	// JWT signs tokens for the scheme signed_jwt. Nil: checks that need them are
	// skipped.
	JWT *JWT

	// Schemes lists the authentication schemes that are configured beside
	// bearer and, with JWT, signed_jwt. For every other known scheme the server must say that it is not
	// configured.
	Schemes []string

	// FrameLimit is the size in bytes of the largest frame the server takes.
	// Zero is the default of 8 MiB, negative means not known.
	FrameLimit int64

	// AckWindow is the number of unacknowledged events after which the server
	// holds events back. Zero: it has no window, or it is not known.
	AckWindow int

	// Restart ends the server at once and starts it again, at the same URL and with
	// what it has made durable. Nil: checks that need it are skipped.
	Restart func(ctx context.Context) error

	// Dial makes a connection. The default dials URL. It is how the checks are
	// pointed at a server inside the same process, or put behind a proxy.
	Dial func(ctx context.Context) (transport.Conn, error)
}

// DefaultFrameLimit is the largest frame a server takes unless it says
// otherwise.
const DefaultFrameLimit = 8 << 20

func (tg *Target) frameLimit() int64 {
	if tg.FrameLimit == 0 {
		return DefaultFrameLimit
	}
	return tg.FrameLimit
}

func (tg *Target) dial(ctx context.Context) (transport.Conn, error) {
	if tg.Dial != nil {
		return tg.Dial(ctx)
	}
	return dialURL(ctx, tg.URL)
}

// secrets are the texts that must never be shown and never come back.
func (tg *Target) secrets() []string {
	var list []string
	for _, s := range []string{tg.Token, tg.OtherToken, tg.ObserverToken} {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// server is what a first session has told about the target.
type server struct {
	accepted arcp.SessionAcceptedPayload
	tools    map[string]bool // of those asked for
	err      string          // why nothing is known; empty: all is well
}

// missing says why a need is not met, or "".
func (s *server) missing(tg *Target, need string) string {
	if name, ok := strings.CutPrefix(need, toolPrefix); ok {
		why := "the server has no tool " + name
		if strings.HasPrefix(name, checkTools) {
			why += howToGetOne
		}
		return s.lacks(s.tools[name], why)
	}
	if name, ok := strings.CutPrefix(need, capabilityPrefix); ok {
		return s.lacks(s.offers(arcp.Feature(name)), "capability "+name+" is not offered")
	}
	switch {
	case need == NeedWebSocket && !strings.HasPrefix(tg.URL, "ws"):
		return "the target has no WebSocket URL"
	case need == NeedOther && tg.OtherToken == "":
		return "no token of another principal was given"
	case need == NeedObserver && tg.ObserverToken == "":
		return "no token of a principal that only observes was given"
	case need == NeedPrincipal && tg.Principal == "":
		return "the principal of the token was not given"
	case need == NeedJWT:
		return tg.JWT.problem(tg)
	case need == NeedAckWindow && tg.AckWindow == 0:
		return "the server has no acknowledgement window"
	case need == NeedRestart && tg.Restart == nil:
		return "the server cannot be started again"
	case need == NeedFrameLimit && tg.frameLimit() < 0:
		return "the server's frame limit is not known"
	}
	return ""
}

// offers reports whether the server has a feature. A boolean that is said wins
// over the features list, whose names are another dialect's.
func (s *server) offers(f arcp.Feature) bool {
	caps := &s.accepted.Capabilities
	if on, said := caps.Flags[f]; said {
		return on
	}
	return caps.Has(f)
}

func (s *server) lacks(have bool, why string) string {
	switch {
	case s.err != "":
		return s.err
	case have:
		return ""
	}
	return why
}

// probe opens one session that offers everything and tries each tool that the
// checks need. It judges nothing: that is what the checks are for.
func probe(t *T, checks []Check, s *server) {
	s.tools = map[string]bool{}
	c := t.Dial()
	c.v.lenient = true
	open := t.openPayload()
	open.Capabilities = offerEverything()
	id := c.Send(arcp.SessionOpen, open)
	f := c.Await("a session.open with a right token is accepted", arcp.SessionAccepted, id)
	s.accepted = payload[arcp.SessionAcceptedPayload](t, f)
	for _, check := range checks {
		for _, need := range check.Needs {
			name, ok := strings.CutPrefix(need, toolPrefix)
			if _, known := s.tools[name]; ok && !known {
				s.tools[name] = c.hasTool(name)
			}
		}
	}
}

// hasTool submits the tool with an argument that only a tool taking anything
// accepts: any end but "no such tool" shows that it exists. A server may accept the job
// before it looks for the tool; a job that is cancelled has one.
func (c *Conn) hasTool(name string) bool {
	id := c.Send(arcp.ToolInvoke, arcp.ToolInvokePayload{Tool: name, Arguments: arcp.Raw(`{"conformance_probe":true}`)})
	var cancel arcp.MessageID
	for {
		f := c.next("a submit is answered")
		switch {
		case f.CorrelationID == id && f.Type == arcp.JobAccepted:
			cancel = c.Send(arcp.Cancel, arcp.CancelPayload{Target: arcp.TargetJob, TargetID: string(f.JobID)})
		case f.CorrelationID == id && (f.Type == arcp.JobFailed || f.Type == arcp.Nack):
			code := payload[arcp.ErrorPayload](c.t, f).Code
			return code != arcp.CodeAgentNotAvailable && code != arcp.CodeNotFound && code != arcp.CodeUnimplemented
		case f.CorrelationID == id && f.Type.Terminal(), cancel != "" && f.CorrelationID == cancel && f.Type == arcp.CancelAccepted:
			return true
		}
	}
}

// offerEverything offers every feature but those that change who we are, or what we are
// sent without being asked.
func offerEverything() arcp.Capabilities {
	caps := arcp.Capabilities{Flags: map[arcp.Feature]bool{}}
	for _, f := range arcp.Features {
		caps.Flags[f] = f != arcp.FeatureAnonymous && f != arcp.FeatureMetrics
	}
	return caps
}
