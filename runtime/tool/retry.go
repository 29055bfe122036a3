package tool

import (
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Retry is the retry policy for attempts that fail with a retryable error. The zero value is
// no retry. It is also the option retry of a submit (SPEC.md §5.6); its absent or zero
// members are the defaults.
type Retry struct {
	MaxAttempts int     `json:"max_attempts"` // with the first one
	InitialMS   int     `json:"initial_ms"`   // before the second attempt; default 1000
	Factor      float64 `json:"factor"`       // between two waits; default 2
	MaxMS       int     `json:"max_ms"`       // maximum of a wait without its jitter; default 60000
}

// Bounds and defaults of a Retry (SPEC.md §5.6).
const (
	MaxAttempts         = 10
	RetryJitter         = 0.2 // a wait varies by so much, up or down: not all come back at once
	DefaultRetryInitial = 1000
	DefaultRetryFactor  = 2
	DefaultRetryMax     = 60_000

	maxRetryMS     = 24 * 3600 * 1000
	maxRetryFactor = 100
)

// ParseRetry decodes the option of a submit.
func ParseRetry(raw arcp.Raw) (Retry, *arcp.Error) {
	var r Retry
	if err := arcp.Unmarshal(raw, &r); err != nil {
		return Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "retry must be an object of max_attempts, initial_ms, factor and max_ms, all numbers")
	}
	if r.MaxAttempts == 0 {
		return Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "retry: max_attempts is required")
	}
	r = r.withDefaults()
	if err := r.check(); err != nil {
		return Retry{}, arcp.Errorf(arcp.CodeInvalidRequest, "%s", err)
	}
	return r, nil
}

// withDefaults returns r with its default for every zero member, unless r is off.
func (r Retry) withDefaults() Retry {
	if r.MaxAttempts == 0 {
		return r
	}
	if r.InitialMS == 0 {
		r.InitialMS = DefaultRetryInitial
	}
	if r.Factor == 0 {
		r.Factor = DefaultRetryFactor
	}
	if r.MaxMS == 0 {
		r.MaxMS = max(DefaultRetryMax, r.InitialMS)
	}
	return r
}

func (r *Retry) check() error {
	switch {
	case *r == Retry{}:
		return nil
	case r.MaxAttempts < 1 || r.MaxAttempts > MaxAttempts:
		return fmt.Errorf("retry: max_attempts must be from 1 to %d", MaxAttempts)
	case r.InitialMS < 1 || r.InitialMS > maxRetryMS:
		return fmt.Errorf("retry: initial_ms must be from 1 to %d", maxRetryMS)
	case !(r.Factor >= 1 && r.Factor <= maxRetryFactor):
		return fmt.Errorf("retry: factor must be from 1 to %d", maxRetryFactor)
	case r.MaxMS < r.InitialMS || r.MaxMS > maxRetryMS:
		return fmt.Errorf("retry: max_ms must be from initial_ms to %d", maxRetryMS)
	}
	return nil
}

// Delay is the wait after a number of failed attempts, from 1 on; random is
// from [0, 1).
func (r *Retry) Delay(failed int, random float64) time.Duration {
	ms := min(float64(r.InitialMS)*math.Pow(r.Factor, float64(failed-1)), float64(r.MaxMS))
	ms *= 1 - RetryJitter + 2*RetryJitter*random
	return time.Duration(ms * float64(time.Millisecond))
}
