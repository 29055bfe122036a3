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

// measuring is a session that Measure is at. What it was given before the log was
// started is counted apart from what it is given meanwhile.
type measuring struct {
	id   arcp.SessionID // empty: none
	at   uint64         // up to which it is counted
	upTo uint64         // the last number given before the log was started
	lag  backlog
}

// Measure adds to the backlogs what sessions were given before the log was
// started, so that their bound holds over any number of starts. Only sessions
// that are given something since can outgrow it, and only these are looked at, a
// piece of one in each call; more says whether there is something left. from says
// up to which number a session has let go of what it was given; what the store
// has trimmed need not be known. After an error the session has its turn again
// behind the others. Measure is called by one goroutine at a time.
func (l *Log) Measure(ctx context.Context, from func(arcp.SessionID) uint64) (more bool, err error) {
	m := &l.measuring
	if m.id == "" {
		if *m = l.nextUnmeasured(); m.id == "" {
			return false, nil
		}
		m.at = from(m.id)
	}
	done, err := l.measurePiece(ctx, m)
	if err != nil {
		l.curMu.Lock()
		l.unmeasured = append(l.unmeasured, m.id)
		l.curMu.Unlock()
		*m = measuring{}
		return true, fmt.Errorf("measure what a session was given: %w", err)
	}
	if done {
		l.measured(m)
		*m = measuring{}
	}
	return true, nil
}

// nextUnmeasured takes the first session to measure off the list.
func (l *Log) nextUnmeasured() measuring {
	l.curMu.Lock()
	defer l.curMu.Unlock()
	for len(l.unmeasured) > 0 {
		id := l.unmeasured[0]
		l.unmeasured = behead(l.unmeasured)
		if p := l.places[id]; p != nil {
			return measuring{id: id, upTo: p.first - 1}
		}
	}
	return measuring{}
}

// measurePiece counts the next events of m; done says that there are none left.
func (l *Log) measurePiece(ctx context.Context, m *measuring) (done bool, err error) {
	if m.at >= m.upTo {
		return true, nil
	}
	var over uint64
	events, bytes := 0, 0
	err = l.store.SessionEvents(ctx, m.id, m.at, func(d store.Delivery) bool {
		if d.Seq > m.upTo {
			return false
		}
		m.at = d.Seq
		over = max(over, m.lag.add(d.Seq, uint64(len(d.Event.Body)), uint64(l.opts.BacklogBytes)))
		events, bytes = events+1, bytes+len(d.Event.Body)
		return d.Seq < m.upTo && events < measureEvents && bytes < measureBytes
	})
	if over > 0 {
		l.opts.OnOverflow(m.id, over)
	}
	gone, trimmed := errors.AsType[*store.TrimmedError](err)
	switch {
	case trimmed:
		m.at = gone.UpTo
		return m.at >= m.upTo, nil
	case errors.Is(err, store.ErrNotFound): // it has ended
		return true, nil
	}
	return events < measureEvents && bytes < measureBytes, err
}

// measured puts what was counted before what the session was given since.
func (l *Log) measured(m *measuring) {
	l.curMu.Lock()
	p := l.places[m.id]
	if p == nil {
		l.curMu.Unlock()
		return
	}
	if p.letGo >= m.upTo {
		m.lag.freeAll()
	} else {
		m.lag.free(p.letGo)
	}
	p.lag.precede(&m.lag)
	over := p.lag.overflow(uint64(l.opts.BacklogBytes))
	p.letGo = max(p.letGo, over)
	l.curMu.Unlock()
	if over > 0 {
		l.opts.OnOverflow(m.id, over)
	}
}
