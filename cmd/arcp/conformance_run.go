package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/conformance"
)

// conformanceRun holds the flags of `arcp conformance run`.
type conformanceRun struct {
	filter  checkFilter
	since   string
	before  *conformance.Report // the report in since; nil: none
	opts    conformance.Options
	target  conformance.Target
	jwt     conformance.JWT
	jwtKey  string
	reports conformanceReports
	policy  failurePolicy
	library string
	subject conformanceSubject
	second  conformanceSecond
}

func newConformanceRun(a *app) *cobra.Command {
	var r conformanceRun
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the conformance checks against a runtime with the demo tools",
		Long: "Plays the conformance checks against the runtime at --url, which should have the\n" +
			"demo tools and, for the groups exec, mcp and credentials, those that\n" +
			"`arcp conformance sources` prints. docs/conformance.md explains how to read the report.\n\n" +
			"Exit code 1 if a check of the level must fails. --fail-on names a weaker level, and\n" +
			"--strict counts every check. With --baseline only failures that an earlier report does\n" +
			"not have count. With --against the exit code is 1 if the two servers differ.\n\n" +
			"The checks speak the dialect in which the server answers: session.open of rfc is tried\n" +
			"first, and session.hello of draft after it. --dialect names one.\n\n" +
			"In the draft dialect the checks play a client library, and judge every frame of the\n" +
			"runtime as that library decodes it.\n\n" +
			wrapped("Groups: "+strings.Join(conformance.Groups(arcp.DialectRFC), ", ")) + "\n\n" +
			wrapped("Groups of the draft dialect: "+strings.Join(conformance.Groups(arcp.DialectDraft), ", ")),
		Example: "  arcp conformance run --report html=report.html --report json=report.json\n" +
			"  arcp conformance run --since report.json --fail-fast\n" +
			"  arcp conformance run --baseline report.json",
		Args: noArgs,
	}
	t := addTargetWith(cmd, addDocumentOutput(cmd))
	t.otherwise = autoDialect
	cmd.Flags().Lookup("dialect").Usage = "dialect that the checks speak: rfc, draft (session.hello of draft 1.1), or auto, " +
		"the one in which the server answers, rfc first; default: $ARCP_DIALECT, or auto"
	r.subject.add(cmd)
	r.filter.addTo(cmd, "must, should, may")
	r.reports.addTo(cmd.Flags())
	r.policy.addTo(cmd)
	r.second.add(cmd)
	r.addTo(cmd.Flags())
	completeLists(cmd, "check", checkIDs()...)
	setCompletion(cmd, "report", completeReport)
	completeWords(cmd, "library", libraries()...)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := r.subject.resolve(a, t); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return r.run(ctx, a, t)
	})
	return cmd
}

// addTo adds the flags of the target and of the run.
func (r *conformanceRun) addTo(f *pflag.FlagSet) {
	f.StringSliceVar(&r.filter.ids, "check", nil, "only these checks, of any level unless --level is given")
	f.StringVar(&r.since, "since", "", "only checks that failed or were skipped in this JSON report")
	f.StringVar(&r.library, "library", "",
		"library that the checks of the draft dialect play: "+strings.Join(libraries(), ", ")+" (default typescript)")
	f.StringVar(&r.target.Principal, "principal", "", "principal of the token, if known")
	f.StringVar(&r.target.OtherToken, "other-token", "", "bearer token of another principal; checks that need one are skipped without")
	f.StringVar(&r.target.ObserverToken, "observer-token", "",
		"bearer token of a principal with the role observer that sees the one of --token and not the one of --other-token; checks that need one are skipped without")
	f.StringVar(&r.jwtKey, "jwt-key", "", "file with the key of an issuer that the runtime knows: a secret, or a private key in PEM")
	f.StringVar(&r.jwt.Issuer, "jwt-issuer", "", "that issuer")
	f.StringVar(&r.jwt.Audience, "jwt-audience", "", "whom its tokens are for (default arcp)")
	f.StringVar(&r.jwt.Subject, "jwt-subject", "", "whom its tokens are about, a principal (default that of --principal)")
	f.Int64Var(&r.target.FrameLimit, "frame-limit", 0,
		"largest frame that the runtime reads, in bytes, if known; checks that need it are skipped without")
	f.IntVar(&r.target.AckWindow, "ack-window", 0,
		"unacknowledged events after which the runtime holds events back, if known; checks that need it are skipped without")
	f.IntVar(&r.opts.Parallel, "parallel", conformance.DefaultParallel, "checks at the same time")
	addDuration(f, &r.opts.Timeout, "timeout", conformance.DefaultTimeout, "how long a check may take")
	f.Uint64Var(&r.opts.Seed, "seed", 0, "run the checks in an order that this number selects; 0 is the order in which they are listed")
}

