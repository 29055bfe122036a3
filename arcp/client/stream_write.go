package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// maxSentChunk is the number of bytes in a chunk of a StreamWriter.
const maxSentChunk = 64 << 10

// StreamWriter writes a stream to a job. It belongs to one goroutine.
type StreamWriter struct {
	ctx  context.Context
	job  *Job
	id   arcp.StreamID
	kind string
	next uint64
	rest []byte // of a text: the beginning of a rune whose end was not written yet

	ended *RemoteError // sent by the runtime; nil: none. Guarded by job.mu
}

// OpenStream opens a stream to the job, whose tool must read streams of clients: if it does not, the error
// is a *RemoteError. All methods of the stream end with ctx. A method that sends a chunk returns when the
// tool has read the chunk. The stream is not stored: if the runtime restarts, or the job ends before it
// has read the stream, the next method fails with a *RemoteError.
func (j *Job) OpenStream(ctx context.Context, p arcp.StreamOpenPayload) (*StreamWriter, error) {
	w := &StreamWriter{ctx: ctx, job: j, id: arcp.StreamID(arcp.NewID(arcp.StreamPrefix)), kind: p.Kind}
	j.mu.Lock()
	if j.writers == nil {
		j.writers = make(map[arcp.StreamID]*StreamWriter)
	}
	j.writers[w.id] = w
	j.mu.Unlock()
	if err := w.send(arcp.StreamOpen, p); err != nil {
		w.forget()
		return nil, err
	}
	return w, nil
}

// endWriter handles a stream.error of the runtime. It reports whether the job has a writer of the stream.
func (j *Job) endWriter(env *arcp.Envelope) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := j.writers[env.StreamID]
	if w == nil {
		return false
	}
	w.ended = RemoteErrorOf(env)
	return true
}

func (w *StreamWriter) forget() {
	w.job.mu.Lock()
	defer w.job.mu.Unlock()
	delete(w.job.writers, w.id)
}

// ID returns the id of the stream.
func (w *StreamWriter) ID() arcp.StreamID { return w.id }

// Write sends bytes to a text or binary stream, in chunks of 64 KiB. A text is cut between runes: the
// beginning of a rune waits for the next call. Bytes that are not UTF-8 are replaced by U+FFFD.
func (w *StreamWriter) Write(p []byte) (n int, err error) {
	switch w.kind {
	case arcp.StreamBinary:
		for part := range slices.Chunk(p, maxSentChunk) {
			if err := w.chunk(binaryChunk(w.job.c, part)); err != nil {
				return n, err
			}
			n += len(part)
		}
		return n, nil
	case arcp.StreamText:
		held := len(w.rest)
		text := append(w.rest, p...)
		for size := textChunk(text); size > 0; size = textChunk(text) {
			if err := w.text(string(text[:size])); err != nil {
				return max(n-held, 0), err
			}
			n += size
			text = text[size:]
		}
		w.rest = slices.Clone(text)
		return len(p), nil
	}
	return 0, fmt.Errorf("a stream of the kind %s has no bytes: use WriteJSON", w.kind)
}

// textChunk returns the number of bytes of the next chunk of a text. It is 0 for an empty text and for the
// beginning of a rune.
func textChunk(b []byte) int {
	n := min(len(b), maxSentChunk)
	for i := 1; i <= min(n, utf8.UTFMax-1); i++ {
		if utf8.RuneStart(b[n-i]) {
			if !utf8.FullRune(b[n-i : n]) {
				n -= i
			}
			break
		}
	}
	return n
}

func (w *StreamWriter) text(s string) error {
	return w.chunk(arcp.StreamChunkPayload{Data: arcp.AppendString(nil, strings.ToValidUTF8(s, "\uFFFD"))})
}

// WriteJSON sends a chunk of an event, log or metric stream. v is encoded as a JSON object.
func (w *StreamWriter) WriteJSON(v any) error {
	raw, err := arcp.Marshal(v)
	if err != nil {
		return fmt.Errorf("stream.chunk: %w", err)
	}
	return w.chunk(arcp.StreamChunkPayload{Data: raw})
}

func (w *StreamWriter) chunk(p arcp.StreamChunkPayload) error {
	p.Sequence = w.next
	if err := w.send(arcp.StreamChunk, p); err != nil {
		return err
	}
	w.next++
	return nil
}

// Close ends the stream.
func (w *StreamWriter) Close() error {
	if len(w.rest) > 0 {
		if err := w.text("\uFFFD"); err != nil {
			return err
		}
		w.rest = nil
	}
	var p arcp.StreamClosePayload
	if w.next > 0 {
		p.FinalSequence = new(w.next - 1)
	}
	defer w.forget()
	return w.send(arcp.StreamClose, p)
}

// CloseWithError ends the stream with an error, which the tool gets. An error that is not an *arcp.Error
// has the code UNKNOWN.
func (w *StreamWriter) CloseWithError(err error) error {
	e, ok := errors.AsType[*arcp.Error](err)
	if !ok {
		e = arcp.Errorf(arcp.CodeUnknown, "%s", err)
	}
	defer w.forget()
	return w.send(arcp.StreamError, e)
}

func (w *StreamWriter) send(t arcp.Type, payload any) error {
	env := arcp.Frame(t, payload)
	env.JobID, env.StreamID = w.job.ID(), w.id
	_, err := w.job.c.request(w.ctx, env, arcp.Ack, nil)
	w.job.mu.Lock()
	defer w.job.mu.Unlock()
	if err != nil && w.ended != nil {
		return fmt.Errorf("%s: %w", t, w.ended) // the reason why the runtime refuses the frame
	}
	return err
}
