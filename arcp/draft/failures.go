package draft

import (
	"cmp"

	"github.com/arcpd/arcpd/arcp"
)

// failureForm encodes the failure of a request. The libraries wait for different messages, and
// several fail all of their calls and jobs on any session.error.
type failureForm func(a *answer, f Failure) error

// noAnswer sends nothing: the libraries would fail other calls on any answer.
func noAnswer(*answer, Failure) error { return nil }

// errorFrame returns a session.error about the request.
func (a *answer) errorFrame(f Failure) frame {
	return frame{t: SessionError, trace: a.request.trace, payload: ErrorPayload{Failure: f, Correlation: a.correlation()}}
}

// jobErrorFrame returns a job.error without an event_seq.
func (a *answer) jobErrorFrame(f Failure, job arcp.JobID) frame {
	info, _ := f.Code.Info()
	status := info.Status
	if a.s.quirks.finalStatusError {
		status = statusError
	}
	return frame{t: JobError, job: job, trace: a.request.trace,
		payload: ErrorPayload{JobID: job, FinalStatus: status, Failure: f, CompletedAt: Time{a.now}, Correlation: a.correlation()}}
}

func (a *answer) newJob() arcp.JobID { return arcp.JobID(a.s.newID(arcp.JobPrefix)) }

// sendAll sends frames in order.
func (a *answer) sendAll(frames ...frame) error {
	for _, f := range frames {
		if err := a.send(f); err != nil {
			return err
		}
	}
	return nil
}

// sessionError suits Go, which reads request_id, and Ruby, which reads reply_to. Go v1.1.0 fails
// all calls and jobs on it, as its own runtime makes it do.
func sessionError(a *answer, f Failure) error { return a.send(a.errorFrame(f)) }

// sessionErrorIfAlone suits TypeScript, Python and C#, which fail all calls and jobs on a
// session.error. It is sent only if there are no others. Otherwise the call stays pending.
func sessionErrorIfAlone(a *answer, f Failure) error {
	if !a.s.pending.none() {
		return nil
	}
	return a.send(a.errorFrame(f))
}

// jobErrorOfNewJob suits TypeScript, which reads trace_id or the order of its submits, and Ruby,
// which reads reply_to and requires payload.job_id.
func jobErrorOfNewJob(a *answer, f Failure) error { return a.send(a.jobErrorFrame(f, a.newJob())) }

// jobErrorWithoutJob suits Java and F#, which read the id, and PHP, which reads correlation_id.
func jobErrorWithoutJob(a *answer, f Failure) error { return a.send(a.jobErrorFrame(f, "")) }

// acceptThenFail suits Python and C#, which fail a submit only on a session.error: while they have
// other calls or jobs, the submit is accepted and its job fails at once.
func acceptThenFail(a *answer, f Failure) error {
	if a.s.pending.none() {
		return a.send(a.errorFrame(f))
	}
	job := a.newJob()
	accepted := AcceptedPayload{
		JobID:       job,
		Agent:       cmp.Or(a.request.agent, "unknown"),
		Lease:       a.lease(nil),
		AcceptedAt:  Time{a.now},
		TraceID:     a.request.trace,
		Correlation: a.correlation(),
	}
	return a.sendAll(frame{t: JobAccepted, job: job, trace: a.request.trace, payload: accepted}, a.jobErrorFrame(f, job))
}

// submitComposite suits Java, F#, TypeScript and Go. Its last frame has no session_id: TypeScript
// ignores it.
func submitComposite(a *answer, f Failure) error {
	last := a.errorFrame(f)
	last.noSession = true
	return a.sendAll(a.jobErrorFrame(f, ""), a.jobErrorFrame(f, a.newJob()), last)
}

// emptyPage answers a list with no jobs: a page resolves exactly the call that failed.
func emptyPage(a *answer, _ Failure) error {
	return a.send(frame{t: SessionJobs, payload: JobsPayload{Jobs: []JobEntry{}, Correlation: a.correlation()}})
}

// subscribeEcho suits F#, which reads the id of the session.error, and Java, which reads job_id
// of the job.error. The job.error is left out if it would end the handle of a submitted job.
func subscribeEcho(a *answer, f Failure) error {
	return a.subscribeFrames(f, a.errorFrame(f))
}

// subscribeComposite is subscribeEcho with a session.error that TypeScript ignores.
func subscribeComposite(a *answer, f Failure) error {
	first := a.errorFrame(f)
	first.noSession = true
	return a.subscribeFrames(f, first)
}

func (a *answer) subscribeFrames(f Failure, first frame) error {
	if a.request.job == "" || a.s.pending.has(a.request.job) {
		return a.send(first)
	}
	return a.sendAll(first, a.jobErrorFrame(f, a.request.job))
}

// nack suits PHP, which reads correlation_id.
func nack(a *answer, f Failure) error {
	return a.send(frame{t: Nack, payload: ErrorPayload{Failure: f, Correlation: a.correlation()}})
}

// handshakeFailure sends a session.error and a job.error, which make every library report the
// failure of its hello. Go and Python read the first frame only. C# waits until the connection
// ends: the caller closes it.
func (a *answer) handshakeFailure(f Failure) error {
	first, second := a.errorFrame(f), a.jobErrorFrame(f, "")
	first.echo, second.echo = true, true
	return a.sendAll(first, second)
}
