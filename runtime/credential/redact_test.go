package credential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func known(values ...Secret) *Redactor {
	r := new(Redactor)
	for _, v := range values {
		r.Add(v)
	}
	return r
}

func TestScrub(t *testing.T) {
	for _, x := range []struct{ value, in, want string }{
		{"sk-0123456789", `no`, `no`},
		{"sk-0123456789", `sk-0123456789`, `[redacted]`},
		{"sk-0123456789", `a sk-0123456789sk-0123456789 b`, `a [redacted][redacted] b`},
		{"sk-0123456789", `sk-012345678`, `sk-012345678`},
		{"ab/0123456789/cd", `ab\/0123456789\/cd`, `[redacted]`},
		{"ab+0123456789<>&", `"ab\u002B0123456789\u003c\u003e\u0026"`, `"[redacted]"`},
		{"ab+0123456789/x", `{"a":"{\"b\":\"ab\\u002b0123456789\\/x\"}"}`, `{"a":"{\"b\":\"[redacted]\"}"}`},
		{"nabcdefgh", `"\nabcdefgh"`, `"\n[redacted]"`},
		{"nabcdefgh", `"\\nabcdefgh"`, `"\\[redacted]"`},
		{"u0041bcdefgh", `"\u0041bcdefgh"`, `"\u0041[redacted]"`},
		{"u0041bcdefgh", `"\\u0041bcdefgh"`, `"\\[redacted]"`},
		{"/bcdefghijk", `"\/bcdefghijk"`, `"[redacted]"`},
	} {
		in := []byte(x.in)
		if got := string(known(Secret(x.value)).Scrub(in)); got != x.want {
			t.Errorf("Scrub(%s) of %s = %s, want %s", x.in, x.value, got, x.want)
		}
		if string(in) != x.in {
			t.Errorf("Scrub has changed its argument %s", x.in)
		}
	}
}

// Both a value and another one contained in it, or overlapping it, are removed completely.
func TestScrubOverlapping(t *testing.T) {
	for _, in := range []string{"AAAABBBBCCCCDDDD", "AAAABBBBCCCC", "xBBBBCCCCDDDDx"} {
		r := known("AAAABBBBCCCC", "BBBBCCCC", "BBBBCCCCDDDD", "AAAABBBB", Secret("AAAABBBBCCCC"+strings.Repeat("z", 500)))
		if got := string(r.Scrub([]byte(in))); strings.Trim(got, "x") != arcp.Redacted {
			t.Errorf("Scrub(%s) = %s", in, got)
		}
	}
	long := "AAAABBBB" + strings.Repeat("z", 500)
	if got := string(known("AAAABBBB", Secret(long)).Scrub([]byte(long))); got != arcp.Redacted {
		t.Errorf("a part of a long value is left: %s", got)
	}
}

func TestScrubKeepsJSONValid(t *testing.T) {
	encoders := []func(string) []byte{
		func(s string) []byte { b, _ := json.Marshal(s); return b },
		func(s string) []byte { b, _ := json.Marshal(s); return bytes.ReplaceAll(b, []byte("/"), []byte(`\/`)) },
		func(s string) []byte {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			_ = e.Encode(s)
			return bytes.TrimSpace(b.Bytes())
		},
		func(s string) []byte {
			b, _ := json.Marshal(s)
			b, _ = json.Marshal(string(b)) // in a string
			return b
		},
		func(s string) []byte {
			b, _ := json.Marshal(s)
			return bytes.ReplaceAll(b, []byte("+"), []byte(`\u002B`))
		},
	}
	value := rapid.StringMatching(`[!#-\[\]-~]{0,5}[a-z0-9]{8,12}[!#-\[\]-~]{0,9}`)
	noise := rapid.StringOf(rapid.SampledFrom([]rune("\\\n\t\"/ubnrtf0041<é\u2028ab")))
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(value, 1, 4).Draw(t, "values")
		r := new(Redactor)
		for _, v := range values {
			r.Add(Secret(v))
		}
		text := noise.Draw(t, "before") + values[0] + noise.Draw(t, "between") + rapid.SampledFrom(values).Draw(t, "value") + noise.Draw(t, "after")
		in := rapid.SampledFrom(encoders).Draw(t, "encoder")(text)
		out := r.Scrub(in)
		var got string
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s became %s: %v", in, out, err)
		}
		var inner string
		if json.Unmarshal([]byte(got), &inner) == nil {
			got += inner
		}
		for _, v := range values {
			if strings.Contains(got, v) {
				t.Fatalf("%s became %s, which has %s", in, out, v)
			}
		}
		if r.Found(out) {
			t.Fatalf("%s became %s", in, out)
		}
	})
}

func TestForgottenValuesAreDroppedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := known("sk-0123456789", "sk-0123456789", "sk-other-0123")
		found := func(v string, want bool) {
			t.Helper()
			if r.Found([]byte(v)) != want {
				t.Errorf("Found(%s) = %v", v, !want)
			}
		}
		r.Forget("sk-0123456789")
		time.Sleep(time.Hour)
		found("sk-0123456789", true) // it was added twice
		r.Forget("sk-0123456789")
		r.Forget("sk-0123456789")
		r.Forget("never added")
		time.Sleep(forgetAfter / 2)
		r.Add("sk-0123456789")
		r.Forget("sk-0123456789")
		r.Forget("sk-other-0123")
		time.Sleep(forgetAfter/2 + time.Second)
		found("sk-0123456789", true) // forgotten later than the first time
		time.Sleep(forgetAfter)
		found("sk-0123456789", false)
		found("sk-other-0123", false)
		synctest.Wait()
		if len(r.values)+len(r.anchors)+len(r.old) != 0 || r.known.Load() != 0 {
			t.Errorf("%d values, %d anchors, %d old are left", len(r.values), len(r.anchors), len(r.old))
		}
		for i, n := range r.filter {
			if n != 0 {
				t.Fatalf("filter[%d] = %d", i, n)
			}
		}
	})
}

func TestScrubWithoutMatchAllocatesNothing(t *testing.T) {
	text := []byte(strings.Repeat("nothing to see here\\n, sk-nor-there ", 100))
	r := new(Redactor)
	for _, n := range []int{0, 1000} {
		for i := range n {
			r.Add(Secret(fmt.Sprintf("sk-%020d", i)))
		}
		if got := testing.AllocsPerRun(10, func() { _ = r.Scrub(text) }); got != 0 {
			t.Errorf("%v allocations with %d values", got, n)
		}
		if got := r.Scrub(text); &got[0] != &text[0] {
			t.Error("Scrub has copied what has no value in it")
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	text := []byte(strings.Repeat(`{"text":"nothing to see here\n"},`, 128))
	for _, n := range []int{0, 1, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := new(Redactor)
			for i := range n {
				r.Add(Secret(fmt.Sprintf("sk-%x-%020d", i*7919, i)))
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_ = r.Scrub(text)
			}
		})
	}
}
