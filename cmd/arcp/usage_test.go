package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

func TestUsageErrorsNameTheRemedy(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"serv"}, `unknown command "serv"; did you mean arcp serve?`},
		{"unknown subcommand", []string{"jobs", "lst"}, `unknown command "lst"; did you mean arcp jobs ls?`},
		{"no subcommand", []string{"jobs"}, "arcp jobs needs a subcommand: cancel, interrupt, ls, rerun, rm, show, wait, watch"},
		{"unknown command with flags", []string{"invok", "--url", "x"}, `unknown command "invok"; did you mean arcp invoke?`},
		{"unknown subcommand with flags", []string{"jobs", "lst", "--url", "x"}, `unknown command "lst"; did you mean arcp jobs ls?`},
		{"help of an unknown command", []string{"serv", "--help"}, `unknown command "serv"; did you mean arcp serve?`},
		{"help of an unknown subcommand", []string{"jobs", "shwo", "--help"}, `unknown command "shwo"; did you mean arcp jobs show?`},
		{"unknown topic", []string{"help", "serv"}, `unknown command "serv"; did you mean arcp serve?`},
		{"unknown topic like no other", []string{"help", "zzzzzzzz"}, `unknown command "zzzzzzzz"; the subcommands of arcp are `},
		{"unknown subcommand as a topic", []string{"help", "jobs", "shwo"}, `unknown command "shwo"; did you mean arcp jobs show?`},
		{"unknown subcommand of a command", []string{"dev", "tokn", "--help"}, `unknown command "tokn"; did you mean arcp dev token?`},
		{"unknown flag of a group", []string{"jobs", "--url", "x"}, "unknown flag: --url"},
		{"unknown flag after an argument", []string{"backup", "/srv/copy", "--evry", "1h"}, "unknown flag --evry; did you mean --every?"},
		{"unknown flag", []string{"serve", "--tokn", "x"}, "unknown flag --tokn; did you mean --token?"},
		{"unknown short flag", []string{"serve", "-z"}, "`arcp serve --help` lists the flags"},
		{"too few arguments", []string{"invoke"}, "usage: `arcp invoke TOOL [JSON|@FILE|-] [flags]`"},
		{"too many arguments", []string{"version", "x"}, "wrong number of arguments (1); usage: `arcp version [flags]`"},
		{"bad output", []string{"version", "-o", "xml"}, `--output: "xml" is not one of text, json`},
		{"bad URL", []string{"jobs", "ls", "--url", "http://x"}, "give a ws://, wss:// or unix:// URL"},
		{"library of checks", []string{"conformance", "run", "--dialect", "rfc", "--library", "python"}, "--library is for --dialect draft"},
		{"unknown library", []string{"conformance", "run", "--dialect", "draft", "--library", "x"}, `--library: "x" is not one of go`},
		{"bad dialect", []string{"invoke", "demo.echo", "--dialect", "x"}, `--dialect: "x" is not one of rfc, draft, auto`},
		{"bad JSON", []string{"invoke", "demo.echo", "{"}, "the arguments: not JSON"},
		{"no such file", []string{"invoke", "demo.echo", "@/nonexistent"}, "read /nonexistent: no such file"},
		{"no duration", []string{"jobs", "ls", "--since", "bogus"}, `--since: "bogus" is not a duration such as 90s, 10m or 7d`},
		{"a large number", []string{"jobs", "ls", "--limit", "5000000000"}, `--limit: "5000000000" is too large`},
		{"no switch", []string{"jobs", "ls", "--all=maybe"}, `--all: "maybe" is not true or false`},
		{"negative wait", []string{"jobs", "wait", "job_1", "--timeout", "-1s"}, `--timeout: "-1s" is not a duration`},
		{"long deadline", []string{"jobs", "cancel", "job_1", "--deadline", "61s"}, "--deadline 1m1s: give at most 60s"},
		{"flags that exclude each other", []string{"jobs", "ls", "--watch", "--since", "1h", "--cursor", "x"}, "exclude each other: give one of them"},
		{"bad timeout", []string{"invoke", "demo.echo", "--timeout", "-1s"}, `--timeout: "-1s" is not a duration`},
		{"bad row", []string{"bench", "--row", "x"}, `--row: "x" is not one of jobs`},
		{"bad dialect of a measurement", []string{"bench", "--dialect", "auto"}, `--dialect: "auto" is not one of rfc, draft`},
		{"bad group", []string{"conformance", "run", "--group", "x"}, `--group: "x" is not one of`},
	} {
		t.Run(c.name, func(t *testing.T) { wantRefusal(t, cli(t, c.args...), exitUsage, c.want) })
	}
}

