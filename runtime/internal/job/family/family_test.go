package family

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/job/authority"
	"github.com/arcpd/arcpd/runtime/internal/lease"
)

var t0 = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

type fataler interface{ Fatal(...any) }

func parse(t fataler, r lease.Request) *lease.Lease {
	l, err := lease.Parse(t0, r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// usd is a number of cents as an amount in its wire form.
func usd(cents int) string { return fmt.Sprintf("USD:%d.%02d", cents/100, cents%100) }

func amount(t fataler, cents int) []lease.Amount {
	a, err := lease.ParseAmount(usd(cents))
	if err != nil {
		t.Fatal(err)
	}
	return []lease.Amount{a}
}

func codeOf(err *arcp.Error) arcp.Code {
	if err == nil {
		return ""
	}
	return err.Code
}

func TestDepthIsBounded(t *testing.T) {
	p, deepest := Position{}, 0
	if p.EndsWithParent() {
		t.Error("a job without a parent ends with it")
	}
	for {
		next, err := p.Child(false)
		if err != nil {
			if err.Code != arcp.CodeFailedPrecondition {
				t.Errorf("Child at depth %d = %v, want FAILED_PRECONDITION", deepest, err)
			}
			break
		}
		if p = next; !p.EndsWithParent() {
			t.Errorf("%+v does not end with its parent", p)
		}
		deepest++
	}
	if deepest != MaxDepth {
		t.Errorf("a child may have %d ancestors, want %d", deepest, MaxDepth)
	}
	if p, _ := (Position{}).Child(true); p.EndsWithParent() {
		t.Error("a detached child ends with its parent")
	}
}

func TestChildNeedsTrustAndNoBuiltin(t *testing.T) {
	for _, c := range []struct {
		tool Callee
		code arcp.Code
	}{
		{Callee{Trusted: true}, ""},
		{Callee{MinTrust: "trusted"}, arcp.CodePermissionDenied},
		{Callee{Trusted: true, Builtin: true}, arcp.CodePermissionDenied},
	} {
		if err := c.tool.Check(); codeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.tool, err, c.code)
		}
	}
}

func TestRequestedLeaseIsWithinTheParents(t *testing.T) {
	parent := parse(t, lease.Request{Lease: arcp.Raw(`{"fs.read":["/a/**"]}`),
		Constraints: &arcp.LeaseConstraints{ExpiresAt: t0.Add(time.Hour)}})
	zone := time.FixedZone("", 3600)
	for _, c := range []struct {
		name    string
		request lease.Request
		code    arcp.Code
	}{
		{"nothing", lease.Request{}, ""},
		{"a part", lease.Request{Lease: arcp.Raw(`{"fs.read":["/a/b"]}`),
			Constraints: &arcp.LeaseConstraints{ExpiresAt: t0.Add(time.Minute).In(zone)}}, ""},
		{"more paths", lease.Request{Lease: arcp.Raw(`{"fs.read":["/b"]}`)}, arcp.CodeLeaseSubsetViolation},
		{"more time", lease.Request{Constraints: &arcp.LeaseConstraints{ExpiresAt: t0.Add(2 * time.Hour)}}, arcp.CodeLeaseSubsetViolation},
		{"not a lease", lease.Request{Lease: arcp.Raw(`[]`)}, arcp.CodeInvalidRequest},
	} {
		if _, err := RequestedLease(t0, parent, c.request); codeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
	}
}

func TestChildTakesItsBudgetFromTheParent(t *testing.T) {
	request := func(text string) *lease.Lease { return parse(t, lease.Request{Lease: arcp.Raw(text)}) }
	for _, c := range []struct {
		name     string
		lease    *lease.Lease
		children int
		maxEvent int
		want     string // amount of the child
		left     arcp.Number
		code     arcp.Code
	}{
		{name: "a part of the budget", lease: request(`{"fs.read":["/a"],"cost.budget":["USD:2"]}`), want: "USD:2", left: "3"},
		{name: "the whole rest", lease: request(`{"fs.read":["/a"]}`), want: "USD:5", left: "0"},
		{name: "more than the rest", lease: request(`{"cost.budget":["USD:6"]}`), left: "5", code: arcp.CodeLeaseSubsetViolation},
		{name: "one child more", children: MaxChildren - 1, lease: request(`{"cost.budget":["USD:1"]}`), want: "USD:1", left: "4"},
		{name: "too many children", children: MaxChildren, left: "5", code: arcp.CodeResourceExhausted},
		{name: "too large a lease", maxEvent: 100, left: "5", code: arcp.CodeResourceExhausted},
	} {
		var parent authority.State
		end := t0.Add(time.Hour)
		parent.SetLease(parse(t, lease.Request{Lease: arcp.Raw(`{"fs.read":["/a"],"cost.budget":["USD:5"]}`),
			Constraints: &arcp.LeaseConstraints{ExpiresAt: end}}))
		var l Ledger
		for range c.children {
			l.children = append(l.children, new(Child))
		}
		if c.maxEvent == 0 {
			c.maxEvent = 1 << 10
		}
		a, err := l.Admit(&parent, Call{N: 7, Job: "job_c", Agent: "t@1", Request: "digest", Lease: c.lease, Attempt: 2,
			Failed: 1, DelegateID: "dlg_1", MaxEvent: c.maxEvent})
		if left := parent.Budget.Remaining()[0].Number(); codeOf(err) != c.code || left != c.left {
			t.Errorf("%s: %v, %s is left, want %q %s", c.name, err, left, c.code, c.left)
		}
		if err != nil {
			if len(l.children) != c.children || len(l.Changed()) != 0 {
				t.Errorf("%s: a refused call is in the ledger", c.name)
			}
			continue
		}
		k := l.Find("job_c")
		if k != a.Child || k.N != 7 || k.Failed != 1 || !k.Open || k.Created || strings.Join(k.Reserved, " ") != c.want || !l.Unsaved(k) {
			t.Errorf("%s: entry %+v, want %s", c.name, k, c.want)
		}
		if l.Match("digest", 2) != nil || l.Match("digest", 3) != k {
			t.Errorf("%s: the call is not recorded as the attempt's", c.name)
		}
		if strings.Join(Texts(a.Lease.Budget()), " ") != c.want || !a.Lease.ExpiresAt().Equal(end) {
			t.Errorf("%s: lease %s, want %s until %v", c.name, a.Lease.WireJSON(), c.want, end)
		}
		var data DelegateData
		if err := arcp.Unmarshal(a.Event.Data, &data); err != nil || a.Event.Name != "delegate" ||
			data.ChildJobID != "job_c" || data.DelegateID != "dlg_1" || string(data.Lease) != string(a.Lease.WireJSON()) {
			t.Errorf("%s: event %+v %v", c.name, a.Event, err)
		}
	}
}

