package tool

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

const orderSchema = `{
	"type": "object",
	"properties": {
		"id": {"type": "integer", "minimum": 1, "maximum": 9007199254740992},
		"kind": {"enum": ["a", 1]},
		"only": {"const": "x"},
		"even": {"multipleOf": 2},
		"ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
		"name": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]*$"},
		"list": {"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": true, "items": {"$ref": "#/$defs/item"}},
		"either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
		"shape": {"oneOf": [
			{"type": "object", "properties": {"r": {"type": "number"}}, "required": ["r"]},
			{"type": "string"}]},
		"never": false,
		"a/b~c": {"type": "boolean"}
	},
	"required": ["id"],
	"additionalProperties": false,
	"$defs": {"item": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}}
}`

func order(t testing.TB) *Tool {
	return raw(t, Capability{InputSchema: arcp.Raw(orderSchema)}, echo)
}

func TestValidateNamesTheArgument(t *testing.T) {
	tool := order(t)
	for _, c := range []struct {
		args, path, keyword, message string // no message: the arguments are right
	}{
		{`{"id":1}`, "", "", ""},
		{`{"id":1.0}`, "", "", ""},
		{`{"id":9007199254740992}`, "", "", ""},
		{`{"id":9007199254740993}`, "/id", "maximum", "argument /id must be at most 9007199254740992"},
		{`{"id":0}`, "/id", "minimum", "argument /id must be at least 1"},
		{`{"id":1.5}`, "/id", "type", "argument /id must be an integer, not a number"},
		{`{"id":"1"}`, "/id", "type", "argument /id must be an integer, not a string"},
		{`{"id":null}`, "/id", "type", "argument /id must be an integer, not null"},
		{`{}`, "/id", "required", "argument /id is required"},
		{``, "/id", "required", "argument /id is required"},
		{`null`, "/id", "required", "argument /id is required"},
		{` null`, "/id", "required", "argument /id is required"},
		{`[]`, "", "type", "the arguments must be an object, not an array"},
		{`{"id":1`, "", "json", "the arguments must be valid JSON"},
		{`{"id":1,"yy":1}`, "/yy", "additionalProperties", "argument /yy is not known; known are " +
			"a/b~c, either, even, id, kind, list, name, never, only, ratio, shape"},
		{`{"id":1,"kind":"b"}`, "/kind", "enum", `argument /kind must be one of "a", 1`},
		{`{"id":1,"only":"y"}`, "/only", "const", `argument /only must be "x"`},
		{`{"id":1,"even":3}`, "/even", "multipleOf", "argument /even must be a multiple of 2"},
		{`{"id":1,"ratio":0}`, "/ratio", "exclusiveMinimum", "argument /ratio must be greater than 0"},
		{`{"id":1,"ratio":0.5}`, "/ratio", "exclusiveMaximum", "argument /ratio must be less than 0.5"},
		{`{"id":1,"ratio":0.49999999999999999999999999999}`, "", "", ""},
		{`{"id":1,"name":"a"}`, "/name", "minLength", "argument /name must have at least 2 characters"},
		{`{"id":1,"name":"abcd"}`, "/name", "maxLength", "argument /name must have at most 3 characters"},
		{`{"id":1,"name":"AB"}`, "/name", "pattern", "argument /name must match ^[a-z]*$"},
		{`{"id":1,"list":[]}`, "/list", "minItems", "argument /list must have at least 1 items"},
		{`{"id":1,"list":[{"n":1},{"n":2},{"n":3}]}`, "/list", "maxItems", "argument /list must have at most 2 items"},
		{`{"id":1,"list":[{},{}]}`, "/list", "uniqueItems", "argument /list breaks the schema: items at 0 and 1 are equal"},
		{`{"id":1,"list":[{},{"n":"x"}]}`, "/list/1/n", "type", "argument /list/1/n must be an integer, not a string"},
		{`{"id":1,"list":[{"m":1}]}`, "/list/0/m", "additionalProperties", "argument /list/0/m is not known"},
		{`{"id":1,"either":1}`, "/either", "type", "argument /either must be a string, not a number, or must be null, not a number"},
		{`{"id":1,"shape":{"r":"x"}}`, "/shape/r", "type", "argument /shape/r must be a number, not a string"},
		{`{"id":1,"never":1}`, "/never", "false", "argument /never is not allowed"},
		{`{"id":1,"a/b~c":1}`, "/a~1b~0c", "type", "argument /a~1b~0c must be a boolean, not a number"},
		{`{"id":1,"even":1e1001}`, "/even", "number", "argument /even must have at most 1000 digits and an exponent within ±1000"},
		{`{"id":1,"even":-1E-99999999999999999999}`, "/even", "number", "argument /even must have at most 1000 digits and an exponent within ±1000"},
		{`{"id":1,"list":[{"n":` + strings.Repeat("1", 1001) + `}]}`, "/list/0/n", "number",
			"argument /list/0/n must have at most 1000 digits and an exponent within ±1000"},
		{`{"id":1,"even":2e-1001}`, "/even", "number", "argument /even must have at most 1000 digits and an exponent within ±1000"},
		{`{"id":1,"even":2e1000}`, "", "", ""},
	} {
		err := tool.Validate(arcp.Raw(c.args))
		if c.message == "" {
			if err != nil {
				t.Errorf("%s: %v, want no error", c.args, err)
			}
			continue
		}
		wantError(t, c.args, err, arcp.CodeInvalidArgument, c.message)
		want := `{"path":"` + c.path + `","keyword":"` + c.keyword + `"}`
		if err != nil && string(err.Details) != want {
			t.Errorf("%s: details %s, want %s", c.args, err.Details, want)
		}
	}
}

