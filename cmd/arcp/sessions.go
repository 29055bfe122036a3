package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newSessions(a *app) *cobra.Command {
	cmd := newGroup("sessions", "List and end sessions")
	cmd.AddCommand(newSessionsList(a), newSessionsEvict(a))
	return cmd
}

func newSessionsList(a *app) *cobra.Command {
	return newList(a, list[arcp.SessionView]{
		short: "List the sessions of your principal and of those that it observes",
		long: "Lists the sessions of your principal and of those that it observes: an admin sees all. STATE is\n" +
			"connected, or detached: without a connection, to be resumed until the resume window ends. The\n" +
			"agents of a detached session are disconnected in `arcp agents ls`. ACKED is the number of the last\n" +
			"event that the client has acknowledged.",
		fetch: fromTool[arcp.SessionView]("sessions.list"),
		columns: []column[arcp.SessionView]{
			{"SESSION", func(s *arcp.SessionView) any { return s.SessionID }},
			{"PRINCIPAL", func(s *arcp.SessionView) any { return s.Principal }},
			{"STATE", func(s *arcp.SessionView) any { return sessionState(s) }},
			{"CREATED", func(s *arcp.SessionView) any { return clock(s.CreatedAt) }},
			{"EVENTS", func(s *arcp.SessionView) any { return s.LastEventSeq }},
			{"ACKED", func(s *arcp.SessionView) any { return ackedText(s) }},
			{"CLIENT", func(s *arcp.SessionView) any { return orDash(s.ClientKind) }},
			{"FROM", func(s *arcp.SessionView) any { return orDash(peerOf(s)) }},
		},
	})
}

func sessionState(s *arcp.SessionView) string {
	if s.DetachedAt.IsZero() {
		return s.State
	}
	return s.State + " since " + s.DetachedAt.Local().Format(time.TimeOnly)
}

func ackedText(s *arcp.SessionView) string {
	if s.AckedSeq == 0 {
		return "-"
	}
	return fmt.Sprint(s.AckedSeq)
}

func peerOf(s *arcp.SessionView) string {
	if s.Transport != "" && s.Remote != "" {
		return s.Transport + " " + s.Remote
	}
	return s.Transport + s.Remote
}

func newSessionsEvict(a *app) *cobra.Command {
	var forget bool
	cmd := &cobra.Command{
		Use:   "evict SESSION",
		Short: "End the connection of a session; its jobs continue",
		Args:  argsBetween(1, 1),
	}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = firstOnly(completeSessions(a, t))
	cmd.Flags().BoolVar(&forget, "forget", false, "also end the session, so that it cannot be resumed")
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		id := arcp.SessionID(args[0])
		_, err := callTool(ctx, c, "sessions.evict", struct {
			SessionID arcp.SessionID `json:"session_id"`
			Forget    bool           `json:"forget,omitzero"`
		}{id, forget})
		if err != nil {
			return err
		}
		return a.printOutcome(struct {
			SessionID arcp.SessionID `json:"session_id"`
			Evicted   bool           `json:"evicted"`
		}{id, true}, id, "is evicted")
	})
	return cmd
}
