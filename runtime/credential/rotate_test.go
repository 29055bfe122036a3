package credential

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// accepted returns an accepted job with a credential, and its grant.
func (f *fixture) accepted(t *testing.T) (arcp.JobID, *Grant) {
	t.Helper()
	job := arcp.NewJobID()
	g, err := f.issue(job)
	if err == nil {
		err = f.accept(job, g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return job, g
}

func (f *fixture) live(t *testing.T) arcp.JobID {
	t.Helper()
	job, _ := f.accepted(t)
	return job
}

func (f *fixture) only(t *testing.T, job arcp.JobID) arcp.Credential {
	t.Helper()
	list := f.v.Credentials(job)
	if len(list) != 1 {
		t.Fatalf("%s has %d credentials, want 1", job, len(list))
	}
	return list[0]
}

func (f *fixture) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.ops)
}

func TestRotatedValueReplacesTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		job := f.live(t)
		first := f.only(t, job)
		f.u.set(nil, func() error { return errors.New("not yet") })
		list, err := f.v.Rotate(t.Context(), job, "gw")
		if err != nil || len(list) != 1 || list[0].Provisioner != "gw" || list[0].IDs[0] != first.ID {
			t.Fatalf("Rotate = %v, %v", list, err)
		}
		second := f.only(t, job)
		if second.ID != first.ID || second.Value == first.Value {
			t.Errorf("rotated from %v to %v, want the same id and another value", first.ID, second.ID)
		}
		if v, ok := f.v.Announced(job, 1); !ok || v.Reveal() != second.Value {
			t.Errorf("Announced = %v, %v, want the new value", v, ok)
		}
		if _, ok := f.v.Announced(job, 2); ok {
			t.Error("an event that tells of no rotation has a value")
		}
		time.Sleep(forgetAfter + time.Hour)
		if got := string(f.v.Scrub([]byte(first.Value + " " + second.Value))); got != "[redacted] [redacted]" {
			t.Errorf("Scrub = %q while the old one is not revoked", got)
		}
		if f.unrevoked() != 1 {
			t.Errorf("gauge = %d, want the old one", f.unrevoked())
		}
		f.u.set(nil, nil)
		time.Sleep(lastRetry)
		if n := f.u.outstanding(); n != 1 || !f.u.serves(job) || f.rows() != 1 {
			t.Errorf("%d keys are out, %d rows: want the new one", n, f.rows())
		}
		time.Sleep(forgetAfter)
		if n := f.v.Redactor().known.Load(); n != 1 {
			t.Errorf("%d values are known after the old one was revoked, want 1", n)
		}
		if _, err := f.v.Rotate(t.Context(), job, ""); err != nil {
			t.Errorf("Rotate: %v", err)
		}
		if _, ok := f.v.Announced(job, 1); ok {
			t.Error("the event of an earlier rotation has a value")
		}
		if _, ok := f.v.Announced(job, 2); !ok {
			t.Error("the event of the last rotation has none")
		}
		f.crash(-1, false)
		if v, ok := f.v.Announced(job, 2); !ok || v.Reveal() != f.only(t, job).Value {
			t.Error("after a restart the event of the last rotation has no value")
		}
		if got := f.counts(); got["rotate ok"] != 2 || got["rotate error"]+got["rotate refused"] != 0 || got["issue ok"] != 1 {
			t.Errorf("operations = %v", got)
		}
		for _, p := range []string{"", "gw", "other"} {
			if p == "gw" {
				if err := f.end(job); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.v.Rotate(t.Context(), job, p); (p == "") != (err == nil) || p != "" && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Rotate(%q) = %v", p, err)
			}
		}
		synctest.Wait()
		f.wantNothing("after the end")
	})
}

// The process crashes in each commit of a job with two rotations.
func TestCrashInEachCommitOfRotations(t *testing.T) {
	for k := range 14 {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", k, torn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { crashInRotation(t, k, torn) })
			})
		}
	}
}

