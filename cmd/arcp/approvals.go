package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newApprovals(a *app) *cobra.Command {
	cmd := newGroup("approvals", "List and decide approvals")
	cmd.AddCommand(newApprovalsList(a), newApprovalsShow(a), newApprovalsApprove(a), newApprovalsDeny(a), newApprovalsWait(a))
	return cmd
}

// questionState returns the status and the resolution.
func questionState(q *arcp.QuestionView) string {
	if q.Resolution == "" {
		return string(q.Status)
	}
	return string(q.Status) + ": " + q.Resolution
}

// questionText returns the question as one line.
func questionText(q *arcp.QuestionView) string {
	if q.Permission == nil {
		return q.Action
	}
	return strings.TrimSuffix(q.Permission.String()+": "+q.Action, ": ")
}

func newApprovalsList(a *app) *cobra.Command {
	var ql questionList
	cmd := newList(a, list[arcp.QuestionView]{
		short: "List approvals, the pending ones first",
		long: "Lists the approvals of your principal and of the principals that it observes: the pending\n" +
			"ones, the oldest first, then the others, the newest first. `arcp input ls` lists the\n" +
			"questions that you may answer.",
		filters: []filter{{name: "status", choices: texts(arcp.QuestionStatuses)}},
		fetch:   ql.fetch,
		columns: []column[arcp.QuestionView]{
			{"APPROVAL", func(q *arcp.QuestionView) any { return q.ApprovalID }},
			{"KIND", func(q *arcp.QuestionView) any { return q.Kind }},
			{"STATUS", func(q *arcp.QuestionView) any { return questionState(q) }},
			{"PRINCIPAL", func(q *arcp.QuestionView) any { return q.Principal }},
			{"CREATED", func(q *arcp.QuestionView) any { return clock(q.CreatedAt) }},
			{"ACTION", func(q *arcp.QuestionView) any { return questionText(q) }},
		},
	})
	cmd.Flags().BoolVar(&ql.allKinds, "all-kinds", false, "also list other questions: permissions, inputs and choices")
	return cmd
}

type approvalArgs struct {
	ApprovalID string `json:"approval_id"`
}

func newApprovalsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show an approval or another question", Args: argsBetween(1, 1)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeApprovals(a, t)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		q, err := ask[arcp.QuestionView](ctx, c, "approval.get", approvalArgs{args[0]})
		if err != nil {
			return err
		}
		return a.printQuestion(&q)
	})
	return cmd
}

func (a *app) printQuestion(q *arcp.QuestionView) error {
	return a.printView(q.ApprovalID, q, func() error { return printQuestionText(a.stdout, q) })
}

func printQuestionText(w io.Writer, q *arcp.QuestionView) error {
	return printProperties(w, func(fact func(string, any)) {
		fact("approval", q.ApprovalID)
		fact("kind", q.Kind)
		fact("status", questionState(q))
		fact("action", q.Action)
		if q.Permission != nil {
			fact("permission", q.Permission)
		}
		fact("details", compact(q.Details))
		fact("options", strings.Join(q.Options, ", "))
		fact("schema", compact(q.Schema))
		if q.Quorum > 1 {
			fact("approved by", fmt.Sprintf("%d of %d %s", len(q.Votes), q.Quorum, voters(q.Votes)))
		}
		fact("principal", q.Principal)
		fact("session", q.SessionID)
		fact("job", q.JobID)
		fact("agent", q.AgentID)
		fact("created", clock(q.CreatedAt))
		fact("expires", clock(q.ExpiresAt))
		resolutionFacts(q, fact)
	})
}

func resolutionFacts(q *arcp.QuestionView, fact func(name string, value any)) {
	if q.ResolvedAt.IsZero() {
		return
	}
	fact("ended", clock(q.ResolvedAt))
	fact("value", compact(q.Value))
	fact("reason", q.Reason)
	fact("by", q.ResolvedBy)
	if q.RespondedBy != q.ResolvedBy {
		fact("responded by", q.RespondedBy)
	}
}

func voters(votes []arcp.Vote) string {
	var names []string
	for _, v := range votes {
		names = append(names, v.Principal)
	}
	return strings.Join(names, " ")
}

func optionNames(options []arcp.Option) string {
	var names []string
	for _, o := range options {
		name := o.ID
		if o.Label != "" && !strings.EqualFold(o.Label, o.ID) {
			name += " (" + o.Label + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// resolveArgs are the arguments of approval.resolve.
type resolveArgs struct {
	ApprovalID string `json:"approval_id"`
	Approved   bool   `json:"approved"`
	Reason     string `json:"reason,omitzero"`
}

func (ra resolveArgs) question() string { return ra.ApprovalID }

func (ra resolveArgs) answers(kind arcp.QuestionKind) bool {
	return kind == arcp.QuestionGate || kind == arcp.QuestionPermission
}

func newApprovalsApprove(a *app) *cobra.Command {
	var seconds uint64
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve an approval, or grant a permission",
		Long: "Approves a pending approval. The caller needs the role approver. The session that asked\n" +
			"for an approval cannot approve it, nor can other sessions of the same job.",
		Args: argsBetween(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeApprovals(a, t)
	cmd.Flags().Uint64Var(&seconds, "seconds", 0, "duration of a permission in seconds; default: as requested")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		if seconds == 0 {
			return a.resolve(ctx, c, "approval.resolve", resolveArgs{ApprovalID: args[0], Approved: true})
		}
		return a.resolve(ctx, c, "approval.answer", answerArgs{RequestID: args[0], Grant: true, Seconds: seconds})
	})
	return cmd
}

func newApprovalsDeny(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "deny ID", Short: "Deny an approval or a permission", Args: argsBetween(1, 1)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeApprovals(a, t)
	cmd.Flags().StringVar(&reason, "reason", "", "reason of the denial")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		return a.resolve(ctx, c, "approval.resolve", resolveArgs{ApprovalID: args[0], Reason: reason})
	})
	return cmd
}