// Settings that cannot work or are not safe are refused before anything is opened.
func TestServeRefusesUnsafeSettings(t *testing.T) {
	dir := t.TempDir()
	cert, key := makeCertificate(t, dir, "one", 1)
	_, otherKey := makeCertificate(t, dir, "two", 2)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no authentication", nil, "refusing to listen without authentication: give --token NAME=TOKEN"},
		{"without TLS", []string{"--listen", "0.0.0.0:0", "--token", "a=b"}, "refusing to listen on 0.0.0.0:0 without TLS"},
		{"clear text on all", []string{"--listen", ":0", "--token", "a=b"}, "refusing to listen on :0 without TLS"},
		{"open admin", []string{"--admin", "0.0.0.0:0", "--token", "a=b"}, "or give --admin-remote if only trusted machines can reach it"},
		{"open admin behind a proxy", []string{"--admin", "0.0.0.0:0", "--behind-proxy", "--token", "a=b"}, "refusing to open the admin listener on 0.0.0.0:0"},
		{"same address", []string{"--listen", "127.0.0.1:1", "--admin", "127.0.0.1:1", "--token", "a=b"}, "is the address of the main listener"},
		{"no listener", []string{"--listen", "", "--token", "a=b"}, "no listener: give --listen"},
		{"bad address", []string{"--listen", "7777", "--token", "a=b"}, "--listen 7777: give HOST:PORT"},
		{"bad path", []string{"--path", "arcp", "--token", "a=b"}, "--path arcp: give an absolute path"},
		{"small frames", []string{"--max-frame", "10", "--token", "a=b"}, "--max-frame 10: give at least 64KiB"},
		{"long commit delay", []string{"--commit-delay", "1ms", "--token", "a=b"}, "--commit-delay 1ms: give at most 150µs"},
		{"relative links", []string{"--artifact-url", "/artifacts", "--token", "a=b"}, "--artifact-url: give an absolute URL with https or http"},
		{"links of another scheme", []string{"--artifact-url", "ftp://arcp.example/", "--token", "a=b"}, "--artifact-url: give an absolute URL with https or http"},
		{"links with a query", []string{"--artifact-url", "https://arcp.example/?a=b", "--token", "a=b"}, "without a query and a fragment"},
		{"links with a fragment", []string{"--artifact-url", "https://arcp.example/#a", "--token", "a=b"}, "without a query and a fragment"},
		{"links with a password", []string{"--artifact-url", "https://alice:secret@arcp.example/", "--token", "a=b"}, "without a user name and a password"},
		{"links without TLS", []string{"--artifact-url", "http://arcp.example/a", "--token", "a=b"}, "--artifact-url http://arcp.example/a: refusing links without TLS: give a URL with https, or --behind-proxy"},
		{"links without a listener", []string{"--artifact-url", "https://arcp.example/a", "--listen", "", "--unix", filepath.Join(dir, "socket")}, "there is no listener that serves it: give --listen"},
		{"bare token", []string{"--token", "secret"}, "--token: write a token of a server as NAME=TOKEN"},
		{"token of two", []string{"--token", "a=b", "--token", "c=b"}, "the token belongs to another principal"},
		{"certificate alone", []string{"--tls-cert", cert, "--token", "a=b"}, "--tls-cert needs --tls-key"},
		{"key alone", []string{"--tls-key", key, "--token", "a=b"}, "--tls-key needs --tls-cert"},
		{"pair of two", []string{"--tls-cert", cert, "--tls-key", otherKey, "--token", "a=b"}, "tls: private key does not match public key"},
		{"no certificate", []string{"--tls-cert", "/nonexistent", "--tls-key", key, "--token", "a=b"}, "/nonexistent"},
		{"no auth file", []string{"--auth-file", "/nonexistent"}, "auth file /nonexistent"},
		{"bad auth file", []string{"--auth-file", write(t, filepath.Join(dir, "auth.yaml"), "principal: []\n")}, "auth.yaml"},
		{"bad lease",
			[]string{"--auth-file", write(t, filepath.Join(dir, "lease.yaml"), "principals: [{name: alice, lease: {cost.budget: 5}}]\n")},
			"lease.yaml:1:35: principals[0].lease: of alice: "},
		{"later", []string{"--store", "postgres", "--token", "a=b"}, "--store postgres is not supported by this version"},
		{"bad value", []string{"--drain", "x", "--token", "a=b"}, `--drain: "x" is not a duration`},
		{"no config", []string{"--config", "/nonexistent"}, "configuration file /nonexistent: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:"}, c.args...)
			o := cli(t, args...)
			wantRefusal(t, o, exitUsage, c.want)
			if strings.Contains(o.stderr, "secret") {
				t.Errorf("the refusal shows a token: %s", o.stderr)
			}
		})
	}
}

