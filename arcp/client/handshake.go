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
)

// handshake opens the session (§3.1). It runs in New, before there are
// goroutines, so it reads and writes the connection itself.
type handshake struct {
	c         *Client
	token     Secret
	challenge string         // the last one; empty: not challenged
	session   arcp.SessionID // as named by the challenge
	sent      arcp.MessageID // what the next answer must be correlated to
	retries   int
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

// step acts on an answer of the runtime.
func (h *handshake) step(env *arcp.Envelope) (done bool, err error) {
	switch env.Type {
	case arcp.SessionAccepted:
		return true, h.c.accepted(env)
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

// opening is the first message: session.resume with a token, else session.open.
func (h *handshake) opening() arcp.Envelope {
	o := &h.c.opts
	if o.Resume != nil && o.Resume.Token != "" {
		p := arcp.SessionResumePayload{ResumeToken: o.Resume.Token.Reveal()}
		if o.Resume.LastEventSeq != nil {
			p.LastEventSeq = *o.Resume.LastEventSeq
		}
		env := arcp.Frame(arcp.SessionResume, p)
		env.SessionID = o.Resume.SessionID
		return env
	}
	p := arcp.SessionOpenPayload{Auth: o.Auth.wire(h.token), Client: o.Client, Capabilities: o.offered()}
	var id arcp.SessionID
	if o.Resume != nil {
		id, p.LastEventSeq = o.Resume.SessionID, o.Resume.LastEventSeq
	}
	env := arcp.Frame(arcp.SessionOpen, p)
	env.SessionID = id
	return env
}

// offered adds anonymous to what the client offers when it comes without
// credentials, because the scheme none needs it.
func (o *Options) offered() arcp.Capabilities {
	caps := o.Capabilities
	if _, said := caps.Flags[arcp.FeatureAnonymous]; o.Auth.Scheme != None || said {
		return caps
	}
	caps.Flags = maps.Clone(caps.Flags)
	if caps.Flags == nil {
		caps.Flags = make(map[arcp.Feature]bool)
	}
	caps.Flags[arcp.FeatureAnonymous] = true
	return caps
}

func (a *Auth) wire(token Secret) arcp.Auth {
	return arcp.Auth{Scheme: a.Scheme, Token: token.Reveal()}
}

// respond computes the answer to a challenge.
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
	return "", fmt.Errorf("the scheme %s cannot answer one", a.Scheme)
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

// retry tries another token after a refusal that is not final.
func (h *handshake) retry(refusal *RemoteError) error {
	auth := &h.c.opts.Auth
	if auth.Retry == nil || h.retries == MaxRetries {
		return refusal
	}
	h.retries++
	token, err := auth.Retry(h.retries, refusal)
	if err != nil {
		return errors.Join(refusal, err)
	}
	h.token = token
	if h.challenge != "" {
		return h.authenticate()
	}
	return h.send(h.opening())
}

func (h *handshake) resumed(env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SessionResumedPayload](env)
	if err != nil {
		return &ProtocolError{"handshake: session.resumed", err}
	}
	c := h.c
	c.session = Session{ID: p.SessionID, ResumeToken: Secret(p.ResumeToken), Resumed: true, ReplayedFrom: p.ReplayedFrom}
	c.sequence.start(p.ReplayedFrom)
	return nil
}

func (h *handshake) send(env arcp.Envelope) error {
	c := h.c
	env.ARCP, env.ID, env.Timestamp = c.opts.Version, arcp.NewMessageID(), time.Now()
	h.sent = env.ID
	err := c.conn.Write(env.Append(nil))
	if err == nil {
		err = c.conn.Flush()
	}
	return lost(err)
}

// receive reads the next answer and checks that it answers what was sent.
func (h *handshake) receive() (arcp.Envelope, error) {
	env, err := h.c.readFrame()
	if err != nil {
		return env, err
	}
	if h.c.opts.OnEvent != nil {
		h.c.opts.OnEvent(&env)
	}
	if env.CorrelationID != "" && env.CorrelationID != h.sent {
		return env, &ProtocolError{"handshake", fmt.Errorf("%s is correlated to %s, want %s", env.Type, env.CorrelationID, h.sent)}
	}
	return env, nil
}

// accepted takes over what session.accepted says, of the handshake or of a
// refresh.
func (c *Client) accepted(env *arcp.Envelope) error {
	p, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](env)
	if err != nil {
		return &ProtocolError{"session.accepted", err}
	}
	s := Session{ID: p.SessionID, Runtime: p.Runtime, Capabilities: p.Capabilities, ResumeToken: Secret(p.ResumeToken),
		ResumeWindow: time.Duration(p.ResumeWindowSec) * time.Second, Heartbeat: time.Duration(p.HeartbeatIntervalSec) * time.Second}
	if p.Lease != nil {
		s.ExpiresAt = p.Lease.ExpiresAt
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
	return nil
}

// refresh answers session.refresh, so that the session is not evicted.
func (c *Client) refresh(ctx context.Context, p arcp.SessionRefreshPayload) error {
	auth := &c.opts.Auth
	wire := auth.wire(auth.Token)
	answer := arcp.SessionAuthenticatePayload{Auth: &wire}
	if p.Challenge != "" {
		var err error
		if answer.Response, err = auth.respond(auth.Token, p.Challenge); err != nil {
			return err
		}
	}
	env, err := c.request(ctx, arcp.Frame(arcp.SessionAuthenticate, answer), arcp.SessionAccepted, nil)
	if err != nil {
		return err
	}
	return c.accepted(&env)
}