// An error tells all mistakes of the arguments, up to a bound.
func TestValidateTellsAllMistakes(t *testing.T) {
	err := order(t).Validate(arcp.Raw(`{"zz":1,"yy":1,"name":1,"list":[{"n":"x"},{"n":"y"}],"either":1}`))
	wantError(t, "seven mistakes", err, arcp.CodeInvalidArgument, "argument /either must be a string, not a number, or must be null, not a number; "+
		"argument /id is required; argument /list/0/n must be an integer, not a string; argument /list/1/n must be an integer, not a string; "+
		"argument /name must be a string, not a number; argument /yy is not known; argument /zz is not known; known are "+
		"a/b~c, either, even, id, kind, list, name, never, only, ratio, shape")
	if want := `{"path":"/either","keyword":"type","others":[{"path":"/id","keyword":"required"},{"path":"/list/0/n","keyword":"type"},` +
		`{"path":"/list/1/n","keyword":"type"},{"path":"/name","keyword":"type"},{"path":"/yy","keyword":"additionalProperties"},` +
		`{"path":"/zz","keyword":"additionalProperties"}]}`; err == nil || string(err.Details) != want {
		t.Errorf("details %v, want %s", err, want)
	}
	many := raw(t, Capability{InputSchema: arcp.Raw(`{"type":"object","additionalProperties":{"type":"string"},"required":["z"]}`)}, echo)
	var members []string
	for i := range 1000 {
		members = append(members, fmt.Sprintf(`"m%03d":0`, i))
	}
	err = many.Validate(arcp.Raw("{" + strings.Join(members, ",") + "}"))
	if err == nil || strings.Count(err.Message, "must be a string") != 10 || !strings.HasSuffix(err.Message, "; and more") ||
		strings.Count(string(err.Details), "path") != 10 {
		t.Errorf("1001 mistakes: %v, details %s, want 10, and that there are more", err, err.Details)
	}
}

