package arcp_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
)

func TestIDSourceAscends(t *testing.T) {
	const goroutines, each = 64, 500
	var source arcp.IDSource
	var group sync.WaitGroup
	lists := make([][]string, goroutines)
	for i := range lists {
		group.Go(func() {
			for range each {
				lists[i] = append(lists[i], source.New(arcp.JobPrefix))
			}
		})
	}
	group.Wait()
	for _, l := range lists {
		if !slices.IsSorted(l) {
			t.Error("the ids of a goroutine do not ascend")
		}
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != goroutines*each {
		t.Errorf("%d different ids, want %d", n, goroutines*each)
	}
}

func TestIDsAscendAfterClockStepsBack(t *testing.T) {
	var source arcp.IDSource
	before := source.New("")
	synctest.Test(t, func(t *testing.T) { // where it is the year 2000
		if now := time.Now(); now.Year() != 2000 {
			t.Fatalf("it is %v", now)
		}
		for range 100 {
			after := source.New("")
			if after <= before {
				t.Fatalf("%s comes after %s", after, before)
			}
			before = after
		}
	})
}

func TestIDsAscendFromStartAfter(t *testing.T) {
	var source arcp.IDSource
	const future = "3ZZZZZZZZZXX0VV0VV0VV0VV0V"
	u, ok := arcp.ParseIDBody(future)
	if !ok {
		t.Fatal("not a body")
	}
	u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80 // a UUIDv7
	body := string(arcp.AppendIDBody(nil, u))
	source.StartAfter(body)
	if id := source.New(""); id <= body {
		t.Errorf("%s is not after %s", id, body)
	}
	later := source.New("")
	for _, not := range []string{"", "short", strings.Repeat("!", arcp.IDBodyLen), "7" + strings.Repeat("Z", 25), strings.Repeat("Z", 26)} {
		source.StartAfter(not)
		if id := source.New(""); id <= later || id[:8] != later[:8] {
			t.Errorf("After(%q) had an effect: %s after %s", not, id, later)
		}
	}
}

func TestParseIDBodyReversesAppendIDBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u [16]byte
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "u"))
		body := string(arcp.AppendIDBody(nil, u))
		if got, ok := arcp.ParseIDBody(body); !ok || got != u || len(body) != arcp.IDBodyLen {
			t.Fatalf("ParseIDBody(%q) = %x, %v, want %x", body, got, ok, u)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-9A-Za-z]{25,27}`).Draw(t, "s")
		if u, ok := arcp.ParseIDBody(s); ok && string(arcp.AppendIDBody(nil, u)) != s {
			t.Fatalf("ParseIDBody(%q) takes what AppendIDBody does not write", s)
		}
	})
}

func TestIDOrderIsTimeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b [16]byte
		copy(a[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "a"))
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "b"))
		x, y := string(arcp.AppendIDBody(nil, a)), string(arcp.AppendIDBody(nil, b))
		if (string(a[:]) < string(b[:])) != (x < y) {
			t.Fatalf("%x, %x are written %s, %s", a, b, x, y)
		}
	})
}

func TestIDsAreVisibleASCIIOfBoundedLength(t *testing.T) {
	for id, want := range map[string]bool{"msg_1": true, "~!": true, strings.Repeat("x", 256): true,
		"": false, " ": false, "a b": false, "a\n": false, "é": false, "\x7f": false, strings.Repeat("x", 257): false} {
		if got := arcp.ValidID(id); got != want {
			t.Errorf("ValidID(%q) = %v, want %v", id, got, want)
		}
	}
	for _, c := range []struct {
		valid bool
		want  bool
	}{
		{arcp.SessionID("sess_1").Valid(), true}, {arcp.SessionID("sess_").Valid(), false}, {arcp.SessionID("job_1").Valid(), false},
		{arcp.JobID("job_1").Valid(), true}, {arcp.JobID("job_é").Valid(), false}, {arcp.StreamID("str_1").Valid(), true},
		{arcp.SubscriptionID("sub_1").Valid(), true}, {arcp.LeaseID("lease_1").Valid(), true}, {arcp.ArtifactID("art_1").Valid(), true},
		{arcp.NewSessionID().Valid(), true}, {arcp.NewJobID().Valid(), true}, {arcp.HasPrefix(string(arcp.NewMessageID()), arcp.MessagePrefix), true},
	} {
		if c.valid != c.want {
			t.Errorf("an id is valid = %v, want %v", c.valid, c.want)
		}
	}
}

func TestNewIDHoldsAUUIDv7(t *testing.T) {
	id := arcp.NewID(arcp.ArtifactPrefix)
	u, ok := arcp.ParseIDBody(strings.TrimPrefix(id, arcp.ArtifactPrefix))
	if !ok || u[6]>>4 != 7 || u[8]>>6 != 2 {
		t.Errorf("%s does not hold a UUIDv7: %x", id, u)
	}
}

func TestReserveMintsAscendingIDs(t *testing.T) {
	var s arcp.IDSource
	last := string(s.Append(nil))
	for range 100 {
		u := s.Reserve(50)
		for i := range 50 {
			body := string(arcp.AppendIDBody(nil, u))
			if body <= last || u[6]>>4 != 7 || u[8]>>6 != 2 {
				t.Fatalf("id %d is %s after %s, want a greater UUIDv7", i, body, last)
			}
			last, u = body, arcp.NextID(u)
		}
		if next := string(s.Append(nil)); next <= last {
			t.Fatalf("%s was minted after %s", next, last)
		}
	}
}

// FuzzIDs compares the identifier grammar with an independent definition, and checks that parsing
// inverts the encoding of a body.
func FuzzIDs(f *testing.F) {
	for _, s := range []string{"", "msg_1", "job_", "job_01M7ZCNHWREMM8QHJ1MS10VPXG", " ", "é", "a b", strings.Repeat("x", 257), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "80000000000000000000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		visible := s != "" && len(s) <= arcp.MaxIDLen && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
		if got := arcp.ValidID(s); got != visible {
			t.Errorf("ValidID(%q) = %v, want %v", s, got, visible)
		}
		if got, want := arcp.JobID(s).Valid(), visible && strings.HasPrefix(s, "job_") && s != "job_"; got != want {
			t.Errorf("JobID(%q).Valid() = %v, want %v", s, got, want)
		}
		if u, ok := arcp.ParseIDBody(s); ok && string(arcp.AppendIDBody(nil, u)) != s {
			t.Errorf("ParseIDBody(%q) = %x, which is written as %s", s, u, arcp.AppendIDBody(nil, u))
		}
	})
}
