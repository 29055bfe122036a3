package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

const (
	defaultURL     = "ws://127.0.0.1:7777/arcp"
	connectTimeout = 10 * time.Second
	closeTimeout   = 2 * time.Second
	ackEvery       = 128 // events for each acknowledgement
)

// target is the runtime of a client command, and the identity of the client.
type target struct {
	context     string // value of --context
	usedContext string // name of the context that has the URL; "": none
	url, token  string
	tokenFrom   string // where the token is from, for errors
	dialect     string // value of --dialect, or after resolve the dialect
	otherwise   string // dialect without --dialect, a variable and a context; empty: rfc
	output      *outputFlag
	interactive bool // questions to people are received
	downloads   bool // artifacts are read over HTTP if the runtime issues links

	caFile string      // value of --ca-file, or of its variable after resolve; "": no file is used
	tls    *tls.Config // nil: the default configuration
}

// addTarget adds the flags of all client commands.
func addTarget(cmd *cobra.Command) *target {
	return addTargetWith(cmd, addOutput(cmd, outputFormats...))
}

// addTargetWith adds the flags of all client commands but -o.
func addTargetWith(cmd *cobra.Command, output *outputFlag) *target {
	tg := &target{output: output}
	f := cmd.Flags()
	f.StringVar(&tg.context, "context", "", "runtime of this name, see arcp context; default: $ARCP_CONTEXT, or the current context")
	setCompletion(cmd, "context", completeContextFlag)
	f.StringVar(&tg.url, "url", "", "URL of the runtime; default: $ARCP_URL, that of the context, or "+defaultURL)
	f.StringVar(&tg.token, "token", "", "bearer token; default: that of the context, then $ARCP_TOKEN, then that of a running arcp dev; a runtime at unix:// needs none")
	f.StringVar(&tg.caFile, "ca-file", "",
		"PEM `FILE` with certificates of authorities that are trusted for wss://, beside those of the system; default: $"+caFileEnv)
	f.StringVar(&tg.dialect, "dialect", "",
		"dialect that the command speaks: rfc, draft (session.hello of draft 1.1), or auto, which tries rfc first; default: $ARCP_DIALECT, or rfc")
	completeWords(cmd, "dialect", arcp.DialectRFC.String(), arcp.DialectDraft.String(), autoDialect)
	return tg
}

// resolve sets the empty members from the environment and the defaults, and checks all.
func (tg *target) resolve(a *app) error {
	if err := a.setOutput(tg.output); err != nil {
		return err
	}
	if err := tg.applyContext(a); err != nil {
		return err
	}
	tg.dialect = cmp.Or(tg.dialect, a.env("ARCP_DIALECT"), tg.otherwise, arcp.DialectRFC.String())
	if err := oneOf("dialect", tg.dialect, arcp.DialectRFC.String(), arcp.DialectDraft.String(), autoDialect); err != nil {
		return usagef("%w", err)
	}
	tg.url = cmp.Or(tg.url, a.env("ARCP_URL"), defaultURL)
	u, err := url.Parse(tg.url)
	if err != nil || !dialable(u) {
		return usagef("--url %s: give a ws://, wss:// or unix:// URL, for example %s", tg.url, defaultURL)
	}
	if err := tg.trust(a, u); err != nil {
		return err
	}
	if u.Scheme == "unix" {
		return nil // the operating system identifies the user
	}
	tg.findToken(a, u)
	return nil
}

// findToken sets the token unless --token or the context has.
func (tg *target) findToken(a *app, u *url.URL) {
	if tg.tokenOfVariable(a); tg.token != "" {
		return
	}
	if tg.token = tokenOfDev(u); tg.token != "" {
		tg.tokenFrom = "the token is the one of an earlier `arcp dev`: give --token or set ARCP_TOKEN"
	}
}

// tokenOfVariable sets a missing token to the value of $ARCP_TOKEN.
func (tg *target) tokenOfVariable(a *app) {
	if tg.token != "" {
		return
	}
	if tg.token = a.env("ARCP_TOKEN"); tg.token != "" {
		tg.tokenFrom = "the token is the one of $ARCP_TOKEN: unset it, or set it to a token of this runtime"
	}
}

