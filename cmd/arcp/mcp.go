package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/cmd/arcp/internal/mcpserve"
	"github.com/arcpd/arcpd/internal/osfile"
)

func newMCP(a *app) *cobra.Command {
	cmd := newGroup("mcp", "Offer the tools of a runtime to MCP clients")
	cmd.AddCommand(newMCPServe(a))
	return cmd
}

// mcpFlags has the flags of `arcp mcp serve`.
type mcpFlags struct {
	tools, origins  []string
	http, tokenFile string
	flat, proxied   bool
	verbose         bool
	timeout         time.Duration
}

func newMCPServe(a *app) *cobra.Command {
	var d mcpFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the tools of a runtime over MCP",
		Long: "Serves MCP on standard input and output, or streamable HTTP with --http, as a client of a\n" +
			"running runtime. Each call is a job; cancelling the call cancels the job. Questions of the\n" +
			"job are passed to an MCP client that supports elicitation. `arcp approvals`\n" +
			"and `arcp input` can answer them too.\n\n" +
			"Built-in tools of the runtime are offered only if --tools names them.",
		Example: "  arcp mcp serve\n" +
			"  arcp mcp serve --tools 'time.*' --tools demo.echo\n" +
			"  arcp mcp serve --http 127.0.0.1:7780",
		Args: noArgs,
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&d.tools, "tools", nil, "offer only tools with matching names, for example `demo.*`; may be repeated")
	setCompletion(cmd, "tools", completeFrom(a, t, toolNames))
	f.BoolVar(&d.flat, "flat-names", false, "use tool names without dots, for clients that refuse dots")
	addDuration(f, &d.timeout, "timeout", time.Hour, "limit of a call, including waits for people; its job continues after it")
	f.StringVar(&d.http, "http", "", "serve streamable HTTP at `HOST:PORT` instead of standard input and output")
	f.StringVar(&d.tokenFile, "http-token-file", "",
		"file with the bearer token of HTTP clients; required unless --http is a loopback address")
	f.StringArrayVar(&d.origins, "http-origin", nil, "`ORIGIN` of web pages that may connect; may be repeated")
	f.BoolVar(&d.proxied, "behind-proxy", false, "a proxy with TLS is in front of --http")
	f.BoolVar(&d.verbose, "verbose", false, "log more to standard error")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error { return a.serveMCP(cmd.Context(), t, d) })
	return cmd
}

func (a *app) serveMCP(ctx context.Context, tg *target, d mcpFlags) error {
	for _, g := range d.tools {
		if _, err := path.Match(g, ""); err != nil {
			return usagef("--tools %q: invalid pattern; give for example 'demo.*'", g)
		}
	}
	if err := tg.resolve(a); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	ln, access, err := d.listen(ctx)
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close()
	}
	s, err := mcpserve.New(ctx, mcpserve.Config{Open: a.opener(tg), Tools: d.tools, Flat: d.flat, Timeout: d.timeout,
		Version: thisBuild().Version, Log: a.slogger(d.verbose)})
	if err != nil {
		return err
	}
	defer s.Close()
	if ln == nil {
		return ending(s.Pipe(ctx, a.stdin, a.stdout))
	}
	fmt.Fprintf(a.stdout, "listening http://%s\n", ln.Addr())
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })() // ends Serve
	return ending(s.Serve(ln, access))
}

// ending returns nil for the error of a regular end.
func ending(err error) error {
	if errors.Is(err, errInterrupted) || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// opener returns a function that opens sessions with the identity of the target.
func (a *app) opener(tg *target) func(context.Context, client.Options) (*client.Client, error) {
	return func(ctx context.Context, opts client.Options) (*client.Client, error) {
		base := tg.options()
		opts.Dialect, opts.DetectDialect, opts.Auth, opts.Client = base.Dialect, base.DetectDialect, base.Auth, base.Client
		opts.Client.Kind = "arcp-mcp"
		opts.Reconnect.OnChange = a.connectionChanged
		return tg.open(ctx, client.Connect, opts)
	}
}

func (a *app) slogger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// listen opens the listener of --http; nil without the flag.
func (mf *mcpFlags) listen(ctx context.Context) (net.Listener, mcpserve.Access, error) {
	access := mcpserve.Access{Origins: mf.origins, Proxied: mf.proxied}
	if mf.http == "" {
		if mf.tokenFile != "" || len(mf.origins) > 0 || mf.proxied {
			return nil, access, usagef("--http-token-file, --http-origin and --behind-proxy need --http")
		}
		return nil, access, nil
	}
	var err error
	if access.Token, err = readToken(mf.tokenFile); err != nil {
		return nil, access, err
	}
	if mf.proxied && access.Token == "" {
		return nil, access, usagef("--behind-proxy needs --http-token-file: other machines reach the server through the proxy")
	}
	if !isLoopback(mf.http) && (access.Token == "" || !mf.proxied) {
		return nil, access, usagef("--http %s: other machines can reach this address; give --http-token-file, and --behind-proxy for a proxy with TLS, or use 127.0.0.1", mf.http)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", mf.http)
	if err != nil {
		return nil, access, failf("--http %s: %w", mf.http, netCause(err))
	}
	return ln, access, nil
}

func readToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return "", usagef("--http-token-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", usagef("--http-token-file: %w", err)
	}
	if osfile.Shared(info) {
		return "", usagef("--http-token-file %s: other users can read it (mode %04o); run chmod 600", name, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", usagef("--http-token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken {
		return "", usagef("--http-token-file %s: the token has fewer than %d characters", name, minToken)
	}
	return token, nil
}
