package arcp

import (
	"strings"
	"testing"
)

func TestDeeperThanCountsOnlyNesting(t *testing.T) {
	nest := func(n int) Raw { return Raw(strings.Repeat(`{"a":[`, n/2) + "1" + strings.Repeat("]}", n/2)) }
	for _, c := range []struct {
		raw  Raw
		n    int
		want bool
	}{
		{nest(62), 62, false},
		{nest(64), 62, true},
		{Raw(`1`), 0, false},
		{Raw(`[]`), 0, true},
		{Raw(`[[],[],[],[]]`), 2, false},
		{Raw(`["[[[[[[\"[[[["]`), 1, false},
		{Raw(`["\\",[["]"]]]`), 2, true},
		{Raw(`{"{{{{":"}}}}"}`), 1, false},
	} {
		if got := DeeperThan(c.raw, c.n); got != c.want {
			t.Errorf("DeeperThan(%s, %d) = %v, want %v", c.raw, c.n, got, c.want)
		}
	}
}

// A message that a runtime passes on within another may be as deep as it was received.
func TestDecodeFromRuntimeAcceptsDeeperFrames(t *testing.T) {
	frame := []byte(`{"arcp":"1.1","id":"msg_1","type":"x-a","timestamp":"2030-01-02T15:04:05Z","payload":` +
		strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + `}`)
	if _, err := DecodeFromRuntime(frame); err != nil {
		t.Errorf("DecodeFromRuntime of a frame of depth 70: %v", err)
	}
	if _, err := Decode(frame); err == nil || err.(*EncodingError).Reason != ReasonTooDeep {
		t.Errorf("Decode of a frame of depth 70: %v, want %s", err, ReasonTooDeep)
	}
}
