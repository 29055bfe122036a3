package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

const barWidth = 30

// progressBar draws the progress of a job on the last line of a terminal. clear of a nil bar does nothing.
type progressBar struct {
	w     io.Writer
	drawn bool
}

func (b *progressBar) show(p arcp.JobProgressPayload) {
	fmt.Fprintf(b.w, "\r\x1b[K%s", oneLine(barText(p)))
	b.drawn = true
}

// barText returns for example [███···] 3/6 50%. Without a known total it has no bar.
func barText(p arcp.JobProgressPayload) string {
	f, ok := fraction(p)
	if !ok {
		return progressText(p)
	}
	n := int(f * barWidth)
	return "[" + strings.Repeat("█", n) + strings.Repeat("·", barWidth-n) + "] " + progressText(p)
}

func (b *progressBar) clear() {
	if b != nil && b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = false
	}
}

// fraction returns the completed fraction, 0 to 1; false if it is unknown.
func fraction(p arcp.JobProgressPayload) (float64, bool) {
	f := 0.0
	switch {
	case p.Total != nil && *p.Total > 0:
		f = p.Current / *p.Total
	case p.Percent != nil:
		f = *p.Percent / 100
	default:
		return 0, false
	}
	return min(max(f, 0), 1), true
}

// progressText returns for example 3/10 30% downloading.
func progressText(p arcp.JobProgressPayload) string {
	words := []string{number(p.Current)}
	if p.Total != nil {
		words[0] += "/" + number(*p.Total)
	}
	if p.Units != "" && p.Units != "percent" {
		words = append(words, p.Units)
	}
	if f, ok := fraction(p); ok {
		words = append(words, strconv.FormatFloat(f*100, 'f', 0, 64)+"%")
	}
	if p.Message != "" {
		words = append(words, p.Message)
	}
	return strings.Join(words, " ")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
