package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// UnixListener accepts connections with one frame on each line on a Unix socket.
type UnixListener struct {
	l      *net.UnixListener
	path   string
	file   fs.FileInfo // the socket file of this listener
	limits Limits
}

// ListenUnix listens at path. Only the owner can connect to the socket. A stale socket at path is
// replaced. The socket of a running process and any other file at path are errors.
// On Windows the error is errors.ErrUnsupported, because Windows does not report the user of a peer.
func ListenUnix(path string, l Limits) (*UnixListener, error) {
	if !hasPeerUID {
		return nil, fmt.Errorf("listen on %s: %w: this system does not report the user of a peer; listen on a loopback address, with tokens", path, errors.ErrUnsupported)
	}
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
	if errors.Is(err, errRefused) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = conn.Close() // only a probe
	return errors.New("another process listens on this socket")
}

// bindPrivately creates the socket in a directory of mode 0700, sets its mode, and moves it to path.
func bindPrivately(path string) (*UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	temp := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	u := &UnixListener{l: l, path: path}
	if err := u.moveFrom(temp); err != nil {
		return nil, errors.Join(err, l.Close(), os.RemoveAll(dir))
	}
	return u, nil
}

func (u *UnixListener) moveFrom(temp string) (err error) {
	if err := os.Chmod(temp, 0o600); err != nil {
		return err
	}
	if u.file, err = os.Lstat(temp); err != nil {
		return err
	}
	return os.Rename(temp, u.path)
}

// Accept waits for the next connection. After Close the error wraps net.ErrClosed.
func (u *UnixListener) Accept() (Conn, error) {
	conn, err := u.l.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("accept on %s: %w", u.path, err)
	}
	return unixConn(conn, u.limits)
}

// Addr returns the path of the socket.
func (u *UnixListener) Addr() string { return u.path }

// Close ends Accept and removes the socket file, unless another listener has replaced it. Accepted
// connections stay open.
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
