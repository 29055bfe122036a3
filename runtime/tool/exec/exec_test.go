//go:build linux

package exec

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

func TestArgumentsAndResult(t *testing.T) {
	job := newJob()
	out, err := call(t, boundedContext(t), script(t, `echo reading >&2; cat; printf ' \n\n'`), job, `{"n": 12345678901234567890, "s": "ü"}`)
	if err != nil || string(out) != `{"n":12345678901234567890,"s":"ü"}` {
		t.Errorf("result = %s, %v", out, err)
	}
	if got := job.messages(); !slices.Equal(got, []string{"reading"}) {
		t.Errorf("logged %q", got)
	}
}

// A command inherits only the variables listed in Config.Env.
func TestEnvironmentHasOnlyListedVariables(t *testing.T) {
	t.Setenv("EXEC_TEST_SECRET", "hunter2")
	t.Setenv("EXEC_TEST_GIVEN", "a b")
	t.Setenv("ARCP_JOB_ID", "of another server's job")
	job := newJob()
	made := script(t, `cat /proc/$$/environ | tr '\0' '\n' | grep -c ARCP_JOB_ID >&2; env -u PWD -u SHLVL -u _ -u OLDPWD | sort | tr '\n' '|' | sed 's/.*/"&"/'`, func(c *Config) {
		c.Env = []string{"EXEC_TEST_GIVEN", "EXEC_TEST_UNSET", "PATH", "ARCP_JOB_ID"}
	})
	out, err := call(t, boundedContext(t), made, job, `{}`)
	want := `"` + marker(job.id) + "|EXEC_TEST_GIVEN=a b|PATH=" + os.Getenv("PATH") + `|"`
	if err != nil || string(out) != want || !slices.Equal(job.messages(), []string{"1"}) {
		t.Errorf("environment = %s, %v, with %q of the job's id\nwant %s", out, err, job.messages(), want)
	}
}

// A command has the trace context of its job, not of the server. A trace id that is not of a W3C trace
// context leaves the variable as it is.
func TestCommandHasTheTraceContextOfItsJob(t *testing.T) {
	t.Setenv("TRACEPARENT", "of the server")
	for trace, want := range map[string]string{
		"4bf92f3577b34da6a3ce929d0e0e4736": `"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`,
		"trace_789":                        `"of the server"`,
	} {
		job := newJob()
		job.trace = trace
		made := script(t, `env | grep ^TRACEPARENT= | sed 's/TRACEPARENT=\(.*\)/"\1"/'`, func(c *Config) { c.Env = []string{"TRACEPARENT"} })
		out, err := call(t, boundedContext(t), made, job, `{}`)
		if err != nil || string(out) != want {
			t.Errorf("trace %s: TRACEPARENT = %s, %v, want %s", trace, out, err, want)
		}
	}
}

// Check and Start refuse a variable whose value is not UTF-8. The error does not contain the
// value.
func TestEnvironmentRefusesInvalidUTF8(t *testing.T) {
	t.Setenv("EXEC_TEST_BYTES", "secret\xff\xfe")
	c := Config{Command: []string{"sh"}, Env: []string{"EXEC_TEST_BYTES"}}
	if err := Check(&c); err == nil || !strings.Contains(err.Error(), "the value of EXEC_TEST_BYTES is not UTF-8") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want it refused without its value", err)
	}
	_, err := Start(Program{Command: []string{"sh"}, Env: []string{"EXEC_TEST_BYTES"}})
	if err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("%v, want a program refused, too", err)
	}
}

