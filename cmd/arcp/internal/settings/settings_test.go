package settings

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/runtime"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sources describes where values come from in a test.
type sources struct {
	args     []string
	env      []string
	file     string // content; "" : no file
	defaults map[string]string
}

func (s sources) load(t *testing.T) (*Values, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags, nil)
	if err := flags.Parse(s.args); err != nil {
		t.Fatalf("parse %q: %v", s.args, err)
	}
	search := []string{}
	if s.file != "" {
		path := filepath.Join(t.TempDir(), "arcp.yaml")
		if err := os.WriteFile(path, []byte(s.file), 0o600); err != nil {
			t.Fatal(err)
		}
		search = append(search, path)
	}
	return Load(Input{Flags: flags, Environ: s.env, Defaults: s.defaults, Search: search})
}

func (s sources) mustLoad(t *testing.T) *Values {
	t.Helper()
	v, err := s.load(t)
	if err != nil {
		t.Fatalf("load %+v: %v", s, err)
	}
	return v
}

// The variable of the tokens has a former name, which client commands read, too.
func TestFormerVariableOfTokens(t *testing.T) {
	for _, c := range []struct {
		env    string // separated by spaces
		n      int
		source string
	}{
		{"ARCP_SERVER_TOKEN=a=b,c=d", 2, "environment ARCP_SERVER_TOKEN"},
		{"ARCP_TOKEN=a=b", 1, "environment ARCP_TOKEN"},
		{"ARCP_TOKEN=of-a-client", 0, "default"},
		{"ARCP_TOKEN=a=b ARCP_SERVER_TOKEN=a=b,c=d", 2, "environment ARCP_SERVER_TOKEN"},
		{"ARCP_SERVER_TOKEN=a=b,c=d ARCP_TOKEN=a=b", 2, "environment ARCP_SERVER_TOKEN"},
		{"ARCP_CONTEXT=prod ARCP_DIALECT=rfc ARCP_CA_FILE=ca.pem ARCP_URL=ws://h", 0, "default"},
	} {
		v := sources{env: strings.Fields(c.env)}.mustLoad(t)
		if got := v.Secrets("token"); len(got) != c.n || !strings.Contains(string(v.AppendJSON(nil)), `"source": "`+c.source+`"`) {
			t.Errorf("%s: %d tokens, want %d of %s", c.env, len(got), c.n, c.source)
		}
		if len(v.Warnings) > 0 {
			t.Errorf("%s: warnings %q", c.env, v.Warnings)
		}
	}
	_, err := sources{env: []string{"ARCP_TOKENS=a=b"}}.load(t)
	if err == nil || !strings.Contains(err.Error(), "did you mean ARCP_SERVER_TOKEN?") {
		t.Errorf("error %v", err)
	}
}

func TestFlagPrecedesEnvironmentAndFile(t *testing.T) {
	all := sources{
		args:     []string{"--path", "/flag"},
		env:      []string{"ARCP_PATH=/env"},
		file:     "path: /file\n",
		defaults: map[string]string{"path": "/command"},
	}
	want := func(why string, s sources, path string, from Source) {
		t.Helper()
		v := s.mustLoad(t)
		if got := v.Text("path"); got != path {
			t.Errorf("%s: path = %q, want %q", why, got, path)
		}
		if got := v.get("path").Source; got != from {
			t.Errorf("%s: source = %q, want %q", why, got, from)
		}
	}
	s := all
	want("a flag wins", s, "/flag", FromFlag)
	s.args = nil
	want("then the environment", s, "/env", FromEnv)
	s.env = nil
	want("then the file", s, "/file", FromFile)
	s.file = ""
	want("then the command's default", s, "/command", FromDefault)
	s.defaults = nil
	want("then the table's default", s, "/arcp", FromDefault)
}

func TestValuesHaveTheirKind(t *testing.T) {
	v := sources{
		args: []string{"--demo", "--max-frame=64KiB", "--allow-host", "a,b", "--allow-host", "c"},
		env:  []string{"ARCP_DRAIN=1m30s", "ARCP_ALLOW_ORIGIN=https://x.org, https://y.org", "ARCP_RATE=60"},
		file: "heartbeat: 0\nmax-jobs: 12\ntoken: [a=one, b=two]\nbehind-proxy: true\nresume-window: 10s\n",
	}.mustLoad(t)
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"demo", v.On("demo"), true},
		{"max-frame", v.Size("max-frame"), int64(64 << 10)},
		{"allow-host", fmt.Sprint(v.List("allow-host")), "[a,b c]"},
		{"drain", v.Duration("drain"), 90 * time.Second},
		{"allow-origin", fmt.Sprint(v.List("allow-origin")), "[https://x.org https://y.org]"},
		{"rate", v.Number("rate"), 60},
		{"heartbeat", v.Duration("heartbeat"), time.Duration(0)},
		{"max-jobs", v.Number("max-jobs"), 12},
		{"token", len(v.Secrets("token")), 2},
		{"behind-proxy", v.On("behind-proxy"), true},
		{"listen", v.Text("listen"), "127.0.0.1:7777"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}

