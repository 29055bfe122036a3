package codec

import (
	"encoding/binary"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// A chunk is consecutive events of one job, or consecutive announced events of a feed:
// their number, the OriginSeq of the last, the types that occur, then each event.

// AppendChunk appends at least one event.
func AppendChunk(b []byte, events []*store.Event) []byte {
	b = binary.AppendUvarint(append(b, version), uint64(len(events)))
	b = binary.AppendUvarint(b, events[len(events)-1].OriginSeq)
	var room [8]arcp.Type
	types := typesOf(room[:0], events)
	b = binary.AppendUvarint(b, uint64(len(types)))
	for _, t := range types {
		b = appendBytes(b, t)
	}
	var sec int64
	var originSeq uint64
	for _, e := range events {
		s := e.Time.Unix()
		b = binary.AppendUvarint(b, uint64(slices.Index(types, e.Type)))
		b = appendInt(b, s-sec)
		b = binary.AppendUvarint(b, uint64(e.Time.Nanosecond()))
		b = appendInt(b, int64(e.OriginSeq-originSeq))
		b = appendBytes(b, e.Body)
		sec, originSeq = s, e.OriginSeq
	}
	return b
}

func typesOf(types []arcp.Type, events []*store.Event) []arcp.Type {
	for _, e := range events {
		if !slices.Contains(types, e.Type) {
			types = append(types, e.Type)
		}
	}
	return types
}

// ChunkSize returns the most bytes that AppendChunk appends.
func ChunkSize(events []*store.Event) int {
	n := 64
	for _, e := range events {
		n += len(e.Body) + 32
	}
	return n
}

// DecodeChunk reads a chunk whose first event has a position. The events refer to b,
// which must not change any more.
func DecodeChunk(b []byte, first uint64) ([]store.Event, error) {
	r := reader{b: b}
	r.version()
	events := make([]store.Event, r.count())
	r.uint()
	types := r.types()
	var sec int64
	var originSeq uint64
	for i := range events {
		e := &events[i]
		e.JSeq = first + uint64(i)
		e.Type = r.typeIn(types)
		sec += r.int()
		e.Time = unix(sec, r.uint())
		originSeq += uint64(r.int())
		e.OriginSeq = originSeq
		e.Body = r.alias()
	}
	if err := r.done(); err != nil {
		return nil, err
	}
	return events, nil
}

// ChunkEnd reads the number of events in a chunk and the OriginSeq of the last.
func ChunkEnd(b []byte) (n, originSeq uint64, err error) {
	r := reader{b: b}
	r.version()
	n, originSeq = r.uint(), r.uint()
	return n, originSeq, r.err
}

// types reads the table of types. Known types share the catalog's strings.
func (r *reader) types() []arcp.Type {
	types := make([]arcp.Type, r.count())
	for i := range types {
		types[i] = arcp.Type(r.alias())
		if s := arcp.Lookup(types[i]); s != nil {
			types[i] = s.Type
		}
	}
	return types
}

func (r *reader) typeIn(types []arcp.Type) arcp.Type {
	i := r.uint()
	if i >= uint64(len(types)) {
		r.fail(errTag)
		return ""
	}
	return types[i]
}