func dialable(u *url.URL) bool {
	switch u.Scheme {
	case "ws", "wss":
		return u.Host != ""
	}
	return u.Scheme == "unix" && u.Path != ""
}

// unixURL returns the URL of a unix socket.
func unixURL(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "unix://" + path
}

// tokenOfDev returns the token of an `arcp dev` of this user at a loopback URL, or "".
func tokenOfDev(u *url.URL) string {
	port, err := strconv.Atoi(u.Port())
	if err != nil || !loopbackHost(u.Hostname()) {
		return ""
	}
	token, _ := knownToken(port)
	return token.Reveal()
}

func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(a.environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// dial opens a session for short commands. It ends with its connection.
func (tg *target) dial(ctx context.Context, _ *app) (*client.Client, error) {
	return tg.open(ctx, client.Dial, tg.options())
}

// connect opens a session for long commands. It reconnects, and reports lost connections on standard error.
func (tg *target) connect(ctx context.Context, a *app) (*client.Client, error) {
	opts := tg.options()
	opts.Reconnect.OnChange = a.connectionChanged
	return tg.open(ctx, client.Connect, opts)
}

// errSilent is the error of a server that accepts a connection and does not answer.
var errSilent = fmt.Errorf("%w: no answer within %s", client.ErrUnreachable, connectTimeout)

// dialer is client.Dial or client.Connect.
type dialer func(ctx context.Context, address string, opts client.Options) (*client.Client, error)

func (tg *target) open(ctx context.Context, dial dialer, opts client.Options) (*client.Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errSilent)
	defer cancel()
	c, err := dial(ctx, tg.url, opts)
	if err != nil {
		return nil, tg.explain(err)
	}
	return c, nil
}

// autoDialect is the value of --dialect for client.Options.DetectDialect.
const autoDialect = "auto"

// spoken returns the dialect of --dialect; auto: the one that is tried first.
func (tg *target) spoken() (d arcp.Dialect) {
	if tg.dialect != autoDialect {
		_ = d.UnmarshalText([]byte(tg.dialect)) // resolve has checked the name
	}
	return d
}

func (tg *target) options() client.Options {
	opts := client.Options{
		Dialect:       tg.spoken(),
		DetectDialect: tg.dialect == autoDialect,
		Auth:          client.Auth{Token: client.Secret(tg.token)},
		Client:        arcp.ClientInfo{Kind: "arcp-cli", Version: thisBuild().Version},
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{
			arcp.FeatureStreaming: true, arcp.FeatureDurableJobs: true, arcp.FeatureCheckpoints: true,
			arcp.FeatureHeartbeat: true, arcp.FeatureAck: true,
		}},
		Network:          client.Network{TLS: tg.tls},
		AckEvery:         ackEvery,
		ArtifactRedirect: tg.downloads,
	}
	if tg.interactive {
		opts.Capabilities.Flags[arcp.FeatureHumanInput] = true
	}
	return opts
}

// connectionChanged reports a lost connection.
func (a *app) connectionChanged(ch client.LinkChange) {
	a.disconnected.Store(ch.State != client.Resumed)
	if ch.State != client.Reconnecting {
		return
	}
	reason := oneLine(strings.TrimPrefix(ch.Err.Error(), client.ErrConnectionLost.Error()+": "))
	switch {
	case a.json:
		line, err := arcp.Marshal(map[string]map[string]string{"connection": {"state": ch.State.String(), "message": reason}})
		if err == nil { // strings can always be encoded
			fmt.Fprintf(a.stderr, "%s\n", line)
		}
	case redraws(a.stderr):
		fmt.Fprint(a.stderr, "\r\x1b[K") // clears a progress bar
		fallthrough
	default:
		fmt.Fprintf(a.stderr, "connection lost, reconnecting: %s\n", reason)
	}
}