// A refusal is one line that names the place, and never repeats a secret.
func TestRefusalsNameThePlace(t *testing.T) {
	for _, c := range []struct {
		name string
		sources
		want string
	}{
		{"unknown key", sources{file: "resume_windo: 5s\n"}, `unknown key "resume_windo"; did you mean "resume-window"?`},
		{"a mapping for a list", sources{file: "tools:\n  exec: [x]\n"},
			`tools: want a list, and not "exec" in it directly: begin each item with a dash`},
		{"a list below a name", sources{file: "serve:\n  rate: 5\n"}, `unknown key "serve.rate"; did you mean "rate", not below "serve"?`},
		{"a mapping for a value", sources{file: "rate:\n  per-min: 5\n"}, `rate: want a value, and not "per-min" below it`},
		{"like nothing", sources{file: "name: x\n"}, "unknown key \"name\"; `arcp config print` lists them"},
		{"nested key", sources{file: "tls:\n  cert: x\n"}, `unknown key "tls.cert"; did you mean "tls-cert"?`},
		{"not YAML", sources{file: "listen: [\n"}, "arcp.yaml:1:1: a value is missing: a list that begins with [ ends with ]"},
		{"variable with a slip", sources{env: []string{"ARCP_LISTENN=x"}}, "ARCP_LISTENN is not known; did you mean ARCP_LISTEN?"},
		{"bad duration in a flag", sources{args: []string{"--drain", "soon"}}, `--drain: "soon" is not a duration`},
		{"bad number in the environment", sources{env: []string{"ARCP_RATE=many"}}, `ARCP_RATE: "many" is not a whole number`},
		{"bad size in the file", sources{file: "max-frame: big\n"}, `arcp.yaml:1:12: max-frame: "big" is not a size`},
		{"negative number", sources{args: []string{"--max-jobs=-1"}}, `--max-jobs: "-1" is not a whole number`},
		{"negative duration", sources{args: []string{"--heartbeat=-1s"}}, `is not a duration`},
		{"bad switch", sources{env: []string{"ARCP_DEMO=perhaps"}}, `ARCP_DEMO: "perhaps" is neither true nor false`},
		{"bad choice", sources{args: []string{"--log-level", "loud"}}, `--log-level: "loud" is none of debug, info, warn, error`},
		{"group for a value", sources{file: "listen: [a, b]\n"}, "listen: one value is expected here"},
		{"group in a list", sources{file: "token: [{a: b}]\n"}, "token: a list of plain values is expected here"},
		{"later: store", sources{args: []string{"--store", "postgres"}}, "--store postgres is not supported by this version"},
		{"later: secret", sources{env: []string{"ARCP_POSTGRES=postgres://u:hunter2@h/d"}}, "ARCP_POSTGRES is not supported by this version"},
		{"no such file", sources{args: []string{"--config", "/nonexistent/arcp.yaml"}}, "/nonexistent/arcp.yaml: no such file"},
		{"no such file from the environment", sources{env: []string{"ARCP_CONFIG=/nonexistent/a.yaml"}}, "/nonexistent/a.yaml: no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.load(t)
			if err == nil {
				t.Fatalf("accepted, want an error with %q", c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %q, want it to have %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error = %q: it must be one line without the secret", err)
			}
		})
	}
}

// A setting of a later version accepts the value that turns it off.
func TestUnsupportedSettingsAcceptOff(t *testing.T) {
	sources{
		args: []string{"--store", "pebble", "--ack-window=0", "--retention", "24h0m0s", "--replay-bytes", "64MiB",
			"--min-free=0", "--postgres", ""},
		env:  []string{"ARCP_OTLP_ENDPOINT="},
		file: "store: pebble\n",
	}.mustLoad(t)
}

func TestForeignVariablesAreWarnedOf(t *testing.T) {
	v := sources{env: []string{"ARCP_URL=ws://x", "ARCP_PORT=tcp://10.0.0.1:7777", "ARCP_PORT_7777_TCP=x",
		"ARCP_SERVICE_HOST=10.0.0.1", "ARCP_SOMETHING_ELSE=1", "PATH=/bin"}}.mustLoad(t)
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "ARCP_SOMETHING_ELSE") {
		t.Errorf("warnings = %q, want one about ARCP_SOMETHING_ELSE", v.Warnings)
	}
}

func TestFilesAreSearchedInOrder(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "user"))
	write := func(path, content string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := func(why string, in Input, path string) {
		t.Helper()
		v, err := Load(in)
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		if got := v.Text("path"); got != path {
			t.Errorf("%s: path = %q, want %q", why, got, path)
		}
	}
	write(filepath.Join(dir, "user", "arcp", "arcp.yaml"), "path: /user\n")
	want("the user's directory", Input{}, "/user")
	write("arcp.yaml", "path: /here\n")
	want("the working directory comes before", Input{}, "/here")
	named := write(filepath.Join(dir, "named.yaml"), "path: /named\n")
	want("$ARCP_CONFIG comes before", Input{Environ: []string{"ARCP_CONFIG=" + named}}, "/named")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags, nil)
	if err := flags.Parse([]string{"--config", write(filepath.Join(dir, "flag.yaml"), "path: /flag\n")}); err != nil {
		t.Fatal(err)
	}
	want("--config comes first", Input{Flags: flags, Environ: []string{"ARCP_CONFIG=" + named}}, "/flag")
}

