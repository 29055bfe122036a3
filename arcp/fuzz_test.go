package arcp_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// FuzzDecode checks that decoding never panics, and that a decoded envelope is encoded to a
// frame that decodes and encodes to the same.
func FuzzDecode(f *testing.F) {
	for _, line := range examples(f) {
		f.Add(line)
	}
	samples(func(s *arcp.Spec, _ string, payload any) {
		env := arcp.Frame(s.Type, payload)
		env.ARCP, env.ID, env.Timestamp = arcp.Version, "msg_1", moment
		f.Add(env.Append(nil))
	})
	f.Add([]byte(frame(`payload={"a":`+nest(62)+`}`, `timestamp="9999-12-31T23:59:59-23:00"`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		env, err := arcp.Decode(text)
		if err != nil {
			if e, ok := err.(*arcp.EncodingError); !ok || e.Message == "" || e.Reason == "" {
				t.Fatalf("the error is %#v", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON", text)
		}
		once := env.Append(nil)
		if bytes.ContainsAny(once, "\r\n") {
			t.Fatalf("%q is more than a line", once)
		}
		again, err := arcp.Decode(once)
		if err != nil {
			t.Fatalf("%q was decoded, but not %q: %v", text, once, err)
		}
		if twice := again.Append(nil); !bytes.Equal(once, twice) {
			t.Fatalf("%q\nis encoded as %q\nand then as     %q", text, once, twice)
		}
		if s := arcp.Lookup(env.Type); s != nil {
			fuzzPayload(t, s, env.Payload)
		}
	})
}

// fuzzPayload repeats the round trip for a payload that its type decodes.
func fuzzPayload(t *testing.T, s *arcp.Spec, payload arcp.Raw) {
	t.Helper()
	p := s.NewPayload()
	if arcp.Unmarshal(payload, p) != nil {
		return
	}
	once, err := arcp.Marshal(p)
	if err != nil {
		t.Fatalf("%s %s was decoded and cannot be encoded: %v", s.Type, payload, err)
	}
	again := s.NewPayload()
	if err := arcp.Unmarshal(once, again); err != nil {
		t.Fatalf("%s %s is encoded as %s: %v", s.Type, payload, once, err)
	}
	if twice, err := arcp.Marshal(again); err != nil || !bytes.Equal(once, twice) {
		t.Fatalf("%s is encoded as %s and then as %s, %v", s.Type, once, twice, err)
	}
}

func FuzzAgentRef(f *testing.F) {
	for _, s := range []string{"a", "demo.echo@1.0.0", "", "@", "a@", "é", "a@1@2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := arcp.ParseAgentRef(s)
		if err != nil {
			return
		}
		if again, err := arcp.ParseAgentRef(ref.String()); ref.String() != s || again != ref || err != nil || !arcp.ValidID(s) {
			t.Errorf("ParseAgentRef(%q) = %+v", s, ref)
		}
	})
}

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"USD:5.00", "a:0", ":", "x:1e5", "€:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := arcp.ParseAmount(s)
		if err != nil {
			return
		}
		if a.String() != s || !json.Valid([]byte("1"+a.Value)) {
			t.Errorf("ParseAmount(%q) = %+v", s, a)
		}
	})
}

func FuzzExtensionName(f *testing.F) {
	for _, s := range []string{"arcpx.example.v1", "com.acme.workflow.v2", "x-y", "tool.invoke", "", "..", "job.x.v1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		class := arcp.Classify(arcp.Type(s))
		if arcp.IsExtensionName(s) != (class == arcp.ClassExtension) {
			t.Errorf("%q: IsExtensionName = %v, class %d", s, arcp.IsExtensionName(s), class)
		}
		if (arcp.Lookup(arcp.Type(s)) != nil) != (class == arcp.ClassCore) {
			t.Errorf("%q: class %d", s, class)
		}
	})
}

func FuzzCapabilities(f *testing.F) {
	full, err := arcp.Marshal(fullCapabilities())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(full))
	for _, s := range []string{`{}`, `null`, `{"streaming":1}`, `{"agents":["a"]}`, `{"agents":[]}`, `{"x":null,"y":{"z":[]}}`, `{"artifact_retention":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c arcp.Capabilities
		if arcp.Unmarshal(text, &c) != nil {
			return
		}
		once, err := arcp.Marshal(c)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var again arcp.Capabilities
		if err := arcp.Unmarshal(once, &again); err != nil {
			t.Fatalf("%q is encoded as %s: %v", text, once, err)
		}
		if twice, err := arcp.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
	})
}