// A variable that is listed twice is set once: programs differ in which of two they use.
func TestEnvironmentHasAVariableOnce(t *testing.T) {
	t.Setenv("EXEC_TEST_DEPTH", "of the server")
	p, err := Start(Program{Command: []string{"env"}, Env: []string{"EXEC_TEST_DEPTH", "EXEC_TEST_DEPTH"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	defer p.Stdin.Close()
	defer p.Stdout.Close()
	out, err := io.ReadAll(p.Stdout)
	if got := strings.Count(string(out), "EXEC_TEST_DEPTH="); err != nil || got != 1 || !strings.Contains(string(out), "EXEC_TEST_DEPTH=of the server\n") {
		t.Errorf("environment = %s, %v", out, err)
	}
}

func TestCommandHasItsDirectory(t *testing.T) {
	t.Run("its own", func(t *testing.T) {
		made := script(t, `mkdir -p a/b; echo x > a/b/c; chmod 0 a; ls -A | wc -l >&2; printf '"%s"' "$PWD"`)
		job := newJob()
		first, err := call(t, boundedContext(t), made, job, `{}`)
		if err != nil {
			t.Fatal(err)
		}
		second, err := call(t, boundedContext(t), made, job, `{}`)
		if err != nil || string(first) == string(second) {
			t.Errorf("two calls ran in %s and %s, %v", first, second, err)
		}
		if got := job.messages(); !slices.Equal(got, []string{"1", "1"}) {
			t.Errorf("files there: %q, want each call to begin with none", got)
		}
	})
	t.Run("configured", func(t *testing.T) {
		dir := t.TempDir()
		made := script(t, `pwd > here; echo null`, func(c *Config) { c.Dir = dir })
		if _, err := call(t, boundedContext(t), made, newJob(), `{}`); err != nil {
			t.Fatal(err)
		}
		if here, err := os.ReadFile(filepath.Join(dir, "here")); err != nil || strings.TrimSpace(string(here)) != dir {
			t.Errorf("the command ran in %q, %v, want %s", here, err, dir)
		}
	})
}

// A command without a directory of its own needs a runtime that leases directories.
func TestCommandsSayThatTheyLeaseDirectories(t *testing.T) {
	for dir, want := range map[string]bool{"": true, os.TempDir(): false} {
		made, err := New(Config{Capability: tool.Capability{Name: "x"}, Command: []string{os.Args[0]}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if made.NeedsDirs != want {
			t.Errorf("a command with the directory %q needs directories: %t, want %t", dir, made.NeedsDirs, want)
		}
	}
}

func TestFailuresHaveCodes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, c := range map[string]struct {
		script string
		code   arcp.Code
		text   string
		detail string
	}{
		"exit 3":             {`echo '{}'; echo why >&2; exit 3`, arcp.CodeUnknown, "exit status 3", `{"exit_status":3,"stderr":"why"}`},
		"nothing":            {`exit 0`, arcp.CodeUnknown, "wrote nothing to standard output: want one JSON value; for a command that prints text or nothing set output: text", `{"exit_status":0,"stderr":""}`},
		"only space":         {`printf ' \n'`, arcp.CodeUnknown, "wrote nothing", ""},
		"not JSON":           {`echo hello world`, arcp.CodeUnknown, `not one JSON value: it begins with "hello world\n"; for a command that prints text set output: text`, ""},
		"half of it":         {`printf '{"a":'`, arcp.CodeUnknown, `begins with "{\"a\":"`, ""},
		"two values":         {`echo '{}'; echo '[]'`, arcp.CodeUnknown, `begins with "{}\n[]\n"`, ""},
		"trailing garbage":   {`echo '{"a":1} done'`, arcp.CodeUnknown, "not one JSON value", ""},
		"a member twice":     {`echo '{"a":1,"a":2}'`, arcp.CodeUnknown, "not one JSON value", ""},
		"bytes that are not": {`printf '"\377"'`, arcp.CodeUnknown, `begins with "\"\xff\""`, ""},
		"a signal":           {`kill -SEGV $$`, arcp.CodeUnknown, "ended by SIGSEGV", `{"signal":"SIGSEGV","stderr":""}`},
		"too much":           {`head -c 2000000 /dev/zero`, arcp.CodeResourceExhausted, "more than 1048576 bytes, the tool's limit (limits.max_response_bytes)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			_, err := call(t, boundedContext(t), script(t, c.script), job, `{}`)
			wantCode(t, err, c.code, c.text)
			loggable, ok := errors.AsType[*tool.LoggableError](job.failure)
			if ok != (err != nil) {
				t.Errorf("the job heard %v of the error %v, want a text for the log with each error", job.failure, err)
			}
			if ok && (strings.Contains(loggable.LogText(), "begins with") || strings.Contains(loggable.LogText(), "hello")) {
				t.Errorf("the log may have %q, which repeats the output", loggable.LogText())
			}
			if err != nil && c.detail != "" && string(err.Details) != c.detail {
				t.Errorf("details = %s, want %s", err.Details, c.detail)
			}
			if err != nil && err.Retryable {
				t.Errorf("%v is retryable", err)
			}
		})
	}
}

// With OutputText the result is the standard output as a string, without one line break at its end.
func TestTextOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	asText := func(c *Config) { c.Output = OutputText }
	for name, c := range map[string]struct{ script, want string }{
		"a line":            {`echo hello world`, `"hello world"`},
		"one break of two":  {`printf 'a\n\n'`, `"a\n"`},
		"CRLF":              {`printf 'a\r\nb\r\n'`, `"a\r\nb"`},
		"only a CR":         {`printf 'a\r'`, `"a\r"`},
		"nothing":           {`exit 0`, `""`},
		"only a line break": {`echo`, `""`},
		"JSON":              {`echo '{"a":1}'`, `"{\"a\":1}"`},
		"control bytes":     {`printf 'a\000\033b'`, `"a\u0000\u001bb"`},
		"more than ASCII":   {`printf 'ü\357\277\275\n'`, "\"ü\uFFFD\""},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := call(t, boundedContext(t), script(t, c.script, asText), newJob(), `{}`)
			if err != nil || string(out) != c.want {
				t.Errorf("result = %s, %v, want %s", out, err, c.want)
			}
		})
	}
	_, err := call(t, boundedContext(t), script(t, `printf 'ab\377'`, asText), newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnknown, "not UTF-8: byte 2 is 0xFF")
	_, err = call(t, boundedContext(t), script(t, `printf 'ab\303'`, asText), newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnknown, "not UTF-8: byte 2 is 0xC3")
	_, err = call(t, boundedContext(t), script(t, `echo no; exit 3`, asText), newJob(), `{}`)
	wantCode(t, err, arcp.CodeUnknown, "exit status 3")
	_, err = call(t, boundedContext(t), script(t, `head -c 2000000 /dev/zero`, asText), newJob(), `{}`)
	wantCode(t, err, arcp.CodeResourceExhausted, "(limits.max_response_bytes)")
	_, err = call(t, boundedContext(t), script(t, `head -c 1000000 /dev/zero`, asText), newJob(), `{}`)
	wantCode(t, err, arcp.CodeResourceExhausted, "the result has 6000002 bytes") // as JSON it is larger
}