// resolve answers a question and prints its new state.
func (a *app) resolve(ctx context.Context, c *client.Client, tool string, args answerRequest) error {
	q, err := ask[arcp.QuestionView](ctx, c, tool, args)
	if err != nil {
		return explainAnswer(ctx, c, args, err)
	}
	return a.printResolved(&q)
}

// answerRequest has the arguments of approval.resolve or of approval.answer.
type answerRequest interface {
	question() string                    // its id
	answers(kind arcp.QuestionKind) bool // reports whether a question of the kind has such answers
}

// explainAnswer returns the refusal of an answer. If it is of another kind than the question, the error names the
// command that answers the question.
func explainAnswer(ctx context.Context, c *client.Client, args answerRequest, err error) error {
	if refusal, ok := errors.AsType[*client.RemoteError](err); !ok || refusal.Code != arcp.CodeInvalidArgument {
		return err
	}
	q, getErr := ask[arcp.QuestionView](ctx, c, "approval.get", approvalArgs{args.question()})
	if getErr != nil || args.answers(q.Kind) {
		return err // err says more
	}
	return usagef("%s %s; answer it with `%s`", q.ApprovalID, kindText(q.Kind), answerTo(q.ApprovalID, q.Kind))
}

// kindText describes a kind of questions.
func kindText(kind arcp.QuestionKind) string {
	switch kind {
	case arcp.QuestionInput:
		return "asks for a value"
	case arcp.QuestionChoice:
		return "asks for one of its options"
	case arcp.QuestionPermission:
		return "asks for a permission"
	}
	return "is an approval"
}

// answerTo returns the command that answers a question.
func answerTo(id string, kind arcp.QuestionKind) string {
	switch kind {
	case arcp.QuestionInput:
		return "arcp input answer " + id + " JSON"
	case arcp.QuestionChoice, arcp.QuestionOwned:
		return "arcp input answer " + id + " --choice ID"
	case arcp.QuestionPermission:
		return "arcp input answer " + id + " --grant" // or --deny
	}
	return "arcp approvals approve " + id
}

func (a *app) printResolved(q *arcp.QuestionView) error {
	text := "is " + questionState(q)
	switch {
	case q.Status == arcp.QuestionPending && q.Kind == arcp.QuestionOwned:
		text += ": session " + string(q.SessionID) + " must decide"
	case q.Status == arcp.QuestionPending && q.Quorum > 1:
		text += fmt.Sprintf(": %d of %d have approved", len(q.Votes), q.Quorum)
	}
	return a.printOutcome(q, oneLine(q.ApprovalID), oneLine(text))
}

// waitStep bounds one call of approval.wait, so the call of a killed process ends soon.
const waitStep = time.Minute

func newApprovalsWait(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait for a decision",
		Long: "Waits until an approval or another question is resolved. The exit code is 0 if it was\n" +
			"approved, 4 denied, 5 expired or timed out, 6 cancelled.",
		Args: argsBetween(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeApprovals(a, t)
	addDuration(cmd.Flags(), &timeout, "timeout", 0, "limit of the wait; default: until the approval expires")
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, args []string) error {
		w, err := waitFor(ctx, c, args[0], timeout)
		if err != nil {
			return err
		}
		return a.printWaited(&w)
	})
	return cmd
}

func waitFor(ctx context.Context, c *client.Client, id string, timeout time.Duration) (w arcp.OutcomeView, err error) {
	end := time.Now().Add(timeout)
	for {
		step := waitStep
		if timeout > 0 {
			step = max(min(step, time.Until(end)), time.Millisecond)
		}
		w, err = ask[arcp.OutcomeView](ctx, c, "approval.wait", struct {
			ApprovalID string `json:"approval_id"`
			TimeoutMS  int64  `json:"timeout_ms"`
		}{id, step.Milliseconds()})
		if err != nil || w.Approval.Status != arcp.QuestionPending || timeout > 0 && !time.Now().Before(end) {
			return w, err
		}
	}
}

func (a *app) printWaited(w *arcp.OutcomeView) error {
	if a.json {
		if err := a.printJSON(w); err != nil {
			return err
		}
	} else if err := a.printResolved(&w.Approval); err != nil {
		return err
	}
	codes := map[arcp.Outcome]int{arcp.OutcomeApproved: exitOK, arcp.OutcomeDenied: exitDenied,
		arcp.OutcomeTimedOut: exitTimeout, arcp.OutcomeCancelled: exitCancelled}
	code, known := codes[w.Outcome]
	switch {
	case !known:
		return failf("unknown outcome %q", w.Outcome)
	case code != exitOK:
		return &exitError{code: code} // already printed
	}
	return nil
}