func crashInRotation(t *testing.T, k int, torn bool) {
	f := newFixture(t)
	defer func() { f.v.Close() }()
	f.u.same = make(map[string]Credential)
	f.crash(k, torn)
	job := arcp.NewJobID()
	if g, err := f.issue(job); err == nil && f.accept(job, g) == nil {
		for range 2 {
			_, _ = f.v.Rotate(t.Context(), job, "") // or it dies
			synctest.Wait()
		}
		_ = f.end(job)
		synctest.Wait()
	}
	f.rows()
	f.crash(-1, false)
	time.Sleep(time.Minute)
	if s := f.state(job); s != "" && !s.Terminal() {
		value := f.only(t, job).Value
		if n := f.u.outstanding(); n != 1 || !f.u.serves(job) {
			t.Errorf("%d keys are out, want that of the job", n)
		}
		if n := f.rows(); n != 1 {
			t.Errorf("%d rows, want that of the job", n)
		}
		if _, err := f.v.Rotate(t.Context(), job, ""); err != nil || f.only(t, job).Value == value {
			t.Errorf("Rotate after the next start = %v", err)
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
	f.wantNothing("after the next start")
}

// The commit of a rotation fails, applied or not, and the process continues.
func TestRotationSurvivesAFailedCommit(t *testing.T) {
	for k := range 4 {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,%v", k+1, torn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					defer func() { f.v.Close() }()
					f.u.same = make(map[string]Credential)
					job := f.live(t)
					first := f.only(t, job)
					f.p.slips(k+1, torn)
					_, _ = f.v.Rotate(t.Context(), job, "")
					time.Sleep(time.Minute)
					if f.only(t, job).Value == first.Value || !f.u.serves(job) || f.u.outstanding() != 1 {
						t.Errorf("%d keys are out after a minute, want the second", f.u.outstanding())
					}
					if err := f.end(job); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					f.wantNothing("after the end")
				})
			})
		}
	}
}

func TestJobEndsDuringRotation(t *testing.T) {
	for _, when := range []string{"asked", "answered", "asked, bare"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				defer func() { f.v.Close() }()
				job := f.live(t)
				end := func() {
					if when == "asked, bare" {
						f.endBare(job, true)
					} else if err := f.end(job); err != nil {
						t.Error(err)
					}
				}
				if when == "answered" {
					f.before = func(arcp.JobID) { end() }
				} else {
					f.u.during = func(Request) { end() }
				}
				if _, err := f.v.Rotate(t.Context(), job, ""); err == nil {
					t.Error("the credentials of a job that has ended were rotated")
				}
				synctest.Wait()
				if f.u.n != 2 {
					t.Errorf("%d keys were made, want 2", f.u.n)
				}
				f.wantNothing("after the end")
			})
		})
	}
}

// The provisioner refuses to rotate: the job keeps its credentials, and a required rotation is
// retried.
func TestFailedRotationKeepsTheOldValue(t *testing.T) {
	for _, refused := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			defer func() { f.v.Close() }()
			f.u.life = time.Hour
			job := f.live(t)
			first := f.only(t, job)
			failure, result := errLost, "rotate error"
			if refused {
				failure, result = refuse(arcp.Errorf(arcp.CodeResourceExhausted, "no")), "rotate refused"
			}
			f.u.set(func() error { return failure }, nil)
			if _, err := f.v.Rotate(t.Context(), job, ""); !errors.Is(err, failure) {
				t.Errorf("Rotate = %v, want %v", err, failure)
			}
			time.Sleep(10 * time.Minute)
			if n := f.counts()[result]; refused && n != 1 || !refused && n < 5 {
				t.Errorf("%d attempts: what is refused is over, what is lost is asked for again", n)
			}
			time.Sleep(45 * time.Minute)
			if n := f.counts()[result]; n < 5 {
				t.Errorf("%d attempts when it is about to end", n)
			}
			if f.only(t, job).Value != first.Value || !f.u.serves(job) {
				t.Error("the old one is gone though there is no new one")
			}
			if len(f.u.called()) != 0 {
				t.Error("something was revoked while the job goes on")
			}
			f.u.set(nil, nil)
			time.Sleep(lastRetry)
			if f.only(t, job).Value == first.Value || !f.u.serves(job) {
				t.Error("it is not rotated when the provisioner does")
			}
			if err := f.end(job); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			f.wantNothing("after the end, with what the answers were lost of")
		})
	}
}

