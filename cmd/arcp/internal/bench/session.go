package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/arcpd/arcpd/transport"
)

// session is a connection with an open session. One goroutine reads and writes.
type session struct {
	conn    transport.Conn
	dialect *dialect
}

// readLimit bounds a received frame, in bytes.
const readLimit = 4 << 20

// errRefused is a refusal or a failure that the runtime reports.
var errRefused = errors.New("refused")

func openSession(ctx context.Context, s *Server, d *dialect) (*session, error) {
	conn, err := transport.Dial(ctx, s.URL, transport.DialOptions{Limits: transport.Limits{ReadLimit: readLimit}})
	if err != nil {
		return nil, err
	}
	acceptBinary(conn)
	sess := &session{conn, d}
	stop := context.AfterFunc(ctx, sess.abort)
	defer stop()
	if err = sess.send(d.openFrame(s)); err == nil {
		_, err = sess.await(d.opened)
	}
	if err != nil {
		sess.abort()
		return nil, err
	}
	return sess, nil
}

// acceptBinary makes a WebSocket receive binary frames.
func acceptBinary(conn transport.Conn) transport.BinaryConn {
	bin := conn.(transport.BinaryConn)
	bin.AcceptBinary()
	return bin
}

// sendBinary writes and flushes a binary frame.
func (s *session) sendBinary(frame []byte) error {
	if err := s.conn.(transport.BinaryConn).WriteBinary(frame); err != nil {
		return err
	}
	return s.conn.Flush()
}

// abort drops the connection. Many goroutines may call it, also repeatedly.
func (s *session) abort() { _ = s.conn.Abort() } // the connection is not used any more

// send writes and flushes a frame.
func (s *session) send(frame []byte) error {
	if err := s.conn.Write(frame); err != nil {
		return err
	}
	return s.conn.Flush()
}

// await returns the next frame of the wanted type. A refusal before the frame is an error.
func (s *session) await(want string) ([]byte, error) {
	for {
		frame, err := s.conn.Read()
		if err != nil {
			return nil, err
		}
		switch t := typeOf(frame); {
		case string(t) == want:
			return frame, nil
		case s.dialect.isRefusal(t):
			return nil, fmt.Errorf("%w: %s", errRefused, frame)
		}
	}
}

var (
	typeKey = []byte(`"type":"`)
	seqKey  = []byte(`"event_seq":`)
	timeKey = []byte(`"timestamp":"`)
	jobKey  = []byte(`"job_id":"`)
	kindKey = []byte(`"kind":"`)
	nextKey = []byte(`"next_cursor":"`)
	quote   = []byte(`"`)
)

// typeOf returns the type of an envelope, or nil. The envelope has its own members before the payload.
func typeOf(frame []byte) []byte { return member(frame, typeKey) }

// member returns the value of the first string member with a key, or nil.
func member(frame, key []byte) []byte {
	_, value, _ := bytes.Cut(frame, key)
	value, _, closed := bytes.Cut(value, quote)
	if !closed {
		return nil
	}
	return value
}

// seqOf returns the event_seq of an envelope, or 0.
func seqOf(frame []byte) (n uint64) {
	_, digits, _ := bytes.Cut(frame, seqKey)
	for _, c := range digits {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// clockOf returns the time of day of an envelope's timestamp. ok is false unless the timestamp is UTC with
// microseconds, 2006-01-02T15:04:05.000000Z, or milliseconds, 2006-01-02T15:04:05.000Z.
func clockOf(frame []byte) (clock time.Duration, ok bool) {
	t := member(frame, timeKey)
	unit, ok := clockUnits[len(t)]
	if !ok || t[len(t)-1] != 'Z' {
		return 0, false
	}
	num := func(from, to int, unit time.Duration) time.Duration {
		n := 0
		for _, c := range t[from:to] {
			n = n*10 + int(c-'0')
		}
		return time.Duration(n) * unit
	}
	return num(11, 13, time.Hour) + num(14, 16, time.Minute) + num(17, 19, time.Second) + num(20, len(t)-1, unit), true
}

// clockUnits has the unit of the fraction in a timestamp by the length of the timestamp.
var clockUnits = map[int]time.Duration{
	len("2006-01-02T15:04:05.000000Z"): time.Microsecond,
	len("2006-01-02T15:04:05.000Z"):    time.Millisecond,
}

// since returns the time from the latest clock, a time of day, to now.
func since(now time.Time, clock time.Duration) time.Duration {
	const day = 24 * time.Hour
	today := now.Sub(now.Truncate(day)) // UTC
	if today < clock-day/2 {            // midnight has passed
		today += day
	}
	return today - clock
}

var ids atomic.Uint64

// prepared is a frame that is sent repeatedly with new ids.
type prepared struct {
	frame []byte
	id    []byte // the digits, inside frame
}

const idDigits = 16

// next returns the frame with a new id. The frame is valid until the next call.
func (p *prepared) next() []byte {
	n := ids.Add(1)
	for i := idDigits - 1; i >= 0; i-- {
		p.id[i] = '0' + byte(n%10)
		n /= 10
	}
	return p.frame
}

// acks builds the acknowledgements of a session.
type acks struct {
	frame []byte // up to the number
	every uint64 // events between acknowledgements
	last  uint64 // acknowledged number
}

func (d *dialect) newAcks(every uint64) *acks {
	frame := d.prepare(d.ack, `{"last_processed_seq":0}`).next()
	return &acks{frame: bytes.TrimSuffix(frame, []byte("0}}")), every: every}
}

// due returns the acknowledgement of seq if it is due, else nil. All acknowledgements have the same id, because a repeated
// acknowledgement has no effect.
func (a *acks) due(seq uint64) []byte {
	if seq < a.last+a.every {
		return nil
	}
	a.last = seq
	return append(strconv.AppendUint(a.frame[:len(a.frame):len(a.frame)], seq, 10), "}}"...)
}
