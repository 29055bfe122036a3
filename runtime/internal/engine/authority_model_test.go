package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/apd/v3"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// toolAction is one operation of a tool.
type toolAction struct {
	kind     string
	n        int           // index in the script; makes the action's names unique
	duration time.Duration // how long it asks, or waits for an answer
	async    bool          // asks without waiting for the answer
	cost     string
}

// step is one step of a script: an action of a job's tool, or an external event for the job.
type step struct {
	kind       string
	job        int
	action     toolAction
	pick       int // index of a question or lease, modulo their number
	actor      int
	answer     int
	responders int // at the same moment
	duration   time.Duration
}

// jobPlan is a job of a script.
type jobPlan struct {
	tool       string
	lease      time.Duration // until its end; 0: it has none
	budget     bool
	maxRuntime string // max_runtime_sec
}

type script struct {
	preempt bool
	jobs    []jobPlan
	steps   []step
}

var modelTools = map[string]func(*tool.Capability){
	"fail":  recovery(tool.RecoveryFail),
	"rerun": retryable,
	"gated": func(c *tool.Capability) { retryable(c); c.Approval = tool.ApprovalManual },
	"point": func(c *tool.Capability) {
		retryable(c)
		c.Recovery, c.Approval = tool.RecoveryCheckpoint, tool.ApprovalManual
	},
	"short": func(c *tool.Capability) { retryable(c); c.Limits.Timeout = 20 * time.Second },
}

func drawScript(t *rapid.T) (s script) {
	ms := func(name string, list ...int) time.Duration {
		return time.Duration(rapid.SampledFrom(list).Draw(t, name)) * time.Millisecond
	}
	s.preempt = rapid.Bool().Draw(t, "preempt")
	for range rapid.IntRange(1, 3).Draw(t, "jobs") {
		s.jobs = append(s.jobs, jobPlan{
			tool:       rapid.SampledFrom([]string{"fail", "rerun", "rerun", "gated", "point", "point", "short"}).Draw(t, "tool"),
			lease:      ms("lease", 0, 0, 7_000, 90_000, 3_600_000),
			budget:     rapid.Bool().Draw(t, "budget"),
			maxRuntime: rapid.SampledFrom([]string{"", "", "4", "100"}).Draw(t, "limit"),
		})
	}
	n := rapid.IntRange(5, 60).Draw(t, "moves")
	for i := range n {
		m := step{
			kind: rapid.SampledFrom([]string{"action", "action", "action", "action", "action", "action", "action", "respond",
				"respond", "respond", "respond", "grant", "grant",
				"sleep", "sleep", "extend", "revoke", "offer", "interrupt", "cancel", "restart", "crash", "crash later", "hold",
				"release", "stall", "late", "rewind", "rewind", "pause"}).Draw(t, "what"),
			job: rapid.IntRange(0, len(s.jobs)-1).Draw(t, "job"),
		}
		switch m.kind {
		case "action":
			m.action = toolAction{n: i, kind: rapid.SampledFrom([]string{"allow", "allow", "metric", "charge", "charge",
				"permit", "permit", "permitted", "permitted", "ask", "ask",
				"ask", "choose", "checkpoint", "checkpoint", "yield", "extend", "return", "fail", "fail", "panic"}).Draw(t, "action"),
				cost: rapid.SampledFrom([]string{"0.1", "1", "0.03", "3", "-1"}).Draw(t, "cost"), async: rapid.Bool().Draw(t, "async"),
				duration: ms("ask", 1_000, 60_000, 600_000)}
		case "grant":
			m.action = toolAction{n: i, kind: "permit", duration: ms("ask", 60_000, 600_000, 3_600_000), async: true}
			m.actor, m.answer, m.responders = 1, 2, 1
		case "stall":
			m.action = toolAction{n: i, kind: "ask", duration: ms("ask", 1_000, 60_000), async: true}
			m.duration = ms("for", 500, 6_000, 61_000)
		case "late":
			m.actor, m.answer, m.responders = rapid.IntRange(0, 1).Draw(t, "who"), rapid.IntRange(0, 2).Draw(t, "answer"), 1
			m.duration = ms("for", 500, 6_000, 61_000)
		case "respond":
			m.actor = rapid.SampledFrom([]int{0, 1, 1, 2, 3, 4}).Draw(t, "who")
			m.answer = rapid.SampledFrom([]int{0, 1, 2, 0, 1, 2, 3, 4, 5}).Draw(t, "answer")
			m.responders = rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "many")
		case "sleep", "cancel":
			m.duration = ms("for", 1, 400, 1_000, 6_000, 6_000, 61_000, 700_000)
		case "crash later":
			m.answer = rapid.IntRange(1, 4).Draw(t, "commits")
		}
		m.pick = rapid.IntRange(0, 7).Draw(t, "pick")
		s.steps = append(s.steps, m)
	}
	return s
}

