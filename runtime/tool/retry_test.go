package tool

import (
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func TestRetryIsParsedAndBounded(t *testing.T) {
	for raw, want := range map[string]Retry{
		`{"max_attempts":3}`: {3, 1000, 2, 60_000},
		`{"max_attempts":10,"initial_ms":1,"factor":1.5,"max_ms":7,"colour":"red"}`: {10, 1, 1.5, 7},
		`{"max_attempts":1,"initial_ms":90000}`:                                     {1, 90_000, 2, 90_000},
	} {
		if got, err := ParseRetry(arcp.Raw(raw)); err != nil || got != want {
			t.Errorf("%s = %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for raw, want := range map[string]string{
		`{}`: "max_attempts is required", `[]`: "must be an object", `{"max_attempts":"3"}`: "must be an object",
		`{"max_attempts":11}`: "from 1 to 10", `{"max_attempts":-1}`: "from 1 to 10", `{"max_attempts":1.5}`: "must be an object",
		`{"max_attempts":2,"initial_ms":-1}`:                 "initial_ms must be from 1",
		`{"max_attempts":2,"factor":0.5}`:                    "factor must be from 1",
		`{"max_attempts":2,"factor":1e9}`:                    "factor must be from 1",
		`{"max_attempts":2,"initial_ms":2000,"max_ms":1000}`: "max_ms must be from initial_ms",
		`{"max_attempts":2,"max_ms":1000000000}`:             "max_ms must be from initial_ms",
	} {
		_, err := ParseRetry(arcp.Raw(raw))
		if err == nil || err.Code != arcp.CodeInvalidRequest || !strings.Contains(err.Message, want) {
			t.Errorf("%s: %v, want INVALID_REQUEST about %q", raw, err, want)
		}
	}
}

// The wait grows by the factor up to the maximum, and varies by the jitter.
func TestRetryDelayGrowsToItsMaximum(t *testing.T) {
	r := Retry{MaxAttempts: 10, InitialMS: 1000, Factor: 2, MaxMS: 5000}
	for i, middle := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		low, mid, high := r.Delay(i+1, 0), r.Delay(i+1, 0.5), r.Delay(i+1, 0.999999)
		if low != middle*8/10 || mid != middle || high > middle*12/10 || high < middle*119/100 {
			t.Errorf("after %d failures %v to %v around %v, want ±20 %% of %v", i+1, low, high, mid, middle)
		}
	}
	steep := Retry{MaxAttempts: 10, InitialMS: maxRetryMS, Factor: maxRetryFactor, MaxMS: maxRetryMS}
	if d := steep.Delay(10, 1); d != 24*time.Hour*12/10 {
		t.Errorf("the longest wait is %v, want a day and a fifth", d)
	}
}
