// Package arcp is the wire of the Agent Runtime Control Protocol: the envelope
// every message travels in, one payload struct a message type, the catalogue
// that states who may send what and when, typed identifiers, error codes, a
// strict decoder and an append encoder.
//
// The package decides nothing and keeps no state. Everything in it may be used
// from any number of goroutines at once. Only codec.go knows the JSON library.
//
// Section references (§) are to SPEC.md at the root of the repository.
package arcp
