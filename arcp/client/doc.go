// Package client speaks the protocol from the client's side: it opens a
// session, submits and follows jobs, and hands everything else through.
//
// A [Client] is one connection of one session. All its methods may be called
// from any number of goroutines at once, except where said otherwise. Close and
// Abort end the connection and return when its goroutines are gone.
//
// # Ownership and bounds
//
// One goroutine reads and routes, one writes. The reader never waits for a
// consumer: what a job has to say is queued for [Job.Events], at most
// [Limits.EventBuffer] messages and [Limits.EventBytes] bytes a job. A consumer
// that falls further behind loses that job's events: its iterator ends with
// [ErrEventBufferFull] while [Job.Wait] still reports the outcome and other jobs
// notice nothing. What nobody asked for is kept for [Client.Unsolicited], the
// newest [Limits.Unsolicited] messages. Send waits when [Limits.SendBuffer]
// bytes are not yet written.
//
// # Failures
//
// A failure the runtime reported is a [*RemoteError], or a [*JobError] or
// [*CancelRefused] that says more. A lost connection is [ErrConnectionLost]
// wrapped around the transport's error. What was said wrongly on the wire is a
// [*ProtocolError] or [*SequenceError]. Everything else is local.
//
// Section references (§) are to SPEC.md at the root of the repository.
package client