// The bound of an event is the bound of its encoded payload.
func TestAdmitMeasuresThePayload(t *testing.T) {
	call := Call{Job: "job_c", Agent: "t@1", DelegateID: "dlg_1", MaxEvent: 1 << 10}
	a, err := new(Ledger).Admit(new(authority.State), call)
	if err != nil {
		t.Fatal(err)
	}
	raw, bad := arcp.Marshal(a.Event)
	if bad != nil {
		t.Fatal(bad)
	}
	for more, code := range map[int]arcp.Code{0: "", -1: arcp.CodeResourceExhausted} {
		call.MaxEvent = len(raw) + more
		if _, err := new(Ledger).Admit(new(authority.State), call); codeOf(err) != code {
			t.Errorf("%d bytes are allowed, the event has %d: %v", call.MaxEvent, len(raw), err)
		}
	}
}

// For random calls and ends of children, the parent's rest, its own costs, and the amounts that the
// open children hold, add up to its budget; refused calls and repeated ends change nothing.
func TestLedgerEqualsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const whole = 1000
		var parent authority.State
		parent.Budget = lease.NewBudget(amount(t, whole))
		var l Ledger
		rest, held := whole, make(map[arcp.JobID]int)
		n := uint64(0)
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			open := l.Children()
			step := rapid.SampledFrom([]string{"call", "call", "end", "end", "delete", "lose", "revert", "run", "write"}).Draw(t, "step")
			var c *Child
			if len(open) > 0 {
				c = open[rapid.IntRange(0, len(open)-1).Draw(t, "child")]
			}
			switch {
			case step == "call":
				n++
				cents := rapid.IntRange(0, 400).Draw(t, "cents")
				id := arcp.JobID(fmt.Sprint("job_", n))
				_, err := l.Admit(&parent, Call{N: n, Job: id, Lease: parse(t, lease.Request{CostBudget: []string{usd(cents)}}), MaxEvent: 1 << 10})
				if (err == nil) != (cents <= rest) {
					t.Fatalf("%d of %d are reserved: %v", cents, rest, err)
				}
				if err == nil {
					rest -= cents
					held[id] = cents
				}
			case step == "write":
				l.Committed()
				for _, c := range open {
					if !c.Stored || l.Unsaved(c) {
						t.Fatalf("%+v is not stored", c)
					}
				}
			case c == nil || !c.Open:
			case step == "run":
				if l.Return(&parent, c, Running, nil) {
					t.Fatal("Return of a running child = true, want false")
				}
			default:
				back := held[c.Job]
				delete(held, c.Job)
				c.Created = step == "end" || step == "delete"
				switch step {
				case "end":
					spent := rapid.IntRange(0, back).Draw(t, "spent")
					back -= spent
					if !l.Return(&parent, c, Ended, amount(t, back)) {
						t.Fatal("an ended child keeps its budget")
					}
				case "delete":
					back = 0
					l.Return(&parent, c, Missing, nil)
				case "lose":
					l.Return(&parent, c, Missing, nil)
				case "revert":
					l.Revert(&parent, c)
				}
				rest += back
				if c.Open || len(c.Reserved) > 0 || !l.Unsaved(c) || c.Reverted == c.Created || (l.Find(c.Job) == nil) != c.Reverted {
					t.Fatalf("after %s the child is %+v, want it closed, unsaved, without a reserve, and created or reverted", step, c)
				}
			}
			if got, want := parent.Budget.Remaining()[0], amount(t, rest)[0]; got.Cmp(want) != 0 {
				t.Fatalf("after %s %s is left, want %s", step, got, want)
			}
			for _, c := range l.Children() {
				if c.Open && strings.Join(c.Reserved, "") != amount(t, held[c.Job])[0].String() {
					t.Fatalf("%s holds %v, want %d cents", c.Job, c.Reserved, held[c.Job])
				}
			}
		}
	})
}
