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
	r := newFixture(t, Options{})
	r.session("sess_1").Close()
	r.job("job_1", "sess_1")
	r.do(logs("job_1", "1", "2"))
	r.Log.store = silent{r.st, t}
	gate := make(chan struct{})
	r.st.set(func() { r.st.gate = gate })
	r.Append(&store.Write{NoSync: true}, nil) // the writes behind this one become one commit
	cursors, lasts := make(chan *Cursor, 2), make(chan uint64, 2)
	attach := func(after uint64) {
		r.AttachFeed("alice", after, Loop{Wake: nop, Go: func(f func()) { f() }}, func(c *Cursor, last uint64) { cursors <- c; lasts <- last })
	}
	attach(math.MaxUint64)
	r.Append(logs("job_1", "3"), nil)
	attach(1)
	r.Append(logs("job_1", "4"), nil)
	close(gate)
	r.flush()
	if first, second := <-lasts, <-lasts; first != 2 || second != 3 {
		t.Errorf("attached behind %d and %d, want 2 and 3", first, second)
	}
	r.wantItems("from now on", <-cursors, "3", "4")
	r.wantItems("from a position on", <-cursors, "2", "3", "4")

	r.st.set(func() { r.st.fail = errors.New("no more") })
	attach(0)
	if c := <-cursors; c != nil {
		t.Error("a cursor on a store that has failed")
	}
}
