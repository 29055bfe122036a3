// Package conn serves connections: the handshake, the messages of a client, and the events for
// the client.
//
// A connection has a reader, a loop and a writer. The reader is the goroutine that called Serve.
// The loop runs in turns on a goroutine of the pool, while there is something to do. The writer
// exists while there is something to write. An idle connection costs only its reader.
//
// Only the loop touches the state of a connection. It waits only for built-in tools that read: they
// run on the loop (engine.Submit), and read at most a page of the store. Other reads of the store,
// and authenticators, run on other goroutines.
//
// Frames, acknowledgements and the actions of other goroutines reach the loop through one queue, the
// inbox. Answers and events of the session come through its cursor, which orders them.
//
// A message of the client takes this path:
//
//	inbox.readFrames     the reader reads and decodes a frame
//	conn.turn            the loop takes the frames (receiveFrames, receive)
//	Machine.Receive      the state machine admits the message
//	conn.perform         the loop performs the machine's output
//	conn.route           the handler of the type (routes.go), for example commands.invoke
//
// An event of a job, and the answer to a submit, take this path:
//
//	eventlog.Cursor      has the events and answers of the session in order
//	conn.flush           the loop collects them (eventReader.pull and deliver)
//	output               the batch of frames of one turn
//	outbox               the writer writes the batch
//
// In the draft dialect the codec of package draft stands between the frames and these paths
// (draft_dialect.go). Most of the state of a conn is in parts, one struct type each: a handler is a
// method of the part whose state it changes, or of commands.
//
// session.open and session.resume are handled by handshake.go, which performs the requests of
// the machine, and attach.go, which attaches to an existing session.
package conn
