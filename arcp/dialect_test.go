package arcp_test

import (
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func TestDialectIsItsNameInJSON(t *testing.T) {
	for dialect, want := range map[arcp.Dialect]string{arcp.DialectRFC: `"rfc"`, arcp.DialectDraft: `"draft"`} {
		raw, err := arcp.Marshal(dialect)
		if err != nil || string(raw) != want {
			t.Errorf("Marshal(%v) = %s, %v, want %s", dialect, raw, err, want)
		}
		var read arcp.Dialect
		if err := arcp.Unmarshal(raw, &read); err != nil || read != dialect {
			t.Errorf("Unmarshal(%s) = %v, %v, want %v", raw, read, err, dialect)
		}
	}
	if err := new(arcp.Dialect).UnmarshalText([]byte("auto")); err == nil {
		t.Error("UnmarshalText(auto) = nil, want an error: it is no dialect")
	}
}
