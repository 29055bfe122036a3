package main

import (
	"context"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestTopNeedsATerminal(t *testing.T) {
	wantOutcome(t, "no terminal", cli(t, "top"), exitUsage, "", "arcp top needs a terminal")
}

// A snapshot has the jobs that have not ended, with their last events, and counts the others. The requests of
// snapshots are not counted.
func TestTopWatchesJobs(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	tg := &target{url: p.url, token: "secret"}
	c, err := tg.dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	feed, err := c.SubscribeFeed(t.Context(), client.SubscribeFeedParams{})
	if err != nil {
		t.Fatal(err)
	}
	w := &topWatch{c: c, last: make(map[arcp.JobID]string)}
	go func() { _ = w.count(t.Context(), feed) }() // ends with the test

	p.cli("invoke", "demo.echo")
	p.cli("invoke", "demo.fail", `{"code":"UNAVAILABLE","message":"so it is"}`)
	p.cli("invoke", "demo.sleep", `{"ms":3600000}`, "--detach")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := w.snapshot(ctx)
	for s.Err == nil && (s.Counts.Failed < 1 || len(s.Jobs) < 1 || s.Jobs[0].LastEvent == "") {
		s = w.snapshot(ctx)
	}
	if s.Err != nil || len(s.Jobs) != 1 || s.Jobs[0].Tool != "demo.sleep@1.0.0" || s.Counts.Ended != 2 || s.Counts.Failed != 1 {
		t.Errorf("snapshot = %+v, want a job of demo.sleep, and 2 that have ended, 1 of them failed", s)
	}
}
