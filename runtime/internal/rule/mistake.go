package rule

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
)

// Mistake returns the first mistake that the compiler has found in an expression, in one line: its position, and what is
// wrong or expected; nil: there is none. The lines and characters of the position count from 1.
func Mistake(issues *cel.Issues) error {
	if issues.Err() == nil {
		return nil
	}
	first := issues.Errors()[0]
	at := fmt.Sprintf("character %d", max(first.Location.Column()+1, 1))
	if line := first.Location.Line(); line > 1 {
		at = fmt.Sprintf("line %d, %s", line, at)
	}
	return errors.New(at + ": " + mistakeText(strings.Join(strings.Fields(first.Message), " ")))
}

// parserMessages are the forms of the messages of the compiler that name its tokens or functions.
var parserMessages = []struct {
	form *regexp.Regexp
	text func(parts []string) string
}{
	{regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.*)' expecting (.*)$`),
		func(p []string) string { return found(p[1]) + wanted(p[2]) }},
	{regexp.MustCompile(`^Syntax error: missing '(.*)' at '(.*)'$`),
		func(p []string) string { return found(p[2]) + ": want " + p[1] }},
	{regexp.MustCompile(`^Syntax error: no viable alternative at input '(.*)'$`),
		func(p []string) string { return found(p[1]) + " with no value behind it" }},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(['"].*)'$`),
		func([]string) string { return "a text with no closing quote, or with a wrong escape" }},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'$`),
		func(p []string) string { return found(strings.TrimSpace(p[1])) }},
	{regexp.MustCompile(`^found no matching overload for '(.*)' applied to '\((.*)\)'$`),
		func(p []string) string { return operator(p[1]) + " does not take (" + p[2] + ")" }},
}

// mistakeText returns a message of the compiler without the names of its tokens and functions.
func mistakeText(message string) string {
	for _, m := range parserMessages {
		if parts := m.form.FindStringSubmatch(message); parts != nil {
			return m.text(parts)
		}
	}
	return strings.TrimPrefix(message, "Syntax error: ")
}

const endToken = "<EOF>"

func found(token string) string {
	if token == endToken {
		return "the expression ends too early"
	}
	return "unexpected " + token
}

// wanted describes the tokens that the parser expects: one of them, or a set that begins a value.
func wanted(tokens string) string {
	switch {
	case tokens == endToken:
		return ": want an operator, or the end of the expression"
	case strings.Contains(tokens, "IDENTIFIER"):
		return ": want a value"
	}
	return ": want " + strings.Trim(tokens, "{'}")
}

// operator returns a function of the compiler as it is written.
func operator(function string) string {
	switch sign, _ := operators.FindReverse(function); {
	case sign != "":
		return sign
	case function == operators.Index:
		return "[ ]"
	case function == operators.Conditional:
		return "? :"
	}
	return function
}
