// Package draft encodes and decodes the draft dialect of ARCP, the messages session.hello,
// job.submit and job.event of draft 1.1, for the published client libraries.
//
// A ServerCodec is the codec of one connection. Decode turns a frame of the client into the
// arcp.Envelope of the equivalent message. AppendAnswer turns an answer into 0, 1 or several
// frames. AppendEvent turns a numbered event into exactly one frame. The libraries disagree
// about correlation, failures and some members: the table in profile.go lists the differences.
//
// A ClientCodec is the codec of the other side. Append turns a message of a client into a frame,
// and Decode turns a frame of the runtime into the equivalent message. Both sides read the same
// tables of kinds, codes and status words.
//
// Section references (§) are to ARCP draft 1.1; a reference to SPEC.md names it.
//
// The package has no clock, no I/O and no goroutines.
package draft