// explain adds the remedy to the error of opening a session.
func (tg *target) explain(err error) error {
	switch code := codeOf(err); {
	case code == exitUnreachable && tg.tlsProblem(err) != nil:
		return &exitError{code, tg.tlsProblem(err)}
	case code == exitAuth && tg.token == "":
		return fmt.Errorf("%w; give --token or set ARCP_TOKEN", err)
	case code == exitAuth && tg.tokenFrom != "":
		return fmt.Errorf("%w; %s", err, tg.tokenFrom)
	case code == exitUnreachable && strings.Contains(err.Error(), "shutting down"):
		return &exitError{code, fmt.Errorf("the runtime at %s is shutting down; try again in a moment", tg.url)}
	case code == exitUnreachable && refusesForNow(err):
		return &exitError{code, fmt.Errorf("the server at %s, or a proxy before it, refuses connections at present: %s; try again later", tg.url, upgradeCause(err))}
	case code == exitUnreachable && strings.Contains(err.Error(), "status code"):
		return &exitError{code, fmt.Errorf("the server at %s is not a runtime: %s; use the URL of the listening line", tg.url, upgradeCause(err))}
	case code == exitUnreachable && strings.Contains(err.Error(), errSilent.Error()):
		return &exitError{code, fmt.Errorf("the server at %s accepts connections and does not answer: it may be starting, "+
			"for example because it waits for an MCP server; see its output, or /readyz?verbose of its admin listener", tg.url)}
	case code == exitUnreachable:
		return &exitError{code, fmt.Errorf("no runtime answers at %s: %w; %s", tg.url, netCause(err), tg.startHint())}
	}
	return err
}

// startHint returns the remedy for a runtime that does not answer.
func (tg *target) startHint() string {
	if tg.usedContext != "" {
		return fmt.Sprintf("check that it runs, and that context %s has its address", tg.usedContext)
	}
	if u, err := url.Parse(tg.url); err == nil && u.Scheme == "ws" && loopbackHost(u.Hostname()) {
		return "`arcp dev` starts one"
	}
	return "check that it runs, and that --url has its address"
}

// netCause returns the cause of a network error.
func netCause(err error) error {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// refusedUpgrade matches the answer to an upgrade in an error of the WebSocket library.
var refusedUpgrade = regexp.MustCompile(`status code 101 but got ([0-9]+)(.*)`)

// refusesForNow reports whether the HTTP status of a refused upgrade says that a later one may succeed.
func refusesForNow(err error) bool {
	m := refusedUpgrade.FindStringSubmatch(err.Error())
	return m != nil && slices.Contains([]string{"429", "502", "503", "504"}, m[1])
}

// upgradeCause returns why a server has refused an upgrade.
func upgradeCause(err error) string {
	if m := refusedUpgrade.FindStringSubmatch(err.Error()); m != nil {
		return "HTTP status " + m[1] + m[2]
	}
	return netCause(err).Error()
}

// closeSession ends a session for good. Its jobs continue.
func closeSession(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.CloseWith(ctx, client.CloseParams{Reason: "done", Forget: true}) // the command has its result
}

// sessionFunc is the work of a command with an open session. ctx ends at a signal.
type sessionFunc func(ctx context.Context, c *client.Client, args []string) error

// session returns the RunE of a command with a session of one connection.
func (a *app) session(tg *target, do sessionFunc) func(*cobra.Command, []string) error {
	return a.sessionOver(tg, tg.dial, do)
}

// reconnectingSession returns the RunE of a command with a session that reconnects.
func (a *app) reconnectingSession(tg *target, do sessionFunc) func(*cobra.Command, []string) error {
	return a.sessionOver(tg, tg.connect, do)
}

func (a *app) sessionOver(tg *target, open func(context.Context, *app) (*client.Client, error), do sessionFunc) func(*cobra.Command, []string) error {
	return action(func(cmd *cobra.Command, args []string) error {
		if err := tg.resolve(a); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		c, err := open(ctx, a)
		if err != nil {
			return err
		}
		defer closeSession(c)
		return do(ctx, c, args)
	})
}

// interruptible returns a context that SIGINT and SIGTERM end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-c:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
		signal.Stop(c)
	}()
	return ctx, func() { cancel(nil) }
}
