package approval

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// question returns a pending question of alice's session sess_ask.
func question(k Kind) Row {
	r := Row{ID: "approval-1", Kind: k, Principal: "alice", Session: "sess_ask", Job: "job_1", Action: "?",
		CreatedAt: t0, ExpiresAt: at(time.Hour), Status: Pending}
	switch k {
	case Permission:
		r.Permission = &arcp.PermissionTerm{Permission: "p", Resource: "r", Operation: "o", Seconds: 60}
	case Choice, Owned:
		r.Options = []arcp.Option{{ID: "red"}, {ID: "blue"}}
	case Gate:
		r.Options, r.Barred = ApproveOrDeny, []arcp.SessionID{"sess_ask", "sess_parent"}
	}
	return r
}

var kinds = []Kind{Permission, Input, Choice, Gate, Owned}

// yes returns a valid affirmative answer to a kind of question.
func yes(k Kind) *Answer {
	switch k {
	case Permission:
		return &Answer{Grant: &arcp.PermissionTerm{Permission: "p", Resource: "r", Operation: "o", Seconds: 5}}
	case Input:
		return &Answer{Value: arcp.Raw("7")}
	case Gate:
		return &Answer{Resolution: Approve}
	}
	return &Answer{Resolution: "blue"}
}

// actors returns the answering sessions, by their characteristic.
func actors() map[string]*Actor {
	sees := func(string) bool { return true }
	blind := func(string) bool { return false }
	return map[string]*Actor{
		"submitter":        {Principal: "alice", Session: "sess_ask", HumanInput: true, Approver: true},
		"parent":           {Principal: "alice", Session: "sess_parent", HumanInput: true, Approver: true, Admin: true},
		"same":             {Principal: "alice", Session: "sess_2", HumanInput: true},
		"same approver":    {Principal: "alice", Session: "sess_2", HumanInput: true, Approver: true},
		"same machine":     {Principal: "alice", Session: "sess_3", Approver: true},
		"observer":         {Principal: "alice", Session: "sess_4", HumanInput: true, Observer: true},
		"watching owner":   {Principal: "alice", Session: "sess_ask", HumanInput: true, Observer: true, Approver: true},
		"stranger":         {Principal: "bob", Session: "sess_b", HumanInput: true, Approver: true},
		"blind":            {Principal: "bob", Session: "sess_b", HumanInput: true, Approver: true, Sees: blind},
		"colleague":        {Principal: "bob", Session: "sess_b", HumanInput: true, Sees: sees},
		"approver":         {Principal: "bob", Session: "sess_b", HumanInput: true, Approver: true, Sees: sees},
		"admin":            {Principal: "root", Session: "sess_r", HumanInput: true, Admin: true},
		"thief of session": {Principal: "bob", Session: "sess_ask", HumanInput: true, Approver: true, Sees: sees},
	}
}

func code(err *arcp.Error) arcp.Code {
	if err == nil {
		return ""
	}
	return err.Code
}

// The table lists, for each actor and kind of question, whether MayAnswer and Wants accept it.
func TestSubjectOfPermissionIsItsTerm(t *testing.T) {
	term := &arcp.PermissionTerm{Permission: "deploy", Resource: "env:prod", Operation: "write"}
	for _, c := range []struct {
		row  Row
		want string
	}{
		{Row{Kind: Gate, Action: "call danger"}, "call danger"},
		{Row{Kind: Permission, Permission: term}, "deploy on env:prod to write"},
		{Row{Kind: Permission, Permission: term, Action: "a fix"}, "deploy on env:prod to write: a fix"},
	} {
		if got := c.row.Subject(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.row, got, c.want)
		}
	}
}

