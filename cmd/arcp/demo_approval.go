package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// demoDecision is the time until the approver of the demonstration answers.
const demoDecision = time.Second

// approve runs a job that needs an approval. The asking session tries to approve and is refused. Then another
// session approves.
func (d *demonstration) approve(ctx context.Context) (string, error) {
	asked, tried := make(chan string, 1), make(chan struct{})
	approver, err := d.approver(ctx, asked, tried)
	if err != nil {
		return "", err
	}
	defer closeSession(approver)
	job, err := d.client.Invoke(ctx, client.InvokeParams{Tool: "approval.gate",
		Arguments: arcp.Raw(`{"action":"deploy release 7 to production","details":{"changes":3}}`)})
	if err != nil {
		return "", err
	}
	d.jobs = append(d.jobs, job.ID())
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
	fmt.Fprintf(d.app.stdout, "   the asking session tries to approve: %s\n", refused)
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
	return fmt.Sprintf("approved by %s", out.Approval.ResolvedBy), nil
}

// approver opens a session that sends the id of the question to asked and approves after tried is closed.
func (d *demonstration) approver(ctx context.Context, asked chan<- string, tried <-chan struct{}) (*client.Client, error) {
	tg := &target{url: d.server.url, token: d.token.Reveal()}
	opts := tg.options()
	opts.Handlers.Choice = func(ctx context.Context, q client.ChoiceRequest) (string, error) {
		asked <- q.ApprovalID
		select {
		case <-tried:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		fmt.Fprintf(d.app.stdout, "   another session is asked: %s?\n", q.Prompt)
		select {
		case <-time.After(demoDecision):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return "approve", nil
	}
	c, err := client.Dial(ctx, d.server.url, opts)
	if err != nil {
		return nil, tg.explain(err)
	}
	return c, nil
}

// selfApprove tries to resolve the approval in the asking session, and returns the code of the refusal.
func (d *demonstration) selfApprove(ctx context.Context, id string) (arcp.Code, error) {
	_, err := callTool(ctx, d.client, "approval.resolve", map[string]any{"approval_id": id, "approved": true})
	refused, ok := errors.AsType[*client.RemoteError](err)
	if !ok {
		return "", fmt.Errorf("the asking session could approve its own request: %w", err)
	}
	return refused.Code, nil
}
