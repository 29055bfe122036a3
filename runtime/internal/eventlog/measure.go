package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bounds of one call of Measure.
const (
	measureEvents = 4096
	measureBytes  = 8 << 20
)

// measuring is the session that Measure counts. Its older events are counted apart from
// the events that are appended meanwhile.
type measuring struct {
	id      arcp.SessionID // empty: none
	at      uint64         // last number counted
	upTo    uint64         // last number before the log was started
	backlog backlog
}

// Measure adds the events from before the log was started to the backlogs of sessions,
// so that their bound holds over any number of starts. It counts only sessions that got
// events since then: no other backlog grows. Each call counts a part of one session and
// reports whether there is more to do. released returns the last number that a session
// has released; trimmed events need not be known. After an error the session is counted
// again after the others. Measure is called by one goroutine at a time.
func (l *Log) Measure(ctx context.Context, released func(arcp.SessionID) uint64) (more bool, err error) {
	m := &l.measuring
	if m.id == "" {
		if *m = l.nextUnmeasured(); m.id == "" {
			return false, nil
		}
		m.at = released(m.id)
	}
	done, err := l.measurePiece(ctx, m)
	if err != nil {
		l.sessionsMu.Lock()
		l.unmeasured = append(l.unmeasured, m.id)
		l.sessionsMu.Unlock()
		*m = measuring{}
		return true, fmt.Errorf("measure the backlog of a session: %w", err)
	}
	if done {
		l.addMeasured(m)
		*m = measuring{}
	}
	return true, nil
}

// nextUnmeasured removes the first session from the list and returns it.
func (l *Log) nextUnmeasured() measuring {
	l.sessionsMu.Lock()
	defer l.sessionsMu.Unlock()
	for len(l.unmeasured) > 0 {
		id := l.unmeasured[0]
		l.unmeasured = dropFirst(l.unmeasured)
		if st := l.sessions[id]; st != nil {
			return measuring{id: id, upTo: st.first - 1}
		}
	}
	return measuring{}
}

// measurePiece counts the next events of m. It reports whether they were the last.
func (l *Log) measurePiece(ctx context.Context, m *measuring) (done bool, err error) {
	if m.at >= m.upTo {
		return true, nil
	}
	var overflow uint64
	events, bytes := 0, 0
	err = l.store.SessionEvents(ctx, m.id, m.at, func(d store.Delivery) bool {
		if d.Seq > m.upTo {
			return false
		}
		m.at = d.Seq
		overflow = max(overflow, m.backlog.add(d.Seq, uint64(len(d.Event.Body)), uint64(l.opts.BacklogBytes)))
		events, bytes = events+1, bytes+len(d.Event.Body)
		return d.Seq < m.upTo && events < measureEvents && bytes < measureBytes
	})
	if overflow > 0 {
		l.opts.OnOverflow(m.id, overflow)
	}
	missing, trimmed := errors.AsType[*store.TrimmedError](err)
	switch {
	case trimmed:
		m.at = missing.UpTo
		return m.at >= m.upTo, nil
	case errors.Is(err, store.ErrNotFound): // the session has ended
		return true, nil
	}
	return events < measureEvents && bytes < measureBytes, err
}

// addMeasured adds the counted events to the backlog of the session.
func (l *Log) addMeasured(m *measuring) {
	l.sessionsMu.Lock()
	st := l.sessions[m.id]
	if st == nil {
		l.sessionsMu.Unlock()
		return
	}
	if st.released >= m.upTo {
		m.backlog.freeAll()
	} else {
		m.backlog.free(st.released)
	}
	if st.backlog == nil {
		st.backlog = new(backlog)
	}
	st.backlog.prepend(&m.backlog)
	overflow := st.backlog.overflow(uint64(l.opts.BacklogBytes))
	l.updateLocked(st, func() { st.released = max(st.released, overflow) })
	l.sessionsMu.Unlock()
	if overflow > 0 {
		l.opts.OnOverflow(m.id, overflow)
	}
}
