// Package arcp is the wire format of the Agent Runtime Control Protocol. It has the envelope, one
// payload struct for each message type, the message catalog, typed identifiers and error codes.
// Frames are decoded strictly, and encoded by appending to a buffer.
//
// The package has no state except the process-wide source of identifiers. All functions are safe
// for concurrent use. Only codec.go imports the JSON library.
//
// Section references (§) are to SPEC.md at the root of the repository.
package arcp
