package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// handshake opens or resumes the session (§3.1). It reads and writes the connection itself. No
// other goroutine uses the connection before the handshake has succeeded.
type handshake struct {
	c         *Client
	conn      transport.Conn
	resume    *Resume // nil: a new session
	reattach  bool    // the client attaches to its session again
	token     Secret
	challenge string         // the last challenge; empty: none
	session   arcp.SessionID // session_id of the challenge
	sent      arcp.MessageID // id of the last message; correlation_id of the answer
	retries   int
}

// attach performs the handshake. It aborts the connection when ctx ends, and closes it after a
// failure.
func (h *handshake) attach(ctx context.Context) error {
	h.token = h.c.refresher.current()
	h.conn.SetReadLimit(h.c.opts.Limits.Transport.ReadLimit)
	acceptSidecars(h.conn)
	h.c.reader.closeReason = nil
	stop := context.AfterFunc(ctx, func() { h.conn.Abort() })
	err := h.run()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		closeNormal(h.conn) // the error of the handshake is more useful
	}
	return err
}

func (h *handshake) run() error {
	if err := h.send(h.opening()); err != nil {
		return err
	}
	for {
		env, err := h.receive()
		if err != nil {
			return err
		}
		if done, err := h.step(&env); done || err != nil {
			return err
		}
	}
}

// step handles one answer of the runtime.
func (h *handshake) step(env *arcp.Envelope) (done bool, err error) {
	switch env.Type {
	case arcp.SessionAccepted:
		return true, h.accepted(env)
	case arcp.SessionResumed:
		return true, h.resumed(env)
	case arcp.SessionChallenge:
		p, err := arcp.DecodePayload[arcp.SessionChallengePayload](env)
		if err != nil {
			return false, &ProtocolError{"handshake: session.challenge", err}
		}
		h.challenge, h.session = p.Challenge, env.SessionID
		return false, h.authenticate()
	case arcp.SessionUnauthenticated:
		return false, h.retry(RemoteErrorOf(env))
	}
	if refusal := RemoteErrorOf(env); refusal != nil {
		return false, refusal
	}
	return false, unexpected("handshake", env.Type)
}

// accepted ends the handshake of session.open. When the client attaches again and its session has
// ended, the runtime opens another session, which is an error here.
func (h *handshake) accepted(env *arcp.Envelope) error {
	s, err := sessionOf(env)
	switch {
	case err != nil:
		return err
	case !h.reattach:
	case h.resume.Token != "":
		return unexpected("resume", env.Type)
	case s.ID != h.resume.SessionID:
		// Without this message the session expires later.
		// Without this message the session ends with its resume window.
		_ = h.send(arcp.Envelope{Type: arcp.SessionClose, SessionID: s.ID, Payload: arcp.Raw(`{"forget":true}`)})
		return errOtherSession
	}
	h.c.state.set(s, h.c.opts.AckEvery)
	return nil
}

// opening returns the first message: session.resume with a token, or else session.open.
func (h *handshake) opening() arcp.Envelope {
	o := &h.c.opts
	if r := h.resume; r != nil && r.Token != "" {
		p := arcp.SessionResumePayload{ResumeToken: r.Token.Reveal(), AckWindow: h.c.opts.Capabilities.AckWindow}
		if r.LastEventSeq != nil {
			p.LastEventSeq = *r.LastEventSeq
		}
		env := arcp.Frame(arcp.SessionResume, p)
		env.SessionID = r.SessionID
		return env
	}
	p := arcp.SessionOpenPayload{Auth: o.Auth.wire(h.token), Client: o.Client, Capabilities: o.offered()}
	if o.offersSidecar(h.conn) {
		p.Capabilities.BinaryEncoding = []string{"base64", arcp.EncodingSidecar}
	}
	var id arcp.SessionID
	if h.resume != nil {
		id, p.LastEventSeq = h.resume.SessionID, h.resume.LastEventSeq
	}
	env := arcp.Frame(arcp.SessionOpen, p)
	env.SessionID = id
	return env
}

