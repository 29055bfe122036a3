// Package arcp is the wire of the Agent Runtime Control Protocol: the envelope of every
// message, one payload struct for each message type, the catalogue of senders and phases,
// typed identifiers, error codes, a strict decoder and an append encoder.
//
// The package decides nothing and has no state. Everything in it may be used from any number
// of goroutines at once. Only codec.go knows the JSON library.
//
// Section references (§) are to SPEC.md at the root of the repository.
package arcp
