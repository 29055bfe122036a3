package tool

import (
	"fmt"
	"regexp/syntax"
)

// Bounds of a schema, checked before it is compiled. The time to compile grows with the
// square of the number of subschemas.
const (
	maxSchemaBytes = 512 << 10
	maxSchemas     = 4000    // objects and booleans, each of which may be a subschema
	maxPatterns    = 100_000 // instructions of all regular expressions, with repetitions expanded
)

// schemaCost is the cost of compiling a schema.
type schemaCost struct {
	schemas  int
	patterns int
}

// checkCost returns an error for a schema beyond the bounds.
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

// add adds the cost of a part of a schema. It returns early beyond the bounds.
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

// pattern adds the instructions of a regular expression. Compiling reports an invalid expression.
func (c *schemaCost) pattern(text string) {
	if re, err := syntax.Parse(text, syntax.Perl); err == nil {
		c.patterns += instructions(re, maxPatterns)
	}
}

// instructions returns the number of instructions of a regular expression, at most most+1.
func instructions(re *syntax.Regexp, most int) int {
	n := 1 + len(re.Rune)/2 // the ranges of a character class
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n > most {
			return most + 1
		}
		n += instructions(sub, most)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Max, re.Min, 1)
	}
	return min(n, most+1)
}
