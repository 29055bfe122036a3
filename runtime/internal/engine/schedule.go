package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/job"
	"github.com/arcpd/arcpd/runtime/internal/job/family"
	"github.com/arcpd/arcpd/runtime/internal/lease"
	"github.com/arcpd/arcpd/runtime/internal/metrics"
	"github.com/arcpd/arcpd/runtime/internal/schedule"
	"github.com/arcpd/arcpd/runtime/store"
)

// A schedule is a job of the built-in tool ScheduleTool (SPEC.md §5.19). The tool is never called: the
// job stays queued, without a slot and without a supervisor, and has a scheduleRecord. When an
// occurrence is due, the scheduler posts the command occurrence. The supervisor that starts for it
// decides, and commits the job of the occurrence together with the record: a crash neither loses nor
// repeats an occurrence.

// ScheduleTool is the name of the built-in tool whose jobs are schedules. Its arguments are the payload
// of job.schedule.
const ScheduleTool = "schedule.create"

// firingPosition is the position of a job of a schedule: it goes on after the end of the schedule.
var firingPosition = family.Position{Depth: 1, Detached: true}

// The bounds of the time after which a job that was refused is submitted again. In between it is the
// time that has passed since the job was due, which doubles each time.
const (
	minFiringRetry = time.Second
	maxFiringRetry = time.Minute
)

func isScheduleRow(j *store.Job) bool {
	name, _, _ := strings.Cut(j.Agent, "@")
	return name == ScheduleTool
}

// plannedJob has the plan of a schedule, the message that it sends, and its state.
type plannedJob struct {
	plan   schedule.Plan
	when   arcp.When // from which plan is made
	job    arcp.ScheduledJob
	invoke arcp.ToolInvokePayload // of each job
	expiry time.Duration          // of the lease of each job, from its start on; 0: not set

	missed *arcp.Error // the submit is refused with it unless it repeats another one; nil: it has an occurrence

	record  scheduleRecord // changed by the supervisor; guarded by run.mu
	rev     uint64
	refusal *arcp.Error // latest temporary refusal of a job; nil: none in this process

	wake wakeTime // guarded by scheduler.mu
}

// scheduleRecord is the stored state of a schedule.
type scheduleRecord struct {
	Next    time.Time  `json:"next,omitzero"`    // next occurrence; zero: there is none
	N       uint64     `json:"n,omitzero"`       // its number, if the rule has a COUNT
	Fired   int        `json:"fired,omitzero"`   // jobs that were accepted
	Skipped int        `json:"skipped,omitzero"` // occurrences without a job: late, or while the previous job ran
	Failed  int        `json:"failed,omitzero"`  // occurrences whose job was refused
	Last    arcp.JobID `json:"last,omitzero"`    // the latest job

	Identity arcp.Raw `json:"identity,omitzero"` // of the credentials of the session; see Config.Rights
}

func scheduleKey(id arcp.JobID) string { return store.JobRecordPrefix(id) + "schedule" }

func (p *scheduleRecord) next() schedule.Occurrence {
	return schedule.Occurrence{At: p.Next, N: p.N}
}

func (p *scheduleRecord) advance(next schedule.Occurrence) { p.Next, p.N = next.At, next.N }

// write returns the change of the record.
func (p *scheduleRecord) write(id arcp.JobID, rev uint64) store.Record {
	value, err := arcp.Marshal(p)
	if err != nil { // plain members
		panic("engine: schedule: " + err.Error())
	}
	return store.Record{Key: scheduleKey(id), Rev: rev, Value: value}
}

// firstRecord returns the record of a new schedule. It cannot be written for a schedule without an
// occurrence.
func (p *plannedJob) firstRecord(id arcp.JobID, identity arcp.Raw) store.Record {
	p.record.Identity = identity
	if p.missed != nil {
		return p.record.write(id, 1) // there is no first revision
	}
	return p.record.write(id, 0)
}

// parseSchedule reads the arguments of a schedule, without its plan.
func parseSchedule(args arcp.Raw) (*plannedJob, *arcp.Error) {
	var in arcp.JobSchedulePayload
	if err := arcp.Unmarshal(args, &in); err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "%s: %v", ScheduleTool, err)
	}
	p := &plannedJob{when: in.When, job: in.Job, wake: wakeTime{index: -1}}
	if err := p.parseJob(); err != nil {
		return nil, arcp.Errorf(arcp.CodeInvalidArgument, "job: %v", err)
	}
	return p, nil
}

