package main

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/conformance"
)

// conformanceSecond holds the flags of `arcp conformance run` for a second server, from which the first one may differ.
type conformanceSecond struct {
	url   string // value of --against; empty: there is no second server
	token string // value of --against-token
}

func (s *conformanceSecond) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.url, "against", "", "also check the server at this `URL`, and report where the two differ")
	f.StringVar(&s.token, "against-token", "", "bearer token for the server of --against")
	for _, other := range []string{"baseline", "fail-on", "strict", "fail-fast"} {
		exclude(cmd, "against", other)
	}
}

// servers returns the number of servers that a run checks.
func (s *conformanceSecond) servers() int {
	if s.url == "" {
		return 1
	}
	return 2
}

// run checks the target, and the second server if there is one. The second server has the settings of the first one
// but its own token, and is not started again.
func (s *conformanceSecond) run(ctx context.Context, first conformance.Target, opts conformance.Options) (conformance.Report, error) {
	if s.url == "" {
		if s.token != "" {
			return conformance.Report{}, usagef("--against-token is for --against")
		}
		return conformance.Run(ctx, first, opts)
	}
	u, err := url.Parse(s.url)
	switch {
	case err != nil || !dialable(u):
		return conformance.Report{}, usagef("--against: %q is no ws://, wss:// or unix:// URL", s.url)
	case s.token == "" && u.Scheme != "unix":
		return conformance.Report{}, usagef("--against needs --against-token: the second server is not sent the token of the first one")
	}
	// Both servers are checked in the same way, and the second one is sent no other tokens of the first one.
	first.Restart, first.OtherToken, first.ObserverToken, first.JWT = nil, "", "", nil
	second := first
	second.URL, second.Exec, second.Token = s.url, nil, s.token
	return conformance.RunAgainst(ctx, first, second, opts)
}

// exit returns the exit code of a report with a second server as an error.
func (s *conformanceSecond) exit(report *conformance.Report) error {
	if len(report.Against.Differences) > 0 {
		return &exitError{code: exitFailed}
	}
	if n := len(report.Results); report.Count(conformance.Skipped) == n {
		return failf("no check was judged: %d of %d are skipped, and the report says what each needs", n, n)
	}
	return nil
}
