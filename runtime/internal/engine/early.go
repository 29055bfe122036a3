package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/tool"
)

// An early job is one whose tool begins before the claim is in the log. The tool has no side effect,
// so a call of a job that is never accepted does no harm; hooks see it, too. The goroutine of the supervisor runs the
// tool. If the tool returns within handoverAfter, the claim, the start and the outcome are one write.
// Otherwise the supervisor goes on with another goroutine, which writes the claim, and the job is like
// any other.

// handoverAfter is how long an early tool may run before another goroutine supervises its job.
const handoverAfter = 100 * time.Microsecond

// slowTools has the references of the tools that can be early and whose last call took at least
// handoverAfter. A job of such a tool is not early: it would only delay its claim, and the session's
// later submits, by the time of the handover. Any goroutine may call its methods.
type slowTools struct{ refs sync.Map }

func (st *slowTools) has(t *tool.Tool) bool {
	_, found := st.refs.Load(t.Ref())
	return found
}

// record records how long a call of a tool took.
func (st *slowTools) record(t *tool.Tool, took time.Duration) {
	switch slow := took >= handoverAfter; {
	case !t.SideEffect.ReadOnly() || t.Source == tool.SourceWorker || slow == st.has(t):
	case slow:
		st.refs.Store(t.Ref(), nil)
	default:
		st.refs.Delete(t.Ref())
	}
}

// isEarly reports whether the job of a submit is early. The tool of a worker takes too long.
func (r *run) isEarly(s *Submit) bool {
	return s.Session != "" && !r.runsOnWorker() && r.startsBeforeDurable(s) && !r.e.slow.has(r.tool)
}

// errNoJob is the result of a write whose claim was refused.
var errNoJob = errors.New("the claim was refused")

// startEarly starts an early job in its turn. It blocks the session's later submits until the claim has
// its position in the log.
func (s *Submit) startEarly(r *run) (blocks bool) {
	s.makeAccepted(r)
	s.early = r
	return r.e.order.perform(s, true, (*earlyStart)(s))
}

// earlyStart is the step of a submit that starts its early job.
type earlyStart Submit

func (es *earlyStart) step() (blocks bool) {
	s := (*Submit)(es)
	r := s.early
	s.early = nil
	if !r.launchEarly(s) {
		s.appendClaim(r)
	}
	return true
}

// launchEarly starts the supervisor of an early job. It reports false if the runtime stops: then only
// the claim is due.
func (r *run) launchEarly(claim *Submit) bool {
	s := newSupervisor(r)
	s.write.claim = claim
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lifecycle.aborted() {
		return false
	}
	r.current = s
	r.e.wg.Add(1)
	r.e.pool.Run(s.supervise)
	return true
}

// runEarlyTool runs the tool of an early job. It reports whether the tool has returned before another
// goroutine went on with the supervisor.
func (s *supervisor) runEarlyTool() bool {
	s.call.early = false
	t := s.e.handovers.start(s)
	toolRunner{toolGoroutine{s}}.run() // if the tool ends the goroutine, the timer hands over
	s.e.handovers.stop(t)
	return s.call.decided.CompareAndSwap(false, true)
}

// handovers are the timers of early tools, which are used again.
type handovers struct{ pool sync.Pool }

type handover struct {
	timer *time.Timer
	s     *supervisor // while the timer runs
}

// start starts a timer that calls handOver of a supervisor after handoverAfter.
func (hs *handovers) start(s *supervisor) *handover {
	h, ok := hs.pool.Get().(*handover)
	if ok {
		h.s = s
		h.timer.Reset(handoverAfter)
		return h
	}
	h = &handover{s: s}
	h.timer = time.AfterFunc(handoverAfter, func() { h.s.handOver() })
	return h
}

// stop stops a timer.
func (hs *handovers) stop(h *handover) {
	if h.timer.Stop() {
		h.s = nil
		hs.pool.Put(h)
	}
}

// handOver has another goroutine go on with the supervisor, unless the tool has returned.
func (s *supervisor) handOver() {
	if s.call.decided.CompareAndSwap(false, true) {
		s.e.slow.record(s.tool, handoverAfter)
		s.e.pool.Run(s.takeTurns)
	}
}

// placeClaim appends the claim of an early job, unless the log has it.
func (jw *jobWriter) placeClaim() {
	if claim := jw.claim; claim != nil {
		jw.claim = nil
		claim.appendClaim(jw.run)
	}
}

// appendClaim appends the claim of an early job.
func (s *Submit) appendClaim(r *run) {
	r.e.cfg.Log.Append(s.claimWrite(r), func(res *store.Result) {
		if s.committed(r, res) {
			r.markAccepted(false)
		}
	})
	s.placed(r)
}

// addClaim adds the claim of an early job to a write that ends the job. It returns nil if the log has
// the claim.
func (jw *jobWriter) addClaim(end *store.Write) *Submit {
	claim := jw.claim
	if claim == nil {
		return nil
	}
	jw.claim = nil
	log := store.Find[*store.AppendEvents](end)
	log.Job, log.Attempt = "", 0 // of the submit in the same write
	log.Events = slices.Insert(log.Events, 0, claim.claimEvents(jw.run)...)
	end.Ops = slices.Insert(end.Ops, 0, store.Op(claim.submitJob(jw.run)))
	return claim
}

// committed reports whether the write of the claim of an early job has created the job. If not, it
// removes the run.
func (s *Submit) committed(r *run, res *store.Result) bool {
	created := s.claimCommitted(r, res)
	if !created {
		r.discard()
	}
	s.notifyDecided()
	return created
}

// placed records that the claim of an early job has its position in the log.
func (s *Submit) placed(r *run) {
	r.markPlaced()
	r.e.order.unblock(s.Session)
}
