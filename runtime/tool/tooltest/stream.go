package tooltest

import (
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// streamHost is the tool.StreamHost of Record.Streams[n].
type streamHost struct {
	host
	n int
}

func (h host) OpenStream(p arcp.StreamOpenPayload) (tool.StreamHost, error) {
	if err := h.accept(arcp.StreamOpen, p); err != nil {
		return nil, err
	}
	s := streamHost{host: h}
	h.update(func(r *Record) {
		s.n = len(r.Streams)
		r.Streams = append(r.Streams, Stream{StreamOpenPayload: p})
	})
	return s, nil
}

func (s streamHost) ID() arcp.StreamID { return arcp.StreamID(fmt.Sprintf("str_test%d", s.n)) }

func (s streamHost) Chunk(p arcp.StreamChunkPayload) error {
	return s.change(arcp.StreamChunk, p, func(st *Stream) {
		p.Sequence, p.Data = uint64(len(st.Chunks)), slices.Clone(p.Data)
		st.Chunks = append(st.Chunks, p)
	})
}

func (s streamHost) End(err *arcp.Error) error {
	end := func(st *Stream) { st.Ended, st.Err = true, err }
	if err != nil {
		return s.change(arcp.StreamError, err, end)
	}
	return s.change(arcp.StreamClose, arcp.StreamClosePayload{}, end)
}

// change changes the stream in the record, unless the stream has ended or Script.Emit refuses the event.
func (s streamHost) change(t arcp.Type, payload any, change func(*Stream)) error {
	if err := s.accept(t, payload); err != nil {
		return err
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	st := &s.j.record.Streams[s.n]
	if st.Ended {
		return arcp.Errorf(arcp.CodeFailedPrecondition, "the stream is closed")
	}
	change(st)
	return nil
}