func TestOutputContradictions(t *testing.T) {
	for want, c := range map[string]Config{
		"with stream: stdout the standard output is a stream": {Output: OutputText, Stream: StreamStdout},
		"remove output or stream":                             {Output: OutputJSON, Stream: StreamStdout},
		"the result is a string, which output_schema refuses": {Output: OutputText, Capability: tool.Capability{OutputSchema: arcp.Raw(`{"type":["object","null"]}`)}},
	} {
		c.Command = []string{"sh"}
		if err := Check(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	for _, schema := range []string{``, `true`, `{"maxLength":5}`, `{"type":"string"}`, `{"type":["null","string"]}`} {
		c := Config{Command: []string{"sh"}, Output: OutputText, Capability: tool.Capability{OutputSchema: arcp.Raw(schema)}}
		if err := Check(&c); err != nil {
			t.Errorf("output_schema %s: %v, want it accepted", schema, err)
		}
	}
}

// A command has a minute unless its limit says otherwise.
func TestTimeoutOfACommand(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: time.Minute, -1: -1, time.Second: time.Second} {
		made, err := New(Config{Capability: tool.Capability{Name: "x", Limits: tool.Limits{Timeout: limit}}, Command: []string{"sh"}})
		if err != nil || made.Limits.Timeout != want {
			t.Errorf("limit %s: %v, want %s", limit, err, want)
		}
	}
}

func TestBoundsAreEnforced(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, c := range map[string]struct {
		bounds Bounds
		script string
		want   string
	}{
		"all at once": {Bounds{CPUSeconds: 7, Memory: 64 << 20, Files: 33, Processes: 4242, FileSize: 512 << 10},
			`printf '"%s %s %s %s"' $(ulimit -t) $(ulimit -v) $(ulimit -n) $(ulimit -f)`, `"7 65536 33 1024"`},
		"a little memory": {Bounds{Memory: 16 << 20}, `echo 1`, `1`},
		"a file":          {Bounds{FileSize: 1024}, `head -c 4096 /dev/zero > big || printf '"%s"' $(wc -c < big)`, `"1024"`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := call(t, boundedContext(t), script(t, c.script, within(c.bounds)), newJob(), `{}`)
			if err != nil || string(out) != c.want {
				t.Errorf("result = %s, %v, want %s", out, err, c.want)
			}
		})
	}
	t.Run("processor time", func(t *testing.T) {
		_, err := call(t, boundedContext(t), script(t, `while :; do :; done`, within(Bounds{CPUSeconds: 1})), newJob(), `{}`)
		wantCode(t, err, arcp.CodeUnknown, "ended by SIGXCPU: it took more than limits.cpu_seconds")
	})
}

