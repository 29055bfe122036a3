//go:build unix

package transport

import (
	"net"
	"os"
	"syscall"
)

// Errors of the other end of a connection.
const (
	errRefused = syscall.ECONNREFUSED
	errReset   = syscall.ECONNRESET
)

// ownUID returns the user id of this process.
func ownUID() int { return os.Getuid() }

// peerUID returns the user id of the peer process; -1 if unknown.
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
	_ = raw.Control(func(fd uintptr) { uid = socketUID(int(fd)) }) // fails only if closed
	return uid
}