func TestMayAnswerAndWants(t *testing.T) {
	const (
		ok     = arcp.Code("")
		none   = arcp.CodeNotFound
		denied = arcp.CodePermissionDenied
		failed = arcp.CodeFailedPrecondition
	)
	type want struct {
		may   arcp.Code
		wants bool
	}
	all := func(c arcp.Code, wants bool) map[Kind]want {
		m := make(map[Kind]want)
		for _, k := range kinds {
			m[k] = want{c, wants}
		}
		return m
	}
	table := map[string]map[Kind]want{
		"submitter":     {Permission: {ok, true}, Input: {ok, true}, Choice: {ok, true}, Gate: {denied, false}, Owned: {ok, false}},
		"parent":        {Permission: {ok, true}, Input: {ok, true}, Choice: {ok, true}, Gate: {denied, false}, Owned: {failed, false}},
		"same":          {Permission: {ok, true}, Input: {ok, true}, Choice: {ok, true}, Gate: {denied, false}, Owned: {failed, false}},
		"same approver": {Permission: {ok, true}, Input: {ok, true}, Choice: {ok, true}, Gate: {ok, true}, Owned: {failed, false}},
		"same machine":  {Permission: {ok, false}, Input: {ok, false}, Choice: {ok, false}, Gate: {ok, false}, Owned: {failed, false}},
		"observer": {Permission: {denied, false}, Input: {denied, false}, Choice: {denied, false},
			Gate: {denied, false}, Owned: {failed, false}},
		"watching owner": {Permission: {denied, false}, Input: {denied, false}, Choice: {denied, false},
			Gate: {denied, false}, Owned: {failed, false}},
		"stranger": all(none, false),
		"blind":    all(none, false),
		"colleague": {Permission: {denied, false}, Input: {denied, false}, Choice: {denied, false},
			Gate: {denied, false}, Owned: {failed, false}},
		"approver": {Permission: {denied, false}, Input: {denied, false}, Choice: {denied, false}, Gate: {ok, true},
			Owned: {failed, false}},
		"admin": {Permission: {ok, false}, Input: {ok, false}, Choice: {ok, false}, Gate: {ok, true}, Owned: {failed, false}},
		"thief of session": {Permission: {denied, false}, Input: {denied, false}, Choice: {denied, false},
			Gate: {denied, false}, Owned: {ok, false}},
	}
	for name, actor := range actors() {
		for _, k := range kinds {
			r, want := question(k), table[name][k]
			if got := code(r.MayAnswer(actor)); got != want.may {
				t.Errorf("%s, %s: MayAnswer is %q, want %q", name, k, got, want.may)
			}
			if got := r.IsFor(actor, t0); got != want.wants {
				t.Errorf("%s, %s: Wants is %v, want %v", name, k, got, want.wants)
			}
			if got := code(r.Answer(t0, actor, yes(k))); got != want.may || (got == "") != (r.Status == Resolved) {
				t.Errorf("%s, %s: Answer is %q, want %q; then it is %s", name, k, got, want.may, r.Status)
			}
			if r.Status == Resolved && (r.ResolvedBy != actor.Principal || r.ResolvedIn != actor.Session || !r.ResolvedAt.Equal(t0)) {
				t.Errorf("%s, %s: the resolved question is %+v, want %s in %s at %s", name, k, r, actor.Principal, actor.Session, t0)
			}
			if got, want := r.Approved(), k == Gate && r.Status == Resolved; got != want {
				t.Errorf("%s, %s: Approved is %v", name, k, got)
			}
		}
	}
	for _, actor := range actors() {
		if r := question("another version's"); r.MayAnswer(actor) == nil || r.IsFor(actor, t0) {
			t.Errorf("%+v may answer what this version does not know", actor)
		}
	}
}

// Wants is true for a machine that requested a permission. It is false for a question that was
// sent to the session, is answered or has expired.
func TestQuestionIsForSessionsThatMayAnswer(t *testing.T) {
	machine := &Actor{Principal: "alice", Session: "sess_ask"}
	for _, k := range kinds {
		if r := question(k); r.IsFor(machine, t0) != (k == Permission) {
			t.Errorf("%s is given to a machine that asks: %v", k, k != Permission)
		}
	}
	actor := actors()["same approver"]
	for name, change := range map[string]func(*Row){
		"sent":      func(r *Row) { r.Sent = []arcp.SessionID{actor.Session} },
		"resolved":  func(r *Row) { r.Status = Resolved },
		"expired":   func(r *Row) { r.Status = Expired },
		"cancelled": func(r *Row) { r.Status = Cancelled },
		"over":      func(r *Row) { r.ExpiresAt = t0 },
	} {
		for _, k := range []Kind{Permission, Input, Choice, Gate} {
			r := question(k)
			if change(&r); r.IsFor(actor, t0) {
				t.Errorf("%s, %s: it is given", name, k)
			}
		}
	}
}

