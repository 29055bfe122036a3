package transport_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
	"github.com/arcpd/arcpd/transport/transporttest"
)

func dialUnix(t *testing.T, l transport.Limits) (server, client transport.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sock")
	u, err := transport.ListenUnix(path, l)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if client, err = transport.DialUnix(t.Context(), path, l); err != nil {
		t.Fatal(err)
	}
	if server, err = u.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

func TestUnixIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	transporttest.Run(t, dialUnix)
}

func listenUnix(t *testing.T, path string) *transport.UnixListener {
	t.Helper()
	u, err := transport.ListenUnix(path, transport.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func TestUnixSocketIsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sock")
	u := listenUnix(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), fs.ModeSocket|0o600; got != want {
		t.Errorf("mode = %v, want %v", got, want)
	}
	if got := u.Addr(); got != path {
		t.Errorf("Addr() = %q, want %q", got, path)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the directory has %v, want the socket alone", left)
	}
	if err := u.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the socket is there: %v", err)
	}
	if _, err := u.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after Close = %v, want net.ErrClosed", err)
	}
}

func TestUnixReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	listenUnix(t, path)
	c, err := transport.DialUnix(t.Context(), path, transport.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
}

func TestUnixRefusesExistingFile(t *testing.T) {
	dir := t.TempDir()
	live := filepath.Join(dir, "live")
	listenUnix(t, live)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		live:                               "another process listens",
		file:                               "not a socket",
		filepath.Join(dir, "none", "sock"): "no such file",
	} {
		_, err := transport.ListenUnix(path, transport.Limits{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "listen on "+path) {
			t.Errorf("ListenUnix(%s) = %v, want … %s", filepath.Base(path), err, want)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

// The socket of a later listener is not removed by an earlier one.
func TestUnixCloseLeavesSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	u := listenUnix(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listenUnix(t, path)
	if err := u.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	}
}

func TestUnixHalfCloses(t *testing.T) {
	transporttest.RunHalf(t, func(t *testing.T) (transport.Conn, transporttest.Peer) {
		path := filepath.Join(t.TempDir(), "sock")
		u := listenUnix(t, path)
		peer, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := u.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn, peer
	})
}