func (r *conformanceRun) run(ctx context.Context, a *app, t *target) error {
	r.target.URL, r.target.TLS, r.target.Token = t.url, t.tls, t.token
	r.subject.configure(&r.target) // before the flags are judged: the file may have what they lack
	for _, step := range []func() error{r.read, r.signs, r.reports.parse, r.policy.read} {
		if err := step(); err != nil {
			return err
		}
	}
	if t.dialect != autoDialect { // a mistake is found before the server is started
		if err := r.choose(t.spoken()); err != nil {
			return err
		}
	}
	stop, err := r.subject.start(ctx, &r.target)
	defer stop()
	if err != nil {
		return err
	}
	if t.dialect == autoDialect {
		if err := r.detect(ctx, t); err != nil {
			return err
		}
	}
	if r.since != "" && len(r.opts.IDs) == 0 {
		_, err := fmt.Fprintf(a.stderr, "every chosen check passed in %s\n", r.since)
		return err
	}
	return r.perform(ctx, a, t)
}

// perform runs the chosen checks, and writes the reports.
func (r *conformanceRun) perform(ctx context.Context, a *app, t *target) error {
	r.opts.StopAfter = r.policy.stopAfter()
	done := r.watch(a)
	report, err := r.second.run(ctx, r.target, r.opts)
	done()
	if refused, ok := errors.AsType[*conformance.RefusedError](err); ok {
		return &exitError{exitAuth, fmt.Errorf("%w; %s", err, r.credential(t, err == error(refused)))}
	}
	if err != nil {
		return runProblem(t, err)
	}
	r.policy.compare(&report)
	if err := r.reports.write(a, &report); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if report.Against != nil {
		return r.second.exit(&report)
	}
	return r.policy.exit(a, &report)
}

// credential says which credential a server has refused, and what to give.
func (r *conformanceRun) credential(t *target, first bool) string {
	switch {
	case !first && r.second.token == "":
		return "no token was sent: give --against-token"
	case !first:
		return "the token is the one of --against-token: give a token of that server"
	case r.target.Token == "":
		return "no token was sent: give --token or set ARCP_TOKEN"
	}
	return t.tokenFrom
}

// detect chooses the checks of the dialect in which the server answers.
func (r *conformanceRun) detect(ctx context.Context, t *target) error {
	d, err := conformance.DetectDialect(ctx, r.target, r.opts)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return runProblem(t, err)
	}
	return r.choose(d)
}