// modelJob is the state of a job of a script.
type modelJob struct {
	plan    jobPlan
	actions chan toolAction
	id      arcp.JobID
	end     time.Time // of its lease; zero: it has none

	// Guarded by modelRun.mu.
	attempt   *int            // the current attempt, or nil
	asks      []toolAction    // by every attempt, in this order
	waiting   map[string]bool // for answers
	answers   map[string]string
	refusedIn map[string]*int // by which attempt
	stopped   bool            // a cancel was accepted
}

// modelRun is the state of a run of a script.
type modelRun struct {
	*fixture
	broker *fakeQuestions
	jobs   []*modelJob

	mu       sync.Mutex
	faults   []string
	done     map[string]int    // number of answers by request to the engine
	resolved map[string]string // questions reported as answered
	observed map[string]bool   // questions that were asked
	charged  map[string]bool   // costs that count, by this process
	refused  map[string]bool
	charges  map[string]bool // costs that fit into the budget
	leases   []arcp.LeaseID
	began    time.Time
	asleep   int // tools that are sleeping
	calls    int
	release  func()
	broken   bool
}

func (mr *modelRun) fault(format string, args ...any) {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	mr.faults = append(mr.faults, fmt.Sprintf(format, args...))
}

func (mr *modelRun) locked(f func()) {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	f()
}

// runTool is the tool of all jobs.
func (mr *modelRun) runTool(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	var n int
	fmt.Sscanf(string(args), `{"n":%d}`, &n)
	l, me := mr.jobs[n], new(int)
	mr.locked(func() { l.attempt, l.waiting = me, make(map[string]bool) })
	defer mr.locked(func() {
		if l.attempt == me {
			l.attempt = nil
		}
	})
	defer func() {
		over := ctx.Err() != nil
		if over && (j.Authority().Allow(arcp.NamespaceFSRead, "/a/x") == nil || j.Permissions().Check("q0", "r:1", "o") == nil) {
			mr.fault("%s: an attempt that has ended may do something", l.id)
		}
	}()
	from := 0
	fmt.Sscanf(string(j.Restored()), "%d", &from)
	for i := from; ; i++ { // repeats the questions of earlier attempts first
		var again *toolAction
		mr.locked(func() {
			if l.attempt == me && i < len(l.asks) {
				again = &l.asks[i]
			}
		})
		if again == nil {
			break
		}
		mr.askQuestion(ctx, j, l, me, *again)
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case d := <-l.actions:
			mine := false
			mr.locked(func() {
				if mine = l.attempt == me && ctx.Err() == nil; mine && slices.Contains([]string{"ask", "choose", "permit"}, d.kind) {
					l.asks = append(l.asks, d)
				}
			})
			if !mine { // it is the next attempt's
				l.actions <- d
				return nil, context.Cause(ctx)
			}
			switch d.kind {
			case "return":
				return arcp.Raw("1"), nil
			case "fail":
				return nil, errUnavailable()
			case "panic":
				panic("randomTool")
			}
			mr.perform(ctx, j, l, me, d)
		}
	}
	return nil, context.Cause(ctx)
}

func (mr *modelRun) perform(ctx context.Context, j tool.Job, l *modelJob, me *int, d toolAction) {
	name := fmt.Sprintf("m%d", d.n)
	switch d.kind {
	case "allow":
		now := time.Now()
		err := j.Authority().Allow(arcp.NamespaceFSRead, "/a/x")
		if over := !l.end.IsZero() && !now.Before(l.end.Add(lease.Grace)); err == nil && (over || l.end.IsZero()) {
			mr.fault("%s: allowed at %v, its lease ended at %v", l.id, now, l.end)
		}
		if err := j.Authority().Allow(arcp.NamespaceFSRead, "/b"); err == nil {
			mr.fault("%s: allowed what it never was", l.id)
		}
	case "metric", "charge":
		var err error
		if d.kind == "metric" {
			err = j.Metric(arcp.MetricPayload{Name: "cost." + name, Value: arcp.Number(d.cost), Unit: "usd"})
		} else {
			err = j.Authority().Charge(name, "USD", arcp.Number(d.cost))
		}
		mr.locked(func() {
			switch {
			case err == nil:
				mr.charged[name] = true
				mr.charges[name] = d.kind == "charge"
			default:
				mr.refused[name] = true
			}
		})
	case "permit", "ask", "choose":
		mr.askQuestion(ctx, j, l, me, d)
	case "permitted":
		mr.permitted(j, l)
	case "checkpoint":
		var asked int
		mr.locked(func() { asked = len(l.asks) })
		j.Checkpoint("", asked)
	case "yield":
		j.Yield(ctx)
	case "extend":
		var id arcp.LeaseID
		mr.locked(func() {
			if len(mr.leases) > 0 {
				id = mr.leases[d.n%len(mr.leases)]
			}
		})
		j.Permissions().Extend(ctx, id, time.Minute)
	}
}