func TestRunReportsStartErrors(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no such path": {Config{Command: []string{"/nonexistent/x"}}, "name a program that is there"},
		"not in PATH":  {Config{Command: []string{"no-such-program-here"}}, "name a program that is there"},
		"a directory":  {Config{Command: []string{"/usr"}}, "name a program that is there"},
	} {
		c.config.Name = "x"
		if err := Check(&c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
	t.Run("no bwrap", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		c := Config{Command: []string{"/bin/sh"}, Sandbox: SandboxBwrap}
		if err := Check(&c); err == nil || !strings.Contains(err.Error(), "install bubblewrap") {
			t.Errorf("%v, want to be told to install it", err)
		}
	})
	for name, b := range map[string]Bounds{"plainly": {}, "with bounds": {Files: 50}} {
		t.Run("not a program, "+name, func(t *testing.T) {
			made := script(t, "", within(b), func(c *Config) {
				if err := os.WriteFile(c.Command[0], []byte("\x00"), 0o700); err != nil {
					t.Fatal(err)
				}
			})
			_, err := call(t, boundedContext(t), made, newJob(), `{}`)
			wantCode(t, err, arcp.CodeUnavailable, "cannot be started: start")
			wantCode(t, err, arcp.CodeUnavailable, "exec format error")
		})
	}
}

// A call whose context has ended starts no command.
func TestCancelledCallStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(arcp.Errorf(arcp.CodeCancelled, "never mind"))
	mark := filepath.Join(t.TempDir(), "mark")
	_, err := call(t, ctx, script(t, "touch "+mark+"; echo 1"), newJob(), `{}`)
	wantCode(t, err, arcp.CodeCancelled, "never mind")
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command was started, want no start")
	}
}

func TestSourcePublishesItsCommands(t *testing.T) {
	s := NewSource([]Config{
		{Capability: tool.Capability{Name: "a"}, Command: []string{"sh"}},
		{Capability: tool.Capability{Name: "b", Version: "2"}, Command: []string{"sh"}},
	})
	var refs []string
	err := s.Start(t.Context(), func(tools []*tool.Tool) error {
		for _, made := range tools {
			refs = append(refs, made.Ref()+" "+string(made.Source)+" "+string(made.SideEffect))
		}
		return nil
	})
	s.Close()
	if want := []string{"a@1.0.0 exec external_system", "b@2 exec external_system"}; err != nil || !slices.Equal(refs, want) {
		t.Errorf("published %q, %v, want %q", refs, err, want)
	}
}