func TestCredentialIsRotatedBeforeItExpires(t *testing.T) {
	for life, want := range map[time.Duration]time.Duration{100 * time.Second: 80 * time.Second, time.Hour: 48 * time.Minute,
		30 * time.Second: 20 * time.Second, 12 * time.Second: 10 * time.Second, time.Millisecond: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			defer func() { f.v.Close() }()
			f.u.life = life
			job := f.live(t)
			first := f.only(t, job)
			if life > time.Minute && !strings.Contains(string(first.Constraints), "expires_at") {
				t.Errorf("constraints = %s: want the end", first.Constraints)
			}
			time.Sleep(want / 2)
			f.crash(-1, false) // the end is kept
			time.Sleep(want - want/2 - time.Millisecond)
			if f.only(t, job).Value != first.Value {
				t.Errorf("life %v: rotated before %v", life, want)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if f.only(t, job).Value == first.Value || f.u.outstanding() != 1 {
				t.Errorf("life %v: not rotated after %v", life, want)
			}
			if err := f.end(job); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			n := f.u.n
			time.Sleep(3 * time.Hour)
			if f.u.n != n {
				t.Error("rotated after the end")
			}
			f.wantNothing("after the end")
		})
	}
}

func TestOneRotationAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		job := f.live(t)
		gate := make(chan struct{})
		f.u.during = func(Request) { <-gate }
		done := make(chan error, 1)
		go func() {
			_, err := f.v.Rotate(t.Context(), job, "")
			done <- err
		}()
		synctest.Wait()
		if _, err := f.v.Rotate(t.Context(), job, ""); !errors.Is(err, ErrRotating) {
			t.Errorf("Rotate = %v, want %v", err, ErrRotating)
		}
		close(gate)
		if err := <-done; err != nil || f.u.n != 2 {
			t.Errorf("Rotate = %v; %d keys", err, f.u.n)
		}
		if err := f.end(job); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.wantNothing("after the end")
	})
}

// An invalid answer of a provisioner never replaces the job's credentials.
func TestRotationHasANewValueForEachID(t *testing.T) {
	held := func() *grant {
		return &grant{row: row{Parts: []part{{ID: "a", Upstream: "1"}, {ID: "b", Upstream: "2"}}}, values: []Secret{"value-one", "value-two"}}
	}
	one := func(id string, value Secret) Credential { return Credential{ID: id, Value: value} }
	for name, x := range map[string]struct {
		list    []Credential
		ok      bool
		refused bool
	}{
		"others":       {[]Credential{one("x", "value-three"), one("y", "value-four")}, true, false},
		"by their ids": {[]Credential{one("b", "value-four"), one("a", "value-three")}, true, false},
		"too few":      {[]Credential{one("a", "value-three")}, false, false},
		"the same":     {[]Credential{one("a", "value-one"), one("b", "value-two")}, false, true},
		"one the same": {[]Credential{one("a", "value-three"), one("b", "value-two")}, false, false},
	} {
		err := held().match(x.list)
		_, refused := errors.AsType[*Refused](err)
		if (err == nil) != x.ok || refused != x.refused {
			t.Errorf("%s: match = %v, want accepted %v, refused %v", name, err, x.ok, x.refused)
		}
		if x.ok && (x.list[0].ID != "a" || x.list[1].ID != "b" || x.list[0].Value != "value-three") {
			t.Errorf("%s: the matched list is %v, want a with its new value, then b", name, x.list)
		}
	}
	old := held().row.replaced(&row{Parts: []part{{ID: "a", Upstream: "1"}, {ID: "b", Upstream: "3"}}})
	if len(old.Parts) != 1 || old.Parts[0].Upstream != "2" {
		t.Errorf("to revoke is %v, want not the one whose handle is in use", old.Parts)
	}
}

// Replaced credentials can be forgotten while the job is active with their successors.
func TestForgetAfterRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		defer func() { f.v.Close() }()
		f.u.set(nil, func() error { return errors.New("no") })
		job := f.live(t)
		if err := f.forget(t, job, "gw"); !errors.Is(err, ErrActive) {
			t.Errorf("Forget of what is in use = %v, want %v", err, ErrActive)
		}
		if err := f.forget(t, job, "g"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Forget of another provisioner's = %v", err)
		}
		for range 2 {
			if _, err := f.v.Rotate(t.Context(), job, ""); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if f.rows() != 3 || f.unrevoked() != 2 {
			t.Errorf("%d rows, gauge %d: want two that are replaced", f.rows(), f.unrevoked())
		}
		var seen []string
		if err := f.v.List(t.Context(), func(e Entry) bool { seen = append(seen, fmt.Sprint(e.Generation, e.State)); return true }); err != nil || len(seen) != 3 {
			t.Errorf("listed are %v, %v", seen, err)
		}
		if err := f.forget(t, job, "gw"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lastRetry)
		if f.rows() != 1 || f.unrevoked() != 0 || !f.u.serves(job) {
			t.Errorf("%d rows, gauge %d after Forget: want that of the job", f.rows(), f.unrevoked())
		}
	})
}
