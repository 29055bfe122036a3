package codec

import (
	"encoding/binary"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Forms of an id. A minted id takes 16 bytes instead of 30.
const (
	idText   = 0
	idMinted = 1
	idNone   = 2
)

func appendID[T ~string](b []byte, prefix string, id T) []byte {
	if id == "" {
		return append(b, idNone)
	}
	if u, ok := parse(prefix, string(id)); ok {
		return append(append(b, idMinted), u[:]...)
	}
	return appendBytes(append(b, idText), id)
}

func parse(prefix, id string) (u [16]byte, ok bool) {
	body, ok := strings.CutPrefix(id, prefix)
	if !ok {
		return u, false
	}
	return parseBody(body)
}

// digits are the values of the characters of a minted id; 0xff: none.
var digits = func() (d [256]byte) {
	for i := range d {
		d[i] = 0xff
	}
	for i, c := range []byte("0123456789ABCDEFGHJKMNPQRSTVWXYZ") {
		d[c] = byte(i)
	}
	return d
}()

// parseBody is a faster arcp.ParseIDBody: ten ids are read a job.
func parseBody(s string) (u [16]byte, ok bool) {
	if len(s) != arcp.IDBodyLen || s[0] > '7' {
		return u, false
	}
	var hi, lo uint64
	bad := byte(0)
	for i := range arcp.IDBodyLen {
		v := digits[s[i]]
		bad |= v
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	return u, bad < 32
}

func (r *reader) id(prefix string) string {
	switch r.byte() {
	case idNone:
		return ""
	case idText:
		return r.str()
	case idMinted:
		if len(r.b)-r.off < 16 {
			break
		}
		r.off += 16
		return format(prefix, [16]byte(r.b[r.off-16:r.off]))
	default:
		r.fail(errTag)
		return ""
	}
	r.fail(errShort)
	return ""
}

func format(prefix string, u [16]byte) string {
	var b [8 + arcp.IDBodyLen]byte
	return string(arcp.AppendIDBody(append(b[:0], prefix...), u))
}

// AppendKeyID appends an id as part of a key. No encoded id is a prefix of another.
// Minted ids come first and sort in the order in which they were minted.
func AppendKeyID[T ~string](b []byte, prefix string, id T) []byte {
	if u, ok := parse(prefix, string(id)); ok {
		return append(append(b, idMinted), u[:]...)
	}
	return AppendKeyText(append(b, keyText), string(id))
}

// AppendKeyText appends a string as part of a key. No encoded string is a prefix of
// another, and they sort as the strings do.
func AppendKeyText(b []byte, s string) []byte {
	for i := range len(s) {
		if b = append(b, s[i]); s[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0, 1)
}

// First bytes of an id in a key.
const (
	MintedID = idMinted
	keyText  = 2
)

// CutKeyID reads an id of AppendKeyID and returns the rest of the key.
func CutKeyID(b []byte, prefix string) (id string, rest []byte, ok bool) {
	switch {
	case len(b) > 16 && b[0] == idMinted:
		return format(prefix, [16]byte(b[1:17])), b[17:], true
	case len(b) == 0 || b[0] != keyText:
		return "", nil, false
	}
	return CutKeyText(b[1:])
}

// CutKeyText reads a string of AppendKeyText and returns the rest of the key.
func CutKeyText(b []byte) (s string, rest []byte, ok bool) {
	var text []byte
	for i := 0; i+1 < len(b); i++ {
		switch {
		case b[i] != 0:
			text = append(text, b[i])
		case b[i+1] == 1:
			return string(text), b[i+2:], true
		default:
			text = append(text, 0)
			i++
		}
	}
	return "", nil, false
}
