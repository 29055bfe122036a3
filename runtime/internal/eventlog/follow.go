package eventlog

import (
	"context"

	"github.com/arcpd/arcpd/runtime/store"
)

// followPiece is how many events of a history are given in one write: a few
// milliseconds for whoever commits meanwhile.
const followPiece = 2048

// Follow appends a Follow in pieces, so that a long history does not hold up
// anybody. first is called with the result of the first piece, before anything of
// it is delivered; then last with that of the last one, which may be the same, or
// with the first that failed: with store.ErrNotFound, if the job was deleted
// between two pieces. Both are called on the committer's goroutine and may be nil.
func (l *Log) Follow(f store.Follow, first, last func(*store.Result)) {
	l.follow(f, false, first, last)
}

// follow gives the next piece; promised says that the one before has left some.
func (l *Log) follow(f store.Follow, promised bool, first, last func(*store.Result)) {
	f.Max = followPiece
	l.Append(store.NewWrite(&f), func(r *store.Result) {
		if first != nil {
			first(r)
		}
		if r.Err == nil && r.More {
			next := f
			next.From, next.Limit = r.From, 0 // the client has been told that it follows the job
			l.follow(next, true, nil, last)
			return
		}
		if promised && r.Err == nil && len(r.Runs) == 0 {
			_, r.Err = l.store.Job(context.Background(), f.Job)
		}
		if last != nil {
			last(r)
		}
	})
}
