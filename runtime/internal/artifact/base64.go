package artifact

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// alphabet is the standard alphabet of base64 (RFC 4648 §4).
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// pairs has the two characters of each 12 bits, the first one lowest. Package base64 looks up each character
// alone, and takes twice as long.
var pairs = func() (t [1 << 12]uint16) {
	for bits := range t {
		t[bits] = uint16(alphabet[bits>>6]) | uint16(alphabet[bits&0x3f])<<8
	}
	return t
}()

// AppendBase64 appends the base64 of content, with padding.
func AppendBase64(dst, content []byte) []byte {
	size := base64.StdEncoding.EncodedLen(len(content))
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	out := dst[start:]
	for len(content) >= 8 {
		v := binary.BigEndian.Uint64(content) // six bytes are used
		binary.LittleEndian.PutUint64(out, uint64(pairs[v>>52])|uint64(pairs[v>>40&0xfff])<<16|
			uint64(pairs[v>>28&0xfff])<<32|uint64(pairs[v>>16&0xfff])<<48)
		content, out = content[6:], out[8:]
	}
	base64.StdEncoding.Encode(out, content)
	return dst
}

// notInAlphabet is a bit of a sextet that no three bytes have.
const notInAlphabet = 1 << 24

// sextets has the bits of each character at each of the four positions in a group of three bytes, the first
// byte lowest.
var sextets = func() (t [4][256]uint32) {
	for position := range t {
		for c := range t[position] {
			t[position][c] = notInAlphabet
		}
		for bits, c := range []byte(alphabet) {
			v := uint32(bits) << (18 - 6*position)
			t[position][c] = v>>16 | v&0xff00 | v&0xff<<16
		}
	}
	return t
}()

// decodeGroups decodes groups of eight characters of the alphabet. It returns the number of bytes, and the
// first other group with all that follows. It writes two bytes more into dst.
func decodeGroups(dst []byte, data string) (n int, rest string) {
	for len(data) >= 8 && len(dst) >= 8 {
		first := sextets[0][data[0]] | sextets[1][data[1]] | sextets[2][data[2]] | sextets[3][data[3]]
		second := sextets[0][data[4]] | sextets[1][data[5]] | sextets[2][data[6]] | sextets[3][data[7]]
		if (first|second)&notInAlphabet != 0 {
			break
		}
		binary.LittleEndian.PutUint64(dst, uint64(first)|uint64(second)<<24)
		dst, data, n = dst[6:], data[8:], n+6
	}
	return n, data
}

// Decode decodes the data of a chunk or of a whole artifact. The error is INVALID_ARGUMENT.
func Decode(data string) ([]byte, error) {
	content := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
	n, rest := decodeGroups(content, data)
	last, err := base64.StdEncoding.Strict().Decode(content[n:], []byte(rest))
	if err != nil || strings.ContainsAny(rest, "\r\n") {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "data must be base64 of the standard alphabet, with padding")
	}
	return content[:n+last], nil
}
