// Package backoff computes the delays between the attempts of something that fails:
// exponential, bounded, and with jitter.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy says how long to wait after a failure. It is a value and never changes.
type Policy struct {
	Min    time.Duration // the delay after the first failure; it doubles with each further one
	Max    time.Duration // the longest delay, jitter included
	Jitter float64       // the largest part of a delay that is added at random
}

// Delay returns the delay after a number of failures in a row, from 1.
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

// Backoff counts failures in a row. One goroutine uses it.
type Backoff struct {
	Policy
	failures int
}

// Next counts a failure and returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.failures++
	return b.Delay(b.failures)
}

// Lasted reports how long an attempt succeeded before it failed. One that lasted longer
// than Max begins a new row of failures.
func (b *Backoff) Lasted(d time.Duration) {
	if d > b.Max {
		b.failures = 0
	}
}

// Sleep waits for d. It returns the cause of ctx if that ends first.
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
