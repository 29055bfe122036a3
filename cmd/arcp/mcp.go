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
)

func newMCP(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer the tools of a runtime to MCP clients",
		Args:  cobra.ArbitraryArgs,
		RunE:  action(onlyCommands),
	}
	cmd.AddCommand(newMCPServe(a))
	return cmd
}

// door holds the flags of `arcp mcp serve`.
type door struct {
	tools, origins  []string
	http, tokenFile string
	flat, proxied   bool
	verbose         bool
	timeout         time.Duration
}

func newMCPServe(a *app) *cobra.Command {
	var d door
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be an MCP server whose tools are those of a runtime",
		Long: "Speaks MCP on standard input and output, or over streamable HTTP with --http, and is a\n" +
			"client of a runtime that runs. A call becomes a job; cancelling the call cancels it.\n" +
			"What the job asks people is asked by the MCP client if it can (elicitation); the\n" +
			"console and `arcp approvals` can answer it, too.\n\n" +
			"The runtime's own tools are not offered unless --tools names them.",
		Example: "  arcp mcp serve\n" +
			"  arcp mcp serve --tools 'time.*' --tools demo.echo\n" +
			"  arcp mcp serve --http 127.0.0.1:7780",
		Args: noArgs,
	}
	t := addTarget(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&d.tools, "tools", nil, "offer only tools whose name matches, for example `demo.*`; may be repeated")
	f.BoolVar(&d.flat, "flat-names", false, "name tools without dots, for clients that refuse them")
	f.DurationVar(&d.timeout, "timeout", time.Hour, "how long a call may wait, also for people; then its job goes on without it")
	f.StringVar(&d.http, "http", "", "serve streamable HTTP at `HOST:PORT` instead of standard input and output")
	f.StringVar(&d.tokenFile, "http-token-file", "", "a file with the bearer token that HTTP clients must send; required beyond loopback")
	f.StringArrayVar(&d.origins, "http-origin", nil, "an Origin of web pages that may connect; may be repeated")
	f.BoolVar(&d.proxied, "behind-proxy", false, "a proxy with TLS is before --http")
	f.BoolVar(&d.verbose, "verbose", false, "say more on standard error")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error { return a.serveMCP(cmd.Context(), t, d) })
	return cmd
}

func (a *app) serveMCP(ctx context.Context, t *target, d door) error {
	for _, g := range d.tools {
		if _, err := path.Match(g, ""); err != nil {
			return usagef("--tools %q: no pattern; give for example 'demo.*'", g)
		}
	}
	if err := t.resolve(a); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	ln, guard, err := d.listen(ctx)
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close()
	}
	s, err := mcpserve.New(ctx, mcpserve.Config{Open: a.opener(t), Tools: d.tools, Flat: d.flat, Timeout: d.timeout,
		Version: thisBuild().Version, Log: a.slogger(d.verbose)})
	if err != nil {
		return err
	}
	defer s.Close()
	if ln == nil {
		return ending(s.Pipe(ctx, a.stdin, a.stdout))
	}
	fmt.Fprintf(a.stdout, "listening http://%s\n", ln.Addr())
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })() // which ends Serve
	return ending(s.Serve(ln, guard))
}

// ending leaves out that it was told to end.
func ending(err error) error {
	if errors.Is(err, errInterrupted) || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// opener returns a function that opens sessions as the target's identity.
func (a *app) opener(t *target) func(context.Context, client.Options) (*client.Client, error) {
	return func(ctx context.Context, opts client.Options) (*client.Client, error) {
		base := t.options()
		opts.Auth, opts.Client = base.Auth, base.Client
		opts.Client.Kind = "arcp-mcp"
		opts.Reconnect.OnChange = a.connectionChanged
		return t.open(ctx, client.Connect, opts)
	}
}

func (a *app) slogger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// listen opens the listener of --http; nil without it.
func (d *door) listen(ctx context.Context) (net.Listener, mcpserve.Access, error) {
	guard := mcpserve.Access{Origins: d.origins, Proxied: d.proxied}
	if d.http == "" {
		if d.tokenFile != "" || len(d.origins) > 0 || d.proxied {
			return nil, guard, usagef("--http-token-file, --http-origin and --behind-proxy are for --http")
		}
		return nil, guard, nil
	}
	var err error
	if guard.Token, err = readToken(d.tokenFile); err != nil {
		return nil, guard, err
	}
	if d.proxied && guard.Token == "" {
		return nil, guard, usagef("--behind-proxy: others reach it through the proxy; give --http-token-file")
	}
	if !isLoopback(d.http) && (guard.Token == "" || !d.proxied) {
		return nil, guard, usagef("--http %s: others can reach it; give --http-token-file, and --behind-proxy if a proxy with TLS is before it, or use 127.0.0.1", d.http)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", d.http)
	if err != nil {
		return nil, guard, failf("--http %s: %w", d.http, netCause(err))
	}
	return ln, guard, nil
}

// minToken is the least length of a token: it must not be guessed.
const minToken = 16

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
	if info.Mode().Perm()&0o077 != 0 {
		return "", usagef("--http-token-file %s: others may read it (mode %04o); chmod 600 it", name, info.Mode().Perm())
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