// Recipients decides as IsFor does about every actor, whether or not the session has the question.
func TestRecipientsAreTheSessionsOfIsFor(t *testing.T) {
	for _, k := range kinds {
		for _, at := range []time.Time{t0, question(k).ExpiresAt} {
			r := question(k)
			r.Sent = []arcp.SessionID{"sess_other", actors()["approver"].Session}
			isFor := r.Recipients(at)
			for name, actor := range actors() {
				if got, want := isFor(actor), r.IsFor(actor, at); got != want {
					t.Errorf("%s, %s, at %s: Recipients has the session: %v, want %v as IsFor", name, k, at, got, want)
				}
			}
		}
	}
}

// An admin of another principal is asked for an approval after the delay, and may answer
// before it. An admin of the same principal is asked at once.
func TestAdminIsAskedAfterTheDelay(t *testing.T) {
	admin, own := actors()["admin"], &Actor{Principal: "alice", Session: "sess_2", HumanInput: true, Admin: true}
	r := question(Gate)
	if r.Escalate(at(time.Hour)) {
		t.Error("what has no delay is escalated")
	}
	r.EscalateAt = at(time.Minute)
	if r.IsFor(admin, at(time.Minute-1)) || !r.IsFor(admin, at(time.Minute)) || !r.IsFor(own, t0) || !r.IsFor(actors()["approver"], t0) {
		t.Error("the wrong actors are asked")
	}
	if d := r.Deadline(); !d.Equal(r.EscalateAt) {
		t.Errorf("Deadline is %v", d)
	}
	if r.Escalate(at(time.Minute - 1)) {
		t.Error("escalated too early")
	}
	if !r.Escalate(at(time.Minute)) || r.Escalate(at(time.Minute)) || !r.Deadline().Equal(r.ExpiresAt) {
		t.Error("not escalated once")
	}
	early := question(Gate)
	early.EscalateAt = at(time.Minute)
	if err := early.Answer(t0, admin, yes(Gate)); err != nil || !early.Approved() {
		t.Errorf("an admin may not answer before: %v", err)
	}
	if early.Escalate(at(time.Hour)) {
		t.Error("what is settled is escalated")
	}
	late := question(Gate)
	late.EscalateAt = late.ExpiresAt.Add(1)
	if !late.Deadline().Equal(late.ExpiresAt) {
		t.Errorf("Deadline is %v", late.Deadline())
	}
}

// An invalid answer leaves the question unchanged.
func TestInvalidAnswerLeavesTheQuestion(t *testing.T) {
	term := func(change func(*arcp.PermissionTerm)) *Answer {
		a := yes(Permission)
		change(a.Grant)
		return a
	}
	long := strings.Repeat("x", MaxText+1)
	for name, c := range map[string]struct {
		kind Kind
		a    *Answer
	}{
		"permission, nothing":      {Permission, &Answer{}},
		"permission, a word":       {Permission, &Answer{Resolution: Granted}},
		"permission, approve":      {Permission, &Answer{Resolution: Approve}},
		"permission, another one":  {Permission, term(func(p *arcp.PermissionTerm) { p.Permission = "q" })},
		"permission, other op":     {Permission, term(func(p *arcp.PermissionTerm) { p.Operation = "q" })},
		"permission, both":         {Permission, &Answer{Resolution: Deny, Grant: yes(Permission).Grant}},
		"input, nothing":           {Input, &Answer{}},
		"input, not JSON":          {Input, &Answer{Value: arcp.Raw("{")}},
		"input, too long":          {Input, &Answer{Value: arcp.Raw(`"` + strings.Repeat("x", MaxValue) + `"`)}},
		"choice, nothing":          {Choice, &Answer{}},
		"choice, another":          {Choice, &Answer{Resolution: "green"}},
		"choice, case":             {Choice, &Answer{Resolution: "Red"}},
		"choice, value not JSON":   {Choice, &Answer{Resolution: "red", Value: arcp.Raw("x")}},
		"gate, nothing":            {Gate, &Answer{}},
		"gate, yes":                {Gate, &Answer{Resolution: "yes"}},
		"gate, grant":              {Gate, yes(Permission)},
		"gate, case":               {Gate, &Answer{Resolution: "Approve"}},
		"owned, another":           {Owned, &Answer{Resolution: "green"}},
		"long reason":              {Choice, &Answer{Resolution: "red", Reason: long}},
		"long name":                {Choice, &Answer{Resolution: "red", RespondedBy: long}},
		"reason not UTF-8":         {Choice, &Answer{Resolution: "red", Reason: "\xff"}},
		"responded by, not UTF-8":  {Choice, &Answer{Resolution: "red", RespondedBy: "\xff"}},
		"permission, long reasons": {Permission, &Answer{Resolution: Deny, Reason: long}},
	} {
		actor := actors()["submitter"]
		if c.kind == Gate {
			actor = actors()["approver"]
		}
		r := question(c.kind)
		if err := r.Answer(t0, actor, c.a); code(err) != arcp.CodeInvalidArgument {
			t.Errorf("%s: Answer = %v, want INVALID_ARGUMENT", name, err)
		}
		if got, want := fmt.Sprint(r), fmt.Sprint(question(c.kind)); c.kind != Permission && got != want {
			t.Errorf("%s: it is now %s", name, got)
		}
		if r.Status != Pending {
			t.Errorf("%s: it is now %s", name, r.Status)
		}
	}
}

