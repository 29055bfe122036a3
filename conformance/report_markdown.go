package conformance

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// maxMarkdown bounds the findings of a Markdown report, in bytes. GitHub refuses a comment of more
// than 65536 characters.
const maxMarkdown = 48 << 10

// maxTranscriptLines bounds the transcript of a check in a Markdown report.
const maxTranscriptLines = 40

// WriteMarkdown writes a report as Markdown for a comment on a pull request: counts by level, and the
// failed checks grouped by defect, with transcripts. Defects beyond the bound of a comment are
// counted.
func WriteMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## ARCP conformance: %s\n\n", plainMarkdown(strings.TrimSpace(orUnknown(r.Runtime.Kind)+" "+r.Runtime.Version)))
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped%s in %s, dialect `%s`\n\n", r.Count(Passed), r.Count(Failed), r.Count(Skipped),
		r.deviations(), time.Duration(r.Duration).Round(time.Millisecond), r.Dialect)
	b.WriteString("| level | passed | failed | skipped | known to fail |\n|---|---|---|---|---|\n")
	for _, c := range r.levelCounts() {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", strings.ToUpper(string(c.Level)), c.Passed, c.Failed, c.Skipped, c.Known)
	}
	markdownComparison(&b, r.Baseline)
	markdownDefects(&b, r.defects())
	if r.Count(Failed) > 0 {
		b.WriteString("\n`arcp conformance show CHECK` prints the script of a check.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownComparison(b *strings.Builder, c *Comparison) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\n%s\n", plainMarkdown(c.String()))
	for _, list := range c.lists() {
		for i, id := range list.ids {
			if i == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(b, "- %s: `%s`\n", list.name, id)
		}
	}
}

func markdownDefects(b *strings.Builder, defects []defect) {
	for i := range defects {
		var one strings.Builder
		markdownDefect(&one, &defects[i])
		if b.Len()+one.Len() > maxMarkdown {
			fmt.Fprintf(b, "\n%d more defects are in the other reports.\n", len(defects)-i)
			return
		}
		b.WriteString(one.String())
	}
}

func markdownDefect(b *strings.Builder, d *defect) {
	fmt.Fprintf(b, "\n### %s: %s\n\ngot: <code>%s</code>\n\n", strings.ToUpper(string(d.Level)), plainMarkdown(d.Rule), plainMarkdown(d.Got))
	for _, res := range d.Results {
		fmt.Fprintf(b, "<details><summary><code>%s</code>, %s, sent: <code>%s</code></summary>\n<pre>\n", html.EscapeString(res.ID),
			plainMarkdown(res.Section), plainMarkdown(res.Sent))
		for i, e := range res.Transcript {
			if i == maxTranscriptLines {
				fmt.Fprintf(b, "%d more lines\n", len(res.Transcript)-i)
				break
			}
			fmt.Fprintln(b, html.EscapeString(e.String()))
		}
		b.WriteString("</pre></details>\n")
	}
}

// plainMarkdown returns text that Markdown shows as it is: punctuation becomes character references.
func plainMarkdown(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < ' ':
			b.WriteByte(' ')
		case strings.ContainsRune("\\`*_[]<>#!|~@&", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