// parseJob reads the message that is sent at each occurrence.
func (p *plannedJob) parseJob() (err error) {
	env := &arcp.Envelope{Type: p.job.Type, Payload: p.job.Payload}
	switch p.job.Type {
	case arcp.ToolInvoke:
		p.invoke, err = arcp.DecodeComplete[arcp.ToolInvokePayload](env)
	case arcp.WorkflowStart:
		var w arcp.WorkflowStartPayload
		w, err = arcp.DecodeComplete[arcp.WorkflowStartPayload](env)
		p.invoke = w.Invoke()
	default:
		err = fmt.Errorf("a schedule sends tool.invoke or workflow.start, not %q", p.job.Type)
	}
	switch {
	case err != nil:
		return err
	case p.invoke.Direct:
		return errors.New("the jobs of a schedule are not direct")
	}
	p.invoke.OnDisconnect = "continue"
	return p.parseExpiry()
}

// Rights bounds the jobs of a principal.
type Rights struct {
	Trust   arcp.TrustLevel
	Roles   []string
	MaxJobs int          // 0: Limits.MaxJobsPerPrincipal
	Lease   *lease.Lease // bounds the leases of its jobs; nil: not set
}

// leaseExpiry has the member of lease_constraints that only scheduled messages have.
type leaseExpiry struct {
	LeaseConstraints struct {
		ExpiresInSeconds *arcp.Number `json:"expires_in_seconds"`
	} `json:"lease_constraints"`
}

func (p *plannedJob) parseExpiry() error {
	var in leaseExpiry
	if err := arcp.Unmarshal(p.job.Payload, &in); err != nil {
		return err
	}
	n := in.LeaseConstraints.ExpiresInSeconds
	if n == nil {
		return nil
	}
	seconds, err := strconv.ParseFloat(string(*n), 64)
	if err != nil || !(seconds > 0) || seconds > maxRuntimeLimit {
		return fmt.Errorf("expires_in_seconds must be above 0 and at most %d", maxRuntimeLimit)
	}
	if c := p.invoke.LeaseConstraints; c != nil && !c.ExpiresAt.IsZero() {
		return errors.New("a lease has expires_at or expires_in_seconds, not both")
	}
	p.expiry = max(time.Duration(seconds*float64(time.Second)), 1) // 0 means not set
	return nil
}

// prepareSchedule makes the checks of a schedule, and those of its jobs as if one were submitted now.
func (s *Submit) prepareSchedule(r *run) *arcp.Error {
	p, err := parseSchedule(s.Payload.Arguments)
	if err != nil {
		return err
	}
	var first schedule.Occurrence
	p.plan, first, p.missed = schedule.New(&p.when, r.created)
	if p.missed != nil && !r.mayRepeat(s) { // the schedule that it repeats had an occurrence
		return p.missed
	}
	p.record.advance(first)
	r.planned = p
	_, err = r.firing(r.created, &Rights{s.Trust, s.Roles, s.MaxJobs, s.Lease}).newRun(r.e)
	return err
}

// firing returns the submit of the job of an occurrence, for a principal with rights. Its idempotency key
// names the occurrence.
func (r *run) firing(at time.Time, rights *Rights) *Submit {
	p := r.planned
	payload := p.invoke
	if p.expiry > 0 {
		payload.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: time.Now().Add(p.expiry).UTC()}
	}
	return &Submit{
		Envelope: &arcp.Envelope{Type: p.job.Type, Priority: r.row.Priority, TraceID: r.row.TraceID, SpanID: r.row.SpanID,
			IdempotencyKey: string(r.row.ID) + "/" + at.UTC().Format(time.RFC3339Nano)},
		Payload:   &payload,
		Session:   r.owner(),
		Principal: r.row.Principal,
		MaxJobs:   rights.MaxJobs,
		Lease:     cmp.Or(r.authority.Lease, rights.Lease),
		Trust:     rights.Trust,
		Roles:     rights.Roles,
		Identity:  p.record.Identity,
		Barred:    barredOfChildren(r),
		Metrics:   optionsOf(&r.row).Metrics,
		schedule:  r,
	}
}

// prepareFiring makes a run a job of its schedule.
func (s *Submit) prepareFiring(r *run) *arcp.Error {
	if r.builtin() {
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s is a built-in tool, which a schedule cannot call", r.tool.Name)
	}
	r.row.Parent = s.schedule.row.ID
	r.position, r.done.donec = firingPosition, make(chan struct{})
	return nil
}

