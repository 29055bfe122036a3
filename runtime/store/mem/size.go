package mem

import "github.com/arcpd/arcpd/runtime/store"

// Sizes in memory in bytes, with their allocations, and with the average slack of the maps and
// slices that refer to them. A test checks that their sum is within a fifth of the live heap.
const (
	jobBytes     = 320 // a job without row and events
	rowBytes     = 512 // the row of a job that is not packed
	submitBytes  = 48  // the entry of a submit in its session
	keyBytes     = 112 // the entry of an idempotency key
	eventBytes   = 112 // an event without its body
	runBytes     = 48
	sessionBytes = 1024
	recordBytes  = 144
)

// processBytes returns the memory that a process takes for a number of live bytes while it is busy. With
// the default GOGC the heap is twice as large before a garbage collection. The rest is garbage of the
// requests, and memory that is free but not returned.
func processBytes(live int64) int64 { return 3 * live }

// resize sets the counted size of a job.
func (s *Store) resize(j *job, bytes int64) {
	s.bytes += bytes - j.bytes
	j.bytes = bytes
}

// sizeOfEntries returns the size of a job without row and events.
func sizeOfEntries(row *store.Job) int64 {
	n := jobBytes
	if row.SubmitID != "" {
		n += submitBytes + len(row.SubmitID)
	}
	if row.IdempotencyKey != "" {
		n += keyBytes + len(row.IdempotencyKey) + len(row.Digest)
	}
	return int64(n)
}

func sizeOfRow(row *store.Job) int64 {
	return int64(rowBytes + len(row.Arguments) + len(row.Options))
}

func sizeOfEvents(events []*store.Event) (n int64) {
	for _, e := range events {
		n += int64(eventBytes + len(e.Body))
	}
	return n
}

func sizeOfRecord(r *store.Record) int64 {
	if r.Rev == 0 {
		return 0
	}
	return int64(recordBytes + len(r.Key) + len(r.Value))
}