// The help of a command has the defaults that the command uses.
func TestHelpHasTheDefaultsOfTheCommand(t *testing.T) {
	for _, line := range []string{"--demo", "--log-format", "--drain", "--data"} {
		find := func(command string) string {
			for l := range strings.Lines(cli(t, command, "--help").stdout) {
				if strings.HasPrefix(strings.TrimSpace(l), line+" ") {
					return l
				}
			}
			t.Fatalf("%s --help has no %s", command, line)
			return ""
		}
		if dev, serve := find("dev"), find("serve"); dev == serve {
			t.Errorf("dev and serve have the same help: %s", dev)
		}
	}
	wantOutcome(t, "dev", cli(t, "dev", "--help"), exitOK, "how long running jobs get when the server stops (default 5s)", "")
	wantOutcome(t, "serve", cli(t, "serve", "--help"), exitOK, "how long running jobs get when the server stops (default 30s)", "")
}

// The help of a server has each setting under the title of its section, and no other name of it.
func TestHelpGroupsSettings(t *testing.T) {
	_, flags, _ := strings.Cut(cli(t, "serve", "--help").stdout, "\nFlags:\n")
	groups := strings.Split(flags, "\n\n")
	if len(groups) != 1+len(settings.Sections) {
		t.Fatalf("the help has %d groups of flags, want %d:\n%s", len(groups), 1+len(settings.Sections), flags)
	}
	if !strings.Contains(groups[0], "--config") || !strings.Contains(groups[0], "--help") {
		t.Errorf("the first group is\n%s\nwant --config and --help", groups[0])
	}
	for i, section := range settings.Sections {
		title, group, _ := strings.Cut(groups[1+i], ":\n")
		if title != section.Title {
			t.Errorf("group %d has the title %q, want %q", i, title, section.Title)
		}
		for _, s := range section.Settings {
			hidden := s.Kind == settings.Block || s.Later || s.Alias != ""
			if got := strings.Contains(group, "--"+s.Name+" "); got == hidden {
				t.Errorf("%s lists --%s: %t, want %t", title, s.Name, got, !hidden)
			}
		}
	}
}

