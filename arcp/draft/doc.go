// Package draft encodes and decodes the draft dialect of ARCP, the messages session.hello,
// job.submit and job.event of draft 1.1, for the published client libraries.
//
// A Session is the codec of one connection. Decode turns a frame of the client into the
// arcp.Envelope of the equivalent message. AppendAnswer turns an answer into 0, 1 or several
// frames. AppendEvent turns a numbered event into exactly one frame. The libraries disagree
// about correlation, failures and some members: the table in profile.go lists the differences.
//
// The package has no clock, no I/O and no goroutines.
package draft
