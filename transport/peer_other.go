//go:build unix && !linux && !darwin

package transport

// hasPeerUID reports whether this system reports the user of the peer of a Unix socket.
const hasPeerUID = false

// socketUID returns -1: the user is unknown.
func socketUID(int) int { return -1 }
