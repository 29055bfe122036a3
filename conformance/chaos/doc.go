// Package chaos loads a runtime while everything around it breaks, and proves afterwards, from
// the frames that each client received, that nothing was lost.
//
// A [Run] has many sessions of several principals. Their connections are cut in the middle of
// frames, stall, and are abandoned while an answer is under way. Commands are repeated and
// arrive out of order. The server is killed every few seconds and started again on the same
// data. Then all jobs end undisturbed, every session is resumed a last time, and the jobs are
// listed.
//
// A [Stream] records the frames of one session and checks at once what one session can check:
// numbers, replays, and the events of each kind of job. [Judge] compares the streams with each
// other and with the lists. Both are pure. They rely only on promises of SPEC.md, so that a
// finding is a fault of the server.
package chaos
