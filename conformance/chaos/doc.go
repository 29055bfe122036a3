// Package chaos loads a runtime while connections and servers fail, and proves afterwards,
// from the frames that each client received, that nothing was lost.
//
// A [Run] has many sessions of several principals. Their connections are cut in the middle of
// frames, stall, and are abandoned while an answer is on its way. Commands are repeated and
// arrive out of order. The server is killed every few seconds and started again on the same
// data. Then all jobs end undisturbed, every session is resumed a last time, and the jobs are
// listed.
//
// A [Stream] records the frames of one session and at once checks numbers, replays, and the
// events of each kind of job. [Judge] compares the streams with each other and with the lists.
// Both are pure. They rely only on promises of SPEC.md, so that a finding is a fault of the
// server.
package chaos