// offered returns Capabilities with the features that the client implements: result_chunk, streaming, executes,
// refresh (or anonymous with the scheme none), artifact_redirect with ArtifactRedirect, and human_input with
// handlers for questions. Flags in Capabilities take precedence.
func (o *Options) offered() arcp.Capabilities {
	own := map[arcp.Feature]bool{arcp.FeatureResultChunk: true, arcp.FeatureStreaming: true, arcp.FeatureExecutes: true}
	if o.Auth.Scheme == None {
		own[arcp.FeatureAnonymous] = true
	} else {
		own[arcp.FeatureRefresh] = true
	}
	if o.ArtifactRedirect {
		own[arcp.FeatureArtifactRedirect] = true
	}
	if o.Handlers.person() {
		own[arcp.FeatureHumanInput] = true
	}
	maps.Copy(own, o.Capabilities.Flags)
	caps := o.Capabilities
	caps.Flags = own
	return caps
}

func (a *Auth) wire(token Secret) arcp.Auth {
	return arcp.Auth{Scheme: a.Scheme, Token: token.Reveal()}
}

// respond returns the answer to a challenge.
func (a *Auth) respond(token Secret, challenge string) (string, error) {
	switch {
	case a.Scheme == Bearer:
		key := sha256.Sum256([]byte(token.Reveal()))
		mac := hmac.New(sha256.New, key[:])
		mac.Write([]byte(challenge))
		return hex.EncodeToString(mac.Sum(nil)), nil
	case a.Scheme == SignedJWT && a.Sign != nil:
		return a.Sign(challenge)
	case a.Scheme == SignedJWT:
		return "", errors.New("Options.Auth.Sign is not set")
	}
	return "", fmt.Errorf("the scheme %s cannot answer a challenge", a.Scheme)
}

func (h *handshake) authenticate() error {
	auth := &h.c.opts.Auth
	response, err := auth.respond(h.token, h.challenge)
	if err != nil {
		return fmt.Errorf("answer challenge: %w", err)
	}
	env := arcp.Frame(arcp.SessionAuthenticate, arcp.SessionAuthenticatePayload{Response: response})
	env.SessionID = h.session
	return h.send(env)
}

// retry sends another token after a refusal that is not final.
func (h *handshake) retry(refusal *RemoteError) error {
	auth := &h.c.opts.Auth
	if auth.Retry == nil || h.retries == MaxAuthRetries {
		return refusal
	}
	h.retries++
	token, err := auth.Retry(h.retries, refusal)
	if err != nil {
		return errors.Join(refusal, err)
	}
	h.token = token
	h.c.refresher.set(token)
	if h.challenge != "" {
		return h.authenticate()
	}
	return h.send(h.opening())
}

var errOtherSession = errors.New("the session has ended: the runtime opened another")

func (h *handshake) resumed(env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SessionResumedPayload](env)
	if err != nil {
		return &ProtocolError{"handshake: session.resumed", err}
	}
	c := h.c
	s := c.Session() // session.resumed has only some of the members
	s.ID, s.ResumeToken, s.Resumed, s.ReplayedFrom = p.SessionID, Secret(p.ResumeToken), true, p.ReplayedFrom
	s.Capabilities.AckWindow = p.AckWindow
	c.state.set(s, c.opts.AckEvery)
	if h.reattach {
		return c.reader.sequence.resume(p.ReplayedFrom)
	}
	c.reader.sequence.start(p.ReplayedFrom)
	return nil
}

func (h *handshake) send(env arcp.Envelope) error {
	env.ARCP, env.ID, env.Timestamp = h.c.opts.Version, arcp.NewMessageID(), time.Now()
	h.sent = env.ID
	if err := h.c.opts.check(&env); err != nil {
		return err
	}
	err := h.conn.Write(env.Append(nil))
	if err == nil {
		err = h.conn.Flush()
	}
	return connectionLost(err)
}

// receive reads the next answer and checks its correlation_id.
func (h *handshake) receive() (arcp.Envelope, error) {
	env, err := h.c.reader.readFrame(h.conn)
	if err != nil {
		return env, err
	}
	if h.c.opts.OnEnvelope != nil {
		h.c.opts.OnEnvelope(&env)
	}
	if env.CorrelationID != "" && env.CorrelationID != h.sent {
		return env, &ProtocolError{"handshake", fmt.Errorf("%s is correlated to %s, want %s", env.Type, env.CorrelationID, h.sent)}
	}
	return env, nil
}
