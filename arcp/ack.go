package arcp

import "bytes"

// ReadAck decodes a session.ack in its common form fast, because a client may acknowledge each
// event. id is the session of the connection. ok is false for any other frame, which must be
// decoded in full: another type, a malformed ack, white space or further members.
func ReadAck(frame []byte, id SessionID) (seq uint64, ok bool) {
	return readAck(frame, id, ackRequired)
}

// ReadDraftAck is ReadAck for frames of the draft dialect (package draft). The timestamp may be
// missing.
func ReadDraftAck(frame []byte, id SessionID) (seq uint64, ok bool) {
	return readAck(frame, id, ackRequired&^ackTime)
}

func readAck(frame []byte, id SessionID, required uint8) (seq uint64, ok bool) {
	r := ackReader{rest: frame}
	if !r.skip(`{`) {
		return 0, false
	}
	for {
		bit, ok := r.member(id)
		if !ok || r.found&bit != 0 {
			return 0, false
		}
		r.found |= bit
		if r.skip(`,`) {
			continue
		}
		return r.seq, string(r.rest) == `}` && r.found&required == required
	}
}

// ackReader reads a frame from the front. Each method removes one element from rest, or returns
// false.
type ackReader struct {
	rest  []byte
	seq   uint64
	found uint8
}

// The members of a session.ack.
const (
	ackVersion uint8 = 1 << iota
	ackID
	ackType
	ackTime
	ackPayload
	ackSession
	ackRequired = ackVersion | ackID | ackType | ackTime | ackPayload
)

func (r *ackReader) skip(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

// text removes a string. Escapes are not decoded: callers compare the text, or accept only
// characters without escapes.
func (r *ackReader) text() ([]byte, bool) {
	if len(r.rest) == 0 || r.rest[0] != '"' {
		return nil, false
	}
	n := bytes.IndexByte(r.rest[1:], '"')
	if n < 0 {
		return nil, false
	}
	text := r.rest[1 : 1+n]
	r.rest = r.rest[2+n:]
	return text, true
}

func (r *ackReader) member(id SessionID) (bit uint8, ok bool) {
	name, ok := r.text()
	if !ok || !r.skip(`:`) {
		return 0, false
	}
	if string(name) == "payload" {
		return ackPayload, r.payload()
	}
	text, ok := r.text()
	if !ok {
		return 0, false
	}
	switch string(name) {
	case "arcp":
		return ackVersion, string(text) == "1.1" || string(text) == "1.0" || string(text) == "1"
	case "id":
		return ackID, plainID(text)
	case "type":
		return ackType, string(text) == string(SessionAck)
	case "timestamp":
		return ackTime, plainTime(text)
	case "session_id":
		return ackSession, string(text) == string(id)
	}
	return 0, false
}

func (r *ackReader) payload() bool {
	if !r.skip(`{"last_processed_seq":`) {
		return false
	}
	n := 0
	for n < len(r.rest) && n < 19 && isDigit(r.rest[n]) { // 19 digits do not overflow
		r.seq = r.seq*10 + uint64(r.rest[n]-'0')
		n++
	}
	if n == 0 || n > 1 && r.rest[0] == '0' {
		return false
	}
	r.rest = r.rest[n:]
	return r.skip(`}`)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// plainID is ValidID for a text without escapes.
func plainID(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return 0 < len(text) && len(text) <= MaxIDLen
}

// plainTime reports whether text is a time of RFC 3339 in UTC.
func plainTime(text []byte) bool {
	const form = "0000-00-00T00:00:00"
	if len(text) <= len(form) || len(text) > len(form)+len(".000000000Z") || text[len(text)-1] != 'Z' {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' && !isDigit(text[i]) || form[i] != '0' && text[i] != form[i] {
			return false
		}
	}
	fraction := text[len(form) : len(text)-1]
	for i, c := range fraction {
		if i == 0 && c != '.' || i > 0 && !isDigit(c) {
			return false
		}
	}
	two := func(i int) int { return int(text[i]-'0')*10 + int(text[i+1]-'0') }
	month, day := two(5), two(8)
	return len(fraction) != 1 && text[0] != '0' && 1 <= month && month <= 12 && 1 <= day && day <= monthDays[month] &&
		two(11) <= 23 && two(14) <= 59 && two(17) <= 59
}

// monthDays omits leap days: their frames are decoded in full.
var monthDays = [...]int{1: 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
