package transport

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/gobwas/ws"

	"github.com/arcpd/arcpd/internal/clip"
)

// dataHeader appends the header of a final text or binary frame with n bytes of payload (RFC 6455 §5.2). The
// mask of a client is not zero.
func dataHeader(p []byte, op ws.OpCode, n int, mask [4]byte) []byte {
	const final, masked = 0x80, 0x80
	var bit byte
	if mask != noMask {
		bit = masked
	}
	p = append(p, final|byte(op))
	switch {
	case n <= 125:
		p = append(p, bit|byte(n))
	case n <= 0xffff:
		p = append(p, bit|126)
		p = binary.BigEndian.AppendUint16(p, uint16(n))
	default:
		p = append(p, bit|127)
		p = binary.BigEndian.AppendUint64(p, uint64(n))
	}
	if mask != noMask {
		p = append(p, mask[:]...)
	}
	return p
}

// noMask is the mask of server frames, which are not masked.
var noMask [4]byte

// newMask returns a random mask other than noMask.
func newMask() (mask [4]byte) {
	binary.LittleEndian.PutUint32(mask[:], rand.Uint32()|1)
	return mask
}

// controlFrame returns a complete control frame. The payload has at most ws.MaxControlFramePayloadSize bytes.
func controlFrame(op ws.OpCode, payload []byte, client bool) []byte {
	const final, masked = 0x80, 0x80
	f := append(make([]byte, 0, 2+len(noMask)+len(payload)), final|byte(op), byte(len(payload)))
	if !client {
		return append(f, payload...)
	}
	mask := newMask()
	f[1] |= masked
	f = append(append(f, mask[:]...), payload...)
	ws.Cipher(f[2+len(mask):], mask, 0)
	return f
}

// closePayload returns the payload of a close frame. It is empty for the codes that are never sent.
func closePayload(code CloseCode, reason string) []byte {
	if code == CloseNoStatus || code == CloseAbnormal {
		return nil
	}
	return ws.NewCloseFrameBody(ws.StatusCode(code), clip.Text(reason, maxReason))
}
