package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const deployDir = "../../deploy"

// unit returns the values of a key in a unit, with the specifiers of systemd replaced.
func unit(t *testing.T, name, key string, specifiers *strings.Replacer) (values []string) {
	t.Helper()
	for line := range strings.Lines(readFile(t, filepath.Join(deployDir, name))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			values = append(values, specifiers.Replace(value))
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no %s", name, key)
	}
	return values
}

// manager is the socket of a service manager.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func listenNotify(t *testing.T) (m *manager, env string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{t, conn}, "NOTIFY_SOCKET=" + path
}

// wants waits for the next message and checks how it begins.
func (m *manager) wants(why, begin string) {
	m.t.Helper()
	buf := make([]byte, 4096)
	_ = m.conn.SetReadDeadline(time.Now().Add(patience)) // a read reports a closed socket
	n, err := m.conn.Read(buf)
	if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, begin) {
		m.t.Fatalf("%s: the service manager was sent %q, %v, want %q", why, got, err, begin)
	}
}

// The units start a server with the sample files, which tells systemd its states, and back it up.
func TestUnitsRunTheServer(t *testing.T) {
	t.Parallel()
	state, credentials := t.TempDir(), t.TempDir()
	specifiers := strings.NewReplacer("%S", state, "%d", credentials, "/etc/arcp/", deployDir+"/")
	for _, name := range unit(t, "arcp.service", "StateDirectory", specifiers) {
		for dir := range strings.FieldsSeq(name) {
			if err := os.Mkdir(filepath.Join(state, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range unit(t, "arcp.service", "LoadCredential", specifiers) {
		name, from, _ := strings.Cut(c, ":")
		write(t, filepath.Join(credentials, name), readFile(t, from))
	}
	m, socket := listenNotify(t)
	env := append(unit(t, "arcp.service", "Environment", specifiers), socket, "ARCP_LISTEN=127.0.0.1:0", "ARCP_ADMIN=127.0.0.1:0")
	args := strings.Fields(unit(t, "arcp.service", "ExecStart", specifiers)[0])[1:] // after the program
	config, err := filepath.Abs(args[len(args)-1])
	if err != nil {
		t.Fatal(err)
	}
	p := listening(start(t, env, append(args[:len(args)-1], config)...))
	m.wants("the server accepts connections", "READY=1")
	p.signal(syscall.SIGHUP)
	m.wants("a reload begins", "RELOADING=1\nMONOTONIC_USEC=")
	m.wants("the reload has ended", "READY=1")

	backup := strings.Fields(unit(t, "arcp-backup.service", "ExecStart", specifiers)[0])[1:]
	wantOutcome(t, "the backup", cli(t, append(backup, "--admin", p.admin)...), exitOK, "0 jobs", "")
	if list := namesIn(t, filepath.Join(state, "arcp-backups")); len(list) != 1 || strings.HasSuffix(list[0], partial) {
		t.Errorf("the directory of backups has %q, want one copy", list)
	}
	p.signal(syscall.SIGTERM)
	m.wants("the server stops", "STOPPING=1")
	if code := p.wait(); code != exitOK || strings.Contains(p.errs.String(), `"level":"warn"`) {
		t.Errorf("exit code = %d, want 0 and no warnings; log:\n%s", code, p.errs)
	}
}

// A server whose service manager is gone serves on, and logs it.
func TestServeWithoutItsServiceManager(t *testing.T) {
	t.Parallel()
	env := []string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "none")}
	p := listening(start(t, env, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", ":memory:", "--token", "alice=secret"))
	wantOutcome(t, "a client", p.cli("jobs", "ls"), exitOK, "", "")
	until(t, "log: the failure", func() bool { return strings.Contains(p.errs.String(), "the service manager was not notified") })
}

// The files for TLS are read where the drop-in says.
func TestUnitForTLS(t *testing.T) {
	t.Parallel()
	credentials := t.TempDir()
	cert, key := makeCertificate(t, t.TempDir(), "one", 1)
	specifiers := strings.NewReplacer("%d", credentials, "0.0.0.0:7777", "127.0.0.1:0", "/etc/arcp/tls.crt", cert, "/etc/arcp/tls.key", key)
	const dropIn = "arcp.service.d/tls.conf"
	for _, c := range unit(t, dropIn, "LoadCredential", specifiers) {
		name, from, _ := strings.Cut(c, ":")
		write(t, filepath.Join(credentials, name), readFile(t, from))
	}
	env := append(unit(t, dropIn, "Environment", specifiers), "ARCP_ADMIN=127.0.0.1:0")
	p := listening(start(t, env, "serve", "--data", ":memory:", "--token", "alice=secret"))
	if !strings.HasPrefix(p.url, "wss://") {
		t.Errorf("url = %s, want TLS", p.url)
	}
}

// systemd has nothing to say about the units.
func TestUnitsAreValid(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, name := range []string{"arcp.service", "arcp.service.d/tls.conf", "arcp-backup.service", "arcp-backup.timer"} {
		text := strings.ReplaceAll(readFile(t, filepath.Join(deployDir, name)), "ExecStart=arcp ", "ExecStart="+program+" ")
		path := write(t, filepath.Join(dir, name), text)
		if !strings.HasSuffix(name, ".conf") {
			args = append(args, path)
		}
	}
	cmd := exec.Command(analyze, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