// readSchedule reads the state of a schedule of an earlier process. refusal says why the schedule
// cannot continue, for example without the data of its time zone.
func (r *run) readSchedule(ctx context.Context) (refusal *arcp.Error, err error) {
	if r.planned, refusal = parseSchedule(r.row.Arguments); refusal != nil {
		return refusal, nil
	}
	if r.planned.plan, refusal = schedule.Read(&r.planned.when, r.created); refusal != nil {
		return refusal, nil
	}
	rec, err := r.e.cfg.Store.Get(ctx, scheduleKey(r.row.ID))
	if err != nil {
		return nil, err
	}
	r.planned.rev = rec.Rev
	if err := arcp.Unmarshal(rec.Value, &r.planned.record); err != nil {
		return arcp.Errorf(arcp.CodeDataLoss, "the state of the schedule cannot be read"), nil
	}
	return nil, nil
}

// arm sets the time of the next occurrence of a schedule. It ignores other jobs.
func (r *run) arm() {
	if r.planned != nil && !r.planned.record.Next.IsZero() {
		r.e.scheduler.set(r, r.planned.record.Next)
	}
}

// occurrence is the command for an occurrence that may be due.
type occurrence struct{ noAnswer }

func (occurrence) apply(s *supervisor, now time.Time) { planner{s}.decide(now) }

// planner applies the decisions about a schedule, on the goroutine of its supervisor.
type planner struct{ *supervisor }

// decide acts on the occurrences that are due.
func (s planner) decide(now time.Time) {
	p := s.planned
	if s.machine.State().Terminal() {
		return
	}
	if !p.plan.Repeats() && p.record.Last != "" { // a restart has interrupted the wait for the job
		if !s.e.Lives(p.record.Last) {
			s.jobEnded(now, p.record.Last, nil)
		}
		return
	}
	before := p.record.Next
	d := p.plan.Decide(now, p.record.next(), s.e.Lives(p.record.Last))
	switch d.Action {
	case schedule.Fire:
		s.fire(now, &d)
	case schedule.Skip:
		s.skip(now, &d)
	}
	if p.plan.Repeats() && p.record.Next.IsZero() {
		s.machine.Conclude(now, p.record.value())
		return
	}
	if !s.machine.State().Terminal() {
		s.armAgain(now, p.record.Next.Equal(before))
	}
}

// armAgain sets the next time at which the schedule is woken; at once if more occurrences are due. retry
// says that the occurrence could not be decided.
func (s planner) armAgain(now time.Time, retry bool) {
	if next := s.planned.record.Next; !next.IsZero() {
		if late := now.Sub(next); retry && late >= 0 {
			next = now.Add(min(max(late, minFiringRetry), maxFiringRetry))
		}
		s.e.scheduler.set(s.run, next)
	}
}

// value returns the result of a schedule with a rule.
func (p *scheduleRecord) value() arcp.Raw {
	raw, err := arcp.Marshal(arcp.ScheduleResult{Fired: p.Fired, Skipped: p.Skipped, Failed: p.Failed})
	if err != nil { // plain members
		panic("engine: schedule: " + err.Error())
	}
	return raw
}

// skip skips the occurrences that are due. A schedule of one time fails then.
func (s planner) skip(now time.Time, d *schedule.Decision) {
	if !s.planned.plan.Repeats() {
		s.planned.count(s.e.cfg.Metrics, d, "")
		s.machine.Fail(now, s.planned.missedError())
		return
	}
	record := s.planned.record
	record.Skipped += d.Missed + d.Overlap
	record.advance(d.Next)
	if err := s.storeSchedule(store.NewWrite(&store.AppendEvents{Job: s.row.ID, Attempt: s.attempt}), record, nil); err == nil {
		s.planned.count(s.e.cfg.Metrics, d, "")
	}
}

// missedError is the failure of a schedule of one time whose job could not be submitted in time.
func (p *plannedJob) missedError() *arcp.Error {
	due := p.record.Next.UTC().Format(time.RFC3339)
	if p.refusal != nil {
		return arcp.Errorf(arcp.CodeDeadlineExceeded, "the job was due at %s and refused for %s: %s", due, schedule.Grace, p.refusal.Message)
	}
	return arcp.Errorf(arcp.CodeDeadlineExceeded, "the job was due at %s, and the runtime could not start it within %s", due, schedule.Grace)
}

