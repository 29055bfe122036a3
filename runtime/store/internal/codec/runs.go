package codec

import (
	"encoding/binary"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// AppendRuns appends consecutive runs of a trail without the number of the first. Runs
// of the same job share its ids and are ranges of positions.
func AppendRuns(b []byte, runs []sequence.Run) []byte {
	b = append(b, version)
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && sameNames(&runs[n-1], &runs[n]) {
			n++
		}
		b = appendGroup(b, runs[:n])
		runs = runs[n:]
	}
	return b
}

func sameNames(a, b *sequence.Run) bool {
	return a.Job == b.Job && a.CorrelationID == b.CorrelationID && a.Forwarded == b.Forwarded && a.JSeq+a.N <= b.JSeq
}

func appendGroup(b []byte, runs []sequence.Run) []byte {
	b = appendID(b, arcp.JobPrefix, runs[0].Job)
	b = appendID(b, arcp.MessagePrefix, runs[0].CorrelationID)
	b = appendBool(b, runs[0].Forwarded)
	b = binary.AppendUvarint(b, uint64(len(runs)))
	end := uint64(0)
	for i := range runs {
		b = binary.AppendUvarint(b, runs[i].JSeq-end)
		b = binary.AppendUvarint(b, runs[i].N)
		end = runs[i].JSeq + runs[i].N
	}
	return b
}

// AppendHead appends the id of the first event in a record of a feed, before its runs. A
// search for an id reads only the head.
func AppendHead(b []byte, id arcp.MessageID) []byte {
	return appendID(append(b, version), arcp.MessagePrefix, id)
}

// CutHead reads a value of AppendHead and returns the rest of the record.
func CutHead(b []byte) (id arcp.MessageID, rest []byte, err error) {
	r := reader{b: b}
	r.version()
	id = arcp.MessageID(r.id(arcp.MessagePrefix))
	return id, b[r.off:], r.err
}

// DecodeRuns appends to runs the runs of a record that begins with a number.
func DecodeRuns(runs []sequence.Run, b []byte, first uint64) ([]sequence.Run, error) {
	r := newReader(b)
	for r.err == nil && r.off < len(r.b) {
		run := sequence.Run{First: first, Job: arcp.JobID(r.id(arcp.JobPrefix)),
			CorrelationID: arcp.MessageID(r.id(arcp.MessagePrefix)), Forwarded: r.bool()}
		n := r.count()
		runs = slices.Grow(runs, n)
		for range n {
			run.JSeq += run.N + r.uint()
			run.N = r.uint()
			runs = append(runs, run)
			run.First += run.N
		}
		first = run.First
	}
	return runs, r.done()
}
