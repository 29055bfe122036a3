package conformance

import (
	"regexp"
	"strings"
)

// sectionNumber matches a section in the text of Check.Section, with the document before it.
var sectionNumber = regexp.MustCompile(`§\s*([0-9A-Z]+(?:\.[0-9]+)*)`)

// SectionMatches reports whether section names the wanted section or a part of it. A section is a
// document and numbers, for example "RFC §6.4, §7". Without a document wanted matches every document;
// without a number it matches every section of the document.
func SectionMatches(section, wanted string) bool {
	document, number := splitSection(wanted)
	if document != "" && !strings.EqualFold(documentOf(section), document) {
		return false
	}
	if number == "" {
		return document != ""
	}
	for _, m := range sectionNumber.FindAllStringSubmatch(section, -1) {
		if m[1] == number || strings.HasPrefix(m[1], number+".") {
			return true
		}
	}
	return false
}

// documentOf returns the name of the document before the first section sign.
func documentOf(section string) string {
	document, _, _ := strings.Cut(section, "§")
	return strings.TrimSpace(document)
}

// bareNumber matches a section number without the section sign.
var bareNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// splitSection splits "RFC §6.4", "RFC 6.4", "§6.4" or "6.4".
func splitSection(s string) (document, number string) {
	if document, number, ok := strings.Cut(s, "§"); ok {
		return strings.TrimSpace(document), strings.TrimSpace(number)
	}
	words := strings.Fields(s)
	// The name of a document can end with a number: "ARCP 1.1".
	if n := len(words); n > 0 && bareNumber.MatchString(words[n-1]) && !strings.EqualFold(s, draftDocument) {
		return strings.Join(words[:n-1], " "), words[n-1]
	}
	return strings.Join(words, " "), ""
}

// draftDocument is the name of the draft in Check.Section.
const draftDocument = "ARCP 1.1"