func TestChangedSeparatesReloads(t *testing.T) {
	before := sources{file: "log-level: info\nlisten: 127.0.0.1:1\n"}.mustLoad(t)
	after := sources{file: "log-level: debug\nlisten: 127.0.0.1:2\n"}.mustLoad(t)
	reloaded, restart := before.Changed(after)
	if fmt.Sprint(reloaded, restart) != "[log-level] [listen]" {
		t.Errorf("changed = %v %v, want [log-level] [listen]", reloaded, restart)
	}
}

func TestPrintHidesSecrets(t *testing.T) {
	v := sources{
		args: []string{"--token", "alice=hunter2", "--token", "hunter3==", "--listen", "0.0.0.0:80"},
		env:  []string{"ARCP_MAX_FRAME=1048576", "ARCP_DEMO=1", "ARCP_RUNTIME_ID=007"},
		file: "drain: 1h\nallow-host: [\"*.example.org\"]\npath: \"/a b\"\n",
	}.mustLoad(t)
	v.File = "arcp.yaml"
	golden(t, "print.yaml", v.AppendYAML(nil))
	golden(t, "print.json", v.AppendJSON(nil))
	if text := fmt.Sprintf("%v %+v %#v", v, v, v.entries); strings.Contains(text, "hunter") {
		t.Errorf("printing the values shows a secret: %s", text)
	}
}

// The printed settings can be read again as a configuration file.
func TestPrintRoundTrip(t *testing.T) {
	v := sources{args: []string{"--drain", "90s", "--allow-host", "x", "--max-frame", "1000"}}.mustLoad(t)
	again := sources{file: string(v.AppendYAML(nil))}.mustLoad(t)
	again.File = ""
	reloaded, restart := v.Changed(again)
	// An empty list is no list.
	if len(restart) > 0 || len(reloaded) > 0 {
		t.Errorf("changed by printing: %v %v", reloaded, restart)
	}
}

// docs/configuration.md is generated.
func TestDocumentation(t *testing.T) {
	golden(t, "../../../../../docs/configuration.md", AppendDocument(nil))
}

// The template has every setting, and also as settings it is a configuration.
func TestTemplate(t *testing.T) {
	template := string(AppendTemplate(nil, map[string]string{"data": "/var/lib/arcp"}))
	var used strings.Builder
	for line := range strings.Lines(template) {
		if len(line) > 110 {
			t.Errorf("a line is too long: %s", line)
		}
		used.WriteString(strings.TrimPrefix(line, "# "))
	}
	v := sources{file: template}.mustLoad(t)
	if n := v.CountSet(); n != 0 {
		t.Errorf("the template sets %d settings, want none", n)
	}
	v = sources{file: used.String(), defaults: map[string]string{"data": "/var/lib/arcp"}}.mustLoad(t)
	for i := range Table {
		if s := &Table[i]; !s.Later && s.Alias == "" && !v.IsSet(s.Name) {
			t.Errorf("the template does not have %s", s.Name)
		}
	}
	unchanged := sources{defaults: map[string]string{"data": "/var/lib/arcp"}}.mustLoad(t)
	reloaded, restart := unchanged.Changed(v)
	if fmt.Sprint(reloaded, restart) != "[tools workflows] [provisioners]" {
		t.Errorf("the template has other values than the defaults: %v %v", reloaded, restart)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (-update rewrites it):\n%s", path, got)
	}
}

func TestSizesAreParsed(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1000": 1000, "8MiB": 8 << 20, "64KiB": 64 << 10, "1.5GB": 15e8,
		"2 kB": 2000, "3B": 3, "1TiB": 1 << 40} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "8Mib", "1e400", "NaN", "9999999TiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestTableIsConsistent(t *testing.T) {
	if n, err := ParseSize(Lookup("max-frame").Default); err != nil || n != runtime.DefaultMaxFrame {
		t.Errorf("default of max-frame = %d, %v, want the runtime's", n, err)
	}
	seen := map[string]bool{}
	for i := range Table {
		s := &Table[i]
		if seen[s.Name] {
			t.Errorf("%s is listed twice", s.Name)
		}
		seen[s.Name] = true
		if s.Help == "" && !s.Later {
			t.Errorf("%s has no help", s.Name)
		}
		if _, err := s.parse(s.Default); err != nil {
			t.Errorf("default of %s: %v", s.Name, err)
		}
		for _, text := range s.Accept {
			if _, err := s.parse(text); err != nil {
				t.Errorf("accepted value %q of %s: %v", text, s.Name, err)
			}
		}
		if byEnv(s.Env(), "") != s {
			t.Errorf("%s is not the variable of %s alone", s.Env(), s.Name)
		}
	}
}
