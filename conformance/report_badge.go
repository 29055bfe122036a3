package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// badgeText returns the text of a badge and its colour: the share of passed checks among the judged
// ones of the level must.
func badgeText(r *Report) (text, color string) {
	var must levelCount
	failed := r.Count(Failed)
	for _, c := range r.levelCounts() {
		if c.Level == Must {
			must = c
		}
	}
	judged := must.Passed + must.Failed + must.Known
	text = fmt.Sprintf("%s: %d of %d MUST", r.Dialect, must.Passed, judged)
	switch {
	case judged == 0:
		return r.Dialect.String() + ": not judged", "#6e7781"
	case must.Failed > 0:
		return text, "#cf222e"
	case failed > 0 || must.Known > 0:
		return text, "#9a6700"
	}
	return text, "#1a7f37"
}

// Geometry of a badge, in pixels.
const (
	badgeCharWidth = 7 // an estimate for the font
	badgePadding   = 10
	badgeHeight    = 20
)

const badgeFormat = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" role="img" aria-label="%[6]s: %[7]s">
<title>%[6]s: %[7]s</title>
<rect width="%[3]d" height="%[2]d" fill="#24292f"/>
<rect x="%[3]d" width="%[4]d" height="%[2]d" fill="%[5]s"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="%[8]d" y="14">%[6]s</text>
<text x="%[9]d" y="14">%[7]s</text>
</g>
</svg>
`

// WriteBadge writes a report as an SVG image with one line of text.
func WriteBadge(w io.Writer, r *Report) error {
	const label = "ARCP conformance"
	text, color := badgeText(r)
	left, right := badgeWidth(label), badgeWidth(text)
	_, err := fmt.Fprintf(w, badgeFormat, left+right, badgeHeight, left, right, color, escapeXML(label), escapeXML(text), left/2, left+right/2)
	return err
}

func badgeWidth(text string) int { return badgeCharWidth*utf8.RuneCountInString(text) + 2*badgePadding }

func escapeXML(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}
