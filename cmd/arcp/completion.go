package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime/tool"
)

// completionTimeout bounds the completion of a word. Without an answer there are no suggestions.
const completionTimeout = time.Second

// completeWords completes the value of a flag with words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	setCompletion(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// completeLists completes the value of a flag that takes a list with commas. Words of the list are not suggested again.
func completeLists(cmd *cobra.Command, flag string, words ...string) {
	setCompletion(cmd, flag, func(_ *cobra.Command, _ []string, prefix string) (lists []string, _ cobra.ShellCompDirective) {
		end := strings.LastIndex(prefix, ",") + 1
		first, last := prefix[:end], prefix[end:]
		for _, w := range words {
			if strings.HasPrefix(w, last) && !slices.Contains(strings.Split(first, ","), w) {
				lists = append(lists, first+w)
			}
		}
		return lists, cobra.ShellCompDirectiveNoFileComp
	})
}

func setCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil { // the flag does not exist, or is completed twice
		panic("complete --" + flag + ": " + err.Error())
	}
}

// suggest returns words, each with a description after a tab.
type suggest func(ctx context.Context, c *client.Client, prefix string) ([]string, error)

// completeFrom completes a word with suggestions of the runtime. Errors suggest nothing.
func completeFrom(a *app, tg *target, words suggest) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		if tg.resolve(a) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := tg.dial(ctx, a)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = c.CloseWith(ctx, client.CloseParams{Reason: "done", Forget: true}) }() // the suggestions are read
		list, err := words(ctx, c, prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(list, func(word string) bool {
			name, _, _ := strings.Cut(word, "\t")
			return !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContexts completes an argument or a flag with the name of a context. Errors suggest nothing.
func completeContexts(_ *cobra.Command, args []string, prefix string) (words []string, _ cobra.ShellCompDirective) {
	all, _ := readContexts()
	for _, name := range all.names() {
		if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			words = append(words, suggestion(name, all.Contexts[name].URL))
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeContextFlag completes the value of --context.
func completeContextFlag(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return completeContexts(cmd, nil, prefix)
}

// firstOnly completes only the first argument.
func firstOnly(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // for example a file
		}
		return complete(cmd, args, prefix)
	}
}

// completeTools completes the first argument with the name of a tool. Tools of the runtime itself are suggested
// for a name that begins as theirs.
func completeTools(a *app, tg *target) cobra.CompletionFunc {
	return firstOnly(completeFrom(a, tg, toolNames))
}

func toolNames(ctx context.Context, c *client.Client, prefix string) (words []string, err error) {
	page, err := ask[arcp.ToolPage](ctx, c, "tools.list", map[string]any{"limit": maxRows, "prefix": prefix})
	for i := range page.Items {
		if t := &page.Items[i]; prefix != "" || t.Source != sourceBuiltin {
			words = append(words, suggestion(t.Name, t.Description))
		}
	}
	return words, err
}

// completeWorkflows completes the first argument with the name of a workflow.
func completeWorkflows(a *app, tg *target) cobra.CompletionFunc {
	return firstOnly(completeFrom(a, tg, workflowNames))
}

// describesAtOnce is the number of tools that are described at the same time. It hides the round trips of most runtimes,
// and is far below the jobs that a session may have.
const describesAtOnce = 16

// workflowNames returns the tools that may be workflows. The catalogue does not mark workflows: they are Go tools with
// the recovery checkpoint, and so are a few other tools of the server's program.
func workflowNames(ctx context.Context, c *client.Client, prefix string) (words []string, err error) {
	page, err := ask[arcp.ToolPage](ctx, c, "tools.list", map[string]any{"limit": maxRows, "prefix": prefix})
	if err != nil {
		return nil, err
	}
	others := func(t arcp.ToolEntry) bool { return t.Source != sourceGo }
	for tools := range slices.Chunk(slices.DeleteFunc(page.Items, others), describesAtOnce) {
		var is [describesAtOnce]bool
		var all sync.WaitGroup
		for i := range tools {
			all.Go(func() {
				d, err := ask[arcp.ToolView](ctx, c, "tools.describe", map[string]string{"name": tools[i].Name})
				is[i] = err == nil && d.Recovery == string(tool.RecoveryCheckpoint)
			})
		}
		all.Wait()
		for i := range tools {
			if is[i] {
				words = append(words, suggestion(tools[i].Name, tools[i].Description))
			}
		}
	}
	return words, nil
}

// suggestion is a word with a description.
func suggestion(word, description string) string {
	return oneLine(word) + "\t" + oneLine(description)
}

// liveJob and endedJob select the jobs that a command is for.
func liveJob(j *arcp.JobEntry) bool  { return !endedJob(j) }
func endedJob(j *arcp.JobEntry) bool { return arcp.JobState(j.Status).Terminal() }

// completeJobs completes an argument with the id of one of the newest jobs for which all conditions are true.
func completeJobs(a *app, tg *target, conditions ...func(*arcp.JobEntry) bool) cobra.CompletionFunc {
	return completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) (words []string, err error) {
		page, err := c.ListJobs(ctx, client.ListJobsParams{Limit: maxRows, Order: arcp.NewestFirst})
		if page.Order != arcp.NewestFirst {
			slices.Reverse(page.Jobs)
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if slices.ContainsFunc(conditions, func(is func(*arcp.JobEntry) bool) bool { return !is(j) }) {
				continue
			}
			words = append(words, suggestion(string(j.JobID), j.Agent+" "+j.Status+", "+age(time.Since(j.CreatedAt))+" old"))
		}
		return words, err
	})
}

// completeSessions completes a value with the id of a session.
func completeSessions(a *app, tg *target) cobra.CompletionFunc {
	return completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) (words []string, err error) {
		page, err := ask[arcp.Page[arcp.SessionView]](ctx, c, "sessions.list", map[string]any{"limit": maxRows})
		for i := range page.Items {
			s := &page.Items[i]
			words = append(words, suggestion(string(s.SessionID), s.Principal+" "+s.ClientKind+" "+s.State))
		}
		return words, err
	})
}