// The texts of mistakes are made only for those that an error tells.
func TestManyMistakesNeedLittleMemory(t *testing.T) {
	closed := raw(t, Capability{InputSchema: arcp.Raw(`{"type":"object","additionalProperties":{"type":"object","additionalProperties":false}}`)}, echo)
	names := strings.Builder{}
	for i := range 50_000 {
		fmt.Fprintf(&names, `,"%d":0`, i)
	}
	args := arcp.Raw(`{"` + strings.Repeat("k", 1<<20) + `":{` + names.String()[1:] + `}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := closed.Validate(args)
	runtime.ReadMemStats(&after)
	if err == nil || err.Code != arcp.CodeInvalidArgument || strings.Count(err.Message, "is not known") != 10 || len(err.Message) > 8<<10 {
		t.Errorf("50,000 unknown members: %.200v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 200<<20 {
		t.Errorf("the check allocates %d MiB", n>>20)
	}
}

func TestLongPathsAreTruncated(t *testing.T) {
	err := order(t).Validate(arcp.Raw(`{"id":1,"` + strings.Repeat("é", 5000) + `":1}`))
	if err == nil || len(err.Message) > 600 || len(err.Details) > 600 || !strings.Contains(err.Message, "é…") {
		t.Errorf("error %v", err)
	}
}

func TestLargeArgumentsAreRefused(t *testing.T) {
	tool := raw(t, Capability{Limits: Limits{MaxRequestBytes: 10}}, echo)
	if err := tool.Validate(arcp.Raw(`"12345678"`)); err != nil {
		t.Errorf("10 bytes: %v", err)
	}
	err := tool.Validate(arcp.Raw(`"123456789"`))
	wantError(t, "11 bytes", err, arcp.CodeResourceExhausted, "the arguments object has 11 bytes; the tool's limit is 10 (limits.max_request_bytes)")
	if err != nil && err.Retryable {
		t.Error("the same call would be refused again, but the error says to retry")
	}
	unlimited := raw(t, Capability{Limits: Limits{MaxRequestBytes: -1}}, echo)
	if err := unlimited.Validate(arcp.Raw(strings.Repeat(" ", 2<<20))); err != nil {
		t.Errorf("no limit: %v", err)
	}
}

func TestPermissiveSchemasAreFree(t *testing.T) {
	for _, s := range []string{``, `{}`, `true`} {
		if tool := raw(t, Capability{InputSchema: arcp.Raw(s)}, echo); tool.input != nil {
			t.Errorf("schema %q is checked", s)
		}
	}
	if tool := raw(t, Capability{InputSchema: arcp.Raw(`false`)}, echo); tool.Validate(nil) == nil {
		t.Error("schema false allows something")
	}
}

func TestInvalidSchemasAreRefused(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{`{`, "not JSON"},
		{`"string"`, ""},
		{`{"type":"text"}`, ""},
		{`{"minimum":"1"}`, ""},
		{`{"pattern":"("}`, ""},
		{`{"$ref":"https://example.com/s.json"}`, "outside"},
		{`{"$ref":"http://example.com/s.json#/x"}`, "outside"},
		{`{"$ref":"file:///etc/passwd"}`, "outside"},
		{`{"$ref":"other.json"}`, "outside"},
		{`{"properties":{"a":{"items":{"$ref":"https://example.com/s.json"}}}}`, "outside"},
		{`{"$dynamicRef":"https://example.com/s.json"}`, "outside"},
		{`{"$schema":"https://example.com/meta"}`, "outside"},
		{`{"$ref":"#/$defs/none"}`, ""},
	} {
		for _, which := range []string{"input", "output"} {
			capability := Capability{Name: "t", InputSchema: arcp.Raw(c.schema)}
			if which == "output" {
				capability = Capability{Name: "t", OutputSchema: arcp.Raw(c.schema)}
			}
			_, err := NewRaw(capability, echo)
			if err == nil || !strings.Contains(err.Error(), "tool t@1.0.0: "+which+" schema: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s schema %s: error %v, want one about %q", which, c.schema, err, c.want)
			}
		}
	}
}

func TestOlderDraftsAndInnerReferences(t *testing.T) {
	for _, s := range []string{
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"number"}},"items":{"$ref":"#/definitions/n"}}`,
		`{"$id":"https://example.com/own","$defs":{"n":{"$id":"n","type":"number"}},"items":{"$ref":"https://example.com/n"}}`,
		`{"$defs":{"n":{"$anchor":"num","type":"number"}},"items":{"$ref":"#num"}}`,
	} {
		tool := raw(t, Capability{InputSchema: arcp.Raw(s)}, echo)
		if err := tool.Validate(arcp.Raw(`[1]`)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
		wantError(t, s, tool.Validate(arcp.Raw(`["1"]`)), arcp.CodeInvalidArgument, "argument /0 must be a number, not a string")
	}
}

func TestValidateAtTheSameTime(t *testing.T) {
	tool := order(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				wantError(t, "concurrent", tool.Validate(arcp.Raw(`{"id":1,"name":"AB"}`)), arcp.CodeInvalidArgument,
					"argument /name must match ^[a-z]*$")
			}
		})
	}
	wg.Wait()
}

