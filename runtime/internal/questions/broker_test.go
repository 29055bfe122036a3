package questions

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/agents"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/session"
	"github.com/arcpd/arcpd/runtime/internal/txn"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// fixture is a broker without jobs, with a directory of sessions.
type fixture struct {
	*Broker
	sessions *session.Directory
}

func newFixture(t *testing.T) *fixture {
	st := mem.Open(mem.Options{})
	log := eventlog.New(st, eventlog.Options{})
	t.Cleanup(func() {
		log.Close()
		_ = st.Close() // in memory
	})
	sessions := session.NewDirectory(session.Options{Store: st, Log: log})
	return &fixture{sessions: sessions, Broker: New(Options{
		Store:    st,
		Sessions: sessions,
		Agents:   agents.NewStore(agents.Options{Log: log, Store: st, Sessions: sessions}),
		Changes:  txn.Committer{Log: log},
		Metrics:  metrics.New(prometheus.NewRegistry(), "test"),
	})}
}

// attach opens a session with a human user.
func (f *fixture) attach(actor approval.Actor) {
	conn := new(struct{ session.Conn })
	s, _, _ := f.sessions.Open(session.OpenParams{ID: actor.Session, Principal: actor.Principal, Conn: conn})
	actor.HumanInput = true
	s.SetActor(conn, actor)
}

func (f *fixture) ask(id string) approval.Row {
	row := approval.Row{ID: id, Kind: approval.Input, Principal: "alice", Status: approval.Pending}
	f.Asked(row, arcp.MessageID("msg_"+id))
	return row
}

func TestAudience(t *testing.T) {
	f := newFixture(t)
	f.attach(approval.Actor{Principal: "alice", Session: "submitter", Approver: true})
	f.attach(approval.Actor{Principal: "alice", Session: "approver", Approver: true})
	f.attach(approval.Actor{Principal: "alice", Session: "client"})
	f.attach(approval.Actor{Principal: "bob", Session: "other", Approver: true})
	f.attach(approval.Actor{Principal: "carol", Session: "admin", Admin: true})
	now := time.Now()
	tests := []struct {
		name string
		row  approval.Row
		want []arcp.SessionID
	}{
		{"a gate goes to approvers, not to the asking session", approval.Row{Kind: approval.Gate}, []arcp.SessionID{"admin", "approver"}},
		{"a gate goes to admins of other principals later",
			approval.Row{Kind: approval.Gate, EscalateAt: now.Add(time.Minute)}, []arcp.SessionID{"approver"}},
		{"a barred session gets no gate", approval.Row{Kind: approval.Gate, Barred: []arcp.SessionID{"approver"}}, []arcp.SessionID{"admin"}},
		{"an input goes to the sessions of its principal", approval.Row{Kind: approval.Input},
			[]arcp.SessionID{"approver", "client", "submitter"}},
		{"a session that has the question does not get it again",
			approval.Row{Kind: approval.Input, Sent: []arcp.SessionID{"client"}}, []arcp.SessionID{"approver", "submitter"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := &tt.row
			q.Principal, q.Session, q.Status, q.ExpiresAt = "alice", "submitter", approval.Pending, now.Add(time.Hour)
			if got := f.Audience(q, now); !slices.Equal(got, tt.want) {
				t.Errorf("Audience = %v, want %v", got, tt.want)
			}
		})
	}
}

// The session that submitted the job gets a permission request without human_input: its client
// decides whether to display the question.
func TestSubmitterGetsAPermissionRequest(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	q := &approval.Row{Kind: approval.Permission, Principal: "alice", Session: "submitter", Status: approval.Pending,
		ExpiresAt: now.Add(time.Hour)}
	if got, want := f.Audience(q, now), []arcp.SessionID{"submitter"}; !slices.Equal(got, want) {
		t.Errorf("Audience = %v, want %v", got, want)
	}
}

func TestCheckRoomBoundsTheQuestionsOfAPrincipal(t *testing.T) {
	f := newFixture(t)
	var last approval.Row
	for i := range MaxPending {
		if err := f.CheckRoom("alice"); err != nil {
			t.Fatalf("CheckRoom with %d questions = %v, want nil", i, err)
		}
		last = f.ask(fmt.Sprint("q", i))
	}
	if err := f.CheckRoom("alice"); err == nil || err.Code != arcp.CodeResourceExhausted {
		t.Errorf("CheckRoom with %d questions = %v, want RESOURCE_EXHAUSTED", MaxPending, err)
	}
	if err := f.CheckRoom("bob"); err != nil {
		t.Errorf("CheckRoom of another principal = %v, want nil", err)
	}
	f.Closed(last)
	if err := f.CheckRoom("alice"); err != nil {
		t.Errorf("CheckRoom after an answer = %v, want nil", err)
	}
}

