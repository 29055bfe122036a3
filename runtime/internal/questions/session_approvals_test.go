package questions

import (
	"slices"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/records"
)

// request stores an approval without a job.
func (f *fixture) request(t *testing.T, id string, session arcp.SessionID, expires time.Time) {
	t.Helper()
	row := approval.Row{ID: id, Kind: approval.Owned, Principal: "alice", Session: session, Status: approval.Pending, ExpiresAt: expires}
	if err := f.SessionApprovals().Ask(t.Context(), row); err != nil {
		t.Fatal(err)
	}
}

// The end of a session cancels its approvals, and none of a session whose id is next to its own.
func TestEndSessionCancelsItsApprovals(t *testing.T) {
	f := newFixture(t)
	later := time.Now().Add(time.Hour)
	for _, session := range []arcp.SessionID{"sess_1", "sess_2", "sess_20"} {
		f.attach(approval.Actor{Principal: "alice", Session: session})
		f.request(t, "a_"+string(session), session, later)
		f.request(t, "b_"+string(session), session, later)
	}
	if err := f.SessionApprovals().EndSession(t.Context(), "sess_2"); err != nil {
		t.Fatal(err)
	}
	want := []string{"a_sess_1", "a_sess_20", "b_sess_1", "b_sess_20"}
	if got := ids(f.PendingOf("alice")); !slices.Equal(got, want) {
		t.Errorf("%q are pending, want %q", got, want)
	}
	row, err := f.Read(t.Context(), &approval.Actor{Principal: "alice"}, "a_sess_2")
	if err != nil || row.Status != approval.Cancelled {
		t.Errorf("the approval of the session is %q, %v, want cancelled", row.Status, err)
	}
}

// EndOverdue expires the approvals at their deadline and cancels the ones of ended sessions.
func TestEndOverdue(t *testing.T) {
	f := newFixture(t)
	f.attach(approval.Actor{Principal: "alice", Session: "sess_1"})
	now := time.Now()
	f.request(t, "due", "sess_1", now.Add(-time.Second))
	f.request(t, "later", "sess_1", now.Add(time.Hour))
	row := approval.Row{ID: "orphan", Kind: approval.Owned, Principal: "alice", Session: "sess_gone", Status: approval.Pending,
		ExpiresAt: now.Add(time.Hour)}
	stored := make(chan error, 1)
	if err := f.commit(t.Context(), records.Row[approval.Row]{Key: approval.RecordKey(&row)}, row, func(err error) { stored <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	f.Asked(row, "")
	f.SessionApprovals().EndOverdue(t.Context(), now)
	if got := ids(f.PendingOf("alice")); !slices.Equal(got, []string{"later"}) {
		t.Errorf("%q are pending, want later", got)
	}
	for id, want := range map[string]approval.Status{"due": approval.Expired, "later": approval.Pending, "orphan": approval.Cancelled} {
		row, err := f.Read(t.Context(), &approval.Actor{Principal: "alice"}, id)
		if err != nil || row.Status != want {
			t.Errorf("%s is %q, %v, want %s", id, row.Status, err, want)
		}
	}
}
