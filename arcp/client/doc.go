// Package client is the client's side of the protocol. It opens a session, submits and
// follows jobs, and passes on all other messages.
//
// A [Client] is one session, over one connection ([Dial], [New]) or over as many as
// needed ([Connect]). Any number of goroutines may call its methods. Close and Abort
// end the connection and return when its goroutines have ended.
//
// [Client.Invoke] submits a job, [Client.SubscribeJob] follows a job of another client,
// and [Client.SubscribeFeed] follows all jobs of the principal. [Client.Call],
// [Client.Submit], [Client.Send] and [Client.Reply] send envelopes that have no method
// of their own.
//
// # Ownership and bounds
//
// One goroutine reads and routes, one writes; with [Connect] a third checks that the
// peer is alive. The reader never waits for a consumer: the messages of a job are queued
// for [Job.Events], at most [Limits.EventBuffer] messages and [Limits.EventBytes] bytes
// a job. A consumer that falls further behind loses the events of that job: its iterator
// ends with [ErrEventBufferFull], [Job.Wait] still reports the outcome, and other jobs
// are not affected. The newest [Limits.Unsolicited] messages of no call, job or feed are
// queued for [Client.Unsolicited]. Send waits when [Limits.SendBuffer] bytes are not yet
// written, also between two connections. [Handlers] answer questions to people, at most
// [Limits.Handlers] at the same time, each on a goroutine of its own.
//
// # Failures
//
// A failure that the runtime reported is a [*RemoteError], or a [*JobError] or
// [*CancelRefused] with more details. [ErrConnectionLost] wraps the transport's error of
// a lost connection. [ErrSessionLost] is the error of a session that could not be
// resumed. A violation of the protocol is a [*ProtocolError] or [*SequenceError]. All
// other errors are local.
//
// Section references (§) are to SPEC.md at the root of the repository.
package client
