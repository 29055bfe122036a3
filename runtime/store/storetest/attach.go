package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testOneOfTwoAttachesSucceeds attaches two connections to a session at the same time. One succeeds.
// Writes of the earlier connection are refused.
func testOneOfTwoAttachesSucceeds(t *testing.T, open Open) {
	d := openEmpty(t, open)
	attach := func(epoch uint32) *store.Write {
		row := sessionRow("sess_1")
		row.Epoch = epoch
		return store.NewWrite(&store.AttachSession{Row: row})
	}
	d.refuse(attach(0), store.ErrNotFound)
	if r := d.do(store.NewWrite(&store.OpenSession{Row: sessionRow("sess_1")})); r.Epoch != 1 {
		t.Errorf("a new session has epoch %d", r.Epoch)
	}
	d.emit(d.submit("job_1", "sess_1"), arcp.JobStarted)
	results := d.batch(attach(1), attach(1))
	if results[0].Err != nil || results[0].Epoch != 2 || !errors.Is(results[1].Err, store.ErrFenced) {
		t.Errorf("two connections attach: %+v, %+v", results[0], results[1])
	}
	put := func(id arcp.SessionID, epoch uint32) *store.Write {
		row := sessionRow(id)
		row.Epoch = epoch
		return store.NewWrite(&store.PutSession{Row: row})
	}
	d.refuse(put("sess_1", 1), store.ErrFenced)
	if r := d.do(put("sess_1", 2)); r.Epoch != 2 || r.LastSeq != 1 || d.row("sess_1").Epoch != 2 {
		t.Errorf("the row was replaced: %+v, %+v", r, d.row("sess_1"))
	}
	d.refuse(put("sess_gone", 1), store.ErrFenced)
	d.submit("job_other", d.session("sess_other"))
	d.do(store.NewWrite(&store.Follow{Session: "sess_1", Job: "job_other", CorrelationID: "c"}))
	if r := d.do(attach(2)); !slices.Equal(r.Followed, []arcp.JobID{"job_other"}) {
		t.Errorf("the session that attaches follows %v, want the job of the other session", r.Followed)
	}
	d.finish("job_other")
	if r := d.do(attach(3)); len(r.Followed) > 0 {
		t.Errorf("the session follows %v, which have ended", r.Followed)
	}
}
