// Package codec encodes rows, events and pointers as bytes. Every value begins with a
// version byte. Decoding is strict: a value that is too short, too long or of another
// version is an error, never a partial result.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// version is the first byte of every value.
const version = 1

var (
	errShort = errors.New("it ends too early")
	errLong  = errors.New("it goes on after its end")
	errTag   = errors.New("it has a member of an unknown form")
)

// reader reads the members of a value. After the first error all later members are
// zero; done returns the error.
type reader struct {
	b   []byte
	s   string // of rows: a copy of b that strings are cut from
	off int
	err error
}

// newReader returns a reader of a row. Its strings do not refer to b.
func newReader(b []byte) *reader {
	r := &reader{b: b, s: string(b)}
	r.version()
	return r
}

func (r *reader) version() { r.versionUpTo(version) }

// versionUpTo reads the version of a value that older versions may have written.
func (r *reader) versionUpTo(newest byte) byte {
	v := r.byte()
	if r.err == nil && (v == 0 || v > newest) {
		r.err = fmt.Errorf("its version is %d, not %d", v, newest)
	}
	return v
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.off = len(r.b)
}

func (r *reader) done() error {
	if r.err == nil && r.off != len(r.b) {
		return errLong
	}
	return r.err
}

func (r *reader) byte() byte {
	if r.off >= len(r.b) {
		r.fail(errShort)
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

func (r *reader) uint() uint64 {
	if r.off < len(r.b) && r.b[r.off] < 0x80 {
		r.off++
		return uint64(r.b[r.off-1])
	}
	v, n := binary.Uvarint(r.b[r.off:])
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.off += n
	return v
}

func (r *reader) int() int64 {
	u := r.uint()
	return int64(u>>1) ^ -int64(u&1)
}

// count reads the number of members that take at least one byte each.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)-r.off) {
		r.fail(errShort)
		return 0
	}
	return int(n)
}

// alias reads a length-prefixed member and returns it without a copy.
func (r *reader) alias() []byte {
	n := r.count()
	r.off += n
	return r.b[r.off-n : r.off : r.off]
}

func (r *reader) str() string {
	n := r.count()
	r.off += n
	if r.s != "" {
		return r.s[r.off-n : r.off]
	}
	return string(r.b[r.off-n : r.off])
}

// raw reads a member and returns a copy; nil if it is empty.
func (r *reader) raw() arcp.Raw {
	return append(arcp.Raw(nil), r.alias()...)
}

func (r *reader) time() time.Time {
	sec := r.int()
	return unix(sec, r.uint())
}

func (r *reader) bool() bool { return r.byte() != 0 }

func appendInt(b []byte, v int64) []byte {
	return binary.AppendUvarint(b, uint64(v)<<1^uint64(v>>63))
}

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(appendInt(b, t.Unix()), uint64(t.Nanosecond()))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func unix(sec int64, nsec uint64) time.Time { return time.Unix(sec, int64(nsec)).UTC() }