// A question that has been sent to as many sessions as are remembered is offered to no others when it
// changes: each delivery would forget a session that has got it, and the next change would offer it again.
func TestSentQuestionIsNotOfferedAgain(t *testing.T) {
	f := newFixture(t)
	var offered []arcp.SessionID
	f.Connect(func(_ arcp.JobID, _ string, to approval.Actor) { offered = append(offered, to.Session) })
	f.attach(approval.Actor{Principal: "alice", Session: "sess_1"})
	row := approval.Row{
		ID:        "q1",
		Job:       "job_1",
		Kind:      approval.Input,
		Principal: "alice",
		Status:    approval.Pending,
		ExpiresAt: time.Now().Add(time.Hour),
	}
	f.Asked(row, "msg_q1")
	if !slices.Equal(offered, []arcp.SessionID{"sess_1"}) {
		t.Fatalf("a new question is offered to %q, want sess_1", offered)
	}
	for n := range approval.MaxSent {
		row.Sent = append(row.Sent, arcp.SessionID(fmt.Sprint("other_", n)))
	}
	f.Asked(row, "msg_q1")
	if len(offered) != 1 {
		t.Errorf("a question that %d sessions have got is offered to %q, want nobody", approval.MaxSent, offered[1:])
	}
}

// A session that attaches is offered the newest questions, the oldest of them first, and none that
// it has already.
func TestSessionAttachedOffersTheNewestQuestions(t *testing.T) {
	f := newFixture(t)
	var offered []string
	f.Connect(func(_ arcp.JobID, question string, _ approval.Actor) { offered = append(offered, question) })
	var want []string
	for n := range maxOffers + 3 {
		row := approval.Row{
			ID:        fmt.Sprintf("q%04d", n),
			Job:       "job_1",
			Kind:      approval.Input,
			Principal: "alice",
			Status:    approval.Pending,
			ExpiresAt: time.Now().Add(time.Hour),
		}
		if n == maxOffers+1 {
			row.Sent = []arcp.SessionID{"sess_1"}
		} else if n >= 2 {
			want = append(want, row.ID)
		}
		f.Asked(row, "")
	}
	f.ask("q9999") // without a job
	f.SessionAttached(approval.Actor{Principal: "alice", Session: "sess_1", HumanInput: true})
	if !slices.Equal(offered, want) {
		t.Errorf("offered %q, want %q", offered, want)
	}
}

func TestFind(t *testing.T) {
	f := newFixture(t)
	row := f.ask("q1")
	for _, id := range []string{"q1", "msg_q1"} {
		if q, ok := f.Find(id); !ok || q.Row.ID != "q1" || q.Request != "msg_q1" {
			t.Errorf("Find(%q) = %+v, %v, want the question", id, q, ok)
		}
	}
	f.Closed(row)
	for _, id := range []string{"q1", "msg_q1"} {
		if q, ok := f.Find(id); ok {
			t.Errorf("Find(%q) of a closed question = %+v, want none", id, q)
		}
	}
}

func TestChanged(t *testing.T) {
	closed := func(c chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	f := newFixture(t)
	asked, _ := f.Changed("q1")
	other, stopOther := f.Changed("q2")
	stopped, stop := f.Changed("q1")
	stop()
	row := f.ask("q1")
	if !closed(asked) {
		t.Error("Asked leaves the channel of Changed open, want it closed")
	}
	if closed(stopped) {
		t.Error("Asked closes the channel after stop, want it open")
	}
	resolved, _ := f.Changed("q1")
	f.Closed(row)
	if !closed(resolved) {
		t.Error("Closed leaves the channel of Changed open, want it closed")
	}
	if closed(other) {
		t.Error("a change of q1 closes the channel of q2, want it open")
	}
	stopOther()
	if n := len(f.changec); n != 0 {
		t.Errorf("%d questions have channels after their end or stop, want none", n)
	}
}