// fire submits the job of an occurrence. A job that is refused for a time is submitted again.
func (s planner) fire(now time.Time, d *schedule.Decision) {
	record := s.planned.record
	record.Skipped += d.Missed
	record.advance(d.Next)
	refusal := s.submitFiring(d.Due.At, record)
	switch {
	case refusal == nil && d.InTime:
		s.planned.count(s.e.cfg.Metrics, d, metrics.ScheduleFired)
	case refusal == nil:
		s.planned.count(s.e.cfg.Metrics, d, metrics.ScheduleLate)
	case isTemporary(refusal):
		s.planned.refusal = refusal
		s.e.cfg.Logger.Warn().Str("job_id", string(s.row.ID)).Str("code", string(refusal.Code)).Str("reason", refusal.Message).
			Msg("job of a schedule refused, to be submitted again")
	default:
		s.refused(now, d, record, refusal)
	}
}

// isTemporary reports whether a job that was refused is submitted again, until it is too late. Its tool
// may be registered later: tools of workers and MCP servers are not there yet when the runtime starts.
func isTemporary(refusal *arcp.Error) bool {
	return refusal.Retryable || refusal.Code == arcp.CodeAgentNotAvailable || refusal.Code == arcp.CodeAgentVersionNotAvailable
}

// refused records that the job of an occurrence was refused. A schedule of one time fails then.
func (s planner) refused(now time.Time, d *schedule.Decision, record scheduleRecord, refusal *arcp.Error) {
	if !s.planned.plan.Repeats() {
		s.planned.count(s.e.cfg.Metrics, d, metrics.ScheduleFailed)
		s.machine.Fail(now, refusal)
		return
	}
	s.e.cfg.Logger.Warn().Str("job_id", string(s.row.ID)).Str("code", string(refusal.Code)).Str("reason", refusal.Message).
		Msg("job of a schedule refused")
	record.Failed++
	if err := s.storeSchedule(store.NewWrite(&store.AppendEvents{Job: s.row.ID, Attempt: s.attempt}), record, nil); err == nil {
		s.planned.count(s.e.cfg.Metrics, d, metrics.ScheduleFailed)
	}
}

// count adds the skipped occurrences of a decision to the metric. result is the label for the occurrence that
// is due; empty: it was skipped.
func (p *plannedJob) count(m *metrics.Metrics, d *schedule.Decision, result string) {
	for label, n := range map[string]int{metrics.ScheduleSkippedLate: d.Missed, metrics.ScheduleSkippedOverlap: d.Overlap} {
		m.SchedulesFired.WithLabelValues(label).Add(float64(n))
	}
	if result != "" {
		m.SchedulesFired.WithLabelValues(result).Inc()
	}
}

// submitFiring submits the job of an occurrence. record is the new state of the schedule. submitFiring adds
// the job to it and commits it with the job.
func (s planner) submitFiring(at time.Time, record scheduleRecord) *arcp.Error {
	rights, refusal := s.rights()
	if refusal != nil {
		return refusal
	}
	r, refusal := s.firing(at, rights).prepare(s.e)
	if refusal == nil && rights.Lease != nil {
		refusal = r.authority.Lease.CheckWithin(rights.Lease)
	}
	if refusal == nil {
		refusal = s.e.admit(r, r.maxJobs)
	}
	if refusal != nil {
		return refusal
	}
	record.Fired++
	record.Last = r.row.ID
	if refusal = s.commitFiring(r, record); refusal != nil {
		r.discard()
	}
	return refusal
}

// rights returns what the principal of the schedule may do now, which is not what it could do when it made
// the schedule.
func (s planner) rights() (*Rights, *arcp.Error) {
	if s.e.cfg.Rights == nil {
		return &Rights{Trust: s.trust, Roles: s.roles, MaxJobs: s.maxJobs}, nil
	}
	rights, refusal := s.e.cfg.Rights(s.planned.record.Identity)
	return &rights, refusal
}

// commitFiring commits the job of an occurrence with its credentials and the record of the schedule.
func (s planner) commitFiring(r *run, record scheduleRecord) *arcp.Error {
	follows, err := s.sessionFollows()
	if err != nil {
		s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("session of a schedule cannot be read")
		return errStore()
	}
	w := store.NewWrite(&store.SubmitJob{Row: &r.row})
	if !follows {
		w.Ops = append(w.Ops, &store.Unfollow{Session: r.row.Session, Job: r.row.ID, CorrelationID: r.row.SubmitID})
	}
	w.Ops = append(w.Ops, &store.AppendEvents{Events: []*store.Event{r.acceptedEvent(&r.authority.State)}})
	r.lastJSeq = 1
	grant := new(credential.Grant)
	if r.credentials().provisioned() {
		var refusal *arcp.Error
		if grant, refusal = issueCredentials(r); refusal != nil {
			return refusal
		}
		w.Put(grant.Records...)
	}
	err = s.storeSchedule(w, record, func() {
		countAccepted(r)
		r.markAccepted(true)
	})
	if err == nil {
		return nil
	}
	grant.Discard()
	if existing, ok := errors.AsType[existingJob](err); ok {
		return arcp.Errorf(arcp.CodeAlreadyExists, "the job %s has the idempotency key of the occurrence", existing.id)
	}
	s.e.cfg.Logger.Error().Err(err).Str("job_id", string(s.row.ID)).Msg("job of a schedule not accepted")
	return errStore()
}

