package codec

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// A chunk is consecutive events of one job, or consecutive announced events of a feed:
// their number, the OriginSeq of the last, the types that occur, then each event.
//
// The bodies of a job's events begin alike, with an id that ascends, and the same job and trace.
// A body is written as its difference to the body before it, in two parts: its id, and the rest
// after the timestamp. Each part is the number of bytes that it has in common with the same part
// of the body before, and the other bytes. The members between the parts are those of the event.
// A body of another form is all rest.

// chunkVersion is the version of a chunk. Version 1 has whole bodies and is still read.
const chunkVersion = 2

// AppendChunk appends at least one event.
func AppendChunk(b []byte, events []*store.Event) []byte {
	b = binary.AppendUvarint(append(b, chunkVersion), uint64(len(events)))
	b = binary.AppendUvarint(b, events[len(events)-1].OriginSeq)
	var room [8]arcp.Type
	types := typesOf(room[:0], events)
	b = binary.AppendUvarint(b, uint64(len(types)))
	for _, t := range types {
		b = appendBytes(b, t)
	}
	var sec int64
	var originSeq uint64
	var last bodyParts
	for _, e := range events {
		parts := splitBody(e)
		b = binary.AppendUvarint(b, uint64(slices.Index(types, e.Type))<<1|uint64(min(len(parts.id), 1)))
		b = appendInt(b, e.Time.Unix()-sec)
		b = binary.AppendUvarint(b, uint64(e.Time.Nanosecond()))
		b = appendInt(b, int64(e.OriginSeq-originSeq))
		if len(parts.id) > 0 {
			b = appendDifference(b, last.id, parts.id)
			last.id = parts.id
		}
		b = appendDifference(b, last.rest, parts.rest)
		last.rest = parts.rest
		sec, originSeq = e.Time.Unix(), e.OriginSeq
	}
	return b
}

// bodyParts are the parts of a body; no id: the body has another form, and is all rest.
type bodyParts struct{ id, rest []byte }

func splitBody(e *store.Event) bodyParts {
	id, typeAndTime, rest := e.CutBody()
	var room [128]byte
	if string(typeAndTime) != string(store.AppendTypeAndTime(room[:0], e.Type, e.Time)) {
		return bodyParts{rest: e.Body}
	}
	return bodyParts{id, rest}
}

// appendDifference appends p as the length of the prefix it has in common with last, and the bytes
// after it.
func appendDifference(b, last, p []byte) []byte {
	n := commonPrefix(last, p)
	return appendBytes(binary.AppendUvarint(b, uint64(n)), p[n:])
}

func commonPrefix(a, b []byte) int {
	n := 0
	for ; len(a)-n >= 8 && len(b)-n >= 8; n += 8 {
		if d := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); d != 0 {
			return n + bits.TrailingZeros64(d)/8
		}
	}
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
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
		n += len(e.Body) + 40
	}
	return n
}

// DecodeChunk reads a chunk whose first event has a position. The events do not refer to b.
func DecodeChunk(b []byte, first uint64) ([]store.Event, error) {
	r := reader{b: b}
	version := r.versionUpTo(chunkVersion)
	events := make([]store.Event, r.count())
	r.uint()
	types := r.types()
	var sec int64
	var originSeq uint64
	bodies := bodyReader{r: &r}
	for i := range events {
		e := &events[i]
		e.JSeq = first + uint64(i)
		tag := r.uint()
		split := false
		if version > 1 {
			tag, split = tag>>1, tag&1 != 0
		}
		e.Type = r.typeIn(types, tag)
		sec += r.int()
		e.Time = unix(sec, r.uint())
		originSeq += uint64(r.int())
		e.OriginSeq = originSeq
		switch {
		case version == 1:
			e.Body = bytes.Clone(r.alias())
		case split:
			e.Body = bodies.joined(e.Type, e.Time)
		default:
			e.Body = bodies.whole()
		}
	}
	if err := r.done(); err != nil {
		return nil, err
	}
	return events, nil
}

// typeAndTimeLen is the most bytes that AppendTypeAndTime appends for an empty type.
const typeAndTimeLen = 64

// bodyReader reads the bodies of a chunk.
type bodyReader struct {
	r    *reader
	last bodyParts
	free []byte // memory for the next bodies
}

// joined reads a body in two parts.
func (br *bodyReader) joined(t arcp.Type, at time.Time) []byte {
	common, id := br.difference(br.last.id)
	commonRest, rest := br.difference(br.last.rest)
	b := br.room(len(common) + len(id) + len(commonRest) + len(rest) + len(t) + typeAndTimeLen)
	b = append(append(b, common...), id...)
	n := len(b)
	b = store.AppendTypeAndTime(b, t, at)
	m := len(b)
	b = append(append(b, commonRest...), rest...)
	br.last = bodyParts{b[:n], b[m:]}
	return br.take(b)
}

// whole reads a body of another form.
func (br *bodyReader) whole() []byte {
	common, rest := br.difference(br.last.rest)
	b := append(append(br.room(len(common)+len(rest)), common...), rest...)
	br.last.rest = b
	return br.take(b)
}

// difference reads a part: what it has in common with the last one, and its other bytes.
func (br *bodyReader) difference(last []byte) (common, other []byte) {
	n := br.r.uint()
	if n > uint64(len(last)) {
		br.r.fail(errTag)
		return nil, nil
	}
	return last[:n], br.r.alias()
}

// room returns an empty slice with a capacity of at least n bytes.
func (br *bodyReader) room(n int) []byte {
	if cap(br.free) < n {
		br.free = make([]byte, 0, max(n, min(4*len(br.r.b), 64<<10)))
	}
	return br.free
}

// take returns b, which was appended to room, and leaves the memory after it for the next body.
func (br *bodyReader) take(b []byte) []byte {
	br.free = b[len(b):]
	return b[:len(b):len(b)]
}

// ChunkEnd reads the number of events in a chunk and the OriginSeq of the last.
func ChunkEnd(b []byte) (n, originSeq uint64, err error) {
	r := reader{b: b}
	r.versionUpTo(chunkVersion)
	n, originSeq = r.uint(), r.uint()
	return n, originSeq, r.err
}

// types reads the table of types. Known types share the catalog's strings.
func (r *reader) types() []arcp.Type {
	types := make([]arcp.Type, r.count())
	for i := range types {
		name := r.alias()
		if s := arcp.Lookup(arcp.Type(name)); s != nil {
			types[i] = s.Type
		} else {
			types[i] = arcp.Type(name)
		}
	}
	return types
}

func (r *reader) typeIn(types []arcp.Type, i uint64) arcp.Type {
	if i >= uint64(len(types)) {
		r.fail(errTag)
		return ""
	}
	return types[i]
}
