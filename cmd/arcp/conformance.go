package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/conformance"
	"github.com/arcpd/arcpd/conformance/mcpcheck"
)

func newConformance(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "conformance", Short: "Check a runtime against the protocol", Args: cobra.ArbitraryArgs, RunE: onlyCommands}
	cmd.AddCommand(newConformanceRun(a), newConformanceSources(a), newConformanceMCP(a), newConformanceMapping())
	return cmd
}

func newConformanceSources(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "Print the tools that the groups exec and mcp call, as a configuration",
		Long: "Prints a configuration with the commands and the MCP server that the groups exec and\n" +
			"mcp of `arcp conformance run` call. A runtime without them skips these groups.",
		Example: "  arcp conformance sources > check.yaml\n  arcp dev --config check.yaml\n  arcp conformance run --group exec,mcp",
		Args:    noArgs,
	}
	output := addOutput(cmd, formatText, formatJSON, formatYAML)
	cmd.RunE = action(func(*cobra.Command, []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return failf("find this program: %w", err)
		}
		if a.format != formatJSON {
			return conformance.WriteSources(a.stdout, program)
		}
		var b bytes.Buffer
		var config any
		if err := errors.Join(conformance.WriteSources(&b, program), yaml.Unmarshal(b.Bytes(), &config)); err != nil {
			return fmt.Errorf("encode output: %w", err)
		}
		return a.printJSON(config)
	})
	return cmd
}

func newConformanceMCP(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Be the MCP server whose tools the group mcp calls",
		Long: "Speaks MCP on standard input and output. Its tools each do one thing that a runtime has\n" +
			"to carry over: an error, progress, a log message, a call that is cancelled, a list that\n" +
			"changes. `arcp conformance sources` prints the configuration that starts it.",
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return ending(mcpcheck.Serve(ctx, a.stdin, a.stdout))
		}),
	}
}

// conformanceRun holds the flags of `arcp conformance run`.
type conformanceRun struct {
	opts       conformance.Options
	target     conformance.Target
	frameLimit int64
	jwt        conformance.JWT
	jwtKey     string
	levels     []string
	junit      string
	verbose    bool
	library    string
	subject    conformanceSubject
}

func newConformanceRun(a *app) *cobra.Command {
	var r conformanceRun
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the conformance checks against a runtime with the demo tools",
		Long: "Plays the conformance checks against the runtime at --url, which should have the\n" +
			"demo tools and, for the groups exec and mcp, those that `arcp conformance sources`\n" +
			"prints. Ends with exit code 1 if a check fails.\n\n" +
			"With --dialect draft the checks play a client library of the draft dialect, and judge every\n" +
			"frame of the runtime as that library decodes it.\n\n" +
			"Groups: " + strings.Join(conformance.Groups(arcp.DialectRFC), ", ") +
			"\n\nGroups of the draft dialect: " + strings.Join(conformance.Groups(arcp.DialectDraft), ", "),
		Args: noArgs,
	}
	t := addTargetWith(cmd, addDocumentOutput(cmd))
	f := cmd.Flags()
	r.subject.add(cmd)
	f.StringSliceVar(&r.opts.Groups, "group", nil, "only these groups")
	f.StringVar(&r.library, "library", "",
		"library that the checks of the draft dialect play: "+strings.Join(libraries(), ", ")+" (default typescript)")
	f.StringSliceVar(&r.opts.IDs, "check", nil, "only these checks")
	f.StringSliceVar(&r.levels, "level", nil, "checks of these levels: must, should, may, house (default must, should and may: what the protocol says)")
	f.StringVar(&r.target.Principal, "principal", "", "principal of the token, if known")
	f.StringVar(&r.target.OtherToken, "other-token", "", "bearer token of another principal; checks that need one are skipped without")
	f.StringVar(&r.target.ObserverToken, "observer-token", "",
		"bearer token of a principal with the role observer that sees the one of --token and not the one of --other-token; checks that need one are skipped without")
	f.StringVar(&r.jwtKey, "jwt-key", "", "file with the key of an issuer that the runtime knows: a secret, or a private key in PEM")
	f.StringVar(&r.jwt.Issuer, "jwt-issuer", "", "that issuer")
	f.StringVar(&r.jwt.Audience, "jwt-audience", "", "whom its tokens are for (default arcp)")
	f.StringVar(&r.jwt.Subject, "jwt-subject", "", "whom its tokens are about, a principal (default that of --principal)")
	f.Int64Var(&r.frameLimit, "frame-limit", conformance.DefaultFrameLimit, "largest frame the runtime takes, in bytes; -1 is not known")
	f.IntVar(&r.target.AckWindow, "ack-window", 0,
		"unacknowledged events after which the runtime holds events back, if known; checks that need it are skipped without")
	f.IntVar(&r.opts.Parallel, "parallel", conformance.DefaultParallel, "checks at the same time")
	f.DurationVar(&r.opts.Timeout, "timeout", conformance.DefaultTimeout, "how long a check may take")
	f.StringVar(&r.junit, "junit", "", "also write the report as JUnit XML to this file")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "show what passed too, and transcripts of failures")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := r.subject.resolve(a, t); err != nil {
			return err
		}
		switch r.target.Dialect = t.spoken(); {
		case t.dialect == autoDialect:
			return usagef("the checks speak one dialect: use --dialect rfc or --dialect draft")
		case r.target.Dialect == arcp.DialectDraft && r.library == "":
			r.library = string(strict.TypeScript)
		case r.target.Dialect != arcp.DialectDraft && r.library != "":
			return usagef("--library is for --dialect draft")
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return r.run(ctx, a, t)
	})
	return cmd
}

