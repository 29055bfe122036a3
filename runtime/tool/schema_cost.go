package tool

import (
	"fmt"
	"regexp/syntax"
)

// Bounds of a schema, looked at before it is compiled: that takes time by the square of
// the number of schemas in it.
const (
	maxSchemaBytes = 512 << 10
	maxSchemas     = 4000    // objects and booleans in it, any of which may be a schema
	maxPatterns    = 100_000 // steps of its regular expressions together, repetitions written out
)

// schemaCost counts what is costly in a schema.
type schemaCost struct {
	schemas  int
	patterns int
}

// checkCost refuses a schema that is too costly to compile.
func checkCost(doc any) error {
	var c schemaCost
	c.add(doc)
	switch {
	case c.schemas > maxSchemas:
		return fmt.Errorf("it has more than %d objects and booleans: describe less of the value", maxSchemas)
	case c.patterns > maxPatterns:
		return fmt.Errorf("its regular expressions have more than %d steps: repeat less, or say maxLength instead", maxPatterns)
	}
	return nil
}

// add goes on only as long as it is worth it.
func (c *schemaCost) add(v any) {
	if c.schemas > maxSchemas || c.patterns > maxPatterns {
		return
	}
	switch v := v.(type) {
	case bool:
		c.schemas++
	case []any:
		for _, e := range v {
			c.add(e)
		}
	case map[string]any:
		c.schemas++
		for key, e := range v {
			c.add(e)
			if text, ok := e.(string); ok && key == "pattern" {
				c.pattern(text)
			}
			if names, ok := e.(map[string]any); ok && key == "patternProperties" {
				for name := range names {
					c.pattern(name)
				}
			}
		}
	}
}

// pattern counts a regular expression. One that is none is refused when it is compiled.
func (c *schemaCost) pattern(text string) {
	if re, err := syntax.Parse(text, syntax.Perl); err == nil {
		c.patterns += steps(re, maxPatterns)
	}
}

// steps is how many instructions a regular expression has, at most one more than most.
func steps(re *syntax.Regexp, most int) int {
	n := 1 + len(re.Rune)/2 // of a class, its ranges
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n > most {
			return most + 1
		}
		n += steps(sub, most)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Max, re.Min, 1)
	}
	return min(n, most+1)
}
