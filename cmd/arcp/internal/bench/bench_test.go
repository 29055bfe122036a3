package bench

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// event is a frame as the runtime makes it: the payload comes last.
func event(seq uint64, at time.Time) []byte {
	env := arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: `"type":"job.failed","event_seq":99`})
	env.ARCP, env.ID, env.SessionID, env.JobID = arcp.Version, "msg_1", "sess_1", "job_1"
	env.EventSeq, env.Timestamp = seq, at
	return env.Append(nil)
}

func TestScan(t *testing.T) {
	at := time.Date(2026, 5, 9, 23, 59, 58, 123456000, time.UTC)
	frame := event(1234, at)
	if got := string(typeOf(frame)); got != "log" {
		t.Errorf("type = %q, want log", got)
	}
	if got := seqOf(frame); got != 1234 {
		t.Errorf("event_seq = %d, want 1234", got)
	}
	if got := string(member(frame, jobKey)); got != "job_1" {
		t.Errorf("job_id = %q, want job_1", got)
	}
	clock, ok := clockOf(frame)
	if want := at.Sub(at.Truncate(24 * time.Hour)); !ok || clock != want {
		t.Errorf("clock = %s, %t, want %s", clock, ok, want)
	}
	for later, why := range map[time.Duration]string{time.Second: "the same day", 5 * time.Second: "after midnight"} {
		if got := since(at.Add(later), clock); got != later {
			t.Errorf("%s: since = %s, want %s", why, got, later)
		}
	}
	for _, bad := range []string{"", "{}", `{"type":"`, `{"timestamp":"2026-05-09T23:59:58Z"}`} {
		if typeOf([]byte(bad)) != nil || seqOf([]byte(bad)) != 0 {
			t.Errorf("%q has a type or a number", bad)
		}
		if _, ok := clockOf([]byte(bad)); ok {
			t.Errorf("%q has a clock", bad)
		}
	}
}

func TestPreparedFrames(t *testing.T) {
	echo := invoke("demo.echo", `{"n":1}`)
	seen := map[arcp.MessageID]bool{}
	for range 3 {
		env, err := arcp.Decode(echo.next())
		if err != nil || env.Type != arcp.ToolInvoke || seen[env.ID] {
			t.Fatalf("frame = %+v, %v, want tool.invoke with a new id", env, err)
		}
		seen[env.ID] = true
	}
	if _, err := arcp.Decode(openFrame(&Server{Token: `"quoted"`})); err != nil {
		t.Error(err)
	}
}

func TestAcks(t *testing.T) {
	a := newAcks(128)
	if a.due(127) != nil {
		t.Error("an acknowledgement is due before 128 events")
	}
	for _, seq := range []uint64{128, 300} {
		env, err := arcp.Decode(a.due(seq))
		if err != nil {
			t.Fatal(err)
		}
		p, err := arcp.DecodePayload[arcp.SessionAckPayload](&env)
		if err != nil || p.LastProcessedSeq != seq {
			t.Errorf("ack = %+v, %v, want %d", p, err, seq)
		}
	}
	if a.due(301) != nil {
		t.Error("an acknowledgement is due again at once")
	}
}

func TestPercentile(t *testing.T) {
	var samples []time.Duration
	for i := 100; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := percentile(samples, p); got != want {
			t.Errorf("percentile %g = %g, want %g", p, got, want)
		}
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("the percentile of nothing is not 0")
	}
}

func TestInParallelStops(t *testing.T) {
	err := inParallel(4, 1000, func(i int) error {
		if i == 10 {
			return errRefused
		}
		return nil
	})
	if err != errRefused {
		t.Errorf("err = %v, want the failure", err)
	}
}

func TestOwnProcess(t *testing.T) {
	if rss, err := residentMemory(os.Getpid()); err != nil || rss < 1<<20 {
		t.Errorf("rss = %d, %v, want some megabytes", rss, err)
	}
	if selfCPU() <= 0 {
		t.Error("this process has used no CPU")
	}
	if processCPU(os.Getpid()) < 0 || processCPU(-1) != 0 {
		t.Error("the CPU time of processes is wrong")
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	err := WriteTable(&b, []Result{
		{Row: "jobs", Mode: Memory, Title: "echo jobs/s, 64 sessions", Value: 51234.6, Unit: "jobs/s", Target: 50_000, Ratio: 1.025,
			Details: map[string]float64{"server_cpu": 0.994, "generator_cpu": 0.2}},
		{Row: "roundtrip", Mode: Durable, Title: "one session", Value: 0.3456, Unit: "ms", Target: 0.6, Ratio: 1.74},
		{Row: "idle", Mode: Durable, Title: "RSS an idle session", Value: 12.34, Unit: "kB", Target: 14, Ratio: 1.13},
		{Row: "jobs", Mode: Durable, Title: "echo jobs/s, 64 sessions", Target: 20_000, Error: "connection lost"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != b.String() {
		t.Errorf("%s differs (-update rewrites it): %v\n%s", path, err, b.String())
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		less          bool
		value, target float64
		want          float64
	}{{false, 200, 100, 2}, {true, 5, 10, 2}, {true, 0, 10, 0}, {false, 1, 0, 0}} {
		if got := ratio(c.less, c.value, c.target); got != c.want {
			t.Errorf("ratio(%t, %g, %g) = %g, want %g", c.less, c.value, c.target, got, c.want)
		}
	}
}