// A valid answer resolves the question.
func TestValidAnswerResolvesTheQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		a    *Answer
		want string
	}{
		"granted":  {Permission, yes(Permission), Granted},
		"refused":  {Permission, &Answer{Resolution: Deny, Reason: "no"}, Deny},
		"input":    {Input, &Answer{Value: arcp.Raw("null"), Resolution: "ignored"}, Answered},
		"choice":   {Choice, yes(Choice), "blue"},
		"owned":    {Owned, yes(Owned), "blue"},
		"approved": {Gate, yes(Gate), Approve},
		"denied":   {Gate, &Answer{Resolution: Deny, RespondedBy: "the phone"}, Deny},
	} {
		actor := actors()["submitter"]
		if c.kind == Gate {
			actor = actors()["approver"]
		}
		r := question(c.kind)
		r.Sent = []arcp.SessionID{"sess_1", actor.Session, "sess_2"}
		if err := r.Answer(at(1), actor, c.a); err != nil {
			t.Errorf("%s: Answer = %v, want it accepted", name, err)
			continue
		}
		if r.Status != Resolved || r.Resolution != c.want || r.Reason != c.a.Reason || r.RespondedBy != c.a.RespondedBy ||
			string(r.Value) != string(c.a.Value) || r.Grant != c.a.Grant || !r.Deadline().IsZero() {
			t.Errorf("%s: the question is %+v, want it resolved with %s by the answer %+v", name, r, c.want, c.a)
		}
		if r.Approved() != (name == "approved") {
			t.Errorf("%s: Approved is %v", name, r.Approved())
		}
		if got := r.OtherSessions(); !slices.Equal(got, []arcp.SessionID{"sess_1", "sess_2"}) {
			t.Errorf("%s: the others are %v", name, got)
		}
	}
}

// A closed question never changes again.
func TestClosedQuestionNeverChanges(t *testing.T) {
	for _, k := range kinds {
		for name, settle := range map[string]func(*Row){
			"resolved": func(r *Row) {
				r.Status, r.Resolution, r.ResolvedAt = Resolved, Deny, t0
			},
			"expired":   func(r *Row) { r.Status, r.ResolvedAt = Expired, t0 },
			"cancelled": func(r *Row) { r.Cancel(t0, "why") },
		} {
			r := question(k)
			settle(&r)
			before := r
			for role, actor := range actors() {
				err := r.Answer(at(time.Minute), actor, yes(k))
				if may := r.MayAnswer(actor); may != nil && code(err) != may.Code || may == nil && code(err) != arcp.CodeFailedPrecondition {
					t.Errorf("%s, %s: %s is told %v", k, name, role, err)
				}
			}
			if r.Advance(at(2*time.Hour)) || r.Cancel(at(1), "again") || r.Escalate(at(1)) || !r.Deadline().IsZero() {
				t.Errorf("%s, %s: it is settled twice", k, name)
			}
			if fmt.Sprint(r) != fmt.Sprint(before) {
				t.Errorf("%s, %s: the resolved question becomes %+v, want %+v", k, name, r, before)
			}
		}
	}
}

