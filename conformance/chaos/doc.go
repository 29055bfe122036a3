// Package chaos loads a runtime while everything around it breaks, and proves
// afterwards, from what each client saw, that nothing was lost.
//
// A [Run] has many sessions of several principals. Their connections are cut in
// the middle of frames, stall, and are given up while an answer is under way;
// commands come twice and out of order; the server is killed every few seconds
// and started again on the same data. Then it is left alone until all jobs have
// ended, every session is resumed a last time, and the jobs are listed.
//
// What a session sees goes into a [Stream], which judges at once what one session
// can judge: numbers, replays, what a job of a kind has to tell. [Judge] compares
// the streams with each other and with the lists. Both are pure. They rely on what
// SPEC.md promises and on nothing else, so that a finding is a fault of the
// server.
package chaos