func TestCheckSchemaAcceptsDialects(t *testing.T) {
	for _, s := range []string{``, `{}`, `true`, `false`, `{"type":"integer","minimum":1}`, `{"minimum":1e1000}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"string"}`, `{"$defs":{"n":{"type":"number"}},"items":{"$ref":"#/$defs/n"}}`} {
		if err := CheckSchema(arcp.Raw(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, c := range []struct{ schema, want string }{
		{`{`, "not JSON"},
		{`null`, "the schema must be a boolean or an object"},
		{`7`, "the schema must be a boolean or an object"},
		{`"string"`, "the schema must be a boolean or an object"},
		{`[]`, "the schema must be a boolean or an object"},
		{`{"type":"text"}`, "member /type must"},
		{`{"minimum":"1"}`, "member /minimum must"},
		{`{"pattern":"("}`, "member /pattern must"},
		{`{"required":"a"}`, "member /required must"},
		{`{"$ref":"https://example.com/s.json"}`, "outside"},
		{`{"$ref":"file:///etc/passwd"}`, "outside"},
		{`{"$ref":"#/$defs/none"}`, "none"},
		{`{"items":{"minimum":1e999999}}`, "member /items/minimum must have at most 1000 digits"},
		{`{"multipleOf":1e-999999}`, "member /multipleOf must have at most 1000 digits"},
	} {
		err := CheckSchema(arcp.Raw(c.schema))
		if err == nil || err.Code != arcp.CodeInvalidArgument || !strings.HasPrefix(err.Message, "the schema: ") || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %v, want INVALID_ARGUMENT about %q", c.schema, err, c.want)
		}
	}
	long := arcp.Raw(`{"properties":{"` + strings.Repeat("a", 10000) + `":{"type":1}}}`)
	if err := CheckSchema(long); err == nil || len(err.Message) > 5000 {
		t.Errorf("a long member: %v", err)
	}
}

func TestCheckValueNamesTheMember(t *testing.T) {
	const object = `{"type":"object","properties":{"a":{"type":"string","format":"email"}},"required":["a"],"additionalProperties":false}`
	for _, c := range []struct{ schema, value, want string }{ // no want: it is allowed
		{``, `7`, ""},
		{`{}`, `null`, ""},
		{`true`, `[]`, ""},
		{`false`, `7`, "the value is not allowed"},
		{`{"type":"integer"}`, `7`, ""},
		{`{"type":"integer"}`, `7.0`, ""},
		{`{"type":"integer"}`, `7.5`, "the value must be an integer, not a number"},
		{`{"type":"integer"}`, `"7"`, "the value must be an integer, not a string"},
		{`{"type":"integer"}`, `null`, "the value must be an integer, not null"},
		{`{"type":"integer"}`, ``, "the value must be valid JSON"},
		{`{"type":"integer"}`, `7 8`, "the value must be valid JSON"},
		{`{"type":"number"}`, `1e1001`, "the value must have at most 1000 digits and an exponent within ±1000"},
		{`{"enum":["a","b"]}`, `"c"`, `the value must be one of "a", "b"`},
		{object, `{"a":"a@b.example"}`, ""},
		{object, `{"a":"nobody"}`, "member /a must have the format email"},
		{object, `{}`, "member /a is required"},
		{object, `{"a":"a@b.example","b":1}`, "member /b is not known; known are a"},
		{`{"type":`, `7`, "the schema: not JSON: unexpected EOF"},
	} {
		err := CheckValue(arcp.Raw(c.schema), arcp.Raw(c.value))
		if c.want != "" {
			wantError(t, c.schema+" "+c.value, err, arcp.CodeInvalidArgument, c.want)
		} else if err != nil {
			t.Errorf("%s %s: %v", c.schema, c.value, err)
		}
	}
}

// FuzzValidate looks for arguments that make validating panic or take long.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{`{"id":1}`, `{"id":1e999}`, `{"id":1,"list":[{},{}],"shape":{"r":1}}`, `[[[]]]`, `1e99999`, `{"id":-0.0}`} {
		f.Add([]byte(s))
	}
	tool := order(f)
	f.Fuzz(func(t *testing.T, args []byte) {
		if err := tool.Validate(args); err != nil && err.Code != arcp.CodeInvalidArgument {
			t.Fatalf("%q: %v", args, err)
		}
	})
}
