package main

import (
	"testing"
	"time"
)

// Days and weeks are units of durations, before those of time.ParseDuration.
func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour, "1d12h30m": 36*time.Hour + 30*time.Minute, "0": 0, "0d": 0, "90s": 90 * time.Second,
		"1.5h": 90 * time.Minute,
	} {
		var v durationValue
		if err := v.Set(text); err != nil || time.Duration(v) != want {
			t.Errorf("%s: %s, %v, want %s", text, time.Duration(v), err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "-1d", "-1h", "1d-1h", "1d+1h", "1h1d", "1d2w", "1y", "9999d2562047h", "99999d"} {
		var v durationValue
		if err := v.Set(text); err == nil {
			t.Errorf("%q is accepted as %s", text, time.Duration(v))
		}
	}
}
