package rule

import "testing"

// A mistake has its position and what is expected, and no names of the compiler.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "character 1: the expression ends too early: want a value",
		"args.amount <":         "character 14: the expression ends too early: want a value",
		"size(args":             "character 10: the expression ends too early: want )",
		"attempt > 1)":          "character 12: unexpected ): want an operator, or the end of the expression",
		"args.a < 1 and true":   "character 12: unexpected and: want an operator, or the end of the expression",
		"args.a ? 1":            "character 11: the expression ends too early: want :",
		"args.a +-":             "character 10: unexpected - with no value behind it",
		"args.a = 1":            "character 8: unexpected =",
		`tool == "x`:            "character 9: a text with no closing quote, or with a wrong escape",
		"attempt == '1'":        "character 9: == does not take (int, string)",
		"attempt[0]":            "character 8: [ ] does not take (int, int)",
		"attempt in 1":          "character 9: in does not take (int, int)",
		"size(attempt)":         "character 5: size does not take (int)",
		"true &&\n  amount > 5": "line 2, character 3: undeclared reference to 'amount'",
		"attempt":               "the rule gives int, not bool",
	} {
		if _, err := Compile(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}
