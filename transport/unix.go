package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// UnixListener accepts connections of one frame a line on a Unix socket.
type UnixListener struct {
	l      *net.UnixListener
	path   string
	file   fs.FileInfo // the socket that is ours
	limits Limits
}

// ListenUnix listens at path. Only the owner can reach the socket, from the first moment on. A
// stale socket at path is replaced. The socket of a running process, and any other file, is an
// error.
func ListenUnix(path string, l Limits) (*UnixListener, error) {
	if err := checkStale(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	u, err := bindPrivately(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	u.limits = l
	return u, nil
}

// checkStale returns an error unless path is free or is a socket without a listener.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("the file exists and is not a socket")
	}
	conn, err := net.Dial("unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = conn.Close() // it was only a question
	return errors.New("another process is listening there")
}

// bindPrivately makes the socket in a directory that only the owner can enter, and moves it to
// path when its mode is set.
func bindPrivately(path string) (*UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	born := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: born, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	u := &UnixListener{l: l, path: path}
	if err := u.moveIn(born); err != nil {
		return nil, errors.Join(err, l.Close(), os.RemoveAll(dir))
	}
	return u, nil
}

func (u *UnixListener) moveIn(born string) (err error) {
	if err := os.Chmod(born, 0o600); err != nil {
		return err
	}
	if u.file, err = os.Lstat(born); err != nil {
		return err
	}
	return os.Rename(born, u.path)
}

// Accept waits for the next connection. After Close it fails with an error
// that wraps net.ErrClosed.
func (u *UnixListener) Accept() (Conn, error) {
	conn, err := u.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("accept on %s: %w", u.path, err)
	}
	return unixConn(conn, u.limits)
}

// Addr is the path.
func (u *UnixListener) Addr() string { return u.path }

// Close ends Accept and removes the socket, unless another one has taken its
// place. Connections stay.
func (u *UnixListener) Close() error {
	err := u.l.Close()
	if info, e := os.Lstat(u.path); e == nil && os.SameFile(info, u.file) {
		err = errors.Join(err, os.Remove(u.path))
	}
	return err
}

// DialUnix connects to the socket at path.
func DialUnix(ctx context.Context, path string, l Limits) (Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	return unixConn(conn, l)
}

func unixConn(conn net.Conn, l Limits) (Conn, error) {
	w, err := netWire(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	info := Info{Kind: "unix", PeerUID: peerUID(conn), Local: true}
	return newStreamConn(w, lines{}, l, info), nil
}

// peerUID returns the user id of the process at the other end; -1 if the kernel does not know.
func peerUID(conn net.Conn) int {
	f, ok := conn.(syscall.Conn)
	if !ok {
		return -1
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	_ = raw.Control(func(fd uintptr) { // fails only if closed
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid = int(cred.Uid)
		}
	})
	return uid
}
