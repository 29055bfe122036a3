package transport

import (
	"net"

	"golang.org/x/sys/windows"
)

// hasPeerUID reports whether this system reports the user of the peer of a Unix socket.
const hasPeerUID = false

// Errors of the other end of a connection.
const (
	errRefused = windows.WSAECONNREFUSED
	errReset   = windows.WSAECONNRESET
)

// ownUID returns the relative identifier of the user of this process, the last number of its SID; -1 if
// unknown.
func ownUID() int {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return -1
	}
	sid := user.User.Sid
	return int(sid.SubAuthority(uint32(sid.SubAuthorityCount()) - 1))
}

// peerUID returns -1: Windows does not report the user of the peer of a Unix socket.
func peerUID(net.Conn) int { return -1 }