// askQuestion asks a question and records that the job waits for the answer.
func (mr *modelRun) askQuestion(ctx context.Context, j tool.Job, l *modelJob, me *int, d toolAction) {
	prompt := fmt.Sprintf("q%d", d.n)
	mr.locked(func() {
		if l.attempt == me {
			l.waiting[prompt] = true
		}
	})
	f := func() {
		whole := ctx
		if d.n%5 == 0 { // the tool's wait ends before the question expires
			short, cancel := context.WithTimeout(ctx, d.duration/2)
			defer cancel()
			ctx = short
		}
		var answer string
		var err error
		switch d.kind {
		case "permit":
			var l tool.PermissionLease
			l, err = j.Permissions().Request(ctx, tool.PermissionRequest{Permission: prompt, Resource: "r:*", Operation: "o",
				Reason: prompt, For: d.duration, Expires: d.duration})
			answer = string(l.ID)
		case "choose":
			var a tool.Answer
			a, err = j.Choose(ctx, tool.ChoiceRequest{Prompt: prompt, Options: []arcp.Option{{ID: "1"}, {ID: "2"}}, Expires: d.duration})
			answer = a.ChoiceID
		default:
			q := tool.InputRequest{Prompt: prompt, Schema: arcp.Raw(`{"type":"integer"}`), Expires: d.duration}
			if d.n%2 == 0 {
				q.Default = arcp.Raw("0")
			}
			var a tool.Answer
			a, err = j.Ask(ctx, q)
			answer = string(a.Value)
		}
		mr.mu.Lock()
		defer mr.mu.Unlock()
		if l.attempt == me {
			delete(l.waiting, prompt)
		}
		if err != nil && strings.HasSuffix(err.Error(), "withdrawn: withdrawn") && whole.Err() == nil {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s was withdrawn by another caller: %v", l.id, prompt, err))
		}
		if err != nil {
			if !strings.HasPrefix(code(err), "LEASE_") { // it was granted and has expired
				l.refusedIn[prompt] = me
			}
			return
		}
		if before, known := l.answers[prompt]; known && before != answer {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s is answered %s, to an earlier attempt %s", l.id, prompt, answer, before))
		}
		l.answers[prompt] = answer
	}
	if !d.async {
		f()
		return
	}
	go f()
	mr.locked(func() { mr.asleep++ })
	time.Sleep(time.Millisecond) // the questions of an attempt come in their order
	mr.locked(func() { mr.asleep-- })
}

// grant is the state of a permission in the log.
type grant struct {
	end     time.Time
	revoked bool
}

// grants returns the permissions of a job in the log, by the question.
func (mr *modelRun) grants(id arcp.JobID) map[string]*grant {
	granted, of := make(map[arcp.LeaseID]*grant), make(map[string]*grant)
	mr.events(id, func(ev *store.Event) {
		env := mr.decode(ev)
		switch ev.Type {
		case arcp.LeaseGranted:
			p, _ := arcp.DecodePayload[arcp.LeaseGrantedPayload](&env)
			g := &grant{end: p.ExpiresAt}
			granted[p.LeaseID], of[p.Permission] = g, g
		case arcp.LeaseExtended:
			p, _ := arcp.DecodePayload[arcp.LeaseExtendedPayload](&env)
			granted[p.LeaseID].end = p.ExpiresAt
		case arcp.LeaseRevoked:
			p, _ := arcp.DecodePayload[arcp.LeaseRevokedPayload](&env)
			granted[p.LeaseID].revoked = true
		}
	})
	return of
}

