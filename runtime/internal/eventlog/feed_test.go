package eventlog

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/arcpd/arcpd/runtime/store"
)

// silent is a store whose feeds cannot be read.
type silent struct {
	*faulty
	testing.TB
}

func (s silent) FeedBounds(context.Context, string) (trimmed, last uint64, err error) {
	s.Error("the committer reads the store for a subscription")
	return 0, 0, nil
}

// A cursor of a feed begins at its position among the queued writes, also when one commit
// has them all, and no commit waits for a read.
func TestFeedCursorBeginsAtItsPosition(t *testing.T) {
	f := newFixture(t, Options{})
	f.session("sess_1").Close()
	f.job("job_1", "sess_1")
	f.do(logs("job_1", "1", "2"))
	f.Log.store = silent{f.st, t}
	gate := make(chan struct{})
	f.st.set(func() { f.st.gate = gate })
	f.Append(&store.Write{NoSync: true}, nil) // the writes behind this one become one commit
	cursors, lasts := make(chan *Cursor, 2), make(chan uint64, 2)
	attach := func(after uint64) {
		f.AttachFeed("alice", after, Loop{Wake: nop, Go: func(fn func()) { fn() }}, func(c *Cursor, last uint64) { cursors <- c; lasts <- last })
	}
	attach(math.MaxUint64)
	f.Append(logs("job_1", "3"), nil)
	attach(1)
	f.Append(logs("job_1", "4"), nil)
	close(gate)
	f.flush()
	if first, second := <-lasts, <-lasts; first != 2 || second != 3 {
		t.Errorf("attached behind %d and %d, want 2 and 3", first, second)
	}
	f.wantItems("from now on", <-cursors, "3", "4")
	f.wantItems("from a position on", <-cursors, "2", "3", "4")

	f.st.set(func() { f.st.fail = errors.New("no more") })
	attach(0)
	if c := <-cursors; c != nil {
		t.Error("a cursor on a store that has failed")
	}
}
