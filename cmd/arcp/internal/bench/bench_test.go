package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/transport"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// peers has, for each dialect, the runtime's side: it decodes frames of the generator and makes events.
var peers = map[string]func(t *testing.T) peer{
	RFC: func(*testing.T) peer {
		return peer{arcp.Decode, func(env arcp.Envelope, seq uint64) []byte {
			env.ARCP, env.SessionID, env.EventSeq = arcp.Version, "sess_1", seq
			return env.Append(nil)
		}}
	},
	Draft: func(t *testing.T) peer {
		open := dialectNamed(t, Draft).openFrame(&Server{Token: "token"})
		codec, err := draft.NewServerCodec(open)
		if err == nil {
			_, err = codec.Decode(open)
		}
		if err == nil {
			accepted := arcp.Frame(arcp.SessionAccepted, arcp.SessionAcceptedPayload{SessionID: "sess_1"})
			err = codec.AppendAnswer(new(draft.Frames), time.Now(), &accepted)
		}
		if err != nil {
			t.Fatal(err)
		}
		return peer{codec.Decode, func(env arcp.Envelope, seq uint64) []byte {
			e := draft.EventOf(&env)
			frame, err := codec.AppendEvent(nil, seq, "", &e)
			if err != nil {
				t.Fatal(err)
			}
			return frame
		}}
	},
}

type peer struct {
	decode func(frame []byte) (arcp.Envelope, error)
	event  func(env arcp.Envelope, seq uint64) []byte // encodes an event of a job
}

