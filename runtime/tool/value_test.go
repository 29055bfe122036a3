package tool

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/arcpd/arcpd/arcp"
)

var values = []string{
	`{}`, `[]`, `null`, `true`, `false`, `"text"`, `""`, `"é\n\u00e9\ud83d\ude00\""`, `0`, `-1.50e+3`, `12345678901234567890`,
	`{"a":{"b":[1,"2",null,{}]},"c":[],"a\u0062":false}`, ` [ 1 , 2 ] `, "{\"a\":\"\xff\"}", `{"a":1,"a":[2]}`, `{"a":{"b":1},"a":{}}`,
	``, ` `, `{`, `[1`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:2}`, `1 2`, `{} {}`, `tru`, `01`, `"a`, `]`, `}`, "\"\x01\"", `"\x"`, `nullx`,
	`[` + strings.Repeat(`[`, 500) + strings.Repeat(`]`, 500) + `]`,
}

// decodeValue agrees with the decoder of the library about each value.
func TestDecodeValue(t *testing.T) {
	for _, raw := range values {
		checkDecodeValue(t, []byte(raw))
	}
}

func FuzzDecodeValue(f *testing.F) {
	for _, raw := range values {
		f.Add([]byte(raw))
	}
	f.Fuzz(checkDecodeValue)
}

func checkDecodeValue(t *testing.T, raw []byte) {
	t.Helper()
	before := bytes.Clone(raw)
	want, wantErr := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	got, err := decodeValue(arcp.Raw(raw))
	if !bytes.Equal(raw, before) {
		t.Fatalf("%q has become %q", before, raw)
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%.100q: %v, want %v", raw, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%.100q = %v, want %v", raw, got, want)
	}
}
