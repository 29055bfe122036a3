package codec

import (
	"encoding/binary"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// Flags of a follow row.
const (
	followEnded = 1 << iota
	followForwarded
	followTypes      // names of Types are appended; else Types has all types
	followPlain      // Plain is not empty
	followPlainTypes // names of Plain are appended; else Plain has all types
)

// AppendFollow appends a follow row without its key. Types are written by name: their
// bits may differ between versions.
func AppendFollow(b []byte, f *sequence.FollowChange) []byte {
	flags := byte(0)
	for _, x := range [...]struct {
		flag byte
		on   bool
	}{
		{followEnded, f.Unfollowed}, {followForwarded, f.Forwarded}, {followTypes, f.Types != allTypes},
		{followPlain, f.Plain != 0}, {followPlainTypes, f.Plain != 0 && f.Plain != allTypes},
	} {
		if x.on {
			flags |= x.flag
		}
	}
	b = appendTypes(append(b, version, flags), f.Types)
	if f.Plain != 0 {
		b = appendTypes(b, f.Plain)
	}
	return b
}

const allTypes = ^arcp.TypeSet(0)

// appendTypes appends the names of a set of types; nothing for allTypes.
func appendTypes(b []byte, set arcp.TypeSet) []byte {
	var names []arcp.Type
	if set != allTypes {
		names = typeNames(set)
	}
	b = binary.AppendUvarint(b, uint64(len(names)))
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

// DecodeFollow reads the row of the follow with a key.
func DecodeFollow(k sequence.FollowKey, b []byte) (sequence.FollowChange, error) {
	r := newReader(b)
	flags := r.byte()
	f := sequence.FollowChange{FollowKey: k, Unfollowed: flags&followEnded != 0, Forwarded: flags&followForwarded != 0}
	f.Types = r.typeSet(flags&followTypes != 0)
	if flags&followPlain != 0 {
		f.Plain = r.typeSet(flags&followPlainTypes != 0)
	}
	return f, r.done()
}

// typeSet reads the names of a set of types if some is set, else it returns allTypes.
func (r *reader) typeSet(some bool) (set arcp.TypeSet) {
	if !some {
		set = allTypes
	}
	for range r.count() {
		if s := arcp.Lookup(arcp.Type(r.str())); s != nil {
			set |= s.Bit
		}
	}
	return set
}
