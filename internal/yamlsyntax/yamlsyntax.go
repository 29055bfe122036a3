// Package yamlsyntax explains errors in the syntax of a YAML file: the line of the mistake and what to do.
package yamlsyntax

import (
	"bytes"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mistake returns the line of a mistake, from 1, and a text with the remedy. err is the error of the YAML library for
// content, whose lines are not reliable. The text may have the name of an anchor of the file, and no other content.
func Mistake(content []byte, err error) (line int, text string) {
	_, message := libraryLine(err)
	k := kinds[message]
	if k.start != unknownStart {
		line = startLine(content, message, k.start)
	}
	if line == 0 {
		line = firstBadLine(content, message)
	}
	last := 1 + bytes.Count(bytes.TrimSpace(content), []byte("\n")) // the end of the file is below the mistake
	if k.text != "" {
		message = k.text
	}
	return max(1, min(line, last)), message
}

// start says how the library counts the line where a text, a list or a mapping begins that has no end.
type start int

const (
	unknownStart start = iota // the library has the start of a larger part, or no line
	fromZero                  // an error of its parser
	fromOne                   // an error of its scanner
)

// kind is a message of the library with the text in its place.
type kind struct {
	start start
	text  string
}

var kinds = map[string]kind{
	"did not find expected ',' or ']'":                             {start: fromZero, text: "the list of this line, which begins with [, lacks a comma or the ] at its end"},
	"did not find expected ',' or '}'":                             {start: fromZero, text: "the mapping of this line, which begins with {, lacks a comma or the } at its end"},
	"did not find expected node content":                           {start: fromZero, text: "a value is missing: a list that begins with [ ends with ], and a mapping that begins with { ends with }"},
	"could not find expected ':'":                                  {start: fromOne, text: "a key without a colon: write KEY: VALUE"},
	"found unexpected end of stream":                               {start: fromOne, text: "the text that begins with a quote in this line has no closing quote"},
	"found unexpected document indicator":                          {start: fromOne, text: "the text that begins with a quote in this line has no closing quote"},
	"did not find expected key":                                    {text: "the line does not continue its mapping: write KEY: VALUE, in the column of the other keys, and close a quote or a bracket only once"},
	"did not find expected '-' indicator":                          {text: "the line does not continue its list: begin an item with a dash, in the column of the other dashes, and its keys in one column"},
	"mapping values are not allowed in this context":               {text: "a key cannot be here: begin it in the column of the other keys, end the key of the line above with a colon, and put a text with a colon in quotes"},
	"block sequence entries are not allowed in this context":       {text: "an item cannot be here: begin it in a line of its own, in the column of the other dashes"},
	"found character that cannot start any token":                  {text: "a value cannot begin with this character: indent with spaces, not tabs, and put a text that begins with @, ` or % in quotes"},
	"found a tab character that violates indentation":              {text: tabText},
	"found a tab character where an indentation space is expected": {text: tabText},
	"found unknown escape character":                               {text: escapeText},
	"did not find expected hexdecimal number":                      {text: escapeText},
	"control characters are not allowed":                           {text: "the line has a control character: remove it, or write it as an escape such as \\x01 in \""},
}

const (
	tabText    = "the line begins with a tab: indent with spaces"
	escapeText = `a text in " has an escape that YAML does not know: write \\ for a backslash, or put the text in '`
)

// libraryLine splits an error of the library into its line, 0 if it has none, and its message.
func libraryLine(err error) (line int, message string) {
	if err == nil {
		return 0, ""
	}
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			return n, after
		}
	}
	return 0, message
}

// startLine returns the line of a start that the library knows; 0 if it does not. The library takes the line 0 of its
// count for no line, and gives another one instead. So it reads the content again below an empty line.
func startLine(content []byte, message string, count start) int {
	const byteOrderMark = "\xef\xbb\xbf"
	content = bytes.TrimPrefix(content, []byte(byteOrderMark))
	line, again := libraryLine(parse(append([]byte("\n"), content...)))
	if again != message {
		return 0
	}
	if count == fromOne {
		line--
	}
	return line
}

// firstBadLine returns the number of lines from the start of the content that are needed for a message.
func firstBadLine(content []byte, message string) int {
	lines := bytes.SplitAfter(content, []byte("\n"))
	ends := make([]int, len(lines))
	end := 0
	for i, line := range lines {
		end += len(line)
		ends[i] = end
	}
	return 1 + sort.Search(len(ends)-1, func(i int) bool {
		_, found := libraryLine(parse(content[:ends[i]]))
		return found == message
	})
}

// parse returns the error of the library for the first document of a text.
func parse(text []byte) error {
	var top yaml.Node
	return yaml.Unmarshal(text, &top)
}
