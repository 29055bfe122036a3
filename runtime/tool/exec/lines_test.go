package exec

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// However standard error comes in pieces, its lines are the same.
func TestLinesDoNotDependOnPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n\r\xff")), 0, 200).Draw(t, "data")
		if rapid.Bool().Draw(t, "long") {
			data = append(data, strings.Repeat("x", maxLine+rapid.IntRange(-1, 2).Draw(t, "over"))...)
		}
		var want []string
		for line := range strings.SplitSeq(string(data), "\n") {
			cut := len(line) > maxLine
			line = strings.TrimSuffix(line[:min(len(line), maxLine)], "\r")
			if line = strings.ToValidUTF8(line, "\uFFFD"); cut {
				line += "…"
			}
			if line != "" {
				want = append(want, line)
			}
		}
		var got []string
		l := newLines(func(_, message string) error { got = append(got, message); return nil })
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			l.write(rest[:n])
			rest = rest[n:]
		}
		l.end()
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("lines %q, want %q", got, want)
		}
		if tail := string(data[max(0, len(data)-tailBytes):]); l.tail() != text([]byte(strings.TrimRight(tail, "\n"))) {
			t.Fatalf("tail %q, want the end of it", l.tail())
		}
	})
}

// Lines beyond the burst are limited to a rate. The number of dropped lines is logged before
// the next line.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		l := newLines(func(level, message string) error { got = append(got, level+" "+message); return nil })
		for range lineBurst + 50 {
			l.write([]byte("x\n"))
		}
		if len(got) != lineBurst {
			t.Fatalf("%d lines became events, want %d", len(got), lineBurst)
		}
		time.Sleep(time.Second)
		for range lineRate + 1 {
			l.write([]byte("y\n"))
		}
		l.end()
		later := got[lineBurst:]
		if len(later) != lineRate+2 || !strings.HasPrefix(later[0], "warn 50 lines") || later[1] != "info y" || !strings.HasPrefix(later[lineRate+1], "warn 1 lines") {
			t.Errorf("after a second: %q", later)
		}
	})
}
