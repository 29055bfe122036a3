package eventlog

import (
	"context"

	"github.com/arcpd/arcpd/runtime/store"
)

// followPiece is the number of events of a history that one write delivers. It delays
// other writes by a few milliseconds.
const followPiece = 2048

// Follow appends a store.Follow in pieces, so that a long history does not delay other
// writes. first is called with the result of the first piece before any of its events is
// delivered. last is called with the result of the last piece, or of the first piece
// that failed: store.ErrNotFound if the job was deleted between two pieces. Both are
// called on the committer's goroutine and may be nil.
func (l *Log) Follow(f store.Follow, first, last func(*store.Result)) {
	l.follow(f, false, first, last)
}

// follow appends the next piece. rest says that the piece before left events.
func (l *Log) follow(f store.Follow, rest bool, first, last func(*store.Result)) {
	f.Max = followPiece
	l.Append(store.NewWrite(&f), func(r *store.Result) {
		if first != nil {
			first(r)
		}
		if r.Err == nil && r.More {
			next := f
			next.From, next.Limit = r.From, 0 // the follow is confirmed to the client
			l.follow(next, true, nil, last)
			return
		}
		if rest && r.Err == nil && len(r.Runs) == 0 {
			_, r.Err = l.store.Job(context.Background(), f.Job)
		}
		if last != nil {
			last(r)
		}
	})
}
