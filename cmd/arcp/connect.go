package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
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
	ackEvery       = 128 // events, so that the runtime need not keep them
)

// target is the runtime that a client command connects to, and the identity it uses.
type target struct {
	url, token, output string
	dialect            string
	person             bool // a person is present: questions are shown
}

// addTarget adds the flags that all client commands have.
func addTarget(cmd *cobra.Command) *target {
	t := new(target)
	f := cmd.Flags()
	f.StringVar(&t.url, "url", "", "the runtime's URL; default $ARCP_URL, or "+defaultURL)
	f.StringVar(&t.token, "token", "", "bearer token; default $ARCP_TOKEN, or the one of a running arcp dev")
	f.StringVar(&t.dialect, "dialect", "rfc", "the protocol's dialect to speak: rfc, the one there is in this version")
	f.StringVarP(&t.output, "output", "o", "text", "text or json")
	return t
}

// resolve sets the members that flags left empty.
func (t *target) resolve(a *app) error {
	if err := a.setOutput(t.output); err != nil {
		return err
	}
	switch t.dialect {
	case "rfc":
	case "draft":
		return usagef("--dialect draft is not supported by this version; leave it out")
	default:
		return usagef("--dialect: %q is none of rfc", t.dialect)
	}
	if t.url == "" {
		t.url = a.env("ARCP_URL")
	}
	if t.url == "" {
		t.url = defaultURL
	}
	u, err := url.Parse(t.url)
	if err != nil || !dialable(u) {
		return usagef("--url %s: give a ws://, wss:// or unix:// URL, for example %s", t.url, defaultURL)
	}
	if u.Scheme == "unix" {
		return nil // the operating system identifies the user
	}
	if t.token == "" {
		t.token = a.env("ARCP_TOKEN")
	}
	if t.token == "" {
		t.token = tokenOfDev(u)
	}
	return nil
}

func dialable(u *url.URL) bool {
	switch u.Scheme {
	case "ws", "wss":
		return u.Host != ""
	}
	return u.Scheme == "unix" && u.Path != ""
}

// unixURL is how clients name a unix socket.
func unixURL(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "unix://" + path
}

// tokenOfDev is the token of an `arcp dev` of this user: it goes to loopback
// only.
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

// dial opens a session that ends with its connection: for a question and its
// answer.
func (t *target) dial(ctx context.Context, _ *app) (*client.Client, error) {
	return t.open(ctx, client.Dial, t.options())
}

// connect opens a session that survives lost connections, for long commands. Reconnections are
// reported on standard error.
func (t *target) connect(ctx context.Context, a *app) (*client.Client, error) {
	opts := t.options()
	opts.Reconnect.OnChange = a.connectionChanged
	return t.open(ctx, client.Connect, opts)
}

// dialer is client.Dial or client.Connect.
type dialer func(ctx context.Context, address string, opts client.Options) (*client.Client, error)

func (t *target) open(ctx context.Context, how dialer, opts client.Options) (*client.Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout,
		fmt.Errorf("%w: no answer within %s", client.ErrUnreachable, connectTimeout))
	defer cancel()
	c, err := how(ctx, t.url, opts)
	if err != nil {
		return nil, t.explain(err)
	}
	return c, nil
}

func (t *target) options() client.Options {
	opts := client.Options{
		Auth:   client.Auth{Token: client.Secret(t.token)},
		Client: arcp.ClientInfo{Kind: "arcp-cli", Version: thisBuild().Version},
		Capabilities: arcp.Capabilities{Flags: map[arcp.Feature]bool{
			arcp.FeatureStreaming: true, arcp.FeatureDurableJobs: true, arcp.FeatureCheckpoints: true,
			arcp.FeatureHeartbeat: true, arcp.FeatureAck: true,
		}},
		AckEvery: ackEvery,
	}
	if t.person {
		opts.Capabilities.Flags[arcp.FeatureHumanInput] = true
	}
	return opts
}

// connectionChanged says that a connection is lost. That it is back shows.
func (a *app) connectionChanged(ch client.Change) {
	if ch.State != client.Reconnecting {
		return
	}
	why := oneLine(strings.TrimPrefix(ch.Err.Error(), client.ErrConnectionLost.Error()+": "))
	switch {
	case a.json:
		line, err := arcp.Marshal(map[string]map[string]string{"connection": {"state": ch.State.String(), "message": why}})
		if err == nil { // strings can always be encoded
			fmt.Fprintf(a.stderr, "%s\n", line)
		}
	case redraws(a.stderr):
		fmt.Fprint(a.stderr, "\r\x1b[K") // a progress bar
		fallthrough
	default:
		fmt.Fprintf(a.stderr, "connection lost, resuming: %s\n", why)
	}
}

// explain adds the remedy to the error of a session that could not be opened.
func (t *target) explain(err error) error {
	switch code := codeOf(err); {
	case code == exitAuth && t.token == "":
		return fmt.Errorf("%w; give --token or set ARCP_TOKEN", err)
	case code == exitUnreachable && strings.Contains(err.Error(), "shutting down"):
		return &exitError{code, fmt.Errorf("the runtime at %s is shutting down; try again in a moment", t.url)}
	case code == exitUnreachable && strings.Contains(err.Error(), "status code"):
		return &exitError{code, fmt.Errorf("what answers at %s is no runtime: %w; use the URL of its listening line", t.url, netCause(err))}
	case code == exitUnreachable:
		return &exitError{code, fmt.Errorf("no runtime answers at %s: %w; `arcp dev` starts one", t.url, netCause(err))}
	}
	return err
}

// netCause removes the text of intermediate layers from the error of a failed connection.
func netCause(err error) error {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// hangUp ends a session that will not be resumed; its jobs continue.
func hangUp(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.CloseWith(ctx, arcp.SessionClosePayload{Reason: "done", Forget: true}) // all that mattered has been said
}

// onSession is the work of a command in an open session; ctx ends at a signal.
type onSession func(ctx context.Context, c *client.Client, args []string) error

// session is a command's action on a session of one connection.
func (a *app) session(t *target, do onSession) func(*cobra.Command, []string) error {
	return a.sessionOver(t, t.dial, do)
}

// lasting is a command's action on a session that survives its connections.
func (a *app) lasting(t *target, do onSession) func(*cobra.Command, []string) error {
	return a.sessionOver(t, t.connect, do)
}

func (a *app) sessionOver(t *target, open func(context.Context, *app) (*client.Client, error), do onSession) func(*cobra.Command, []string) error {
	return action(func(cmd *cobra.Command, args []string) error {
		if err := t.resolve(a); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		c, err := open(ctx, a)
		if err != nil {
			return err
		}
		defer hangUp(c)
		return do(ctx, c, args)
	})
}

// interruptible is a context that SIGINT and SIGTERM end.
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
