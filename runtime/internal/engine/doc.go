// Package engine runs jobs: it accepts submits, gives each running job a
// supervisor, and ends every job exactly once.
//
// One commit makes a submit a durable job with its job.accepted. The caller does not
// wait for it. One goroutine, the supervisor, owns the machine of a running job and
// alone appends to its log, so a job's events keep the order in which they were
// emitted. A queued job, or a job between two attempts, has no goroutine: it is a row
// with a place in its tool's queue, or with a timer.
//
// Package job and the packages below it decide: states, timers, attempts, leases,
// budgets, questions and children. The supervisor locks, asks for the decision, writes
// it and applies its effects.
//
// Each attempt of a job has its own supervisor. Events of an earlier attempt are
// refused. After a restart Recover resumes every job as its tool's recovery says.
//
// The lifecycle of a run, and its slot or place in the queue of its tool, are states with
// transition tables (lifecycle.go). Engine.mu guards the tables of the engine, and
// run.mu the state that a run shares with its tool. No goroutine holds both.
//
// Section references (§) are to SPEC.md.
//
// A submit that becomes a job takes this path:
//
//	Engine.Submit        the submit waits for its turn in the session (submit.go, submit_order.go)
//	Submit.prepare       checks without a lock; they make the run (submit.go)
//	Engine.admit         checks of the limits; the run gets a slot or a place in the queue of its
//	                     tool (admission.go, job_table.go, tool_rates.go, tool_queue.go)
//	Submit.claim         the write of the job row and job.accepted (submit.go)
//	Submit.append        the log gets the write (submit_order.go)
//	run.markPlaced       the write has its position: a tool without side effects may start (run.go)
//	Submit.claimCommitted  the write is durable: there is a job, or the submit is answered (submit.go)
//	run.markAccepted     the supervisor starts if the run has a slot (run.go)
//
// Calls of built-in tools leave this path after admit: runInline (builtin.go) and startCall
// (builtin_call.go). A job with credentials is claimed by appendProvisioned (credentials.go).
//
// An event of a tool takes this path:
//
//	toolJob.Emit         the tool's goroutine encodes the event and waits for room (emit.go)
//	eventQueue.push      the queue of the attempt, guarded by run.mu (attempt_state.go)
//	supervisor.turn      the supervisor handles its input (supervise.go)
//	jobWriter.next       one write of the queued events and changed records (job_writer.go)
//	jobWriter.commit     the log gets the write; the supervisor waits for the result (job_writer.go)
//
// A change of a running job is a command (run.go): run.post queues it, and the supervisor
// applies it in its next turn.
//
// View types group the methods of one task, and have no state of their own:
//
//   - SessionJobs, JobQuestions and PermissionLeases of an Engine
//   - jobRecords and jobCredentials of a run
//   - toolGoroutine of a supervisor, on a goroutine of the tool. It is a type of its own, because the
//     methods of a supervisor are for the goroutine that supervises.
//   - toolRunner, a toolGoroutine that authorizes and calls the tool. The tool has no access to it.
//   - toolJob, a toolGoroutine that is the tool.Host of the attempt. A toolGoroutine is not the host,
//     because it also has methods that the tool must not call, such as gate.
//   - builtinJob, a toolJob with the methods that only built-in tools may call
package engine
