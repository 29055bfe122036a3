package questions

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/RaduBerinde/btreemap"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
)

func ids(rows []approval.Row) (list []string) {
	for i := range rows {
		list = append(list, rows[i].ID)
	}
	return list
}

// model has the pending questions in a map. It answers every request with a search of all.
type model map[string]Question

// visible returns what Visible yields, up to max questions.
func (m model) visible(actor *approval.Actor, after string, max int) (list []Question) {
	for _, id := range slices.Sorted(maps.Keys(m)) {
		if q := m[id]; id > after && q.Row.Visible(actor) && len(list) < max {
			list = append(list, q)
		}
	}
	return list
}

func (m model) pendingOf(principal string) (rows []approval.Row) {
	for _, q := range m {
		if q.Row.Principal == principal {
			rows = append(rows, q.Row)
		}
	}
	slices.SortFunc(rows, func(x, y approval.Row) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.ID, y.ID))
	})
	return rows
}

func (m model) approvals() (list []string) {
	for _, q := range m {
		if q.Row.Job == "" {
			list = append(list, string(q.Row.Session)+" "+q.Row.ID)
		}
	}
	slices.Sort(list)
	return list
}

func (m model) oldest() (t time.Time) {
	for _, q := range m {
		if t.IsZero() || q.Row.CreatedAt.Before(t) {
			t = q.Row.CreatedAt
		}
	}
	return t
}

func sameQuestion(x, y Question) bool {
	return x.Request == y.Request && x.Row.ID == y.Row.ID && x.Row.Action == y.Row.Action && x.Row.Principal == y.Row.Principal
}

// The broker has the questions that a search of all questions finds, also after changes and ends.
func TestBrokerFindsWhatASearchFinds(t *testing.T) {
	principals := []string{"alice", "bob", "carol"}
	actors := []approval.Actor{
		{Principal: "alice"},
		{Principal: "bob"},
		{Principal: "dan"},
		{Principal: "dan", Admin: true},
		{Principal: "bob", Sees: func(p string) bool { return p == "carol" }},
	}
	f := newFixture(t)
	f.Connect(func(arcp.JobID, string, approval.Actor) {})
	rapid.Check(t, func(t *rapid.T) {
		f.pending = newIndex()
		m := make(model)
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				n := rapid.IntRange(0, 200).Draw(t, "question")
				q := Question{Row: approval.Row{
					ID:        fmt.Sprintf("q%03d", n),
					Principal: principals[n%len(principals)],
					Session:   arcp.SessionID(fmt.Sprint("sess_", rapid.IntRange(0, 3).Draw(t, "session"))),
					Action:    rapid.StringN(0, 3, -1).Draw(t, "action"),
					Status:    approval.Pending,
					CreatedAt: time.Unix(int64(n*37%101), 0),
				}}
				if n%2 == 0 {
					q.Row.Job = "job_1"
					q.Request = arcp.MessageID(fmt.Sprint(q.Row.ID, "/", rapid.IntRange(0, 2).Draw(t, "request")))
				}
				f.Asked(q.Row, q.Request)
				m[q.Row.ID] = q
			},
			"close": func(t *rapid.T) {
				if len(m) == 0 {
					t.Skip("no question is pending")
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "closed")
				f.Closed(m[id].Row)
				delete(m, id)
			},
			"": func(t *rapid.T) { compare(t, f, m, principals, actors) },
		})
	})
}

