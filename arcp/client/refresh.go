package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
)

// refreshing answers session.refresh, so that the session is not evicted. One
// goroutine does, because it waits; what is asked meanwhile waits for it.
type refreshing struct {
	running  bool
	next     *refreshAsked
	refusals int // in a row; after MaxRetries it is given up: another would end the session at once
}

type refreshAsked struct {
	ctx context.Context // ends with the connection
	arcp.SessionRefreshPayload
}

// startRefresh acts on a session.refresh of the connection that ctx ends with.
func (c *Client) startRefresh(ctx context.Context, env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.SessionRefreshPayload](env)
	if err != nil {
		c.opts.Log("session.refresh cannot be read", "error", err)
		return
	}
	asked := &refreshAsked{ctx, p}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refreshing.running {
		c.refreshing.next = asked
		return
	}
	c.refreshing.running = true
	c.group.Go(func() { c.refreshAll(asked) })
}

func (c *Client) refreshAll(asked *refreshAsked) {
	for asked != nil {
		if err := c.refresh(asked.ctx, asked.SessionRefreshPayload); err != nil {
			c.opts.Log("authenticate again", "error", err)
		}
		c.mu.Lock()
		asked, c.refreshing.next = c.refreshing.next, nil
		c.refreshing.running = asked != nil
		c.mu.Unlock()
	}
}

// refresh shows a fresh credential, or the one there is.
func (c *Client) refresh(ctx context.Context, p arcp.SessionRefreshPayload) error {
	if c.refreshing.refusals >= MaxRetries {
		return errors.New("it was refused too often")
	}
	token, err := c.freshToken(ctx)
	if err != nil {
		return err
	}
	answer, err := c.opts.Auth.renewal(token, p.Challenge)
	if err != nil {
		return err
	}
	env, err := c.call(ctx, arcp.Frame(arcp.SessionAuthenticate, answer), nil)
	switch {
	case err != nil:
		return err
	case env.Type == arcp.SessionRefresh: // it wants it proven
		c.startRefresh(ctx, &env)
		return nil
	case env.Type != arcp.SessionAccepted:
		c.refreshing.refusals++
		return refusedBy(&env)
	}
	c.refreshing.refusals = 0
	c.setCredential(token)
	return c.accepted(&env)
}

func refusedBy(env *arcp.Envelope) error {
	if refusal := RemoteErrorOf(env); refusal != nil {
		return fmt.Errorf("%s: %w", arcp.SessionAuthenticate, refusal)
	}
	return unexpected(string(arcp.SessionAuthenticate), env.Type)
}

// renewal is the answer to session.refresh. A signed response is a fresh
// credential itself, unless there is another.
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

// freshToken is a fresh credential if there is a way to get one, else the one
// there is.
func (c *Client) freshToken(ctx context.Context) (Secret, error) {
	get := c.opts.Auth.Refresh
	if get == nil {
		return c.currentCredential(), nil
	}
	token, err := get(ctx)
	if err != nil {
		return "", fmt.Errorf("fresh credential: %w", err)
	}
	return token, nil
}

func (c *Client) currentCredential() Secret {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.credential
}

func (c *Client) setCredential(token Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credential = token
}
