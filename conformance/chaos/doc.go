// Package chaos loads a runtime while connections and servers fail. It then proves from the frames of
// each client that nothing was lost.
//
// A [Run] has many sessions of several principals. Half of the sessions speak the draft dialect, each
// as one of its client libraries. Their connections are cut within frames, stall, and are dropped
// before an answer arrives. Commands are repeated and reordered. The server is killed every few
// seconds and restarted with the same data. At the end all jobs finish undisturbed, every session is
// resumed once more and fetches artifacts that it was told of, and all jobs are listed.
//
// Some jobs call another tool, some run a workflow whose steps have effects outside of the server
// ([Config.Effects]), and some are schedules. Each child is named by its parent and ends once, no
// call of a workflow is repeated, and no occurrence is lost or fires twice.
//
// A [Stream] records the messages of one session. It checks numbers, replays and the events of each
// kind of job. [Compare] compares the streams with each other, with the lists and with the effects,
// also across the dialects. Both are pure. They rely only on promises of SPEC.md, so each finding is
// a defect of the server. In the draft dialect arcp/draft translates the messages, and
// arcp/draft/strict judges each frame as the library decodes it. Section references (§) are to
// SPEC.md.
package chaos
