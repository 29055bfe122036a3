package auth

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	for typed, meant := range map[string]Role{
		"clients": RoleClient, "obsrever": RoleObserver, "ADMIN": RoleAdmin, "approvers": RoleApprover, "obs": RoleObserver, "workr": RoleWorker,
	} {
		want(t, "nearest to "+typed, nearest(typed, allRoles), meant)
	}
}

func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[ab_]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab, bc, ac := distance(a, b), distance(b, c), distance(a, c)
		want(t, "only equal words have none", ab == 0, a == b)
		want(t, "it is the same both ways", distance(b, a), ab)
		want(t, "a detour is not shorter", ac <= ab+bc, true)
		want(t, "one more letter is one edit", distance(a+"x", a), 1)
		want(t, "words with nothing in common", distance(a, "xyz"), max(len(a), 3))
	})
}

// JSON is YAML: what a lease says in JSON comes out the same.
func TestLeaseKeepsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := made(json.Marshal(map[string]any{"a": jsonValue(3).Draw(t, "value")}))
		out := parse(t, "", `{"principals": [{"name": "p", "lease": `+string(in)+`}]}`).principals["p"].identity.Lease
		var got, wanted any
		must(t, json.Unmarshal(out, &got))
		must(t, json.Unmarshal(in, &wanted))
		want(t, "the lease", got, wanted)
	})
}

func TestNoLease(t *testing.T) {
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
