// Package client speaks the protocol from the client's side: it opens a
// session, submits and follows jobs, and hands everything else through.
//
// A [Client] is one session, over one connection ([Dial], [New]) or over as many
// as it takes ([Connect]). All its methods may be called from any number of
// goroutines at once, except where said otherwise. Close and Abort end the
// connection and return when its goroutines are gone.
//
// # Ownership and bounds
//
// One goroutine reads and routes, one writes; with [Connect] a third looks
// whether the peer is there. The reader never waits for a consumer: what a job
// has to say is queued for [Job.Events], at most [Limits.EventBuffer] messages
// and [Limits.EventBytes] bytes a job. A consumer that falls further behind loses
// that job's events: its iterator ends with [ErrEventBufferFull] while [Job.Wait]
// still reports the outcome and other jobs notice nothing. What nobody asked for
// is kept for [Client.Unsolicited], the newest [Limits.Unsolicited] messages.
// Send waits when [Limits.SendBuffer] bytes are not yet written, also between two
// connections. Questions to people are answered by [Handlers], at most
// [Limits.Handlers] at the same time, each by a goroutine of its own.
//
// # Failures
//
// A failure the runtime reported is a [*RemoteError], or a [*JobError] or
// [*CancelRefused] that says more. A lost connection is [ErrConnectionLost]
// wrapped around the transport's error; one after which the session could not be
// resumed is [ErrSessionLost]. What was said wrongly on the wire is a
// [*ProtocolError] or [*SequenceError]. Everything else is local.
//
// Section references (§) are to SPEC.md at the root of the repository.
package client