// permitted uses every requested permission. The result must match the granted, unexpired and
// unrevoked permissions in the log either just before or just after the call.
func (mr *modelRun) permitted(j tool.Job, l *modelJob) {
	now, lastly := time.Now(), j.Authority().Allow("x", "y") // which the lease always allows
	var asks []toolAction
	mr.locked(func() { asks = slices.Clone(l.asks) })
	before, errs := mr.grants(l.id), make(map[string]error)
	for _, d := range asks {
		name := fmt.Sprintf("q%d", d.n)
		errs[name] = j.Permissions().Check(name, "r:1", "o")
	}
	after := mr.grants(l.id)
	mr.mu.Lock()
	defer mr.mu.Unlock()
	over := !l.end.IsZero() && !now.Before(l.end.Add(lease.Grace))
	may := func(g *grant) bool {
		return lastly == nil && !over && g != nil && !g.revoked && now.Before(g.end.Add(lease.Grace))
	}
	for name, err := range errs {
		if code(err) == string(arcp.CodeAborted) || mr.release != nil || mr.broken {
			continue
		}
		if permitted := err == nil; permitted != may(before[name]) && permitted != may(after[name]) {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s at %v: %v, with %+v, then %+v, lease until %v, otherwise %v", l.id, name, now, err,
				before[name], after[name], l.end, lastly))
		}
	}
}

func (mr *modelRun) decode(ev *store.Event) arcp.Envelope {
	env, err := arcp.Decode(store.AppendFrame(nil, store.FrameHead("1.1", "sess_1"), 0, "", ev))
	if err != nil {
		mr.fault("%s", err)
	}
	return env
}

// log returns the events of a job, for the message of a failure.
func (mr *modelRun) log(id arcp.JobID) string {
	var b strings.Builder
	err := mr.st.JobEvents(context.Background(), id, 0, func(ev *store.Event) bool {
		fmt.Fprintf(&b, "\t%v %s %s\n", ev.Time.Sub(mr.began), ev.Type, ev.Body[bytes.LastIndex(ev.Body, []byte(`"payload":`)):])
		return true
	})
	if err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}

func (mr *modelRun) events(id arcp.JobID, f func(*store.Event)) {
	err := mr.st.JobEvents(context.Background(), id, 0, func(ev *store.Event) bool { f(ev); return true })
	if err != nil {
		mr.fault("%s", err)
	}
}

// onceAnswered returns a function that counts the answers to one request and records a fault at
// the second.
func (mr *modelRun) onceAnswered(request string) func() {
	mr.calls++
	key := fmt.Sprintf("%s %d", request, mr.calls)
	mr.locked(func() { mr.done[key] = 0 })
	return func() {
		mr.locked(func() {
			if mr.done[key]++; mr.done[key] > 1 {
				mr.faults = append(mr.faults, key+" is answered twice")
			}
		})
	}
}

// answers counts the answers that it gets.
type answers struct {
	answered func()
	each     func(arcp.Envelope)
}

func (a answers) AnswerAfterEvents(x any) bool { return a.AnswerBeforeEvents(x) }

func (a answers) AnswerBeforeEvents(x any) bool {
	a.answered()
	if a.each != nil {
		a.each(envelope(x))
	}
	return true
}

func (mr *modelRun) actor(n int) approval.Actor {
	return []approval.Actor{person("sess_1"), person("sess_2"), person("sess_3"),
		{Principal: "bob", Session: "sess_9", HumanInput: true, Approver: true},
		{Principal: "root", Session: "sess_8", HumanInput: true, Admin: true}}[n]
}

// pickAnswer returns one of several valid and invalid answers to a question.
func pickAnswer(q *approval.Row, n int) (a approval.Answer) {
	switch q.Kind {
	case approval.Permission:
		p := *q.Permission
		p.Seconds = []uint64{1, 30, 4000, 0, 60, 60}[n]
		if a.Grant = &p; n == 4 {
			p.Resource = "**"
		} else if n == 5 {
			a = approval.Answer{Resolution: approval.Deny}
		}
	case approval.Gate:
		a.Resolution = []string{approval.Approve, approval.Approve, approval.Approve, approval.Approve, approval.Deny, "else"}[n]
	case approval.Choice:
		a.Resolution = []string{"1", "2", "1", "2", "3", ""}[n]
	default:
		a.Value = arcp.Raw([]string{"1", "2", "3", `"x"`, "{}", "-1"}[n])
		if q.Interrupt {
			a.Value = arcp.Raw([]string{`{"action":"continue","guidance":"g"}`, `{"action":"continue"}`,
				`{"action":"continue"}`, `{"action":"cancel"}`, "{}", `{"action":"x"}`}[n])
		}
	}
	return a
}

