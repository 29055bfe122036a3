package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// devPrincipal is the principal of the token of `arcp dev`.
const devPrincipal = "dev"

func devDefaults(token auth.Secret) map[string]string {
	d := map[string]string{"data": defaultData("dev"), "demo": "true", "log-format": "console", "drain": "5s"}
	if token != "" {
		d["token"] = devPrincipal + "=" + token.Reveal()
	}
	return d
}

func newDev(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a runtime for development, with demo tools and a generated token",
		Long: "Runs a runtime for development: `arcp serve` with the demo tools and a token. The\n" +
			"token is generated once, stored in the data directory and printed. Client commands\n" +
			"of the same user find the token while the runtime runs.\n\n" +
			"A change of the configuration file is applied as by SIGHUP. Without a file,\n" +
			"./arcp.yaml is watched until it exists.",
		Example: "  arcp dev\n  arcp invoke demo.echo '{\"hello\":\"world\"}'",
		Args:    noArgs,
	}
	addSettings(cmd, devDefaults(""))
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		d := &dev{load: func(token auth.Secret) (*settings.Values, error) {
			return a.settings(cmd.Flags(), devDefaults(token))
		}}
		defer d.removeToken()
		return a.serve(cmd.Context(), d.settings, d)
	})
	cmd.AddCommand(newDevToken(a))
	return cmd
}

func newDevToken(a *app) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print the token of the running `arcp dev` of this user",
		Long: "Prints the token of the running `arcp dev` of this user, for programs other than arcp.\n" +
			"The commands of arcp find the token by themselves.",
		Example: "  export ARCP_TOKEN=$(arcp dev token)",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&address, "url", "", "URL of the runtime; default: $ARCP_URL, "+defaultURL+", or that of the only arcp dev on another port")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
		defer cancel()
		find := anyDevToken
		if address = cmp.Or(address, a.env("ARCP_URL")); address != "" {
			find = func(ctx context.Context) (string, error) { return runningDevToken(ctx, address) }
		}
		token, err := find(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.stdout, token)
		return err
	})
	return cmd
}

// anyDevToken returns the token of the `arcp dev` of this user at the default URL. If none runs there, it returns the
// token of the only one on another port.
func anyDevToken(ctx context.Context) (string, error) {
	token, err := runningDevToken(ctx, defaultURL)
	if err == nil {
		return token, nil
	}
	var urls []string
	for _, port := range knownPorts() {
		address := fmt.Sprintf("ws://127.0.0.1:%d/arcp", port)
		if found, err := runningDevToken(ctx, address); err == nil {
			token, urls = found, append(urls, address)
		}
	}
	switch len(urls) {
	case 0:
		return "", fmt.Errorf("%w, or give --url", err)
	case 1:
		return token, nil
	}
	return "", usagef("several `arcp dev` of this user run: give --url %s", strings.Join(urls, " or --url "))
}

// devTokenWait bounds the wait for the token of a runtime that has just opened its port.
const devTokenWait = 500 * time.Millisecond

// runningDevToken returns the token of the `arcp dev` of this user that listens at a URL. The file of a server that was
// killed is still there, so it connects first.
func runningDevToken(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Port() == "" || !loopbackHost(u.Hostname()) {
		return "", usagef("--url %s: give the URL of an `arcp dev` on this machine, for example %s", address, defaultURL)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return "", &exitError{exitUnreachable, fmt.Errorf("no runtime answers at %s: %w; `arcp dev` starts one", address, netCause(err))}
	}
	_ = conn.Close() // nothing was sent
	for end := time.Now().Add(devTokenWait); ; time.Sleep(devTokenWait / 50) {
		if token := tokenOfDev(u); token != "" {
			return token, nil
		}
		if time.Now().After(end) {
			return "", failf("the runtime at %s has no token of `arcp dev` of this user: it is of another user, or has tokens of its own; use one of them", address)
		}
	}
}

// dev adds a token to a server.
type dev struct {
	load      func(token auth.Secret) (*settings.Values, error)
	token     auth.Secret            // empty: authentication is configured
	tokenFile atomic.Pointer[string] // file where clients of this user find the token; nil: none
}

// settings loads the settings, and adds the token of the data directory unless authentication is configured.
func (d *dev) settings() (*settings.Values, error) {
	v, err := d.load("")
	if v == nil || err != nil || len(v.Secrets("token")) > 0 || v.Text("auth-file") != "" {
		return v, err
	}
	if d.token == "" {
		if d.token, err = devToken(v.Text("data")); err != nil {
			return nil, err
		}
	}
	return d.load(d.token)
}