// A failure outside of the command is one line too, and changes nothing.
func TestServeFailureIsOneLine(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), "mine")
	badKey := filepath.Dir(write(t, filepath.Join(dir, "badkey", identityFile), "mine"))
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"busy port", []string{"--listen", busy.Addr().String()}, "the address is in use; stop the other program"},
		{"busy admin port", []string{"--admin", busy.Addr().String()}, "--admin " + busy.Addr().String() + ": the address is in use"},
		{"not our address", []string{"--admin", "127.0.0.1:0", "--listen", "192.0.2.1:1", "--behind-proxy"}, "give an address of this machine"},
		{"data is a file", []string{"--data", file}, file + " is not a directory"},
		{"data in a file", []string{"--data", filepath.Join(file, "data")}, "is not a directory"},
		{"data cannot be made", []string{"--data", "/proc/nope/data"}, "data directory /proc/nope/data"},
		{"bad identity", []string{"--data", badKey}, "identity.pem: it is not a PEM file"},
		{"socket is a file", []string{"--unix", file}, "--unix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:", "--token", "a=b"}, c.args...)
			wantRefusal(t, cli(t, args...), exitFailed, c.want)
		})
	}
	for _, path := range []string{file, filepath.Join(badKey, identityFile)} {
		if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
			t.Errorf("%s = %q, %v, want it left alone", path, got, err)
		}
	}
}

// Without a home there is no place to keep data by default.
func TestDataNeedsAHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	for _, command := range []string{"serve", "dev"} {
		o := cli(t, command, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--token", "a=b")
		wantRefusal(t, o, exitUsage, "no home directory for the data: give --data DIR")
	}
}

func TestConfigPrintNamesSources(t *testing.T) {
	t.Setenv("ARCP_RATE", "60")
	o := cli(t, "config", "print", "--token", "alice=hush-hush", "--drain", "5s")
	wantOutcome(t, "a flag", o, exitOK, "drain: 5s", "")
	wantOutcome(t, "its source", o, exitOK, "# flag --drain", "")
	wantOutcome(t, "a variable", o, exitOK, "rate: 60", "")
	wantOutcome(t, "a masked secret", o, exitOK, `token: ["alice=[redacted]"]`, "")
	o = cli(t, "config", "print", "-o", "json", "--token", "alice=hush-hush")
	wantOutcome(t, "JSON", o, exitOK, `"rate": {"value": 60, "source": "environment ARCP_RATE"}`, "")
	if strings.Contains(o.stdout, "hush-hush") {
		t.Errorf("a secret is printed: %s", o.stdout)
	}
	t.Setenv("ARCP_RAT", "60")
	wantRefusal(t, cli(t, "config", "print"), exitUsage, "ARCP_RAT is not known; did you mean ARCP_RATE?")
}

func TestUnreachableRuntimeIsReported(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "ws://" + ln.Addr().String() + "/arcp"
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, cli(t, "jobs", "ls", "--url", url, "--dialect", "rfc"), exitUnreachable, "no runtime answers at "+url)
	wantRefusal(t, cli(t, "jobs", "ls", "--url", "unix:///nonexistent"), exitUnreachable, "no runtime answers at unix:///nonexistent")
	o := cli(t, "invoke", "demo.echo", "--url", url, "-o", "json")
	wantOutcome(t, "a failure as JSON", o, exitUnreachable, "", `{"error":{"exit":7,"message":"no runtime answers`)
}

