package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// demoThinks is how long the demonstration's person thinks.
const demoThinks = time.Second

// approve has a job wait for an approval. The session that has asked tries to give
// it, in vain; then the person in another session does.
func (d *demonstration) approve(ctx context.Context) (string, error) {
	asked, tried := make(chan string, 1), make(chan struct{})
	person, err := d.person(ctx, asked, tried)
	if err != nil {
		return "", err
	}
	defer hangUp(person)
	job, err := d.client.Invoke(ctx, client.InvokeRequest{Tool: "approval.gate",
		Arguments: arcp.Raw(`{"action":"deploy release 7 to production","details":{"changes":3}}`)})
	if err != nil {
		return "", err
	}
	var id string
	select {
	case id = <-asked:
	case <-job.Done():
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	refused, err := d.selfApprove(ctx, id)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(d.app.stdout, "   the session that asks tries to approve: %s\n", refused)
	close(tried)
	result, err := job.Wait(ctx)
	if err != nil {
		return "", err
	}
	var out arcp.OutcomeView
	if err := arcp.Unmarshal(result.Value, &out); err != nil {
		return "", fmt.Errorf("read the result of approval.gate: %w", err)
	}
	if out.Outcome != arcp.OutcomeApproved {
		return "", fmt.Errorf("the job ended with %s", result.Value)
	}
	return fmt.Sprintf("approved by %s, and the job went on", out.Approval.ResolvedBy), nil
}

// person opens a session that reports the question and approves it, but not before the attempt
// without an approval.
func (d *demonstration) person(ctx context.Context, asked chan<- string, tried <-chan struct{}) (*client.Client, error) {
	t := &target{url: d.server.url, token: d.token.Reveal()}
	opts := t.options()
	opts.Handlers.Choice = func(ctx context.Context, q client.ChoiceRequest) (string, error) {
		asked <- q.ApprovalID
		select {
		case <-tried:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		fmt.Fprintf(d.app.stdout, "   another session is asked: %s?\n", q.Prompt)
		select {
		case <-time.After(demoThinks):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return "approve", nil
	}
	c, err := client.Dial(ctx, d.server.url, opts)
	if err != nil {
		return nil, t.explain(err)
	}
	return c, nil
}

// selfApprove tries to resolve an approval in the session that asks, and returns
// why it must not.
func (d *demonstration) selfApprove(ctx context.Context, id string) (arcp.Code, error) {
	_, err := callTool(ctx, d.client, "approval.resolve", map[string]any{"approval_id": id, "approved": true})
	refused, ok := errors.AsType[*client.RemoteError](err)
	if !ok {
		return "", fmt.Errorf("the session that asks approved it itself: %w", err)
	}
	return refused.Code, nil
}
