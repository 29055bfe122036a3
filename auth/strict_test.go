package auth

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestTyposHaveASuggestion(t *testing.T) {
	for typed, meant := range map[string]Role{
		"clients": RoleClient, "obsrever": RoleObserver, "ADMIN": RoleAdmin, "approvers": RoleApprover, "obs": RoleObserver, "workr": RoleWorker,
	} {
		want(t, "nearest to "+typed, nearest(typed, allRoles), meant)
	}
}

// JSON is YAML: a lease in JSON stays the same.
func TestLeaseKeepsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := mustValue(json.Marshal(map[string]any{"a": jsonValue(3).Draw(t, "value")}))
		out := parse(t, "", `{"principals": [{"name": "p", "lease": `+string(in)+`}]}`).principals["p"].identity.Lease
		var got, wanted any
		must(t, json.Unmarshal(out, &got))
		must(t, json.Unmarshal(in, &wanted))
		want(t, "the lease", got, wanted)
	})
}

func TestLeaseWithoutValueIsNotSet(t *testing.T) {
	for _, lease := range []string{"lease:", "lease: null", ""} {
		c := parse(t, "", "principals:\n- name: p\n  "+lease)
		want(t, "a lease without a value is not set", c.principals["p"].identity.Lease, nil)
	}
	c := parse(t, "", "principals: [{name: p, lease: {}}]")
	want(t, "an empty one is", string(c.principals["p"].identity.Lease), "{}")
}

func jsonValue(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.StringMatching(`[ -~äß€😀\n\t]{0,12}`).AsAny(),
		rapid.Int().AsAny(),
		rapid.Float64Range(-1e20, 1e20).AsAny(),
		rapid.Bool().AsAny(),
		rapid.Just[any](nil),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := jsonValue(depth - 1)
	return rapid.OneOf(append(scalars,
		rapid.SliceOfN(inner, 0, 3).AsAny(),
		rapid.MapOfN(rapid.StringMatching(`[a-z.*]{0,5}`), inner, 0, 3).AsAny(),
	)...)
}