// sessionFollows reports whether the session of the schedule follows its jobs. A session of the draft
// dialect does not: its client knows only the jobs that it has submitted or followed itself.
func (s planner) sessionFollows() (bool, error) {
	row, err := s.e.cfg.Store.Session(context.Background(), s.owner())
	if errors.Is(err, store.ErrNotFound) { // it has ended
		return true, nil
	}
	return row.Dialect == arcp.DialectRFC, err
}

// existingJob is the error for an idempotency key that another job has.
type existingJob struct{ id arcp.JobID }

func (e existingJob) Error() string { return "the key belongs to " + string(e.id) }

// storeSchedule commits a write with the record of the schedule. accepted, if set, is called on the
// committer's goroutine when the write is durable.
func (s planner) storeSchedule(w *store.Write, record scheduleRecord, accepted func()) error {
	rev, err := s.records().revision(scheduleKey(s.row.ID), s.planned.rev)
	if err != nil {
		return err
	}
	w.Put(record.write(s.row.ID, rev))
	result := make(chan error, 1)
	s.e.cfg.Log.Append(w, func(res *store.Result) {
		err := res.Err
		if err == nil && res.Existing != "" {
			err = existingJob{res.Existing}
		}
		if err == nil && accepted != nil {
			accepted()
		}
		result <- err
	})
	if err := <-result; err != nil {
		return err
	}
	s.mu.Lock()
	s.planned.record = record
	s.mu.Unlock()
	s.planned.rev = nextRev(rev)
	return nil
}

// jobEnded ends a schedule of one time with the outcome of its job. r is the run of the job if it has
// ended in this process, else nil.
func (s planner) jobEnded(now time.Time, id arcp.JobID, r *run) {
	if s.planned.plan.Repeats() || id != s.planned.record.Last {
		return
	}
	o, err := s.outcomeOf(id, r)
	switch {
	case err != nil:
		s.machine.Fail(now, arcp.Errorf(arcp.CodeDataLoss, "the outcome of the job %s cannot be read", id))
	case o.State == arcp.StateCompleted:
		s.machine.Conclude(now, o.Value)
	case o.State == arcp.StateFailed:
		s.progress.toolError = toolError{err: o.Err}
		s.machine.Fail(now, o.Err)
	default:
		s.machine.Cancel(now, o.Reason, 0)
	}
}

func (s planner) outcomeOf(id arcp.JobID, r *run) (*job.Outcome, error) {
	if r != nil && r.done.outcome != nil && r.done.outcome.Reference == nil {
		return r.done.outcome, nil
	}
	row, err := s.e.cfg.Store.Job(context.Background(), id)
	if err != nil {
		return nil, err
	}
	return readOutcome(context.Background(), s.e.cfg.Store, &row)
}

// Schedules returns the schedules of a principal, the oldest first, or the one with an id that is not
// empty. Each has up to n next times, and fewer if all of them take too long to find.
func (e *Engine) Schedules(principal string, id arcp.JobID, n int) (list []arcp.ScheduleView) {
	e.mu.Lock()
	runs := e.jobs.schedulesOf(principal, id)
	e.mu.Unlock()
	slices.SortFunc(runs, func(a, b *run) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.row.ID, b.row.ID))
	})
	budget := schedule.NewBudget()
	for _, r := range runs {
		list = append(list, r.scheduleView(n, budget))
	}
	return list
}

func (r *run) scheduleView(n int, budget *schedule.Budget) arcp.ScheduleView {
	p := r.planned
	r.mu.Lock()
	record := p.record
	r.mu.Unlock()
	return arcp.ScheduleView{
		JobID:     r.row.ID,
		Tool:      p.invoke.Tool,
		When:      p.when,
		CreatedAt: r.created.UTC(),
		Next:      p.plan.Upcoming(record.next(), n, budget),
		Fired:     record.Fired,
		Skipped:   record.Skipped,
		Failed:    record.Failed,
		LastJobID: record.Last,
	}
}