func compare(t *rapid.T, f *fixture, m model, principals []string, actors []approval.Actor) {
	after := fmt.Sprintf("q%03d", rapid.IntRange(-1, 201).Draw(t, "after"))
	limit := rapid.IntRange(1, 20).Draw(t, "limit")
	for i := range actors {
		var got []Question
		for q := range f.Visible(&actors[i], after) {
			if got = append(got, *q); len(got) == limit {
				break
			}
		}
		if want := m.visible(&actors[i], after, limit); !slices.EqualFunc(got, want, sameQuestion) {
			t.Fatalf("Visible of %+v after %s = %+v, want %+v", actors[i], after, got, want)
		}
	}
	for _, p := range principals {
		want := ids(m.pendingOf(p))
		if got := ids(f.PendingOf(p)); !slices.Equal(got, want) {
			t.Fatalf("PendingOf(%s) = %q, want %q", p, got, want)
		}
		if n := f.pending.countOf(p); n != len(want) {
			t.Fatalf("%s has %d questions, want %d", p, n, len(want))
		}
	}
	var approvals []string
	for _, q := range f.SessionApprovals().snapshot().Ascend(btreemap.Min[approvalKey](), btreemap.Max[approvalKey]()) {
		approvals = append(approvals, string(q.Row.Session)+" "+q.Row.ID)
	}
	if want := m.approvals(); !slices.Equal(approvals, want) {
		t.Fatalf("the approvals without a job are %q, want %q", approvals, want)
	}
	if got, want := f.Oldest(), m.oldest(); !got.Equal(want) {
		t.Fatalf("Oldest = %s, want %s", got, want)
	}
	requests := 0
	for id, want := range m {
		if got, ok := f.Find(id); !ok || !sameQuestion(got, want) {
			t.Fatalf("Find(%s) = %+v, %v, want %+v", id, got, ok, want)
		}
		if want.Request != "" {
			requests++
			if got, ok := f.Find(string(want.Request)); !ok || !sameQuestion(got, want) {
				t.Fatalf("Find(%s) = %+v, %v, want %+v", want.Request, got, ok, want)
			}
		}
	}
	if n := len(f.pending.requests); n != requests {
		t.Fatalf("%d events of questions are found, want %d", n, requests)
	}
}

// While a caller reads the questions, others are asked and closed: the committer does not wait for the
// reader, and the reader has the questions as they were.
func TestReadersDoNotHoldTheBroker(t *testing.T) {
	f := newFixture(t)
	rows := make([]approval.Row, 100)
	for n := range rows {
		rows[n] = f.ask(fmt.Sprintf("q%03d", n))
	}
	want := ids(rows)
	var seen []string
	for q := range f.Visible(&approval.Actor{Principal: "alice"}, "") {
		f.Closed(rows[len(rows)-1-len(seen)])
		f.ask(fmt.Sprintf("r%03d", len(seen)))
		seen = append(seen, q.Row.ID)
	}
	if !slices.Equal(seen, want) {
		t.Errorf("Visible yields %q, want the questions before the changes: %q", seen, want)
	}
	n := 0
	f.EachPending(func(string, arcp.Raw) {
		f.ask(fmt.Sprintf("s%03d", n))
		n++
	})
	if n != len(rows) {
		t.Errorf("EachPending calls its function %d times, want %d", n, len(rows))
	}
}

// A page of one question, and the end of one session, copy nothing of the other questions.
func TestOnePageCopiesOneQuestion(t *testing.T) {
	costs := func(others int) (page, end float64) {
		f := newFixture(t)
		for n := range others {
			f.ask(fmt.Sprintf("q%05d", n))
		}
		alice := &approval.Actor{Principal: "alice"}
		page = testing.AllocsPerRun(10, func() {
			n := 0
			for q := range f.Visible(alice, fmt.Sprintf("q%05d", others/2-1)) {
				if n++; q.Row.ID != fmt.Sprintf("q%05d", others/2) {
					t.Errorf("Visible yields %s first, want q%05d", q.Row.ID, others/2)
				}
				break
			}
			if n != 1 {
				t.Errorf("Visible yields %d questions, want one", n)
			}
		})
		end = testing.AllocsPerRun(10, func() {
			if err := f.SessionApprovals().EndSession(t.Context(), "sess_none"); err != nil {
				t.Error(err)
			}
		})
		return page, end
	}
	page, end := costs(10)
	manyPage, manyEnd := costs(10_000)
	const levels = 4 // of the trees: a deeper one takes an allocation more a level
	if manyPage > page+levels {
		t.Errorf("a page of one question of 10,000 takes %v allocations, want %v as of 10", manyPage, page)
	}
	if manyEnd > end+levels {
		t.Errorf("the end of a session beside 10,000 approvals takes %v allocations, want %v as beside 10", manyEnd, end)
	}
}
