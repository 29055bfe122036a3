// Package conformance checks a server of the Agent Runtime Control Protocol
// from the outside: it opens connections, says things that are right and
// things that are wrong, and reports where the answers differ from the
// specification.
//
// A Check tests one rule. Its steps are in scripts/GROUP.txt, in the language of
// the package script; the few that a script cannot say are in Go. Run performs
// the checks against a Target, some of them at the same time; each has
// connections and sessions of its own, so checks neither share state nor depend
// on an order. Every frame
// the server sends, in every check, also goes through one validator that
// stands for the strictest client there is: what that client could not decode
// fails the check in which it was sent.
//
// A check whose precondition the target does not meet (a capability, a tool,
// a second principal) is reported as skipped with the reason, never as passed. The
// tools of the groups exec and mcp are those of WriteSources.
// Nothing sleeps: where a rule says that nothing happens, the check sends a
// ping and wants its pong to be the next frame.
//
// Checks that ask people questions see those of each other, as their sessions
// belong to one principal; they look only at what is about their own jobs. Checks
// that start the server again are run when all others have been.
//
// The section of a check is of RFC 0001 revision 2 (RFC), of the Internet-Draft
// (ARCP 1.1) or, where both leave a choice, of this project's SPEC.md (SPEC).
//
// The checks of this package speak the dialect that opens with session.open.
package conformance
