// Package backoff computes the delays between retries: exponential, bounded, and with jitter.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy determines the delay after a failure.
type Policy struct {
	Min    time.Duration // delay after the first failure, doubled with each further one
	Max    time.Duration // longest delay, including jitter
	Jitter float64       // largest fraction of a delay that is added at random
}

// Delay returns the delay after a number of consecutive failures, from 1.
func (p Policy) Delay(failures int) time.Duration {
	d := p.Min
	for ; failures > 1 && d < p.Max; failures-- {
		d *= 2
	}
	if more := time.Duration(p.Jitter * float64(d)); more > 0 {
		d += rand.N(more)
	}
	return min(d, p.Max)
}

// Backoff counts consecutive failures. It is not for concurrent use.
type Backoff struct {
	Policy
	failures int
}

// Next counts a failure and returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.failures++
	return b.Delay(b.failures)
}

// Lasted is called with the duration of an attempt that has failed after a success. A duration
// above Max resets the count of failures.
func (b *Backoff) Lasted(d time.Duration) {
	if d > b.Max {
		b.failures = 0
	}
}

// Sleep waits for d. If ctx ends before, it returns the cause of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
