package codec

import (
	"encoding/binary"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Flags of a follow row.
const (
	followOff = 1 << iota
	followOrigin
	followSome // names of types follow; else everything
)

// AppendFollow appends a follow row without its key. Types are written by
// name: their bits are not the same for ever.
func AppendFollow(b []byte, f *sequence.FollowChange) []byte {
	names := typeNames(f.Types)
	flags := byte(0)
	if f.Off {
		flags |= followOff
	}
	if f.Origin {
		flags |= followOrigin
	}
	if f.Types != ^arcp.TypeSet(0) {
		flags |= followSome
	} else {
		names = nil
	}
	b = binary.AppendUvarint(append(b, version, flags), uint64(len(names)))
	for _, t := range names {
		b = appendBytes(b, t)
	}
	return b
}

func typeNames(set arcp.TypeSet) (names []arcp.Type) {
	for i := range arcp.Catalog {
		if s := &arcp.Catalog[i]; s.Bit&set != 0 {
			names = append(names, s.Type)
		}
	}
	return names
}

// DecodeFollow reads the row of the follow with the key.
func DecodeFollow(k sequence.FollowKey, b []byte) (sequence.FollowChange, error) {
	r := newReader(b)
	flags := r.byte()
	f := sequence.FollowChange{FollowKey: k, Off: flags&followOff != 0, Origin: flags&followOrigin != 0}
	if flags&followSome == 0 {
		f.Types = ^arcp.TypeSet(0)
	}
	for range r.count() {
		if s := arcp.Lookup(arcp.Type(r.str())); s != nil {
			f.Types |= s.Bit
		}
	}
	return f, r.done()
}
