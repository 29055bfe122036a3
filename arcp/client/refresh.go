package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// refresher stores the credential and answers session.refresh. Only one goroutine answers at a time. A
// request that arrives during an answer is handled next.
type refresher struct {
	c        *Client
	refusals int // consecutive refusals; at MaxAuthRetries it stops, because one more would end the session

	mu         sync.Mutex
	credential Secret // the newest credential
	running    bool
	next       *refreshRequest
}

type refreshRequest struct {
	ctx context.Context // ends with the connection
	arcp.SessionRefreshPayload
}

// start answers a session.refresh. ctx ends with the connection.
func (r *refresher) start(ctx context.Context, env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SessionRefreshPayload](env)
	if err != nil {
		r.c.opts.Log("decode session.refresh", "error", err)
		return
	}
	request := &refreshRequest{ctx, p}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.next = request
		return
	}
	r.running = true
	r.c.group.Go(func() { r.run(request) })
}

func (r *refresher) run(request *refreshRequest) {
	for request != nil {
		if err := r.answer(request.ctx, request.SessionRefreshPayload); err != nil {
			r.c.opts.Log("authenticate again", "error", err)
		}
		r.mu.Lock()
		request, r.next = r.next, nil
		r.running = request != nil
		r.mu.Unlock()
	}
}

// answer sends a new credential, or the current credential.
func (r *refresher) answer(ctx context.Context, p arcp.SessionRefreshPayload) error {
	if r.refusals >= MaxAuthRetries {
		return errors.New("too many credentials were refused")
	}
	token, err := r.renew(ctx)
	if err != nil {
		return err
	}
	answer, err := r.c.opts.Auth.renewal(token, p.Challenge)
	if err != nil {
		return err
	}
	env, err := r.c.call(ctx, arcp.Frame(arcp.SessionAuthenticate, answer), nil)
	switch {
	case err != nil:
		return err
	case env.Type == arcp.SessionRefresh: // the runtime asks again, with a challenge
		r.start(ctx, &env)
		return nil
	case env.Type != arcp.SessionAccepted:
		r.refusals++
		return refusedBy(&env)
	}
	r.refusals = 0
	r.set(token)
	s, err := sessionOf(&env)
	if err == nil {
		r.c.state.set(s, r.c.opts.AckEvery)
	}
	return err
}

func refusedBy(env *arcp.Envelope) error {
	if refusal := RemoteErrorOf(env); refusal != nil {
		return fmt.Errorf("%s: %w", arcp.SessionAuthenticate, refusal)
	}
	return unexpected(string(arcp.SessionAuthenticate), env.Type)
}

// renewal returns the answer to session.refresh. A signed response is itself a new credential, unless
// Refresh returned a token.
func (a *Auth) renewal(token Secret, challenge string) (p arcp.SessionAuthenticatePayload, err error) {
	if challenge != "" {
		if p.Response, err = a.respond(token, challenge); err != nil {
			return p, fmt.Errorf("answer challenge: %w", err)
		}
	}
	if token != "" && (challenge == "" || a.Scheme != SignedJWT || a.Refresh != nil) {
		wire := a.wire(token)
		p.Auth = &wire
	}
	return p, nil
}

// renew returns a token from Auth.Refresh, or the current token.
func (r *refresher) renew(ctx context.Context) (Secret, error) {
	refresh := r.c.opts.Auth.Refresh
	if refresh == nil {
		return r.current(), nil
	}
	token, err := refresh(ctx)
	if err != nil {
		return "", fmt.Errorf("refresh credential: %w", err)
	}
	return token, nil
}

func (r *refresher) current() Secret {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.credential
}

func (r *refresher) set(token Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credential = token
}