func dialectNamed(t *testing.T, name string) *dialect {
	t.Helper()
	d, err := lookupDialect(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// inEachDialect runs a test with the client's and the runtime's side of each dialect.
func inEachDialect(t *testing.T, test func(t *testing.T, d *dialect, p peer)) {
	for _, name := range Dialects() {
		t.Run(name, func(t *testing.T) { test(t, dialectNamed(t, name), peers[name](t)) })
	}
}

func TestScanFindsMembersOfEvents(t *testing.T) {
	at := time.Date(2026, 5, 9, 23, 59, 58, 123000000, time.UTC)
	log := arcp.Frame(arcp.Log, arcp.LogPayload{Level: "info", Message: `"type":"job.failed","event_seq":99,"kind":"status"`})
	event := func(id arcp.MessageID, t arcp.Type, payload string) arcp.Envelope {
		return arcp.Envelope{ID: id, Type: t, Timestamp: at, JobID: "job_1", Payload: arcp.Raw(payload)}
	}
	inEachDialect(t, func(t *testing.T, d *dialect, p peer) {
		frame := p.event(event("msg_1", arcp.Log, string(log.Payload)), 1234)
		if !d.isEvent(typeOf(frame), frame) {
			t.Errorf("%s is not an event", frame)
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
		started := p.event(event("msg_2", arcp.JobStarted, `{}`), 1235)
		if d.isEvent(typeOf(started), started) {
			t.Errorf("%s is an event", started)
		}
		completed := p.event(event("msg_3", arcp.JobCompleted, `{"value":1}`), 1236)
		if got := string(typeOf(completed)); got != d.completed {
			t.Errorf("type = %q, want %q", got, d.completed)
		}
		failed := p.event(event("msg_4", arcp.JobFailed, `{"code":"INTERNAL","message":"m"}`), 1237)
		if !d.isRefusal(typeOf(failed)) {
			t.Errorf("%s is not a refusal", failed)
		}
	})
	for _, bad := range []string{"", "{}", `{"type":"`, `{"timestamp":"2026-05-09T23:59:58Z"}`} {
		if typeOf([]byte(bad)) != nil || seqOf([]byte(bad)) != 0 {
			t.Errorf("%q has a type or a number", bad)
		}
		if _, ok := clockOf([]byte(bad)); ok {
			t.Errorf("%q has a clock", bad)
		}
	}
	micros := []byte(`{"timestamp":"2026-05-09T00:00:01.000002Z"}`)
	if clock, ok := clockOf(micros); !ok || clock != time.Second+2*time.Microsecond {
		t.Errorf("clock = %s, %t, want 1.000002s", clock, ok)
	}
}

func TestPreparedFramesHaveNewIDs(t *testing.T) {
	inEachDialect(t, func(t *testing.T, d *dialect, p peer) {
		echo := d.invoke("demo.echo", `{"n":1}`)
		seen := map[arcp.MessageID]bool{}
		for range 3 {
			env, err := p.decode(echo.next())
			if err != nil || env.Type != arcp.ToolInvoke || seen[env.ID] {
				t.Fatalf("frame = %+v, %v, want a submit with a new id", env, err)
			}
			seen[env.ID] = true
			submit, err := arcp.DecodePayload[arcp.ToolInvokePayload](&env)
			if err != nil || submit.Tool != "demo.echo" || string(submit.Arguments) != `{"n":1}` {
				t.Errorf("payload = %+v, %v, want demo.echo with its arguments", submit, err)
			}
		}
		sub := d.jobSubscription()
		env, err := p.decode(d.prepare(sub.request, fmt.Sprintf(sub.payload, "job_1")).next())
		if err != nil || env.Type != arcp.JobSubscribe {
			t.Fatalf("frame = %+v, %v, want job.subscribe", env, err)
		}
		if follow, err := arcp.DecodePayload[arcp.JobSubscribePayload](&env); err != nil || follow.JobID != "job_1" || !follow.History {
			t.Errorf("payload = %+v, %v, want job_1 with its history", follow, err)
		}
		env, err = p.decode(d.page(100, `a"b`).next())
		if err != nil || env.Type != arcp.SessionListJobs {
			t.Fatalf("frame = %+v, %v, want session.list_jobs", env, err)
		}
		if page, err := arcp.DecodePayload[arcp.SessionListJobsPayload](&env); err != nil || *page.Limit != 100 || page.Cursor != `a"b` {
			t.Errorf("payload = %+v, %v, want 100 jobs at the cursor", page, err)
		}
		env, err = p.decode(d.closeFrame())
		if err != nil || env.Type != arcp.SessionClose {
			t.Errorf("frame = %+v, %v, want session.close", env, err)
		}
		if _, err := draft.NewServerCodec(d.openFrame(&Server{Token: "token"})); (err == nil) != (d.name == Draft) {
			t.Error("the first frame opens a session of the other dialect")
		}
		if _, err := arcp.DecodeDraft(d.openFrame(&Server{Token: `"quoted"`})); err != nil {
			t.Errorf("the first frame with a token that has quotes: %v", err)
		}
	})
}

func TestAckIsDueAfterItsNumberOfEvents(t *testing.T) {
	inEachDialect(t, func(t *testing.T, d *dialect, p peer) {
		a := d.newAcks(128)
		if a.due(127) != nil {
			t.Error("an acknowledgement is due before 128 events")
		}
		for _, seq := range []uint64{128, 300} {
			env, err := p.decode(a.due(seq))
			if err != nil {
				t.Fatal(err)
			}
			ack, err := arcp.DecodePayload[arcp.SessionAckPayload](&env)
			if err != nil || env.Type != arcp.SessionAck || ack.LastProcessedSeq != seq {
				t.Errorf("ack = %s %+v, %v, want %d", env.Type, ack, err, seq)
			}
		}
		if a.due(301) != nil {
			t.Error("an acknowledgement is due again at once")
		}
	})
}

func TestNextCursorOfAPage(t *testing.T) {
	for _, next := range []string{"", "cursor_1"} {
		cursor := &next
		if next == "" {
			cursor = nil // the last page
		}
		for _, page := range []any{arcp.SessionJobsPayload{NextCursor: cursor}, draft.JobsPayload{NextCursor: cursor}} {
			frame, err := arcp.Marshal(page)
			if got := string(member(frame, nextKey)); err != nil || got != next {
				t.Errorf("cursor of %s = %q, %v, want %q", frame, got, err, next)
			}
		}
	}
}

// A row that a dialect cannot express starts no runtime and says why.
func TestAbsentRowStartsNoRuntime(t *testing.T) {
	o := Options{Modes: []string{Memory}, Rows: []string{"filtered"}, Dialect: Draft, OnRow: func(Result) {},
		Start: func(context.Context, string) (*Server, error) { return nil, errRefused }}
	results, err := Run(t.Context(), o)
	if err != nil || len(results) != 1 || results[0].Absent == "" || results[0].Dialect != Draft {
		t.Errorf("results = %+v, %v, want a row that says why it is absent", results, err)
	}
	for _, d := range dialects {
		for name := range d.absent {
			if !slices.Contains(Rows(), name) {
				t.Errorf("%s: there is no row %s", d.name, name)
			}
		}
	}
	o.Dialect = "other"
	if _, err := Run(t.Context(), o); err == nil {
		t.Error("an unknown dialect is measured")
	}
}

func TestLongRowIsMeasuredOnlyOnRequestAndDurable(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want bool
	}{{Options{}, false}, {Options{Long: true}, true}, {Options{Rows: []string{"sustained"}}, true}, {Options{Long: true, Rows: []string{"jobs"}}, false}} {
		if got := c.o.selects(lookupRow("sustained")); got != c.want {
			t.Errorf("rows %q, long %t: selected = %t, want %t", c.o.Rows, c.o.Long, got, c.want)
		}
	}
	rfc := dialectNamed(t, RFC)
	if lookupRow("sustained").absent(Memory, rfc) == "" || lookupRow("sustained").absent(Durable, rfc) != "" {
		t.Error("the row is not only durable")
	}
}

func TestTitlesSayTheWindowAndTheDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "12s", 5 * time.Second: "1m0s", 20 * time.Second: "1m0s"} {
		o := Options{Window: 7, Duration: d}
		if got := o.title(lookupRow("sustained")); got != "echo jobs/s, 64 sessions, 7 in flight each, for "+want {
			t.Errorf("title = %q, want 7 in flight for %s", got, want)
		}
	}
}