func TestExpiry(t *testing.T) {
	for _, k := range kinds {
		r := question(k)
		r.Default = arcp.Raw("9") // counts for inputs only
		actor := actors()["submitter"]
		if k == Gate {
			actor = actors()["approver"]
		}
		if r.Advance(at(time.Hour - 1)) {
			t.Errorf("%s expires too early", k)
		}
		if err := r.Answer(at(time.Hour), actor, yes(k)); code(err) != arcp.CodeFailedPrecondition || r.Status != Pending {
			t.Errorf("%s: an answer when it has expired: %v", k, err)
		}
		if !r.Advance(at(time.Hour)) || !r.ResolvedAt.Equal(at(time.Hour)) || r.Approved() {
			t.Errorf("%s does not expire: %+v", k, r)
		}
		switch {
		case k == Input && (r.Status != Resolved || r.Resolution != ByDefault ||
			r.ResolvedBy != ByDefault || r.RespondedBy != ByDefault || string(r.Value) != "9"):
			t.Errorf("the default: %+v", r)
		case k != Input && r.Status != Expired:
			t.Errorf("%s is %s", k, r.Status)
		}
	}
	if r := question(Input); !r.Advance(at(time.Hour)) || r.Status != Expired {
		t.Errorf("without a default: %+v", r)
	}
	r := question(Input)
	r.Sent = []arcp.SessionID{"sess_1"}
	if !r.Cancel(at(1), "why") || r.Status != Cancelled || r.Reason != "why" || !r.ResolvedAt.Equal(at(1)) || len(r.OtherSessions()) != 1 {
		t.Errorf("the cancelled question is %+v, want the reason, the time and one other session", r)
	}
}

func TestApprovalNeedsItsQuorum(t *testing.T) {
	actor := func(name string) *Actor {
		return &Actor{Principal: name, Session: arcp.SessionID("sess_" + name), Approver: true, Sees: func(string) bool { return true }}
	}
	r := question(Gate)
	r.Quorum = 3
	for i, c := range []struct {
		name   string
		code   arcp.Code
		status Status
	}{{"a", "", Pending}, {"a", arcp.CodeFailedPrecondition, Pending}, {"b", "", Pending}, {"ask", arcp.CodePermissionDenied, Pending},
		{"c", "", Resolved}, {"d", arcp.CodeFailedPrecondition, Resolved}} {
		if err := r.Answer(at(time.Duration(i)), actor(c.name), yes(Gate)); code(err) != c.code || r.Status != c.status {
			t.Errorf("answer %d, of %s: %v, then %s; want %s, then %s", i, c.name, err, r.Status, c.code, c.status)
		}
	}
	if !r.Approved() || len(r.Votes) != 3 || r.ResolvedBy != "c" {
		t.Errorf("the question is %+v, want three votes and an approval that c decides", r)
	}
	for _, first := range []string{"a", "b"} { // a previous approver may deny, too
		r := question(Gate)
		r.Quorum = 3
		copied := r
		if err := r.Answer(t0, actor(first), yes(Gate)); err != nil {
			t.Fatal(err)
		}
		if len(copied.Votes) != 0 {
			t.Error("a copy has the vote")
		}
		if err := r.Answer(t0, actor("b"), &Answer{Resolution: Deny}); err != nil || r.Status != Resolved || r.Approved() {
			t.Errorf("the denial of b after the approval of %s: %v, %+v; want it resolved and denied", first, err, r)
		}
	}
}

func TestCheckOptions(t *testing.T) {
	many := make([]arcp.Option, MaxOptions+1)
	for i := range many {
		many[i].ID = fmt.Sprint(i)
	}
	for name, c := range map[string]struct {
		list []arcp.Option
		ok   bool
	}{
		"none":       {nil, false},
		"one":        {many[:1], true},
		"most":       {many[:MaxOptions], true},
		"too many":   {many, false},
		"no id":      {[]arcp.Option{{Label: "x"}}, false},
		"long id":    {[]arcp.Option{{ID: strings.Repeat("x", arcp.MaxIDLen+1)}}, false},
		"longest id": {[]arcp.Option{{ID: strings.Repeat("x", arcp.MaxIDLen)}}, true},
		"long label": {[]arcp.Option{{ID: "x", Label: strings.Repeat("x", MaxText+1)}}, false},
		"twice":      {[]arcp.Option{{ID: "x"}, {ID: "y"}, {ID: "x"}}, false},
		"gate":       {ApproveOrDeny, true},
	} {
		if err := CheckOptions(c.list); (err == nil) != c.ok || err != nil && err.Code != arcp.CodeInvalidArgument {
			t.Errorf("%s: CheckOptions = %v, want valid %v", name, err, c.ok)
		}
	}
}