// makeCertificate makes a self-signed certificate for loopback.
func makeCertificate(t *testing.T, dir, name string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pemFile := func(name, kind string, der []byte) string {
		return write(t, filepath.Join(dir, name), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return pemFile(name+".crt", "CERTIFICATE", der), pemFile(name+".key", "PRIVATE KEY", keyDER)
}

// The help has each command in a group, and explains the exit codes and the variables.
func TestHelp(t *testing.T) {
	o := cli(t, "--help")
	for _, group := range commandGroups {
		if !strings.Contains(o.stdout, group.Title+"\n") {
			t.Errorf("the help has no group %q:\n%s", group.Title, o.stdout)
		}
	}
	additional := o.stdout[strings.Index(o.stdout, "Additional Commands:"):]
	if got, want := strings.Fields(additional[:strings.Index(additional, "Flags:")]), []string{"completion", "help", "version"}; !strings.Contains(additional, "environment") ||
		!strings.Contains(additional, "exit-codes") || len(got) == 0 || !containsAll(got, want) {
		t.Errorf("other commands and topics:\n%s", additional)
	}
	if group := cli(t, "jobs", "--help").stdout; !strings.Contains(group, "Usage:\n  arcp jobs [command]\n") || strings.Contains(group, "arcp jobs [flags]") {
		t.Errorf("the help of a command without flags of its own:\n%s", group)
	}
	wantOutcome(t, "a command that has subcommands and works alone", cli(t, "dev", "--help"), exitOK, "  arcp dev [flags]\n  arcp dev [command]\n", "")
	wantOutcome(t, "a subcommand", cli(t, "help", "jobs", "ls"), exitOK, "  arcp jobs ls [flags]\n", "")
	wantOutcome(t, "a subcommand with --help", cli(t, "jobs", "ls", "--help"), exitOK, "  arcp jobs ls [flags]\n", "")
	wantOutcome(t, "help after an argument", cli(t, "backup", "/srv/copy", "--help"), exitOK, "  arcp backup DIR [flags]\n", "")
	wantOutcome(t, "help of an argument", cli(t, "invoke", "demo.echo", "--help"), exitOK, "  arcp invoke TOOL", "")
	wantOutcome(t, "exit codes", cli(t, "help", "exit-codes"), exitOK, "  130  interrupted", "")
	wantOutcome(t, "errors and formats", cli(t, "help", "exit-codes"), exitOK, "are text also with -o json", "")
	wantOutcome(t, "formats", cli(t, "help", "output"), exitOK, "  jsonl  an item of a list on each line", "")
	wantOutcome(t, "an error in the command line", cli(t, "jobs", "ls", "-o", "json", "--limit", "x"), exitUsage, "", "arcp: --limit:")
	wantOutcome(t, "the server's tokens", cli(t, "help", "environment"), exitOK, "  ARCP_SERVER_TOKEN  tokens that the server accepts", "")
	wantOutcome(t, "variables", cli(t, "help", "environment"), exitOK, "  ARCP_TOKEN     bearer token", "")
	if got, want := cli(t, "--version").stdout, cli(t, "version").stdout; got != want || got == "" {
		t.Errorf("--version prints %q, version prints %q", got, want)
	}
}

// The texts of the help fit on a terminal, and the commands of the examples exist, with their flags.
func TestHelpOfEveryCommand(t *testing.T) {
	a := &app{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%s: a line of %d columns, want at most %d: %s", cmd.CommandPath(), n, helpWidth, line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			if _, command, ok := strings.Cut(line, "arcp "); ok && !strings.HasPrefix(command, "'") {
				checkExample(t, command)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(a))
}

var (
	exampleWord = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s']+`)
	exampleEnd  = regexp.MustCompile(`\s(>|<|\|)\s.*|\).*`)
)

// checkExample parses a command line without executing it.
func checkExample(t *testing.T, line string) {
	t.Helper()
	var args []string
	for _, word := range exampleWord.FindAllString(exampleEnd.ReplaceAllString(line, ""), -1) {
		args = append(args, strings.ReplaceAll(strings.Trim(word, `'"`), "…", "X")) // the rest of an id
	}
	cmd, rest, err := newRoot(&app{}).Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = unknownCommand(cmd, cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("the example arcp %s: %v", strings.TrimSpace(line), err)
	}
}

func containsAll(list, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(list, w) })
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 900 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s",
		11*time.Minute + 5*time.Second: "11m", time.Hour: "1h", 3*time.Hour + 20*time.Minute + time.Second: "3h20m", 30 * time.Hour: "1d6h", 400 * 24 * time.Hour: "400d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %s, want %s", d, got, want)
		}
	}
}
