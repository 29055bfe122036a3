package tool

import (
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

type (
	level string
	inner struct {
		Name string `json:"name" jsonschema:"minLength=1"`
	}
	Base struct {
		ID    int8  `json:"id"`
		Score *int8 `json:"score"`
	}
	loop struct {
		Next *loop `json:"next"`
	}
	custom struct{ hidden int }
)

func (c custom) MarshalJSON() ([]byte, error) { return arcp.Marshal(c.hidden) }

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func TestSchemaOfTypes(t *testing.T) {
	for _, c := range []struct {
		typ  reflect.Type
		want string
	}{
		{typeOf[string](), `{"type":"string"}`},
		{typeOf[level](), `{"type":"string"}`},
		{typeOf[bool](), `{"type":"boolean"}`},
		{typeOf[int8](), `{"type":"integer","minimum":-128,"maximum":127}`},
		{typeOf[int64](), `{"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807}`},
		{typeOf[uint16](), `{"type":"integer","minimum":0,"maximum":65535}`},
		{typeOf[uint64](), `{"type":"integer","minimum":0,"maximum":18446744073709551615}`},
		{typeOf[float32](), `{"type":"number"}`},
		{typeOf[arcp.Number](), `{"type":"number"}`},
		{typeOf[arcp.Raw](), `{}`},
		{typeOf[any](), `{}`},
		{typeOf[custom](), `{}`},
		{typeOf[time.Time](), `{"type":"string","format":"date-time"}`},
		{typeOf[struct{ time.Time }](), `{}`}, // it encodes as the time does
		{typeOf[netip.Addr](), `{"type":"string"}`},
		{typeOf[[]byte](), `{"type":"string","contentEncoding":"base64"}`},
		{typeOf[[]bool](), `{"type":"array","items":{"type":"boolean"}}`},
		{typeOf[[2]bool](), `{"type":"array","minItems":2,"maxItems":2,"items":{"type":"boolean"}}`},
		{typeOf[*string](), `{"type":["string","null"]}`},
		{typeOf[**string](), `{"type":["string","null"]}`},
		{typeOf[*arcp.Raw](), `{}`},
		{typeOf[map[string]bool](), `{"type":"object","additionalProperties":{"type":"boolean"}}`},
		{typeOf[map[level]any](), `{"type":"object","additionalProperties":{}}`},
		{typeOf[struct{}](), `{"type":"object","additionalProperties":false}`},
		{typeOf[struct {
			A string `json:"a"`
			B string `json:"b,omitzero"`
			C []bool `json:"c,omitempty"`
			D *bool  `json:"d"`
			E string `json:"e" jsonschema:"default=x"`
			F bool
			G bool `json:"-"`
			h bool // it must not appear
		}](), `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"},` +
			`"c":{"type":"array","items":{"type":"boolean"}},"d":{"type":["boolean","null"]},` +
			`"e":{"type":"string","default":"x"},"F":{"type":"boolean"}},"required":["a","F"],"additionalProperties":false}`},
		{typeOf[struct {
			Base
			In inner `json:"in"`
		}](), `{"type":"object","properties":{"id":{"type":"integer","minimum":-128,"maximum":127},` +
			`"score":{"type":["integer","null"],"minimum":-128,"maximum":127},` +
			`"in":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"],"additionalProperties":false}},` +
			`"required":["id","in"],"additionalProperties":false}`},
		{typeOf[struct{ *Base }](), `{"type":"object","properties":{"id":{"type":"integer","minimum":-128,"maximum":127},` +
			`"score":{"type":["integer","null"],"minimum":-128,"maximum":127}},"additionalProperties":false}`},
		{typeOf[struct {
			Base `json:"base"`
		}](), `{"type":"object","properties":{"base":{"type":"object","properties":{"id":{"type":"integer","minimum":-128,"maximum":127},` +
			`"score":{"type":["integer","null"],"minimum":-128,"maximum":127}},"required":["id"],"additionalProperties":false}},` +
			`"required":["base"],"additionalProperties":false}`},
		{typeOf[struct {
			A, B inner
		}](), `{"type":"object","properties":{` +
			`"A":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"],"additionalProperties":false},` +
			`"B":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"],"additionalProperties":false}},` +
			`"required":["A","B"],"additionalProperties":false}`},
	} {
		s, err := schemaOf(c.typ)
		if err != nil {
			t.Errorf("schema of %v: error = %v, want none", c.typ, err)
			continue
		}
		got, err := arcp.Marshal(s)
		if err != nil || string(got) != c.want {
			t.Errorf("%v:\n%s, %v\nwant\n%s", c.typ, got, err, c.want)
		}
		if _, err := compile(got, true); err != nil {
			t.Errorf("%v: the schema does not compile: %v", c.typ, err)
		}
	}
}

func TestSchemaTagsSetKeywords(t *testing.T) {
	type all struct {
		A int     `json:"a" jsonschema:"minimum=-1,maximum=10,multipleOf=2,default=4,description=An even number, if any."`
		B float64 `json:"b" jsonschema:"exclusiveMinimum=0,exclusiveMaximum=1.5"`
		C string  `json:"c" jsonschema:"minLength=1,maxLength=3,pattern=^a,b=c$,format=email,enum=a|b c|"`
		D []bool  `json:"d" jsonschema:"minItems=1,maxItems=3"`
		E *int8   `json:"e" jsonschema:"enum=1|2"`
		F bool    `json:"f" jsonschema:"default=true"`
	}
	const want = `{"type":"object","properties":{` +
		`"a":{"type":"integer","description":"An even number, if any.","default":4,"minimum":-1,"maximum":10,"multipleOf":2},` +
		`"b":{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1.5},` +
		`"c":{"type":"string","format":"email","enum":["a","b c",""],"minLength":1,"maxLength":3,"pattern":"^a,b=c$"},` +
		`"d":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"boolean"}},` +
		`"e":{"type":["integer","null"],"enum":[1,2,null],"minimum":-128,"maximum":127},` +
		`"f":{"type":"boolean","default":true}},` +
		`"required":["b","c","d"],"additionalProperties":false}`
	s, err := schemaOf(typeOf[all]())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := arcp.Marshal(s); err != nil || string(got) != want {
		t.Errorf("schema:\n%s, %v\nwant\n%s", got, err, want)
	}
	if got := string(s.defaults()); got != `{"a":4,"f":true}` {
		t.Errorf("defaults = %s", got)
	}
}

func TestDefaultsOfNestedStructs(t *testing.T) {
	type part struct {
		N int `json:"n" jsonschema:"default=3"`
	}
	type whole struct {
		P part   `json:"p"`
		Q inner  `json:"q"`
		S string `json:"s"`
	}
	s, err := schemaOf(typeOf[whole]())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.defaults()); got != `{"p":{"n":3}}` {
		t.Errorf("defaults = %s", got)
	}
}

