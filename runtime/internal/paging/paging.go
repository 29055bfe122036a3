// Package paging cuts lists into pages. A cursor is encrypted: it may name a principal that
// its holder must not see, and a client can neither change it nor use it for another list.
package paging

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Bounds of a page.
const (
	DefaultLen = 100     // rows
	MaxScan    = 5_000   // rows read; the page may have fewer
	MaxBytes   = 4 << 20 // of the rows, except the last one
)

// Cursors seals and opens cursors. Its methods may be called by any goroutine.
type Cursors struct{ aead cipher.AEAD }

// NewCursors returns the Cursors of a key of 32 bytes. Another key invalidates all cursors.
func NewCursors(key []byte) *Cursors {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("sealed keys"))
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil { // the sum has 32 bytes
		panic("paging: " + err.Error())
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil { // the block is of AES
		panic("paging: " + err.Error())
	}
	return &Cursors{aead}
}

// Request asks for one page of a list.
type Request struct {
	Scope    string // name of the list, its reader and the filter; a cursor is valid for one Scope
	Cursor   string // NextCursor of the page before; empty: the first page
	Limit    int    // rows; 0: DefaultLen
	MaxBytes int    // of the rows, except the last one; 0: MaxBytes
}

// Add adds a row to a page and reports whether the page has room for another one. key is the
// row's position in the list, size the approximate number of bytes. A nil item stands for a
// row that the filter leaves out.
type Add[T any] func(key string, size int, item *T) bool

// Page returns one page of a list. rows calls add for the rows behind the position after, in
// the order of the list, until add returns false. The error is the one of rows, or
// INVALID_ARGUMENT for a cursor that is not valid.
func Page[T any](c *Cursors, r Request, rows func(after string, add Add[T]) error) (page arcp.Page[T], err error) {
	after, err := c.open(r.Cursor, r.Scope)
	if err != nil {
		return page, err
	}
	page.Items = []T{}
	scanned, size, last := 0, 0, ""
	err = rows(after, func(key string, bytes int, item *T) bool {
		if len(page.Items) == cmp.Or(r.Limit, DefaultLen) || scanned == MaxScan || size >= cmp.Or(r.MaxBytes, MaxBytes) {
			page.NextCursor = c.seal(last, r.Scope)
			return false
		}
		scanned, size, last = scanned+1, size+bytes, key
		if item != nil {
			page.Items = append(page.Items, *item)
		}
		return true
	})
	return page, err
}

func (c *Cursors) seal(key, scope string) string {
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, []byte(key), []byte(scope)))
}

func (c *Cursors) open(cursor, scope string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		b, err = c.aead.Open(nil, nil, b, []byte(scope))
	}
	if err != nil {
		return "", arcp.Errorf(arcp.CodeInvalidArgument, "cursor is not one of this list: use next_cursor of the page before")
	}
	return string(b), nil
}

// TimeKey returns the position of a row in a list that is ordered by time, then id. Keys of
// times after 1970 compare as the times do.
func TimeKey(at time.Time, id string) string { return fmt.Sprintf("%019d/%s", at.UnixNano(), id) }

// ParseTimeKey is the inverse of TimeKey. The empty key has the zero time.
func ParseTimeKey(key string) (at time.Time, id string) {
	text, id, _ := strings.Cut(key, "/")
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
		at = time.Unix(0, ns).UTC()
	}
	return at, id
}

// OneOf refuses a value of a filter that is not among the known ones: INVALID_ARGUMENT. An
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
