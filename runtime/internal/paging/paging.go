// Package paging has what all lists of the runtime share: the size of a page and cursors
// that nobody can forge or use for another list.
package paging

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a page.
const (
	DefaultLen = 100     // rows
	MaxScan    = 5_000   // rows looked at; then the page is shorter
	MaxBytes   = 4 << 20 // of the rows, beside the last one
)

// Cursors makes and reads cursors. A scope names the list that a cursor is good for: the
// principal and the filter. Its methods may be called by any goroutine.
type Cursors struct{ key []byte }

// NewCursors returns the Cursors of a key of 32 bytes. Cursors are good as long as the key
// stays the same.
func NewCursors(key []byte) *Cursors { return &Cursors{key} }

const macLen = 16

// SealTime makes a cursor of a time and an id, which its holder may read.
func (c *Cursors) SealTime(at time.Time, id string, scope []byte) string {
	b := binary.BigEndian.AppendUint64([]byte{1}, uint64(at.UnixNano()))
	b = append(b, id...)
	return base64.RawURLEncoding.EncodeToString(append(b, c.mac(b, scope)...))
}

// OpenTime is the inverse of SealTime; ok is false if the cursor is not of this scope.
func (c *Cursors) OpenTime(cursor string, scope []byte) (at time.Time, id string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < 1+8+1+macLen || b[0] != 1 {
		return time.Time{}, "", false
	}
	b, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	if !hmac.Equal(mac, c.mac(b, scope)) {
		return time.Time{}, "", false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(b[1:9]))), string(b[9:]), true
}

func (c *Cursors) mac(b, scope []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write(b)
	h.Write(scope)
	return h.Sum(nil)[:macLen]
}

// SealKey makes a cursor of a key of the store, encrypted: it may name a principal that its
// holder does not see.
func (c *Cursors) SealKey(key string, scope []byte) string {
	return base64.RawURLEncoding.EncodeToString(c.aead().Seal(nil, nil, []byte(key), scope))
}

// OpenKey returns the key of a cursor: of the last row before the page. An empty cursor has
// the empty key. The error is ErrCursor.
func (c *Cursors) OpenKey(cursor string, scope []byte) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		b, err = c.aead().Open(nil, nil, b, scope)
	}
	if err != nil {
		return "", ErrCursor()
	}
	return string(b), nil
}

func (c *Cursors) aead() cipher.AEAD {
	h := hmac.New(sha256.New, c.key)
	h.Write([]byte("sealed keys")) // a key of its own
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil { // it has 32 bytes
		panic("paging: " + err.Error())
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil { // it is AES
		panic("paging: " + err.Error())
	}
	return aead
}

// ErrCursor refuses a cursor: INVALID_ARGUMENT.
func ErrCursor() *arcp.Error {
	return arcp.Errorf(arcp.CodeInvalidArgument, "cursor is not one of this list: use next_cursor of the page before")
}

// OneOf refuses a value of a filter that is none of the known ones: INVALID_ARGUMENT. An
// empty value is no filter.
func OneOf[S ~string](name, value string, known []S) error {
	if value == "" || slices.Contains(known, S(value)) {
		return nil
	}
	words := make([]string, len(known))
	for i, w := range known {
		words[i] = string(w)
	}
	return arcp.Errorf(arcp.CodeInvalidArgument, "%s: %q is none of %s", name, value, strings.Join(words, ", "))
}
