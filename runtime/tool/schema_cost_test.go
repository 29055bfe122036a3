package tool

import (
	"fmt"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// many is n JSON values with commas between them.
func many(n int, value func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = value(i)
	}
	return strings.Join(list, ",")
}

// A schema that is expensive to compile is refused in advance.
func TestSchemasThatCompileSlowlyAreRefused(t *testing.T) {
	same := func(text string) func(int) string { return func(int) string { return text } }
	for name, c := range map[string]struct{ schema, want string }{
		"very many schemas":  {`{"anyOf":[` + many(100_000, same(`{}`)) + `]}`, "objects and booleans"},
		"very many booleans": {`{"prefixItems":[` + many(60_000, same(`true`)) + `]}`, "objects and booleans"},
		"properties":         {`{"properties":{` + many(10_000, func(i int) string { return fmt.Sprintf(`"p%d":{}`, i) }) + `}}`, "objects and booleans"},
		"repetitions":        {`{"anyOf":[` + many(3000, same(`{"pattern":"\\pL{1000}"}`)) + `]}`, "regular expressions"},
		"in names":           {`{"patternProperties":{` + many(3000, func(i int) string { return fmt.Sprintf(`"%da{1000}":1`, i) }) + `}}`, "regular expressions"},
		"very many bytes":    {`{"description":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "bytes"},
		"a long list":        {`{"enum":[` + many(50_000, func(i int) string { return fmt.Sprint(i) }) + `]}`, ""},
		"a large object":     {`{"properties":{` + many(1000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"string","pattern":"^[a-z]{1,20}$"}`, i) }) + `}}`, ""},
	} {
		err := CheckSchema(arcp.Raw(c.schema))
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Code != arcp.CodeInvalidArgument || !strings.Contains(err.Message, c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