// In any order of operations a question is closed at most once, by an authorized actor, and an
// approval requires its quorum of principals.
func TestQuestionIsClosedAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := question(rapid.SampledFrom(kinds).Draw(t, "kind"))
		if r.Kind == Gate {
			r.Quorum = rapid.IntRange(0, 4).Draw(t, "quorum")
			if rapid.Bool().Draw(t, "delay") {
				r.EscalateAt = at(time.Duration(rapid.IntRange(0, 80).Draw(t, "escalate")) * time.Minute)
			}
		}
		if r.Kind == Input && rapid.Bool().Draw(t, "default") {
			r.Default = arcp.Raw("0")
		}
		now, approvals, settled := t0, map[string]bool{}, 0
		var final Row
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "wait")) * time.Minute)
			before, due := r, !r.Deadline().IsZero() && !now.Before(r.Deadline())
			switch rapid.SampledFrom([]string{"answer", "answer", "answer", "answer", "advance", "escalate", "cancel"}).Draw(t, "step") {
			case "answer":
				actor := &Actor{Principal: rapid.SampledFrom([]string{"alice", "bob", "carol", "dave", "root"}).Draw(t, "principal"),
					Session:  arcp.SessionID(rapid.SampledFrom([]string{"sess_ask", "sess_parent", "sess_1", "sess_2"}).Draw(t, "session")),
					Approver: rapid.IntRange(0, 3).Draw(t, "role") > 0}
				actor.Admin = actor.Principal == "root"
				if rapid.Bool().Draw(t, "sees") {
					actor.Sees = func(string) bool { return true }
				}
				a := yes(r.Kind)
				if rapid.IntRange(0, 5).Draw(t, "no") == 0 {
					a = &Answer{Resolution: rapid.SampledFrom([]string{Deny, "", "else"}).Draw(t, "what")}
				}
				err := r.Answer(now, actor, a)
				changed := fmt.Sprint(r) != fmt.Sprint(before)
				switch {
				case (err == nil) != changed:
					t.Fatalf("%v, and it changed: %v", err, changed)
				case changed && r.MayAnswer(actor) != nil:
					t.Fatalf("%+v may not answer and did", actor)
				case changed && slices.Contains(r.Barred, actor.Session):
					t.Fatalf("%s is barred and answered", actor.Session)
				case changed && !now.Before(r.ExpiresAt):
					t.Fatalf("answered at %v, expired at %v", now, r.ExpiresAt)
				}
				if changed && a.Resolution == Approve {
					if approvals[actor.Principal] {
						t.Fatalf("%s counts twice", actor.Principal)
					}
					approvals[actor.Principal] = true
				}
			case "advance":
				over := r.Status == Pending && !now.Before(r.ExpiresAt)
				if did := r.Advance(now); did != over || did && !due || did && r.Kind == Gate && r.Resolution != "" {
					t.Fatalf("Advance is %v at %v; it expires at %v, and is due: %v", did, now, r.ExpiresAt, due)
				}
			case "escalate":
				over := r.Status == Pending && !r.EscalateAt.IsZero() && !now.Before(r.EscalateAt)
				if did := r.Escalate(now); did != over || did && !due {
					t.Fatalf("Escalate is %v at %v of %v", did, now, before.EscalateAt)
				}
			case "cancel":
				if did := r.Cancel(now, "why"); did != (before.Status == Pending) {
					t.Fatalf("Cancel is %v of what is %s", did, before.Status)
				}
			}
			if before.Status != Pending && fmt.Sprint(r) != fmt.Sprint(final) {
				t.Fatalf("after the end %+v", r)
			}
			if before.Status == Pending && r.Status != Pending {
				settled++
				final = r
			}
			if need := max(r.Quorum, 1); r.Approved() && len(approvals) != need || !r.Approved() && r.Kind == Gate && len(approvals) >= need {
				t.Fatalf("approved: %v, by %d of %d", r.Approved(), len(approvals), need)
			}
			if d := r.Deadline(); d.IsZero() != (r.Status != Pending) {
				t.Fatalf("%s has the deadline %v", r.Status, d)
			}
			if r.Status == Pending != r.ResolvedAt.IsZero() {
				t.Fatalf("%s at %v", r.Status, r.ResolvedAt)
			}
		}
		for !r.Deadline().IsZero() { // and time alone settles it
			now = r.Deadline()
			before := r.Deadline()
			if r.Escalate(now) == r.Advance(now) && r.Deadline().Equal(before) {
				t.Fatalf("nothing happens at the deadline %v", now)
			}
		}
		if settled > 1 {
			t.Fatalf("settled %d times", settled)
		}
	})
}
