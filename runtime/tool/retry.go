package tool

import (
	"fmt"
	"math"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Retry is the retry policy of attempts that fail with a retryable error. The zero value is no
// retry. Its JSON is the option retry of a submit (SPEC.md §5.6). A zero member is the default.
type Retry struct {
	MaxAttempts int     `json:"max_attempts"` // including the first attempt; at most the constant MaxAttempts
	InitialMS   int     `json:"initial_ms"`   // delay before the second attempt; default 1000
	Factor      float64 `json:"factor"`       // of each further delay; default 2
	MaxMS       int     `json:"max_ms"`       // longest delay without its jitter; default 60000
}

// Bounds and defaults of a Retry (SPEC.md §5.6).
const (
	MaxAttempts         = 10
	RetryJitter         = 0.2  // part of a delay by which it varies at random, up or down
	DefaultRetryInitial = 1000 // ms
	DefaultRetryFactor  = 2
	DefaultRetryMax     = 60_000 // ms
)

const (
	maxRetryMS     = 24 * 3600 * 1000
	maxRetryFactor = 100
)

// ParseRetry decodes the option retry of a submit. The error is INVALID_REQUEST.
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

// withDefaults returns r with its default for every zero member, or r unchanged without
// MaxAttempts.
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

// Complete returns r with its default for every zero member; the zero Retry stays zero. The error is a
// value out of bounds.
func (r Retry) Complete() (Retry, error) {
	r = r.withDefaults()
	return r, r.check()
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

// Delay returns the delay after a number of failed attempts, from 1. random is in [0, 1) and
// selects the jitter.
func (r *Retry) Delay(failed int, random float64) time.Duration {
	ms := min(float64(r.InitialMS)*math.Pow(r.Factor, float64(failed-1)), float64(r.MaxMS))
	ms *= 1 - RetryJitter + 2*RetryJitter*random
	return time.Duration(ms * float64(time.Millisecond))
}