func (mr *modelRun) respond(m step) {
	var pending []approval.Row
	mr.broker.mu.Lock()
	for _, q := range mr.broker.pending {
		pending = append(pending, q)
	}
	mr.broker.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	if m.kind == "grant" {
		own := func(q approval.Row) bool { return q.Job == mr.jobs[m.job].id && q.Kind == approval.Permission }
		if pending = slices.DeleteFunc(pending, func(q approval.Row) bool { return !own(q) }); len(pending) == 0 {
			return
		}
	}
	slices.SortFunc(pending, func(a, b approval.Row) int { return strings.Compare(a.ID, b.ID) })
	q := pending[m.pick%len(pending)]
	for i := range m.responders {
		told := mr.onceAnswered("respond")
		go mr.e.Questions().Respond(Response{Job: q.Job, ID: q.ID,
			Request: arcp.MessageID(fmt.Sprintf("msg_r%d", mr.calls)), Actor: mr.actor((m.actor + i) % 5), Answer: pickAnswer(&q, (m.answer+i)%6),
			Done: func(row approval.Row, err *arcp.Error) {
				told()
				if err != nil {
					return
				}
				rec, bad := mr.st.Get(context.Background(), approval.RecordKey(&row))
				var stored approval.Row
				if bad == nil {
					bad = arcp.Unmarshal(rec.Value, &stored)
				}
				mr.mu.Lock()
				defer mr.mu.Unlock()
				if bad != nil || stored.Status != approval.Resolved {
					mr.faults = append(mr.faults, fmt.Sprintf(
						"a respondent got the report that %s is answered; in the store it is %s, %v", row.ID, stored.Status, bad))
				}
				if mr.resolved[row.ID] != "" {
					mr.faults = append(mr.faults, row.ID+" is answered twice")
				}
				mr.resolved[row.ID] = string(rec.Value)
				if row.Lease != "" {
					mr.leases = append(mr.leases, row.Lease)
				}
			}})
	}
}

func (mr *modelRun) step(m step) {
	l := mr.jobs[m.job]
	switch m.kind {
	case "action":
		l.actions <- m.action
	case "grant":
		l.actions <- m.action
		synctest.Wait()
		mr.respond(m)
	case "respond":
		mr.respond(m)
	case "sleep":
		time.Sleep(m.duration)
	case "extend", "revoke":
		var id arcp.LeaseID = "lease_none"
		mr.locked(func() {
			if len(mr.leases) > 0 {
				id = mr.leases[m.pick%len(mr.leases)]
			}
		})
		told := mr.onceAnswered(m.kind)
		if m.kind == "extend" {
			mr.e.PermissionLeases().Extend(requesterOf("msg_x", mr.actor(m.pick%2)),
				&arcp.LeaseRefreshPayload{LeaseID: id, AdditionalSeconds: 60}, func(*arcp.Error) { told() })
			return
		}
		mr.e.PermissionLeases().Revoke(requesterOf("msg_v", mr.actor(m.pick%2)), &arcp.LeaseRevokedPayload{LeaseID: id},
			func(*arcp.Error) { told() })
	case "offer":
		mr.broker.mu.Lock()
		for id, q := range mr.broker.pending {
			defer mr.e.Questions().Offer(q.Job, id, person([]string{"sess_3", "sess_gone", "sess_2"}[m.pick%3]))
		}
		mr.broker.mu.Unlock()
	case "interrupt":
		mr.e.Interrupt(Requester{Request: "msg_i", Principal: "alice", Session: "sess_1",
			Answers: answers{answered: mr.onceAnswered("interrupt")}}, &arcp.InterruptPayload{TargetID: string(l.id), Prompt: "stop"})
	case "cancel":
		mr.e.Cancel(Requester{Request: "msg_c", Principal: "alice", Session: "sess_1",
			Answers: answers{mr.onceAnswered("cancel"), func(env arcp.Envelope) {
				if env.Type == arcp.CancelAccepted {
					mr.locked(func() { l.stopped = true })
				}
			}}}, &arcp.CancelPayload{TargetID: string(l.id), DeadlineMS: milliseconds(m.duration)})
	case "rewind":
		mr.rewind(m, l)
	case "pause":
		mr.e.Drain()
		for _, l := range mr.jobs {
			l.actions <- toolAction{kind: "checkpoint"}
		}
		synctest.Wait()
		mr.restartRuntime(false)
	case "restart", "crash":
		mr.restartRuntime(m.kind == "crash")
	case "crash later":
		mr.st.crashAfter(m.answer)
	case "hold":
		mr.hold()
	case "stall": // it is asked, and time passes, while the job's supervisor waits for the store
		mr.hold()
		l.actions <- toolAction{n: 1000 + m.action.n, kind: "metric", cost: "0.01"}
		synctest.Wait()
		l.actions <- m.action
		time.Sleep(m.duration)
		mr.releaseCommits()
	case "late": // an answer is on its way to the store for long
		mr.hold()
		mr.respond(m)
		time.Sleep(m.duration)
		mr.releaseCommits()
	case "release":
		mr.releaseCommits()
	}
}

