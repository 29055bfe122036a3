// Package script runs protocol scripts: text files with the steps of a client
// and the frames it expects.
//
// A file begins with the defaults of its checks and the macros of the file. A
// header line begins a check:
//
//	section RFC §10.4
//	set slow demo.sleep demo.stubborn
//
//	== finished (should, SPEC §5.7, needs @slow): cancelling a finished job is refused
//	open a
//	a> tool.invoke {tool: demo.echo, arguments: {}} as submit
//	a<< job.completed re $submit as end
//	a> cancel {target: job, target_id: $end.job_id}
//	a< cancel.refused {target_id: $end.job_id, reason: already_terminal}  -- an ended job cannot be cancelled
//
// The text after -- is the rule that the step tests; a failure begins with it.
//
// # Steps
//
//	dial a, b                    connect, and send nothing
//	open a, b [by ROLE] [offer F ...] [{payload members}]
//	a> TYPE [payload] [{envelope members}] [as ID]
//	a>> TEXT                     send TEXT as one frame, whatever it is
//	a< TYPE [re ID] [payload] [{envelope}] [as FRAME]
//	                             the next frame is this one
//	a<< TYPE ...                 skip frames until this one comes
//	a! TYPE [payload] [{envelope}]
//	                             this frame does not come before an answer to a ping
//	a VERB args                  a step of the table verbs, of the host, or a macro
//	server VERB args             a step of the host that needs no connection
//	let NAME = VALUE
//	want VALUE OP VALUE          OP is == != === < <= > >= ~ !~; === compares bytes too
//	if VALUE OP VALUE, else      with an indented block
//	for PATTERN in LIST          with an indented block
//	repeat N                     with an indented block; break, continue
//	until VALUE OP VALUE         repeats its block until the condition holds or time is up
//	skip TEXT, fail TEXT, return VALUE
//	restart                      end the server and start it again
//	def c NAME PARAM ...         a macro: a step of connection c
//
// # House steps
//
// The word house before a step marks a rule that only SPEC.md has. The host says whether such
// rules are judged. A house step is performed either way, and the check goes on if it fails:
//
//	house want $f.payload.nonce == x     -- a pong repeats the nonce
//	house a< nack {code: NOT_FOUND}      the next frame is a nack; its payload is a house rule
//	house a refused DUPLICATE_KEY        the last message is refused; the code is a house rule
//	house a quiet                        reads up to the answer to a ping; what comes is a house rule
//	house a closed 1000                  waits a short time for the end; that it comes is a house rule
//	house a MACRO ...                    each step of the macro is a house step
//	house                                with an indented block: performed only if judged
//
// That values are equal byte by byte, for === and exact text, and that a specific error code is in
// details, are house rules too: other servers send equal values and codes of RFC 0001.
//
// A house step that receives fails the check only if no frame of its type comes, or if that frame
// answers another message.
//
// A frame that answers is correlated to the last message of its connection. The
// clause re names another message, re any none; an envelope pattern replaces
// the default.
//
// # Values and patterns
//
// Values are JSON with bare words for strings and bare member names. $name is a
// variable or a connection, $name.member.0 a part of it, `text` JSON text that
// is sent and compared byte by byte. ${name} inside quotes inserts text. The
// operator + adds numbers, joins strings and lists, merges objects, and moves
// a time by seconds. NAME(args) calls a function of the table functions.
//
// In a pattern, an object names the members that must fit. Other patterns are:
//
//	?name      any value, which is bound to the variable name
//	_          any value
//	absent     a member that is not there
//	a|b        any of the words
//	~"text"    text that contains it
//	>=3        at least 3; also <=, <, > and !=
package script
