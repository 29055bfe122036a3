// Package sequence decides what a batch of writes means: which are refused,
// which events get which positions and numbers, and which sessions are given
// them. It is shared by all stores, so each rule exists once.
//
// It keeps in memory what deciding needs: every live job (a few words each) and
// the sessions in use. Everything else it asks its Source for. It stores
// nothing: Decide returns Changes, and the store makes them durable as a whole.
package sequence