func TestTimelineCountsTheOperationsOfAnInterval(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := timeline{{at(1), 1}, {at(2), 2}, {at(3), 3}, {at(4), 4}}
	if got := all.between(at(1), at(3)); !slices.Equal(got, []time.Duration{2, 3}) {
		t.Errorf("operations = %v, want those that ended after 1 s and until 3 s", got)
	}
	if got := rate(count{at(1), 10}, count{at(3), 30}); got != 10 {
		t.Errorf("rate = %g, want 10", got)
	}
}

// A bounded number of jobs ends for each size of the window, also if the last submits do not fill half a window.
func TestEchoesEnd(t *testing.T) {
	inEachDialect(t, func(t *testing.T, d *dialect, p peer) {
		for _, n := range []int{1, 7, 40} {
			for _, window := range []int{1, 5, 16} {
				client, server := transport.Pipe(transport.Limits{ReadLimit: readLimit})
				submits := make(chan int)
				go func() { submits <- completeSubmits(server, d, p) }()
				var completed atomic.Int64
				err := (&session{client, d}).echoes(n, window, &completed)
				client.Abort()
				if got := <-submits; err != nil || got != n || completed.Load() != int64(n) {
					t.Errorf("%d jobs, window %d: %d submitted, %d completed, %v", n, window, got, completed.Load(), err)
				}
			}
		}
	})
}

// completeSubmits answers each submit with the end of a job, until the end of the connection, and returns their number.
func completeSubmits(conn transport.Conn, d *dialect, p peer) (n int) {
	for {
		frame, err := conn.Read()
		if err != nil {
			return n
		}
		if string(typeOf(frame)) != d.submit {
			continue
		}
		n++
		end := arcp.Envelope{ID: "msg_1", Type: arcp.JobCompleted, Timestamp: time.Unix(0, 0), JobID: "job_1", Payload: arcp.Raw(`{"value":1}`)}
		if conn.Write(p.event(end, uint64(n))) != nil || conn.Flush() != nil {
			return n
		}
	}
}

// A schedule or a workflow has ended when its own end comes, and not with the end of its job.
func TestParentsEnd(t *testing.T) {
	for name, row := range map[string]struct {
		run  func(s *session, n int, ended *atomic.Int64) error
		each int64 // counted for each end
	}{"schedules": {(*session).schedules, 1}, "workflows": {(*session).workflows, workflowSteps}} {
		inEachDialect(t, func(t *testing.T, d *dialect, p peer) {
			client, server := transport.Pipe(transport.Limits{ReadLimit: readLimit})
			submits := make(chan int)
			go func() { submits <- endParents(server, d, p) }()
			var ended atomic.Int64
			err := row.run(&session{client, d}, 100, &ended)
			client.Abort()
			if got := <-submits; err != nil || got != 100 || ended.Load() != 100*row.each {
				t.Errorf("%s: %d submitted, counted %d, %v, want 100 of %d each", name, got, ended.Load(), err, row.each)
			}
		})
	}
}