func (mr *modelRun) hold() {
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if mr.release == nil {
		mr.release = mr.st.hold()
	}
}

func (mr *modelRun) releaseCommits() {
	var release func()
	mr.locked(func() { release, mr.release = mr.release, nil })
	if release != nil {
		release()
	}
}

// rewind restores one of a job's checkpoints if the job has not ended.
func (mr *modelRun) rewind(m step, l *modelJob) {
	var ids []string
	mr.events(l.id, func(ev *store.Event) {
		if ev.Type == arcp.JobCheckpoint {
			env := mr.decode(ev)
			p, _ := arcp.DecodePayload[arcp.JobCheckpointPayload](&env)
			ids = append(ids, p.CheckpointID)
		}
	})
	if len(ids) == 0 || mr.row(l.id).State.Terminal() || mr.e.run(l.id) == nil {
		return
	}
	told, env := mr.onceAnswered("restore"), &arcp.Envelope{ID: arcp.MessageID(fmt.Sprintf("msg_s%d", mr.calls)), JobID: l.id}
	mr.e.RestoreCheckpoint(&Submit{Envelope: env, Session: "sess_1", Principal: "alice",
		Answers:   answers{answered: func() {}}, // the job may just have ended: a new one is the answer then
		OnDecided: told}, &arcp.CheckpointRestorePayload{CheckpointID: ids[m.pick%len(ids)]})
}

// restartRuntime stops or crashes the engine, and starts another one on the durable state.
func (mr *modelRun) restartRuntime(crash bool) {
	if crash {
		mr.st.breakWith(errCrash)
	}
	mr.releaseCommits()
	synctest.Wait()
	mr.stop(0)
	synctest.Wait()
	mr.drain()
	mr.broker.mu.Lock()
	clear(mr.broker.pending)
	clear(mr.broker.ids)
	clear(mr.broker.closed)
	mr.broker.mu.Unlock()
	mr.locked(func() { clear(mr.charged); mr.broken = false })
	mr.restart(mr.st.Stat().LiveJobs)
}

func (mr *modelRun) drain() {
	for id := range mr.cursors {
		mr.frames(id)
	}
}

// check compares the durable state with the sent frames and the tools' view, when the engine
// is idle.
func (mr *modelRun) check(when string) {
	synctest.Wait()
	mr.st.mu.Lock()
	broken := mr.st.fail != nil
	mr.st.mu.Unlock()
	mr.locked(func() { mr.broken = broken })
	mr.drain()
	mr.broker.mu.Lock()
	defer mr.broker.mu.Unlock()
	rows, byPrompt := make(map[string]approval.Row), make(map[string]approval.Row)
	interrupted := make(map[arcp.JobID]bool)
	for _, list := range mr.storedQuestions() {
		for _, q := range list {
			rows[q.ID] = q
			if q.Interrupt {
				interrupted[q.Job] = interrupted[q.Job] || q.Status == approval.Pending
				continue
			}
			if q.Status == approval.Cancelled {
				continue
			}
			key := string(q.Job) + " " + q.Action
			if _, twice := byPrompt[key]; twice {
				mr.fault("%s: %s is asked twice", when, key)
			}
			byPrompt[key] = q
		}
	}
	for id := range mr.broker.pending {
		mr.observed[id] = true
		if rows[id].Status != approval.Pending {
			mr.fault("%s: the broker has %s, which is %q", when, id, rows[id].Status)
		}
	}
	for id := range mr.observed {
		if rows[id].ID == "" {
			mr.fault("%s: the question %s is lost", when, id)
		}
	}
	for id, n := range mr.broker.closed {
		if n != 1 || rows[id].Status == approval.Pending {
			mr.fault("%s: %s is closed %d times, and %s", when, id, n, rows[id].Status)
		}
	}
	for id, was := range mr.resolved {
		if raw, _ := arcp.Marshal(rows[id]); string(raw) != was {
			mr.fault("%s: %s is not what it was answered\n%s\n%s", when, id, raw, was)
		}
	}
	for id, q := range rows {
		if q.Status != approval.Pending {
			continue
		}
		if job := mr.row(q.Job); job.State.Terminal() {
			mr.fault("%s: %s is pending, and its job %s", when, id, job.State)
		}
		if _, known := mr.broker.pending[id]; !known {
			mr.fault("%s: the broker does not have %s", when, id)
			continue
		}
		n := uint64(0)
		mr.events(q.Job, func(ev *store.Event) {
			if n++; n == q.JSeq && (ev.ID() != mr.broker.ids[id] || !strings.HasSuffix(string(ev.Type), ".request")) {
				mr.fault("%s: the event of %s is %s %s, not %s", when, id, ev.Type, ev.ID(), mr.broker.ids[id])
			}
		})
	}
	for _, l := range mr.jobs {
		mr.checkRequests(when, l, rows)
		mr.checkJob(when, l, byPrompt, interrupted[l.id])
	}
}