// devToken returns the token in a data directory. It creates the token if there is none.
func devToken(dir string) (auth.Secret, error) {
	if dir == memory {
		return auth.NewToken("dev_"), nil
	}
	if err := makeDataDir(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, devTokenFile)
	err := writeSecret(path, []byte(auth.NewToken("dev_").Reveal()+"\n"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", dataError(dir, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failf("token file %s: %w; make it readable, or remove it to get a new token", path, cause(err))
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\n,") {
		return "", failf("token file %s is invalid; remove it to get a new token", path)
	}
	return auth.Secret(token), nil
}

// banner prints the addresses of the server and a first command.
func (d *dev) banner(s *server) {
	w := s.app.stderr
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w, "arcp "+thisBuild().Version+" is ready")
	if s.main != nil {
		line("websocket", "%s", s.url())
	}
	if url := s.adminURL(); url != "" {
		line("metrics", "%s/metrics", url)
	}
	line("data", "%s", s.values.Text("data"))
	if d.token != "" {
		line("token", "%s", d.token.Reveal())
	}
	line("try", "%s", d.example(s))
}

// watch has the server reload the configuration file when it changes, or ./arcp.yaml if there is none. It returns a
// function that ends the watch. If the file cannot be watched it logs the reason.
func (d *dev) watch(s *server) (stop func()) {
	file := cmp.Or(s.values.File, settings.SearchPath()[0])
	w, err := watchFile(file, s.log)
	if err != nil {
		s.log.Warn().Err(err).Str("file", file).Msg("the configuration file is not watched; SIGHUP reads it")
		return func() {}
	}
	s.fileChanged = w.changed
	return w.close
}

// stopping prints for what the stop of a server waits.
func (d *dev) stopping(s *server) {
	rt := s.rt.Load()
	if rt == nil {
		return
	}
	list, n := rt.ListActiveJobs(maxDrainJobs)
	if n == 0 {
		return
	}
	fmt.Fprintf(s.app.stderr, "stopping: waiting up to %v for %s; Ctrl-C again stops now\n", s.values.Duration("drain"), counted(n, "job"))
	for _, text := range jobsInTheWay(list, n) {
		fmt.Fprintf(s.app.stderr, "  %s\n", text)
	}
}

// example returns a command for another terminal of the same user.
func (d *dev) example(s *server) string {
	words := []string{"arcp", "invoke"}
	if s.main != nil && s.url() != defaultURL {
		words = append(words, "--url", s.url())
	}
	if d.tokenFile.Load() == nil {
		words = append(words, "--token", "TOKEN")
	}
	return strings.Join(append(words, "demo.echo", `'{"hello":"world"}'`), " ")
}

// publishToken writes the token to the file where clients of this user look for it. Without the file they need
// --token, so errors are ignored.
func (d *dev) publishToken(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if d.token == "" || !ok || !tcp.IP.IsLoopback() {
		return
	}
	path, err := knownTokenFile(tcp.Port)
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	_ = os.Remove(path) // of an earlier server on the same port
	if writeSecret(path, []byte(d.token.Reveal()+"\n")) == nil {
		d.tokenFile.Store(&path)
	}
}

// removeToken removes the published token.
func (d *dev) removeToken() {
	if path := d.tokenFile.Load(); path != nil {
		_ = os.Remove(*path) // the next server overwrites a remaining file
	}
}

// tokenDir is the directory of published tokens in the state directory.
const tokenDir = "tokens"

// knownTokenFile returns the file with the published token of the server on a loopback port.
func knownTokenFile(port int) (string, error) {
	dir, err := stateDir()
	return filepath.Join(dir, tokenDir, strconv.Itoa(port)), err
}

// knownPorts returns the loopback ports of published tokens, also of servers that were killed.
func knownPorts() (ports []int) {
	dir, err := stateDir()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(dir, tokenDir)) // without the directory there are none
	for _, e := range entries {
		if port, err := strconv.Atoi(e.Name()); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// knownToken returns the published token of the server on a loopback port.
func knownToken(port int) (auth.Secret, bool) {
	path, err := knownTokenFile(port)
	if err != nil {
		return "", false
	}
	text, err := os.ReadFile(path)
	return auth.Secret(strings.TrimSpace(string(text))), err == nil
}