func (r *conformanceRun) run(ctx context.Context, a *app, t *target) error {
	r.target.URL, r.target.TLS, r.target.Token, r.target.FrameLimit = t.url, t.tls, t.token, r.frameLimit
	if err := r.known(); err != nil {
		return err
	}
	if err := r.signs(); err != nil {
		return err
	}
	stop, err := r.subject.start(ctx, &r.target)
	defer stop()
	if err != nil {
		return err
	}
	done := r.watch(a)
	report, err := conformance.Run(ctx, r.target, r.opts)
	done()
	if errors.Is(err, conformance.ErrNoChecks) {
		return usagef("no check is chosen; groups: %s", strings.Join(conformance.Groups(r.target.Dialect), ", "))
	}
	if problem := tlsProblem(t.url, err); problem != nil {
		return &exitError{exitUnreachable, problem}
	}
	if err != nil {
		return &exitError{exitUnreachable, err}
	}
	if err := r.write(a, &report); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if report.Count(conformance.Failed) > 0 {
		return &exitError{code: exitFailed} // the report said it
	}
	return nil
}

// libraries returns the names of the libraries that the checks can play.
func libraries() (names []string) {
	for _, l := range strict.Libraries {
		names = append(names, string(l))
	}
	return names
}

// known takes over the names that choose checks, and refuses those that would
// choose nothing.
func (r *conformanceRun) known() error {
	for _, g := range r.opts.Groups {
		if err := oneOf("group", g, conformance.Groups(r.target.Dialect)...); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if r.library != "" {
		if err := oneOf("library", r.library, libraries()...); err != nil {
			return &exitError{exitUsage, err}
		}
		r.target.Library = strict.Library(r.library)
	}
	for _, l := range r.levels {
		r.opts.Levels = append(r.opts.Levels, conformance.Level(l))
	}
	return nil
}

// signs reads the key that the checks sign tokens with.
func (r *conformanceRun) signs() error {
	switch {
	case r.jwtKey == "" && r.jwt != (conformance.JWT{}):
		return usagef("--jwt-key is missing: the checks sign tokens themselves")
	case r.jwtKey == "":
		return nil
	case r.jwt.Issuer == "":
		return usagef("--jwt-issuer is missing: name the issuer that the runtime knows the key of")
	case r.jwt.Subject == "" && r.target.Principal == "":
		return usagef("--jwt-subject is missing: name the principal that the tokens are about")
	}
	data, err := os.ReadFile(r.jwtKey)
	if err != nil {
		return failf("read --jwt-key: %w", err)
	}
	if r.jwt.Key, err = conformance.ParseSigningKey(data); err != nil {
		return usagef("--jwt-key %s: %w", r.jwtKey, err)
	}
	r.target.JWT = &r.jwt
	return nil
}

// watch counts the checks on a terminal while they run.
func (r *conformanceRun) watch(a *app) (done func()) {
	if a.json || !redraws(a.stderr) {
		return func() {}
	}
	n := 0
	r.opts.OnResult = func(res conformance.Result) {
		n++
		fmt.Fprintf(a.stderr, "\r\x1b[K%d %s", n, res.ID)
	}
	return func() { fmt.Fprint(a.stderr, "\r\x1b[K") }
}

func (r *conformanceRun) write(a *app, report *conformance.Report) error {
	if r.junit != "" {
		if err := writeFile(r.junit, func(w io.Writer) error { return conformance.WriteJUnit(w, report) }); err != nil {
			return failf("write --junit %s: %w", r.junit, cause(err))
		}
	}
	if a.json {
		var b bytes.Buffer
		if err := conformance.WriteJSON(&b, report); err != nil {
			return err
		}
		return a.printRaw(bytes.TrimSpace(b.Bytes()))
	}
	return conformance.WriteText(a.stdout, report, conformance.TextOptions{
		Color: isTerminal(a.stdout) && !noColor(), Verbose: r.verbose})
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
