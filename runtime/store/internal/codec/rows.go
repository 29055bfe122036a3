package codec

import (
	"encoding/binary"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

// jobVersion is the version of a job's row and status. Version 1 has no StartedAt and is still read.
const jobVersion = 2

// AppendJob appends a job's row without its id.
func AppendJob(b []byte, j *store.Job) []byte {
	b = appendBytes(append(b, jobVersion), j.Principal)
	b = appendID(b, arcp.SessionPrefix, j.Session)
	b = appendID(b, arcp.MessagePrefix, j.SubmitID)
	b = appendBytes(b, j.Agent)
	b = appendBytes(b, j.Arguments)
	b = appendBytes(b, j.Options)
	b = appendBytes(b, j.TraceID)
	b = appendBytes(b, j.SpanID)
	b = appendBytes(b, j.ParentSpanID)
	b = appendBytes(b, j.Priority)
	b = appendID(b, arcp.JobPrefix, j.Parent)
	b = appendBytes(b, j.IdempotencyKey)
	b = appendBytes(b, j.Digest)
	b = appendTime(b, j.CreatedAt)
	return appendStatus(b, &sequence.Status{State: j.State, Attempt: j.Attempt, StartedAt: j.StartedAt, EndedAt: j.EndedAt, Code: j.Code,
		LastJSeq: j.LastJSeq, LastSeq: j.LastSeq})
}

// DecodeJob reads the row of the job with an id.
func DecodeJob(id arcp.JobID, b []byte) (store.Job, error) {
	r := &reader{b: b, s: string(b)}
	v := r.versionUpTo(jobVersion)
	j := store.Job{
		ID:             id,
		Principal:      r.str(),
		Session:        arcp.SessionID(r.id(arcp.SessionPrefix)),
		SubmitID:       arcp.MessageID(r.id(arcp.MessagePrefix)),
		Agent:          r.str(),
		Arguments:      r.raw(),
		Options:        r.raw(),
		TraceID:        r.str(),
		SpanID:         r.str(),
		ParentSpanID:   r.str(),
		Priority:       arcp.Priority(r.str()),
		Parent:         arcp.JobID(r.id(arcp.JobPrefix)),
		IdempotencyKey: r.str(),
		Digest:         r.str(),
		CreatedAt:      r.time(),
	}
	s := r.status(v)
	s.Apply(&j)
	return j, r.done()
}

// AppendStatus appends the changing part of a job's row.
func AppendStatus(b []byte, s *sequence.Status) []byte {
	return appendStatus(append(b, jobVersion), s)
}

// DecodeStatus reads a value of AppendStatus.
func DecodeStatus(b []byte) (sequence.Status, error) {
	r := &reader{b: b, s: string(b)}
	s := r.status(r.versionUpTo(jobVersion))
	return s, r.done()
}

func appendStatus(b []byte, s *sequence.Status) []byte {
	b = appendBytes(b, s.State)
	b = binary.AppendUvarint(b, uint64(s.Attempt))
	b = appendTime(b, s.EndedAt)
	b = appendBytes(b, s.Code)
	b = binary.AppendUvarint(b, s.LastJSeq)
	b = binary.AppendUvarint(b, s.LastSeq)
	return appendTime(b, s.StartedAt)
}

func (r *reader) status(version byte) sequence.Status {
	s := sequence.Status{
		State:    arcp.JobState(r.str()),
		Attempt:  uint32(r.uint()),
		EndedAt:  r.time(),
		Code:     arcp.Code(r.str()),
		LastJSeq: r.uint(),
		LastSeq:  r.uint(),
	}
	if version > 1 {
		s.StartedAt = r.time()
	}
	return s
}

// sessionVersion is the version of a session's row. Older versions are still read:
// version 1 ends before Epoch, version 2 has no Written.
const sessionVersion = 4

// AppendSession appends a session's row without its id and positions.
func AppendSession(b []byte, s *store.Session) []byte {
	b = appendBytes(append(b, sessionVersion), s.Principal)
	b = appendBool(b, s.Anonymous)
	b = appendBytes(b, s.Version)
	b = appendBytes(b, s.ClientKind)
	b = binary.AppendUvarint(b, uint64(len(s.Negotiated)))
	for _, f := range s.Negotiated {
		b = appendBytes(b, f)
	}
	b = binary.AppendUvarint(append(b, s.TokenHash[:]...), uint64(len(s.PrevHashes)))
	for _, h := range s.PrevHashes {
		b = append(b, h[:]...)
	}
	b = appendBytes(b, s.Identity)
	b = appendBool(b, s.Acks)
	b = appendTime(b, s.CreatedAt)
	b = binary.AppendUvarint(b, uint64(s.Epoch))
	b = binary.AppendUvarint(b, s.Written)
	return appendBytes(append(b, byte(s.Dialect)), s.Profile)
}

// DecodeSession reads the row of the session with an id.
func DecodeSession(id arcp.SessionID, b []byte) (store.Session, error) {
	r := &reader{b: b, s: string(b)}
	v := r.versionUpTo(sessionVersion)
	s := store.Session{ID: id, Principal: r.str(), Anonymous: r.bool(), Version: r.str(), ClientKind: r.str()}
	for range r.count() {
		s.Negotiated = append(s.Negotiated, arcp.Feature(r.str()))
	}
	r.hash(&s.TokenHash)
	if v == 1 {
		s.CreatedAt, s.Epoch = r.time(), 1
		r.time() // version 1 only: when the session was detached, and when it ended
		r.time()
		return s, r.done()
	}
	for range r.count() {
		var h [32]byte
		r.hash(&h)
		s.PrevHashes = append(s.PrevHashes, h)
	}
	s.Identity = r.raw()
	s.Acks = r.bool()
	s.CreatedAt = r.time()
	s.Epoch = uint32(r.uint())
	if v > 2 {
		s.Written = r.uint()
	}
	if v > 3 {
		s.Dialect, s.Profile = arcp.Dialect(r.byte()), r.str()
	}
	return s, r.done()
}

func (r *reader) hash(h *[32]byte) {
	for i := range h {
		h[i] = r.byte()
	}
}

// AppendRecord appends a record's revision and value.
func AppendRecord(b []byte, rev uint64, value []byte) []byte {
	return append(binary.AppendUvarint(append(b, version), rev), value...)
}

// DecodeRecord reads the record with a key. Its value is a copy.
func DecodeRecord(key string, b []byte) (store.Record, error) {
	r := reader{b: b}
	r.version()
	rec := store.Record{Key: key, Rev: r.uint()}
	if r.err == nil {
		rec.Value = append([]byte{}, b[r.off:]...)
	}
	return rec, r.err
}

// AppendHolder appends the job that holds an idempotency key.
func AppendHolder(b []byte, id arcp.JobID, digest string) []byte {
	return appendBytes(appendID(append(b, version), arcp.JobPrefix, id), digest)
}

// DecodeHolder reads a value of AppendHolder.
func DecodeHolder(b []byte) (id arcp.JobID, digest string, err error) {
	r := newReader(b)
	id, digest = arcp.JobID(r.id(arcp.JobPrefix)), r.str()
	return id, digest, r.done()
}

// AppendSubmitted appends the job that was submitted with an id.
func AppendSubmitted(b []byte, id arcp.JobID) []byte {
	return appendID(append(b, version), arcp.JobPrefix, id)
}

// DecodeSubmitted reads a value of AppendSubmitted.
func DecodeSubmitted(b []byte) (arcp.JobID, error) {
	r := newReader(b)
	id := arcp.JobID(r.id(arcp.JobPrefix))
	return id, r.done()
}

// AppendState appends the counters of a store.
func AppendState(b []byte, s *State) []byte {
	b = appendBytes(append(b, version), s.LastID)
	b = binary.AppendUvarint(b, s.Deleted)
	b = binary.AppendUvarint(b, s.Jobs)
	return binary.AppendUvarint(b, s.Sessions)
}

// State holds the counters of a store.
type State struct {
	LastID   arcp.MessageID // of the last event
	Deleted  uint64         // highest revision that a deleted record had
	Jobs     uint64         // number of jobs
	Sessions uint64
}

// DecodeState reads a value of AppendState.
func DecodeState(b []byte) (State, error) {
	r := newReader(b)
	s := State{LastID: arcp.MessageID(r.str()), Deleted: r.uint(), Jobs: r.uint(), Sessions: r.uint()}
	return s, r.done()
}

// AppendPosition appends a position in a session's log.
func AppendPosition(b []byte, seq uint64) []byte {
	return binary.AppendUvarint(append(b, version), seq)
}

// DecodePosition reads a value of AppendPosition.
func DecodePosition(b []byte) (uint64, error) {
	r := newReader(b)
	n := r.uint()
	return n, r.done()
}
