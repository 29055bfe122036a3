//go:build linux

package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/interop"
	"github.com/arcpd/arcpd/runtime/tool"
)

// sandboxedScript returns a script in a sandbox. The test is skipped without bubblewrap.
func sandboxedScript(t *testing.T, text string, with ...func(*Config)) func() (string, *arcp.Error, *fakeJob) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	interop.Needs(t, "bwrap")
	if err := Check(&Config{Command: []string{"/bin/sh"}, Sandbox: SandboxBwrap}); err != nil {
		interop.Unable(t, "bwrap may not be used here: %v", err)
	}
	made := script(t, text, append(with, func(c *Config) { c.Sandbox = SandboxBwrap })...)
	return func() (string, *arcp.Error, *fakeJob) {
		job := newJob()
		ctx := boundedContext(t)
		if strings.Contains(text, "ready") {
			ctx = until(t, job)
		}
		out, err := call(t, ctx, made, job, `{"a": 1}`)
		return string(out), err, job
	}
}

func TestSandboxHidesSecrets(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("k"), 0o644); err != nil {
		t.Fatal(err)
	}
	hide := func(c *Config) { c.Hide = []string{secret, "/etc/hostname", "/nonexistent"} }
	for name, c := range map[string]struct{ script, want string }{
		"arguments and result":  {`cat`, `{"a":1}`},
		"its own directory":     {`echo x > y && printf '"%s"' "$(cat y)"`, `"x"`},
		"reads the file system": {`test -e /etc/passwd && echo 1`, `1`},
		"writes nothing else":   {`echo x 2>/dev/null > /etc/arcp-test || echo 1`, `1`},
		"an empty /run":         {`ls /run | grep -v systemd | wc -l`, `0`},
		"hidden directories":    {`ls ` + secret + ` 2>/dev/null | wc -l`, `0`},
		"hidden files":          {`cat /etc/hostname 2>/dev/null | wc -c`, `0`},
		"few processes":         {`ls -d /proc/[0-9]* | wc -l > n; test $(cat n) -lt 8 && echo 1`, `1`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err, _ := sandboxedScript(t, c.script, hide)()
			if err != nil || out != c.want {
				t.Errorf("result = %s, %v, want %s", out, err, c.want)
			}
		})
	}
	t.Run("within bounds", func(t *testing.T) {
		out, err, _ := sandboxedScript(t, `ulimit -n`, within(Bounds{Files: 44}))()
		if err != nil || out != "44" {
			t.Errorf("result = %s, %v", out, err)
		}
	})
	t.Run("exit status", func(t *testing.T) {
		_, err, _ := sandboxedScript(t, `exit 3`)()
		wantCode(t, err, arcp.CodeUnknown, "exit status 3")
	})
	t.Run("may clear up", func(t *testing.T) {
		withLongGrace(t)
		_, err, job := sandboxedScript(t, `trap 'echo clearing up >&2; exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done`)()
		wantCode(t, err, arcp.CodeCancelled, "enough")
		if got := strings.Join(job.messages(), ", "); !strings.HasSuffix(got, "clearing up") {
			t.Errorf("logged %q", got)
		}
	})
	for name, text := range map[string]string{
		"daemon, signals ignored": `(env -i setsid sh -c 'trap "" TERM HUP; echo ready >&2; while :; do sleep 1000; done; '$0 &) ; sleep 1000`,
		"kills all it can see":    `trap '' TERM; echo ready >&2; kill -KILL -1; sleep 1000; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err, _ := sandboxedScript(t, text)()
			wantCode(t, err, arcp.CodeCancelled, "enough")
		})
	}
}

// A hidden file inside a hidden directory does not reveal the names in that directory.
func TestSandboxHidesFileInHiddenDirectory(t *testing.T) {
	dir, key := secretFile(t)
	write(t, filepath.Join(dir, "other-key"), "hunter2")
	out, err, _ := sandboxedScript(t, `ls -R `+filepath.Dir(dir)+` | grep -c key || true`, func(c *Config) {
		c.Dir, c.Hide = filepath.Dir(filepath.Dir(dir)), []string{key, filepath.Dir(dir)}
	})()
	if err != nil || out != "0" {
		t.Errorf("the names seen: %s, %v", out, err)
	}
}

// secretFile is a secret in a directory.
func secretFile(t *testing.T) (dir, key string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key = filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, key
}

// A command that runs as root cannot unmount the file that covers a hidden one, nor write to a
// read-only mount.
func TestSandboxRestrictsRoot(t *testing.T) {
	const key = "/etc/passwd" // not in /tmp, which is empty underneath, too
	open := t.TempDir()
	hide := func(c *Config) { c.Hide = []string{key} }
	for name, text := range map[string]string{
		"umount":      `umount ` + key + ` >&2; umount -l ` + key + ` >&2`,
		"in a new ns": `unshare -Urm sh -c 'umount -l ` + key + `; cat ` + key + `' >&2`,
		"remount":     `mount -o remount,rw / >&2; mount -o remount,rw,bind / >&2; echo x > ` + open + `/mark; echo x > /arcp-sandbox-mark`,
		"mknod":       `mknod here b 8 0 >&2 && echo made >&2`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err, job := sandboxedScript(t, text+`; cat `+key+` >&2; printf '"%s"' "$(cat `+key+`)"`, hide)()
			if said := strings.Join(job.messages(), "\n"); err != nil || out != `""` || strings.Contains(said, "root:") || strings.Contains(said, "made") {
				t.Errorf("result = %s, %v; it said %s", out, err, said)
			}
			for _, mark := range []string{open + "/mark", "/arcp-sandbox-mark"} {
				if os.Remove(mark) == nil {
					t.Errorf("the sandboxed command wrote %s, want a read-only file system", mark)
				}
			}
		})
	}
}

// A hidden path below the working directory stays hidden. Check refuses a hidden directory as
// the working directory.
func TestSandboxHidesBelowWorkingDirectory(t *testing.T) {
	dir, key := secretFile(t)
	text := `echo x > mark; cat ` + key + ` 2>/dev/null | wc -c`
	for _, hide := range []string{dir, key} {
		out, err, _ := sandboxedScript(t, text, func(c *Config) { c.Dir, c.Hide = filepath.Dir(dir), []string{hide} })()
		if _, statErr := os.Stat(filepath.Dir(dir) + "/mark"); err != nil || out != "0" || statErr != nil {
			t.Errorf("with %s hidden: %s bytes of the secret, %v, %v", hide, out, err, statErr)
		}
	}
	for _, in := range []string{dir, dir + "/.."} {
		err := Check(&Config{Command: []string{"sh"}, Sandbox: SandboxBwrap, Dir: in, Hide: []string{dir}})
		if refused := err != nil && strings.Contains(err.Error(), "give another directory"); refused != (in == dir) {
			t.Errorf("Check with dir %s: %v", in, err)
		}
	}
}

// A hidden file that is replaced while the command runs stays hidden; the files beside it can
// be read. Programs replace a file by a rename, or by changing the link to its directory.
func TestSandboxHidesReplacedFile(t *testing.T) {
	for name, layout := range map[string]func(t *testing.T, dir string) (key string, replace func() error){
		"a file": func(t *testing.T, dir string) (string, func() error) {
			key := filepath.Join(dir, "key")
			write(t, key, "old")
			return key, func() error {
				write(t, key+".new", "hunter2")
				return os.Rename(key+".new", key)
			}
		},
		"a directory behind a link": func(t *testing.T, dir string) (string, func() error) {
			if err := os.Mkdir(filepath.Join(dir, "..1"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "..1", "key"), "old")
			for link, to := range map[string]string{"..data": "..1", "key": "..data/key"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			return filepath.Join(dir, "key"), func() error {
				if err := os.Mkdir(filepath.Join(dir, "..2"), 0o755); err != nil {
					return err
				}
				write(t, filepath.Join(dir, "..2", "key"), "hunter2")
				if err := os.Symlink("..2", filepath.Join(dir, "..new")); err != nil {
					return err
				}
				return os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "conf")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			key, replace := layout(t, dir)
			write(t, filepath.Join(dir, "beside"), "b")
			run := sandboxedScript(t, `: > begun; until test -e go; do sleep 0.01; done; printf '"%s"' "$(cat `+dir+`/key `+dir+`/*/key `+dir+`/..*/key `+dir+`/beside 2>/dev/null)"`,
				func(c *Config) { c.Dir, c.Hide = top, []string{key} })
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					if _, err := os.Stat(filepath.Join(top, "begun")); err == nil || t.Context().Err() != nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if err := replace(); err != nil {
					t.Error(err)
				}
				write(t, filepath.Join(top, "go"), "")
			}()
			out, err, _ := run()
			<-ended
			if err != nil || out != `"b"` {
				t.Errorf("the command reads %s, %v; want what is beside the secret and nothing else", out, err)
			}
		})
	}
}

// write writes a file; it may be called by any goroutine.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// A hidden file in a directory with too many entries is refused. A hidden file in the working
// directory is accepted with a warning: it stays hidden only while it stays in its place.
func TestSandboxWarnsOfSecrets(t *testing.T) {
	dir, key := secretFile(t)
	out, err, _ := sandboxedScript(t, `echo x > made; cat key | wc -c`, func(c *Config) { c.Dir, c.Hide = dir, []string{key} })()
	if _, made := os.Stat(filepath.Join(dir, "made")); err != nil || out != "0" || made != nil {
		t.Errorf("%s bytes of the secret, %v; the command's file: %v", out, err, made)
	}
	var log strings.Builder
	c := Config{Command: []string{"sh"}, Sandbox: SandboxBwrap, Dir: dir, Hide: []string{key}, Log: zerolog.New(&log)}
	if err := Check(&c); err != nil || !strings.Contains(log.String(), "give the command another directory") {
		t.Errorf("Check: %v; it logs %s", err, log.String())
	}
	for i := range maxBeside {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	if _, err := coversOf([]string{key}, "/elsewhere"); err == nil || !strings.Contains(err.Error(), "a directory of its own") {
		t.Errorf("a secret in a directory with very many entries: %v", err)
	}
}

// The sandbox resolves symbolic links of the command and of hidden paths.
func TestSandboxFollowsLinks(t *testing.T) {
	dir, key := secretFile(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	out, err, _ := sandboxedScript(t, `cat `+key+` 2>/dev/null | wc -c`, func(c *Config) {
		program := c.Command[0]
		c.Command[0] = filepath.Join(t.TempDir(), "program")
		c.Hide, c.Dir = []string{link}, filepath.Dir(dir)
		if err := os.Symlink(program, c.Command[0]); err != nil {
			t.Fatal(err)
		}
	})()
	if err != nil || out != "0" {
		t.Errorf("result = %s, %v", out, err)
	}
	interop.Needs(t, "awk") // often a link to an absolute path
	c := Config{Capability: tool.Capability{Name: "awk"}, Command: []string{"awk", "BEGIN {print 1}"}, Sandbox: SandboxBwrap, Hide: []string{"/var/run/utmp"}}
	if err := Check(&c); err != nil {
		t.Fatal(err)
	}
	made, newErr := New(c)
	if newErr != nil {
		t.Fatal(newErr)
	}
	if out, err := call(t, boundedContext(t), made, newJob(), `{}`); err != nil || string(out) != "1" {
		t.Errorf("awk: %s, %v", out, err)
	}
}
