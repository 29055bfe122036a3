// Package conformance checks a server of the Agent Runtime Control Protocol from the outside. It
// sends valid and invalid messages and reports each answer that violates the specification.
//
// A Check tests one rule. Its steps are a script in scripts/GROUP.txt, in the language of package
// script. The few checks that need Go are functions.
//
// Run performs the checks against a Target, several at the same time. Each check has its own
// connections and sessions. Checks share no state and depend on no order.
//
// A validator examines every frame of the server. The rules of frames are the checks of the group
// frames: a frame that violates one is a finding of that check, once with the number of frames, and
// the check that received the frame goes on.
//
// A check whose precondition the target does not meet is skipped with a reason. Preconditions are
// capabilities, tools and, for example, a second principal. The tools of the groups exec, mcp and
// credentials are those of WriteSources.
//
// Run observes the server once, before the checks: Report.Habits. To prove that nothing happens, a
// check sends a ping and expects the pong as the next frame. It recognizes the pong by what was
// observed: its correlation_id, its nonce or its place. If the server answers no ping, the check
// waits for Options.Quiet.
//
// A connection that the server closes fails the check that used it. After two checks in a row whose
// valid session.open was not accepted, the others are skipped.
//
// The sessions of all checks belong to one principal, so a check receives questions of other
// checks. It considers only its own jobs. Checks that restart the server run after all others.
//
// The section of a check is a section of RFC 0001 revision 2 (RFC) or of the Internet-Draft (ARCP
// 1.1). Where both leave a choice it is a section of this project's SPEC.md (SPEC).
//
// Levels separate what the protocol says (must, should, may) from what only SPEC.md says (house).
// Run performs checks of the level house only if Options chooses that level.
package conformance
