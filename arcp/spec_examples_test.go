package arcp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// notKept are members of the examples that this package does not know, with the
// reason.
var notKept = map[string]string{
	"session.list_jobs cursor": "null is absent",
}

func examples(t testing.TB) [][]byte {
	t.Helper()
	f, err := os.Open("testdata/examples-rfc.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines [][]byte
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, bytes.Clone(s.Bytes()))
	}
	if len(lines) < 60 {
		t.Fatalf("only %d examples", len(lines))
	}
	return lines
}

// Every example decodes with its payload, encodes again without losing a
// member, and decodes to the same.
func TestExamplesSurviveDecoding(t *testing.T) {
	used := make(map[string]bool)
	for _, line := range examples(t) {
		env, err := arcp.Decode(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		t.Run(string(env.Type+" "+arcp.Type(env.ID)), func(t *testing.T) {
			spec := arcp.Lookup(env.Type)
			if spec == nil {
				t.Fatal("the catalog has no row")
			}
			payload := spec.NewPayload()
			if err := arcp.Unmarshal(env.Payload, payload); err != nil {
				t.Fatal(err)
			}
			again := env
			if again.Payload, err = arcp.Marshal(payload); err != nil {
				t.Fatal(err)
			}
			out := again.Append(nil)
			got, err := arcp.Decode(out)
			if err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			second := spec.NewPayload()
			if err := arcp.Unmarshal(got.Payload, second); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(payload, second) {
				t.Errorf("the payload was %+v and is %+v", payload, second)
			}
			got.Payload, again.Payload = nil, nil
			if !reflect.DeepEqual(got, again) {
				t.Errorf("the envelope was %+v and is %+v", again, got)
			}
			for _, missing := range missing("", line, out) {
				key := string(env.Type) + " " + missing
				if _, ok := notKept[key]; !ok {
					t.Errorf("%s is lost or changed", missing)
				}
				used[key] = true
			}
		})
	}
	for key := range notKept {
		if !used[key] {
			t.Errorf("notKept lists %q, which is kept", key)
		}
	}
}

// missing returns the members of want that got lacks or has with another value.
func missing(path string, want, got []byte) []string {
	var w, g any
	if err := json.Unmarshal(want, &w); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(got, &g); err != nil {
		panic(err)
	}
	return differences(path, w, g)
}

func differences(path string, want, got any) (list []string) {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name, value := range w {
			below := name
			if path != "" && path != "payload" {
				below = path + "/" + name
			}
			if other, ok := g[name]; ok {
				list = append(list, differences(below, value, other)...)
			} else {
				list = append(list, below)
			}
		}
		return list
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{path}
		}
		for i := range w {
			list = append(list, differences(fmt.Sprint(path, "/", i), w[i], g[i])...)
		}
		return list
	case string:
		if sameTime(w, got) {
			return nil
		}
	}
	if !reflect.DeepEqual(want, got) {
		return []string{path}
	}
	return nil
}

func sameTime(want string, got any) bool {
	g, ok := got.(string)
	a, err1 := time.Parse(time.RFC3339, want)
	b, err2 := time.Parse(time.RFC3339, g)
	return ok && err1 == nil && err2 == nil && a.Equal(b)
}