// checkRequests checks that a session which was sent a question and has not answered it is
// notified of its end.
func (mr *modelRun) checkRequests(when string, l *modelJob, rows map[string]approval.Row) {
	asked, notified, closed := 0, 0, 0
	mr.events(l.id, func(ev *store.Event) {
		switch ev.Type {
		case arcp.PermissionRequest, arcp.HumanInputRequest, arcp.HumanChoiceRequest:
			asked++
		case arcp.HumanInputCancelled:
			notified++
		}
	})
	for _, q := range rows {
		if q.Job != l.id || q.JSeq == 0 {
			continue
		}
		if asked--; q.Status != approval.Pending && len(q.OtherSessions()) > 0 {
			closed++
		}
	}
	if asked != 0 || notified != closed {
		mr.fault("%s: %s: %d requests too many, %d questions are closed and %d are notified", when, l.id, asked, closed, notified)
	}
}

func (mr *modelRun) checkJob(when string, l *modelJob, asked map[string]approval.Row, interrupted bool) {
	row := mr.row(l.id)
	ends, costs := 0, make(map[string]int)
	left, _, _ := apd.NewFromString("5")
	mr.events(l.id, func(ev *store.Event) {
		if ends > 0 {
			mr.fault("%s: %s comes after the end of %s", when, ev.Type, l.id)
		}
		if ev.Type.Terminal() {
			ends++
		}
		if ev.Type != arcp.Metric {
			return
		}
		env := mr.decode(ev)
		p, _ := arcp.DecodePayload[arcp.MetricPayload](&env)
		name, cost := strings.CutPrefix(p.Name, "cost.")
		if !cost || strings.HasPrefix(name, "budget") {
			return
		}
		costs[name]++
		d, _, _ := apd.NewFromString(string(p.Value))
		apd.BaseContext.Sub(left, left, d)
		mr.mu.Lock()
		defer mr.mu.Unlock()
		if mr.refused[name] || costs[name] > 1 || l.plan.budget && mr.charges[name] && left.Negative && !left.IsZero() {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: cost %s is there %d times, refused: %v; left %s", when, name,
				costs[name], mr.refused[name], left))
		}
	})
	if (ends == 1) != row.State.Terminal() {
		mr.fault("%s: %s is %s with %d terminal events", when, l.id, row.State, ends)
	}
	mr.mu.Lock()
	defer mr.mu.Unlock()
	if row.State.Terminal() || mr.release != nil || mr.broken {
		return
	}
	if l.plan.budget {
		if has := mr.budget(l.id); has.Cmp(left) != 0 {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s has %s left, want %s", when, l.id, has, left))
		}
	}
	if l.attempt == nil || l.stopped || mr.asleep > 0 {
		return
	}
	want := arcp.StateRunning
	if len(l.waiting) > 0 || interrupted {
		want = arcp.StateBlocked
	}
	if row.State != want {
		mr.faults = append(mr.faults, fmt.Sprintf("%s: %s is %s; it waits for %v, interrupted: %v\n%s", when, l.id,
			row.State, l.waiting, interrupted, mr.log(l.id)))
	}
	for prompt, me := range l.refusedIn {
		if q := asked[string(l.id)+" "+prompt]; me == l.attempt && mr.resolved[q.ID] != "" && q.Resolution != approval.Deny {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s was answered, and %s not told", when, prompt, l.id))
		}
	}
	for prompt := range l.waiting {
		if q := asked[string(l.id)+" "+prompt]; q.Status != approval.Pending {
			mr.faults = append(mr.faults, fmt.Sprintf("%s: %s waits for %s, which is %q", when, l.id, prompt, q.Status))
		}
	}
}

