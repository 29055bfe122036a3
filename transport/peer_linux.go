package transport

import "syscall"

// hasPeerUID reports whether this system reports the user of the peer of a Unix socket.
const hasPeerUID = true

// socketUID returns the user id of the peer of a Unix socket; -1 if unknown.
func socketUID(fd int) int {
	cred, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return -1
	}
	return int(cred.Uid)
}