// completePrincipals completes a value with the name of a principal that has a session which the caller may observe.
func completePrincipals(a *app, tg *target) cobra.CompletionFunc {
	return completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) ([]string, error) {
		names, _, err := activePrincipals(ctx, c)
		for i := range names {
			names[i] = oneLine(names[i])
		}
		return names, err
	})
}

// completeArtifacts completes an argument with the id of an artifact.
func completeArtifacts(a *app, tg *target) cobra.CompletionFunc {
	return completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) (words []string, err error) {
		page, err := ask[arcp.Page[arcp.ArtifactObject]](ctx, c, "artifact.list", map[string]any{"limit": maxRows})
		for i := range page.Items {
			o := &page.Items[i]
			words = append(words, suggestion(string(o.ArtifactID), fmt.Sprintf("%s %d bytes", o.MediaType, o.Size)))
		}
		return words, err
	})
}

// completeSchedules completes an argument with the id of a schedule.
func completeSchedules(a *app, tg *target) cobra.CompletionFunc {
	return completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) (words []string, err error) {
		got, err := ask[scheduleList](ctx, c, "schedule.list", struct{}{})
		for i := range got.Schedules {
			s := &got.Schedules[i]
			words = append(words, suggestion(string(s.JobID), s.Tool+" next "+nextTime(s)))
		}
		return words, err
	})
}

// completeQuestions completes the first argument with the id of a pending question that list, a tool, returns.
func completeQuestions(a *app, tg *target, list string, args map[string]any) cobra.CompletionFunc {
	return firstOnly(completeFrom(a, tg, func(ctx context.Context, c *client.Client, _ string) (words []string, err error) {
		page, err := ask[arcp.Page[arcp.QuestionView]](ctx, c, list, args)
		for i := range page.Items {
			q := &page.Items[i]
			words = append(words, suggestion(q.ApprovalID, q.Principal+" "+q.Action))
		}
		return words, err
	}))
}

// completeApprovals completes the first argument with the id of a pending approval or another question.
func completeApprovals(a *app, tg *target) cobra.CompletionFunc {
	return completeQuestions(a, tg, "approval.list", map[string]any{"limit": maxRows, "status": arcp.QuestionPending})
}