// endParents answers each submit with a job and the ends of its child and of the job, until the end of the
// connection, and returns the number of submits.
func endParents(conn transport.Conn, d *dialect, p peer) (n int) {
	for {
		frame, err := conn.Read()
		if err != nil {
			return n
		}
		if string(typeOf(frame)) != d.submit {
			continue
		}
		n++
		err = conn.Write(fmt.Appendf(nil, `{"type":%q,"job_id":"job_s"}`, d.accepted))
		for i, job := range []arcp.JobID{"job_1", "job_s"} {
			end := arcp.Envelope{ID: "msg_1", Type: arcp.JobCompleted, Timestamp: time.Unix(0, 0), JobID: job, Payload: arcp.Raw(`{"value":1}`)}
			err = errors.Join(err, conn.Write(p.event(end, uint64(2*n+i))))
		}
		if errors.Join(err, conn.Flush()) != nil {
			return n
		}
	}
}

func TestAwaitCloseReadsUpToTheCloseFrame(t *testing.T) {
	text := func(payload string) string {
		if len(payload) < 126 {
			return "\x81" + string(rune(len(payload))) + payload
		}
		return "\x81\x7e" + string(binary.BigEndian.AppendUint16(nil, uint16(len(payload)))) + payload
	}
	const ping, end = "\x89\x00", "\x88\x02\x03\xe8"
	long := text(`{"type":"session.accepted","payload":"` + strings.Repeat("x", 5000) + `"}`)
	closed := text(`{"type":"session.closed"}`)
	for _, c := range []struct {
		frames string
		want   error
	}{
		{long + ping + closed + end + "rest", nil},
		{long + end, errRefused},
		{long + closed, io.EOF},
		{long[:len(long)-1], io.EOF},
		{"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00", errTooLarge},
	} {
		if err := awaitClose(bufio.NewReader(strings.NewReader(c.frames)), "session.closed"); !errors.Is(err, c.want) {
			t.Errorf("%.60q: err = %v, want %v", c.frames, err, c.want)
		}
	}
}

func TestTogetherReturnsTheFirstError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &run{ctx: ctx, cancel: cancel}
	waits := func() error {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := r.together([]func() error{waits, func() error { return errRefused }, waits}); err != errRefused {
		t.Errorf("err = %v, want the failure that ended the other tasks", err)
	}
}

func TestPercentileIsTheSampleOfItsRank(t *testing.T) {
	var samples []time.Duration
	for i := 100; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 51, 0.99: 100, 0.999: 100, 1: 100} {
		if got := percentile(samples, p); got != want {
			t.Errorf("percentile %g = %g, want %g", p, got, want)
		}
	}
	for i := 101; i <= 2000; i++ {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{0.5: 1001, 0.99: 1981, 0.999: 1999} {
		if got := percentile(samples, p); got != want {
			t.Errorf("percentile %g of 2,000 = %g, want %g", p, got, want)
		}
	}
	if got := percentile([]time.Duration{1500 * time.Microsecond}, 0.999); got != 1.5 {
		t.Errorf("percentile of one sample = %g, want the sample, 1.5", got)
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("the percentile of nothing is not 0")
	}
}

func TestInParallelStopsAtTheFirstError(t *testing.T) {
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

func TestResourcesOfThisProcessAreMeasured(t *testing.T) {
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

func TestTableShowsEveryKindOfResult(t *testing.T) {
	var b strings.Builder
	err := WriteTable(&b, []Result{
		{Row: "jobs", Mode: Memory, Title: "echo jobs/s, 64 sessions", Value: 51234.6, Unit: "jobs/s", Target: 50_000, Ratio: 1.025,
			Details: map[string]float64{"server_cpu": 0.994, "generator_cpu": 0.2}},
		{Row: "roundtrip", Mode: Durable, Title: "one session", Value: 0.3456, Unit: "ms", Target: 0.6, Ratio: 1.74},
		{Row: "idle", Mode: Durable, Title: "RSS an idle session", Value: 12.34, Unit: "kB", Target: 14, Ratio: 1.13},
		{Row: "jobs", Mode: Durable, Title: "echo jobs/s, 64 sessions", Target: 20_000, Error: "connection lost"},
		{Row: "filtered", Mode: Durable, Title: "fan-out by subscribe", Target: 700_000, Absent: "the dialect has no filters"},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "table.txt", b.String())
}

// wantGolden compares a text with a file of testdata.
func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != got {
		t.Errorf("%s differs (-update rewrites it): %v\n%s", path, err, got)
	}
}

func TestRatioIsAboveOneBeyondTheTarget(t *testing.T) {
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
