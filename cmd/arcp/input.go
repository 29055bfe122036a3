package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newInput(a *app) *cobra.Command {
	cmd := newGroup("input", "List and answer questions of jobs")
	cmd.AddCommand(newInputList(a), newInputAnswer(a))
	return cmd
}

func newInputList(a *app) *cobra.Command {
	return newList(a, list[arcp.QuestionView]{
		short: "List the questions that you may answer",
		fetch: fromTool[arcp.QuestionView]("approval.questions"),
		columns: []column[arcp.QuestionView]{
			{"QUESTION", func(q *arcp.QuestionView) any { return q.ApprovalID }},
			{"KIND", func(q *arcp.QuestionView) any { return q.Kind }},
			{"PRINCIPAL", func(q *arcp.QuestionView) any { return q.Principal }},
			{"JOB", func(q *arcp.QuestionView) any { return orDash(string(q.JobID)) }},
			{"EXPIRES", func(q *arcp.QuestionView) any { return clock(q.ExpiresAt) }},
			{"ASKS", func(q *arcp.QuestionView) any { return questionAndOptions(q) }},
		},
	})
}

// questionAndOptions returns the question and its options.
func questionAndOptions(q *arcp.QuestionView) string {
	if q.Kind == arcp.QuestionPermission || q.Kind == arcp.QuestionInput {
		return questionText(q)
	}
	return questionText(q) + " [" + strings.Join(q.Options, ", ") + "]"
}

// answerArgs are the arguments of approval.answer.
type answerArgs struct {
	RequestID string   `json:"request_id"`
	Value     arcp.Raw `json:"value,omitzero"`
	ChoiceID  string   `json:"choice_id,omitzero"`
	Grant     bool     `json:"grant,omitzero"`
	Deny      bool     `json:"deny,omitzero"`
	Resource  string   `json:"resource,omitzero"`
	Seconds   uint64   `json:"lease_seconds,omitzero"`
	Reason    string   `json:"reason,omitzero"`
}

func (aa answerArgs) question() string { return aa.RequestID }

func (aa answerArgs) answers(kind arcp.QuestionKind) bool {
	switch {
	case aa.Grant, aa.Deny:
		return kind == arcp.QuestionPermission
	case aa.ChoiceID != "":
		return kind != arcp.QuestionInput && kind != arcp.QuestionPermission
	}
	return kind == arcp.QuestionInput
}

func newInputAnswer(a *app) *cobra.Command {
	var in answerArgs
	cmd := &cobra.Command{
		Use:   "answer ID [JSON|@FILE|-]",
		Short: "Answer a question: with a value, a choice, or a permission",
		Long: "Answers a question that `arcp input ls` lists, which shows its ID and its KIND. Give JSON for\n" +
			"the kind input, --choice for choice, and --grant or --deny for permission.",
		Example: "  arcp input answer approval-01J… '{\"branch\":\"main\"}'\n" +
			"  arcp input answer approval-01J… --choice abort\n" +
			"  arcp input answer approval-01J… --grant --seconds 60",
		Args: argsBetween(1, 2),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeQuestions(a, t, "approval.questions", map[string]any{"limit": maxRows})
	f := cmd.Flags()
	f.StringVar(&in.ChoiceID, "choice", "", "the id of an option")
	f.BoolVar(&in.Grant, "grant", false, "grant the permission")
	f.BoolVar(&in.Deny, "deny", false, "deny the permission")
	f.Uint64Var(&in.Seconds, "seconds", 0, "duration of the permission in seconds; default: as requested")
	f.StringVar(&in.Resource, "resource", "", "narrower resource of the permission; default: as requested")
	f.StringVar(&in.Reason, "reason", "", "reason of a denial")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		return in.read(a, args)
	}
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, _ []string) error {
		return a.resolve(ctx, c, "approval.answer", in)
	})
	return cmd
}

var errOneAnswer = errors.New("give one answer: a JSON value, --choice, --grant or --deny")

// read sets the question and the value from the arguments, and checks that exactly one answer is set.
func (aa *answerArgs) read(a *app, args []string) (err error) {
	aa.RequestID = args[0]
	answers := []bool{len(args) == 2, aa.ChoiceID != "", aa.Grant, aa.Deny}
	count := len(slices.DeleteFunc(answers, func(is bool) bool { return !is }))
	switch {
	case count != 1:
		return errOneAnswer
	case (aa.Seconds > 0 || aa.Resource != "") && !aa.Grant:
		return usagef("--seconds and --resource need --grant")
	case len(args) == 2:
		aa.Value, err = a.value(args[1], "the value", `write a text with quotes: '"main"', or give --choice for an option, --grant or --deny for a permission`)
	}
	return err
}

// answerCommand returns the command that answers the question of an event, or "". A question without an approval
// id is named by its message id.
func answerCommand(env *arcp.Envelope) string {
	command := func(id string, kind arcp.QuestionKind) string {
		return answerTo(oneLine(cmp.Or(id, string(env.ID))), kind)
	}
	switch env.Type {
	case arcp.PermissionRequest:
		return command(payload[arcp.PermissionRequestPayload](env).ApprovalID, arcp.QuestionPermission)
	case arcp.HumanInputRequest:
		return command(payload[arcp.HumanInputRequestPayload](env).ApprovalID, arcp.QuestionInput)
	case arcp.HumanChoiceRequest:
		return command(payload[arcp.HumanChoiceRequestPayload](env).ApprovalID, arcp.QuestionChoice)
	}
	return ""
}