func TestTypesWithoutSchema(t *testing.T) {
	for _, c := range []struct {
		typ  reflect.Type
		want string
	}{
		{typeOf[chan int](), "no JSON form"},
		{typeOf[complex64](), "no JSON form"},
		{typeOf[error](), "no JSON form"},
		{typeOf[time.Duration](), "no unit"},
		{typeOf[map[int]bool](), "keys"},
		{typeOf[loop](), "contains itself"},
		{typeOf[struct{ F func() }](), ".F: "},
		{typeOf[struct{ L []chan int }](), ".L: "},
		{typeOf[struct{ M map[string]chan int }](), ".M: "},
		{typeOf[struct{ level }](), "only structs"},
		{typeOf[struct {
			time.Time
			big.Int
		}](), "only structs"},
		{typeOf[struct{ loop }](), "contains itself"},
		{typeOf[struct {
			A int `json:"B"`
			B int
		}](), "twice"},
		{typeOf[struct {
			Base
			ID int `json:"id"`
		}](), "twice"},
		{typeOf[struct {
			A int `json:",string"`
		}](), "string"},
		{typeOf[struct {
			A int `jsonschema:"min=1"`
		}](), "known keyword"},
		{typeOf[struct {
			A int `jsonschema:"required"`
		}](), "known keyword"},
		{typeOf[struct {
			A int `jsonschema:"minimum=x"`
		}](), "not a number"},
		{typeOf[struct {
			A int `jsonschema:"minimum=1,max=2"`
		}](), "not a number"},
		{typeOf[struct {
			A int `jsonschema:"minLength=1"`
		}](), "no meaning"},
		{typeOf[struct {
			A string `jsonschema:"minimum=1"`
		}](), "no meaning"},
		{typeOf[struct {
			A any `jsonschema:"enum=a"`
		}](), "no meaning"},
		{typeOf[struct {
			A int `jsonschema:"enum=1|two"`
		}](), "not an integer"},
		{typeOf[struct {
			A bool `jsonschema:"default=yes"`
		}](), "not a boolean"},
		{typeOf[struct {
			A int `jsonschema:"default=true"`
		}](), "not an integer"},
		{typeOf[struct {
			A *int `jsonschema:"default=1"`
		}](), "plain field"},
		{typeOf[struct {
			A []byte `jsonschema:"default=YQ=="`
		}](), "plain field"},
		{typeOf[struct {
			A []struct {
				B int `jsonschema:"default=1"`
			}
		}](), "plain field"},
	} {
		if _, err := schemaOf(c.typ); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one about %q", c.typ, err, c.want)
		}
	}
}

func TestConstrainedTypesAreRecognised(t *testing.T) {
	for _, c := range []struct {
		typ  reflect.Type
		want bool
	}{
		{typeOf[Base](), false},
		{typeOf[struct {
			A int `jsonschema:"description=d,default=1"`
		}](), false},
		{typeOf[inner](), true},
		{typeOf[[]inner](), true},
		{typeOf[map[string]inner](), true},
		{typeOf[struct{ P *inner }](), true},
	} {
		s, err := schemaOf(c.typ)
		if err != nil {
			t.Fatal(err)
		}
		if s.constrained != c.want {
			t.Errorf("%v: constrained = %v, want %v", c.typ, s.constrained, c.want)
		}
	}
}
