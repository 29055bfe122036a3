// Package client is the client of the protocol. It opens a session, submits and follows jobs, and
// delivers all other messages.
//
// A [Client] is one session. Its constructors are:
//
//   - [Dial] connects to an address. The client ends with its connection.
//   - [New] uses a [transport.Conn]. The client ends with its connection.
//   - [Connect] connects to an address, and reconnects after a lost connection.
//   - [ConnectFunc] is Connect over connections that a function makes.
//
// The methods of a client are safe for concurrent use. Close and Abort end the connection and return
// when the goroutines of the client have ended.
//
// [Client.Invoke] submits a job, [Client.SubscribeJob] follows a job of another client, and
// [Client.SubscribeFeed] follows all jobs of the principal. [Client.Call], [Client.Submit],
// [Client.Send] and [Client.Reply] send envelopes without a specific method.
//
// [Options.Dialect] selects the dialect of the protocol. A client of the draft dialect can invoke
// tools, follow, list and cancel jobs. Its other methods return an [*UnsupportedError], and it is
// asked no questions.
//
// # Ownership and bounds
//
// One goroutine reads and routes, and one writes. With [Connect] a third checks that the peer is
// alive. The reader never waits for a consumer. It queues the messages of a job for [Job.Events]:
// at most [Limits.EventBuffer] messages and [Limits.EventBytes] bytes for each job. A slower
// consumer loses the events of that job: its iterator ends with [ErrEventBufferFull]. [Job.Wait]
// still returns the outcome, and other jobs are not affected. The newest [Limits.Unsolicited]
// messages outside calls, jobs and feeds are queued for [Client.Unsolicited]. Send waits while
// [Limits.SendBuffer] bytes are not written, also between two connections. [Handlers] answer
// questions to people, at most [Limits.Handlers] at the same time, each on its own goroutine.
//
// # Failures
//
// A failure reported by the runtime is a [*RemoteError], or a [*JobError] or [*CancelRefused] with
// more details. [ErrConnectionLost] wraps the transport error of a lost connection.
// [ErrSessionLost] is the error of a session that could not be resumed. A violation of the protocol
// is a [*ProtocolError] or [*SequenceError]. All other errors are local.
//
// Section references (§) are to SPEC.md at the root of the repository.
package client
