package mcp

import (
	"context"
	"testing"
	"testing/synctest"
)

// Drain waits for the last call under way, and not for later ones or after the end of its context.
func TestDrainWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(Config{Name: "x"})
		defer s.cancel()
		s.Drain(t.Context()) // no call is under way
		s.calls.begin()
		s.calls.begin()
		drained := make(chan struct{})
		for range 2 {
			go func() { s.Drain(t.Context()); drained <- struct{}{} }()
		}
		s.calls.end()
		synctest.Wait()
		select {
		case <-drained:
			t.Fatal("Drain returned during a call")
		default:
		}
		s.calls.end()
		<-drained
		<-drained
		s.calls.begin()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { s.Drain(ctx); drained <- struct{}{} }()
		synctest.Wait()
		cancel()
		<-drained
	})
}
