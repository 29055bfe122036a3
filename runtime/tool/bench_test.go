package tool

import (
	"context"
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func BenchmarkValidate(b *testing.B) {
	for _, c := range []struct {
		name string
		tool *Tool
		args string
	}{
		{"no schema", raw(b, Capability{}, echo), `{"a":1}`},
		{"typed", MustNew(Capability{Name: "add"}, add), `{"a":1,"b":2}`},
		{"refused", MustNew(Capability{Name: "add"}, add), `{"a":1,"b":200}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			args := arcp.Raw(c.args)
			for b.Loop() {
				c.tool.Validate(args)
			}
		})
	}
}

func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name string
		tool *Tool
	}{{"echo", raw(b, Capability{}, echo)}, {"typed", MustNew(Capability{Name: "add"}, add)}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, args := context.Background(), arcp.Raw(`{"a":1,"b":2}`)
			for b.Loop() {
				if _, err := c.tool.Run(ctx, Job{}, args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	r := NewRegistry()
	for i := range 200 {
		if err := r.Register(raw(b, Capability{Name: fmt.Sprintf("tool%d", i)}, echo)); err != nil {
			b.Fatal(err)
		}
	}
	for _, ref := range []string{"tool100", "tool100@1.0.0", "tool1000"} {
		b.Run(ref, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Resolve(ref)
			}
		})
	}
}

func manyTools(t testing.TB, n int) []*Tool {
	tools := make([]*Tool, n)
	for i := range tools {
		tools[i] = raw(t, Capability{Name: fmt.Sprintf("tool-%05d", i)}, echo)
	}
	return tools
}

// BenchmarkRegister registers n tools one by one: the cost of one must not grow with n.
func BenchmarkRegister(b *testing.B) {
	for _, n := range []int{1000, 10_000, 40_000} {
		tools := manyTools(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				reg := NewRegistry()
				for _, t := range tools {
					if err := reg.Register(t); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/tool")
		})
	}
}
