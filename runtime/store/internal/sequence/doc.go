// Package sequence decides a batch of writes: which are refused, which positions and
// event_seq their events get, and which sessions get the events. All stores use it, so
// each rule exists once.
//
// A Core has live jobs and the sessions in use in memory. It reads everything else
// from its Source. Decide stores nothing: it returns Changes, and the store makes them
// durable as a whole.
package sequence
