// Package schedule decides when the jobs of a schedule are due (SPEC.md §5.19). It is pure: the time
// is an argument.
//
// A rule is an RRULE of RFC 5545 with an optional DTSTART. A search for an occurrence has a bounded number
// of steps, whatever the rule: it takes some 20 ms of CPU time at most. rrule-go, which parses the rules
// here, looks for occurrences from DTSTART on and without a bound, and some rules make its iterator loop
// forever.
//
// A rule is evaluated in the wall clock time of its zone, and each wall clock time becomes one instant:
//
//   - A time in the gap when clocks are set forward does not exist. It is no occurrence and COUNT does
//     not count it (RFC 5545 §3.3.10).
//   - A time in the hour that is repeated when clocks are set back is the first one of the two.
package schedule
