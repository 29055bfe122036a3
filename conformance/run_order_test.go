package conformance

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// runOrder runs ten checks and returns their ids in the order in which they ended, and the results.
func runOrder(t *testing.T, seed uint64, stopAfter func(Result) bool) (order []string, results []Result) {
	t.Helper()
	var checks []Check
	for i := range 10 {
		checks = append(checks, testCheck(fmt.Sprintf("x.%d", i), func(t *checkRun) { t.Failf("always") }))
	}
	target := fakeTarget(t)
	r := &runner{target: &target, server: &server{}, opts: &Options{Parallel: 1, Seed: seed, Timeout: time.Minute, StopAfter: stopAfter,
		OnResult: func(res Result) {
			if res.Status == Failed {
				order = append(order, res.ID)
			}
		}}}
	results = r.run(t.Context(), checks)
	return order, results
}

func TestSeedShufflesTheOrder(t *testing.T) {
	order := func(seed uint64) (list []string) {
		list, results := runOrder(t, seed, nil)
		for i, res := range results {
			if want := fmt.Sprintf("x.%d", i); res.ID != want {
				t.Errorf("with seed %d result %d is %s, want %s: results are in the order of the checks", seed, i, res.ID, want)
			}
		}
		return list
	}
	plain, one, again, two := order(0), order(1), order(1), order(2)
	if !slices.IsSorted(plain) || len(plain) != 10 {
		t.Errorf("without a seed the order is %v", plain)
	}
	if !slices.Equal(one, again) || slices.Equal(one, two) || slices.Equal(one, plain) || len(one) != 10 {
		t.Errorf("seed 1 gives %v and %v, seed 2 gives %v: the same seed gives the same order", one, again, two)
	}
}

// After the result that ends the run, the checks that have not started are skipped.
func TestStopAfter(t *testing.T) {
	asked := 0
	_, results := runOrder(t, 0, func(res Result) bool {
		asked++
		return res.ID == "x.2"
	})
	if asked != 3 {
		t.Errorf("StopAfter was asked %d times, want 3: the run has ended then", asked)
	}
	for i, res := range results {
		if ended := i > 2; ended != (res.Status == Skipped) || ended && res.Reason != "the run ended before this check" {
			t.Errorf("%s is %s %q", res.ID, res.Status, res.Reason)
		}
	}
}
