package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// devPrincipal is the holder of the token that `arcp dev` makes.
const devPrincipal = "dev"

func devDefaults(token auth.Secret) map[string]string {
	d := map[string]string{"data": defaultData("dev"), "demo": "true", "log-format": "console"}
	if token != "" {
		d["token"] = devPrincipal + "=" + token.Reveal()
	}
	return d
}

func newDev(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a runtime for development: demo tools, loopback, a token of its own",
		Long: "Runs a runtime to develop with. It is `arcp serve` with the demo tools and a token\n" +
			"that is made once, kept in the data directory and printed. The client commands of\n" +
			"the same user find the token while it runs.",
		Example: "  arcp dev\n  arcp invoke demo.echo '{\"hello\":\"world\"}'",
		Args:    noArgs,
	}
	settings.AddFlags(cmd.Flags())
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		d := &dev{load: func(token auth.Secret) (*settings.Values, error) {
			return a.settings(cmd.Flags(), devDefaults(token))
		}}
		defer d.forget()
		return a.serve(cmd.Context(), d.settings, d.banner)
	})
	return cmd
}

// dev is the part that `arcp dev` adds to a server: a token.
type dev struct {
	load  func(token auth.Secret) (*settings.Values, error)
	token auth.Secret // empty: the user gave tokens
	known string      // file that tells this user's clients the token
}

// settings loads the settings. It adds the token of the data directory unless authentication
// is configured.
func (d *dev) settings() (*settings.Values, error) {
	v, err := d.load("")
	if err != nil || len(v.Secrets("token")) > 0 || v.Text("auth-file") != "" {
		return v, err
	}
	if d.token == "" {
		if d.token, err = devToken(v.Text("data")); err != nil {
			return nil, err
		}
	}
	return d.load(d.token)
}

// devToken reads the token kept in a data directory, or makes one.
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
		return "", failf("token file %s does not hold one token; remove it to get a new one", path)
	}
	return auth.Secret(token), nil
}

// banner prints the running server's addresses and first commands.
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
	if d.token != "" && s.main != nil {
		d.tell(s.main.Addr())
	}
	line("try", "%s", d.example(s))
}

// example is a command that works in another terminal of the same user.
func (d *dev) example(s *server) string {
	words := []string{"arcp", "invoke"}
	if s.main != nil && s.url() != defaultURL {
		words = append(words, "--url", s.url())
	}
	if d.known == "" {
		words = append(words, "--token", "TOKEN")
	}
	return strings.Join(append(words, "demo.echo", `'{"hello":"world"}'`), " ")
}

// tell leaves the token where this user's clients look for it. That is a
// convenience: without it they need --token.
func (d *dev) tell(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return
	}
	path, err := knownTokenFile(tcp.Port)
	if err != nil || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	_ = os.Remove(path) // of a server that had the port before
	if writeSecret(path, []byte(d.token.Reveal()+"\n")) == nil {
		d.known = path
	}
}

func (d *dev) forget() {
	if d.known != "" {
		_ = os.Remove(d.known) // it is overwritten by the next one at the latest
	}
}

// knownTokenFile is where a server on a loopback port leaves its token.
func knownTokenFile(port int) (string, error) {
	dir, err := stateDir()
	return filepath.Join(dir, "tokens", fmt.Sprint(port)), err
}

// knownToken is the token of the `arcp dev` of this user at a loopback port.
func knownToken(port int) (auth.Secret, bool) {
	path, err := knownTokenFile(port)
	if err != nil {
		return "", false
	}
	text, err := os.ReadFile(path)
	return auth.Secret(strings.TrimSpace(string(text))), err == nil
}
