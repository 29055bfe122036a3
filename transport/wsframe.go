package transport

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// The frames that are written here, final and unfragmented (RFC 6455 §5.2).
const (
	opText  = 0x80 | 0x1
	opClose = 0x80 | 0x8
	opPing  = 0x80 | 0x9
	opPong  = 0x80 | 0xa
)

const maskBit = 0x80

// maxControlPayload bounds control frames (RFC 6455 §5.5).
const maxControlPayload = 125

// maxHeader is the longest header of a frame.
const maxHeader = 2 + 8 + 4

// appendHeader appends the header of a frame with n bytes of payload. A key
// other than zero is the mask of a client.
func appendHeader(p []byte, op byte, n int, key uint32) []byte {
	var masked byte
	if key != 0 {
		masked = maskBit
	}
	switch {
	case n <= 125:
		p = append(p, op, masked|byte(n))
	case n <= 0xffff:
		p = append(p, op, masked|126)
		p = binary.BigEndian.AppendUint16(p, uint16(n))
	default:
		p = append(p, op, masked|127)
		p = binary.BigEndian.AppendUint64(p, uint64(n))
	}
	if key != 0 {
		p = binary.LittleEndian.AppendUint32(p, key)
	}
	return p
}

// maskKey is a fresh mask, not zero.
func maskKey() uint32 {
	return rand.Uint32() | 1
}

// mask applies the mask key to p in place and returns the key for the bytes
// that follow (RFC 6455 §5.3).
func mask(p []byte, key uint32) uint32 {
	wide := uint64(key)<<32 | uint64(key)
	for len(p) >= 8 {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^wide)
		p = p[8:]
	}
	for i := range p {
		p[i] ^= byte(key)
		key = bits.RotateLeft32(key, -8)
	}
	return key
}

// controlFrame is a whole control frame. The payload has at most
// maxControlPayload bytes.
func controlFrame(op byte, payload []byte, client bool) []byte {
	var key uint32
	if client {
		key = maskKey()
	}
	p := appendHeader(make([]byte, 0, maxHeader+len(payload)), op, len(payload), key)
	p = append(p, payload...)
	mask(p[len(p)-len(payload):], key)
	return p
}

// closePayload is empty for the codes that are never sent.
func closePayload(code CloseCode, reason string) []byte {
	if code == CloseNoStatus || code == CloseAbnormal {
		return nil
	}
	p := binary.BigEndian.AppendUint16(nil, uint16(code))
	return append(p, cutReason(reason)...)
}

// closeCode reads the code of a whole close frame.
func closeCode(frame []byte) CloseCode {
	n := headerLen(frame)
	if len(frame) < n+2 {
		return CloseNoStatus
	}
	code := [2]byte(frame[n:])
	if frame[1]&maskBit != 0 {
		code[0] ^= frame[n-4]
		code[1] ^= frame[n-3]
	}
	return CloseCode(binary.BigEndian.Uint16(code[:]))
}

// headerLen is the length of the header that starts with the two bytes p.
func headerLen(p []byte) int {
	n := 2
	switch p[1] &^ maskBit {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if p[1]&maskBit != 0 {
		n += 4
	}
	return n
}

// frameCursor knows where the frames of a stream end.
type frameCursor struct {
	head [maxHeader]byte
	have int    // bytes of head
	left uint64 // bytes of payload still to come
}

// atStart reports whether the next byte begins a frame.
func (c *frameCursor) atStart() bool { return c.have == 0 && c.left == 0 }

// advance moves over p but not past the end of the frame, and returns how far.
func (c *frameCursor) advance(p []byte) int {
	n := 0
	for c.left == 0 && n < len(p) {
		c.head[c.have] = p[n]
		c.have++
		n++
		if c.have >= 2 && c.have == headerLen(c.head[:]) {
			c.left, c.have = payloadLen(c.head[:]), 0
			if c.left == 0 {
				return n
			}
		}
	}
	rest := min(uint64(len(p)-n), c.left)
	c.left -= rest
	return n + int(rest)
}

// payloadLen reads the length out of a whole header.
func payloadLen(head []byte) uint64 {
	switch n := head[1] &^ maskBit; n {
	case 126:
		return uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		return binary.BigEndian.Uint64(head[2:])
	default:
		return uint64(n)
	}
}
