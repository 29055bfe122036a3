package tool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// doubling is a schema in which each of n levels refers to the next one twice.
func doubling(n int) arcp.Raw {
	defs := make([]string, n)
	for i := range n {
		defs[i] = fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1)
	}
	return arcp.Raw(fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s,"a%d":{"type":"integer"}}}`, strings.Join(defs, ","), n))
}

// variants returns the schema of a tree whose nodes are one of k kinds: validation checks each
// level k times.
func variants(k int) arcp.Raw {
	kinds := make([]string, k)
	for i := range k {
		kinds[i] = fmt.Sprintf(`{"properties":{"op":{"const":"op%d"},"args":{"type":"array","items":{"$ref":"#"}}},"required":["op"]}`, i)
	}
	return arcp.Raw(`{"anyOf":[` + strings.Join(kinds, ",") + `]}`)
}

func tree(depth int) arcp.Raw {
	return arcp.Raw(strings.Repeat(`{"op":"op0","args":[`, depth) + `{"op":"op0"}` + strings.Repeat(`]}`, depth))
}

// Schemas whose validation would take too long are refused in advance; common schemas are not.
func TestExpensiveSchemasAreRefused(t *testing.T) {
	anyJSON := arcp.Raw(`{"anyOf":[{"type":["null","boolean","number","string"]},{"type":"array","items":{"$ref":"#"}},{"type":"object","additionalProperties":{"$ref":"#"}}]}`)
	numbers := func(n int) arcp.Raw { return arcp.Raw("[" + strings.Repeat("1,", n-1) + "1]") }
	for _, c := range []struct {
		why           string
		schema, value arcp.Raw
		refused       bool
	}{
		{"few levels", doubling(8), arcp.Raw("1"), false},
		{"40 levels", doubling(40), arcp.Raw("1"), true},
		{"40 levels, and the value is none", doubling(40), arcp.Raw(`"x"`), true},
		{"itself", arcp.Raw(`{"$ref":"#"}`), arcp.Raw("1"), true},
		{"one way to itself", arcp.Raw(`{"properties":{"next":{"$ref":"#"}}}`), arcp.Raw(strings.Repeat(`{"next":`, 50) + `{}` + strings.Repeat(`}`, 50)), false},
		{"two ways to itself", arcp.Raw(`{"properties":{"next":{"allOf":[{"$ref":"#"},{"$ref":"#"}]}}}`), arcp.Raw(strings.Repeat(`{"next":`, 50) + `{}` + strings.Repeat(`}`, 50)), true},
		{"any JSON", anyJSON, tree(25), false},
		{"any JSON, wide", anyJSON, numbers(10_000), false},
		{"a tree of 5 kinds", variants(5), tree(4), false},
		{"a deep tree of 5 kinds", variants(5), tree(20), true},
		{"many numbers", arcp.Raw(`{"type":"array","items":{"type":"number"}}`), numbers(90_000), false},
		{"too many numbers", arcp.Raw(`{"type":"array","items":{"type":"number"}}`), numbers(200_000), true},
		{"names and tuples", arcp.Raw(`{"propertyNames":{"maxLength":3},"patternProperties":{"^a":{"prefixItems":[{"type":"string"}],"items":false}},"dependentSchemas":{"a":{"required":["b"]}}}`),
			arcp.Raw(`{"a":["x"],"b":1}`), false},
	} {
		err := CheckValue(c.schema, c.value)
		if refused := err != nil && strings.Contains(err.Message, "too long to check"); refused != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v, want it refused: %v", c.why, err, c.refused)
		}
	}
}

// A long chain of references leads to one thing, once.
func TestLongChainOfReferences(t *testing.T) {
	n := 3000
	defs := make([]string, n)
	for i := range n {
		defs[i] = fmt.Sprintf(`"a%d":{"$ref":"#/$defs/a%d"}`, i, i+1)
	}
	schema := arcp.Raw(fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s,"a%d":{"type":"integer"}}}`, strings.Join(defs, ","), n))
	if err := CheckValue(schema, arcp.Raw("1")); err != nil {
		t.Errorf("a chain of %d references: %v", n, err)
	}
}
