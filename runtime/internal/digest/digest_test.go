package digest

import (
	"crypto/sha3"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Other implementations can use the vectors to check their digests.
func TestDigestVectors(t *testing.T) {
	const file = "testdata/digests.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	n := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "  ") {
			value := strings.TrimSuffix(line, "\n")
			canonical, err := arcp.Canonical(arcp.Raw(value))
			if err != nil {
				t.Fatalf("%s: %v", value, err)
			}
			n++
			fmt.Fprintf(&out, "%s\n  %s\n  %s\n", value, canonical, Of(arcp.Raw(value)))
		} else if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != string(text) || n < 15 {
		t.Errorf("%s differs (run with -update and look at what changes):\n%s", file, out.String())
	}
}

func TestDigests(t *testing.T) {
	sum := sha3.Sum256([]byte(`{"a":2,"b":1}`))
	want := hex.EncodeToString(sum[:])
	if got := Of(arcp.Raw(` { "b":1, "a":2 } `)); got != want {
		t.Errorf("the digest is %s, want SHA3-256 of the sorted, compact text: %s", got, want)
	}
	if OfArguments(nil) != Of(arcp.Raw(`{}`)) || OfArguments(arcp.Raw(`null`)) != Of(arcp.Raw(`{}`)) {
		t.Error("missing arguments are not {}")
	}
	seen := map[string]string{}
	for _, v := range []string{`1`, `1.0`, `1e0`, `10`, `"1"`, `[1]`, `{"a":1}`, `null`,
		`123456789012345678901234567890`, `123456789012345678901234567891`} {
		d := Of(arcp.Raw(v))
		if other, twice := seen[d]; twice || len(d) != 64 {
			t.Errorf("%s and %s have the digest %q", v, other, d)
		}
		seen[d] = v
	}
	if Of(arcp.Raw(`{"a":`)) != "" {
		t.Error("what is not JSON has a digest")
	}
}