// runProblem returns the error of a run in which no check ran.
func runProblem(t *target, err error) error {
	if errors.Is(err, conformance.ErrNoChecks) {
		return errNoChecks
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	if problem := t.tlsProblem(err); problem != nil {
		return &exitError{exitUnreachable, problem}
	}
	if problem := dialProblem(err); problem != nil {
		err = problem
	}
	return &exitError{exitUnreachable, err}
}

// dialProblem returns the error of a server that cannot be connected to; nil: err has another cause.
func dialProblem(err error) error {
	dial, ok := errors.AsType[*net.OpError](err)
	if !ok || dial.Op != "dial" {
		return nil
	}
	if dial.Addr == nil { // the name of the host has no address
		return fmt.Errorf("no server can be reached: %w; check the address of --url or --against", netCause(err))
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing listens at %s: %w; start the server, or give its address with --url or --against", dial.Addr, dial.Err)
	}
	return fmt.Errorf("cannot connect to %s: %w", dial.Addr, dial.Err)
}

var errNoChecks = usagef("no check is chosen; `arcp conformance list` lists the checks, and --level all chooses every level")

// libraries returns the names of the libraries that the checks can play.
func libraries() (names []string) {
	for _, l := range strict.Libraries {
		names = append(names, string(l))
	}
	return names
}

// read refuses words that select nothing in any dialect, and reads the report of --since.
func (r *conformanceRun) read() (err error) {
	if _, err := r.filter.options(allGroups(), nil); err != nil {
		return err
	}
	if r.library != "" {
		if err := oneOf("library", r.library, libraries()...); err != nil {
			return &exitError{exitUsage, err}
		}
		r.target.Library = strict.Library(r.library)
	}
	if r.since != "" {
		r.before, err = readReport("since", r.since)
	}
	return err
}

// choose sets the options that select the checks of a dialect. It refuses flags that are about
// another dialect.
func (r *conformanceRun) choose(d arcp.Dialect) error {
	if r.target.Dialect = d; d != arcp.DialectDraft && r.library != "" {
		return usagef("--library is for --dialect draft")
	}
	for _, err := range []error{sameDialect("since", r.since, r.before, d), sameDialect("baseline", r.policy.baselineFile, r.policy.before, d)} {
		if err != nil {
			return err
		}
	}
	var levels []conformance.Level
	if len(r.filter.ids) > 0 && len(r.filter.levels) == 0 {
		levels = conformance.Levels // a named check runs whatever its level is
	}
	chosen, err := r.filter.options(conformance.Groups(d), levels)
	if err != nil {
		return err
	}
	o := &r.opts
	o.Groups, o.IDs, o.Levels, o.Sections = chosen.Groups, chosen.IDs, chosen.Levels, chosen.Sections
	return r.chooseSince()
}

// chooseSince restricts the checks to those that did not pass in the report of --since.
func (r *conformanceRun) chooseSince() error {
	if r.before == nil {
		return nil
	}
	chosen := r.opts.Selected(r.target.Dialect)
	if len(chosen) == 0 {
		return errNoChecks
	}
	r.opts.IDs = nil
	repeated := map[string]bool{} // ids of the checks to run again
	statuses := conformance.NewBaseline(r.before)
	for _, res := range r.before.Results {
		if statuses[res.ID] != conformance.Passed {
			repeated[res.ID], repeated[res.During] = true, true
		}
	}
	for _, c := range chosen {
		if repeated[c.ID] {
			r.opts.IDs = append(r.opts.IDs, c.ID)
		}
	}
	return nil
}

// readReport reads the JSON report that a flag names.
func readReport(flag, path string) (*conformance.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("--%s %s: %w", flag, path, cause(err))
	}
	defer f.Close() // it was only read
	report, err := conformance.ReadJSON(f)
	if err != nil {
		return nil, usagef("--%s %s: %w; `arcp conformance run --report json=FILE` writes one", flag, path, err)
	}
	return report, nil
}

// sameDialect returns an error if the report that a flag names is about another dialect.
func sameDialect(flag, path string, report *conformance.Report, d arcp.Dialect) error {
	if report == nil || report.Results[0].Dialect == d {
		return nil
	}
	return usagef("--%s %s: the report is about the dialect %s, and this run about %s", flag, path, report.Results[0].Dialect, d)
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

// watch shows on a terminal how many checks have ended, and the group of the last one.
func (r *conformanceRun) watch(a *app) (done func()) {
	if a.json || !redraws(a.stderr) {
		return func() {}
	}
	total, counts := r.second.servers()*len(r.opts.Selected(r.target.Dialect)), map[conformance.Status]int{}
	r.opts.OnResult = func(res conformance.Result) {
		counts[res.Status]++
		fmt.Fprintf(a.stderr, "\r\x1b[K%s", runProgress(counts, total, res.Group))
	}
	r.opts.OnRepeat = func(c conformance.Check) {
		fmt.Fprintf(a.stderr, "\r\x1b[Kthe servers differ; again: %s", c.ID)
	}
	return func() { fmt.Fprint(a.stderr, "\r\x1b[K") }
}

// runProgress returns for example "12 passed, 1 failed, 3 skipped of 595: jobs".
func runProgress(counts map[conformance.Status]int, total int, group string) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped of %d: %s",
		counts[conformance.Passed], counts[conformance.Failed], counts[conformance.Skipped], total, group)
}