// budget returns the durable remainder of a job's budget.
func (mr *modelRun) budget(id arcp.JobID) *apd.Decimal {
	text := arcp.Number("5")
	rec, err := mr.st.Get(context.Background(), progressKey(id))
	var m progressRow
	if err == nil && rec.Rev > 0 {
		err = arcp.Unmarshal(rec.Value, &m)
	}
	if err == nil && len(m.Spent) > 0 {
		var b *lease.Budget
		if b, err = lease.RestoreBudget(m.Spent); err == nil {
			text = b.Remaining()[0].Number()
		}
	}
	if err != nil {
		mr.faults = append(mr.faults, err.Error())
	}
	d, _, _ := apd.NewFromString(string(text))
	return d
}

func (mr *modelRun) submit(l *modelJob, n int) {
	q := mr.request("sess_1", l.plan.tool, fmt.Sprintf(`{"n":%d}`, n))
	request := `{"x":["y"]`
	if l.plan.lease > 0 {
		l.end = time.Now().Add(l.plan.lease).UTC().Truncate(time.Microsecond)
		request += `,"fs.read":["/a/**"],"expires_at":"` + l.end.Format(time.RFC3339Nano) + `"`
	}
	if l.plan.budget {
		request += `,"cost.budget":["USD:5"]`
	}
	q.payload.LeaseRequest = arcp.Raw(request + "}")
	if l.plan.maxRuntime != "" {
		q.payload.MaxRuntimeSec = new(arcp.Number(l.plan.maxRuntime))
	}
	id := mr.send(q)
	if l.id = jobOf(mr.frames("sess_1"), id); l.id == "" {
		mr.Fatalf("the submit %s was not accepted", id)
	}
}

// For random tools, actors, stops and crashes of the runtime, these invariants hold:
//
//   - a job ends once;
//   - nothing is permitted after the end of the lease that permits it;
//   - the budget matches the costs;
//   - every question is asked once, resolved by at most one answer, and the answer reaches the waiting tool;
//   - nothing is left in memory at the end.
func TestAuthorityModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScript(rt)
		fq := newQuestions(person("sess_1"), person("sess_2"))
		w := &modelRun{broker: fq, done: make(map[string]int), resolved: make(map[string]string), observed: make(map[string]bool),
			charged: make(map[string]bool), refused: make(map[string]bool), charges: make(map[string]bool)}
		runEngine(t, func(c *Config) { c.Questions, c.PreemptExpired = fq, s.preempt }, func(f *fixture) {
			w.fixture = f
			w.runScript(s)
		})
		if len(w.faults) > 0 {
			rt.Fatalf("the run differs from the model:\n%s", strings.Join(w.faults, "\n"))
		}
	})
}

func (mr *modelRun) runScript(s script) {
	mr.began = time.Now()
	for name, change := range modelTools {
		mr.tool(name, func(c *tool.Capability) { change(c); c.Interruptible = true }, mr.runTool)
	}
	for _, id := range []arcp.SessionID{"sess_1", "sess_2", "sess_3"} {
		mr.session(id)
	}
	for i, plan := range s.jobs {
		l := &modelJob{plan: plan, actions: make(chan toolAction, 4*len(s.steps)+1), answers: make(map[string]string),
			refusedIn: make(map[string]*int)}
		mr.jobs = append(mr.jobs, l)
		mr.submit(l, i)
	}
	for i, m := range s.steps {
		mr.step(m)
		if mr.check(fmt.Sprintf("%d, %s %s", i, m.kind, m.action.kind)); len(mr.faults) > 0 {
			break
		}
	}
	mr.st.crashAfter(0) // no more
	mr.releaseCommits()
	if mr.check("at last"); mr.broken {
		mr.restartRuntime(false)
	}
	mr.check("when it goes on")
	for _, l := range mr.jobs {
		l.actions <- toolAction{kind: "return"}
	}
	time.Sleep(40 * 24 * time.Hour)
	mr.check("in the end")
	for request, n := range mr.done {
		if n != 1 {
			mr.fault("%s is answered %d times", request, n)
		}
	}
	for _, l := range mr.jobs {
		if state := mr.row(l.id).State; !state.Terminal() {
			mr.fault("%s, %s, is %s in the end; %d actions are left\n%s", l.plan.tool, l.id, state, len(l.actions), mr.log(l.id))
		}
	}
	if len(mr.faults) == 0 {
		mr.expectNoState("in the end")
		if n := len(mr.e.leases.byID); n != 0 {
			mr.fault("%d permission leases are left", n)
		}
	}
}
