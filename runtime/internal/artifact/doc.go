// Package artifact stores artifacts: content of any size that messages refer to by an id
// (SPEC.md §5.17).
//
// An artifact is a row in the store and content outside of it. A Content implementation holds the
// content: Files in a directory, Memory in this process, S3 in a bucket of S3-compatible storage. Store
// keeps both in agreement:
//
//   - A row is committed when its content is durable, so each row has its content.
//   - Content is removed when the deletion of its row is durable. A crash in between leaves content
//     without a row, which Load removes at the next start.
//
// Content on another machine may be slow or not available. Load does not wait for it: the first Sweep
// that succeeds removes the content without a row. No lock that other work needs is held meanwhile.
//
// An artifact belongs to a principal. Only its principal finds it.
package artifact
