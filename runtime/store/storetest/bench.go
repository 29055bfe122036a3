package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// Bench measures the operations of a store that the runtime uses most.
func Bench(b *testing.B, open Open) {
	b.Run("Events", func(b *testing.B) { benchEvents(b, open) })
	b.Run("SingleEvents", func(b *testing.B) { benchSingleEvents(b, open) })
	b.Run("EchoJobs", func(b *testing.B) { benchEchoJobs(b, open) })
	b.Run("EchoJobsGrouped", func(b *testing.B) { benchEchoGrouped(b, open) })
	b.Run("OneWriter", func(b *testing.B) { benchOneWriter(b, open) })
	b.Run("Replay", func(b *testing.B) { benchReplay(b, open) })
	b.Run("ReplayStart", func(b *testing.B) { benchReplayStart(b, open) })
	b.Run("FeedStart", func(b *testing.B) { benchFeedStart(b, open) })
	b.Run("FeedPosition", func(b *testing.B) { benchFeedPosition(b, open) })
	b.Run("JobsPage", func(b *testing.B) { benchJobsPage(b, open) })
	b.Run("FollowLong", func(b *testing.B) { benchFollowLong(b, open) })
}

// payload is the payload of events with a body of a little over 200 bytes.
var payload = []byte(`{"current":12345,"total":99999}`)

type template struct{ body []byte }

func newTemplate(id arcp.JobID) *template {
	return &template{store.NewEvent(arcp.JobProgress, t0, &store.JobContext{JobID: id, TraceID: "0af7651916cd43dd"}, "", payload).Body}
}

// slab returns n events in few allocations.
func (t *template) slab(n int) []*store.Event {
	events, bodies, out := make([]store.Event, n), make([]byte, 0, n*len(t.body)), make([]*store.Event, n)
	for i := range events {
		k := len(bodies)
		bodies = append(bodies, t.body...)
		events[i] = store.Event{Type: arcp.JobProgress, Time: t0, Body: bodies[k:len(bodies):len(bodies)]}
		out[i] = &events[i]
	}
	return out
}

// sessionsAndJobs creates n sessions with a job each.
func sessionsAndJobs(d *db, n int) (jobs []arcp.JobID, templates []*template) {
	for range n {
		s := d.session(arcp.NewSessionID())
		id := d.submit(arcp.NewJobID(), s)
		jobs, templates = append(jobs, id), append(templates, newTemplate(id))
	}
	return jobs, templates
}

// benchEvents commits batches of 512 events of 16 jobs in 16 writes and trims
// each session now and then.
func benchEvents(b *testing.B, open Open) {
	benchBatches(b, open, 16, 32)
}

// benchSingleEvents is benchEvents with one write for each event.
func benchSingleEvents(b *testing.B, open Open) {
	benchBatches(b, open, 512, 1)
}

func benchBatches(b *testing.B, open Open, n, size int) {
	d := openEmpty(b, open)
	jobs, templates := sessionsAndJobs(d, 16)
	var sessions []arcp.SessionID
	for _, id := range jobs {
		sessions = append(sessions, d.job(id).Session)
	}
	results := make([]store.Result, n+16)
	var m meter
	round := uint64(0)
	for b.Loop() {
		writes := make([]*store.Write, 0, n+16)
		for i := range n {
			writes = append(writes, store.NewWrite(&store.AppendEvents{Job: jobs[i%16], Attempt: 1, Events: templates[i%16].slab(size)}))
		}
		if round++; round%4 == 0 {
			for _, s := range sessions {
				writes = append(writes, store.NewWrite(&store.TrimSession{Session: s, Seq: (round - 2) * 32}))
			}
		}
		m.start()
		if err := d.Commit(writes, results[:len(writes)]); err != nil {
			b.Fatal(err)
		}
		m.stop()
	}
	if want := round * uint64(n) / 16 * uint64(size); d.row(sessions[0]).LastSeq != want {
		b.Errorf("LastSeq = %d, want %d", d.row(sessions[0]).LastSeq, want)
	}
	m.report(b, b.N*n*size, "events")
	b.ReportMetric(float64(len(templates[0].body)), "B/event")
}

// echo returns the two writes of an echo job.
func echo(s arcp.SessionID, principal string, types ...arcp.Type) [2]*store.Write {
	row := &store.Job{ID: arcp.NewJobID(), Principal: principal, Session: s, SubmitID: arcp.NewMessageID(), Agent: "demo.echo@1",
		Arguments: arcp.Raw(`{"message":"hello"}`), TraceID: "0af7651916cd43dd8448eb211c80319c", CreatedAt: time.Now(), State: arcp.StateAccepted}
	c := &store.JobContext{JobID: row.ID, TraceID: row.TraceID}
	event := func(t arcp.Type) *store.Event {
		return store.NewEvent(t, row.CreatedAt, c, "", []byte(`{"result":{"message":"hello"}}`))
	}
	return [2]*store.Write{
		store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: []*store.Event{event(arcp.JobAccepted)}}),
		store.NewWrite(&store.AppendEvents{Job: row.ID, Attempt: 1,
			Events: []*store.Event{event(arcp.JobStarted), event(arcp.JobCompleted)}, State: arcp.StateCompleted}),
	}
}

// benchEchoJobs commits 32 echo jobs of 32 sessions at a time: their submits together
// with the ends of the 32 jobs before.
func benchEchoJobs(b *testing.B, open Open) {
	d := openEmpty(b, open)
	var sessions []arcp.SessionID
	for range 32 {
		sessions = append(sessions, d.session(arcp.NewSessionID()))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	results := make([]store.Result, 64)
	var ends []*store.Write
	var m meter
	for b.Loop() {
		writes := append(make([]*store.Write, 0, 64), ends...)
		ends = ends[:0]
		for _, s := range sessions {
			job := echo(s, "ann")
			writes, ends = append(writes, job[0]), append(ends, job[1])
		}
		m.start()
		if err := d.Commit(writes, results[:len(writes)]); err != nil {
			b.Fatal(err)
		}
		m.stop()
	}
	d.batch(ends...)
	clear(results)
	ends = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	m.report(b, b.N*32, "jobs")
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N*32), "heap-B/job")
	runtime.KeepAlive(d)
}

// benchEchoGrouped runs echo jobs of 64 submitters through one committer. Each submitter
// waits for its two commits.
func benchEchoGrouped(b *testing.B, open Open) {
	d := openEmpty(b, open)
	c := startCommitter(d)
	work := make(chan [2]*store.Write, 64)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for job := range work {
				c.do(job[0])
				c.do(job[1])
			}
		})
	}
	var sessions []arcp.SessionID
	for range 64 {
		id := arcp.NewSessionID()
		c.do(store.NewWrite(&store.PutSession{Row: sessionRow(id)}))
		sessions = append(sessions, id)
	}
	i := 0
	var m meter
	m.start()
	for b.Loop() {
		i++
		work <- echo(sessions[i%64], "ann")
	}
	close(work)
	wg.Wait()
	m.stop()
	c.stop()
	m.report(b, b.N, "jobs")
}

func benchOneWriter(b *testing.B, open Open) {
	d := openEmpty(b, open)
	jobs, templates := sessionsAndJobs(d, 1)
	results := make([]store.Result, 1)
	var lat []time.Duration
	for b.Loop() {
		w := store.NewWrite(&store.AppendEvents{Job: jobs[0], Attempt: 1, Events: templates[0].slab(1)})
		start := time.Now()
		if err := d.Commit([]*store.Write{w}, results); err != nil {
			b.Fatal(err)
		}
		lat = append(lat, time.Since(start))
	}
	reportPercentiles(b, lat)
}

// manyEvents adds a million events of 16 jobs to the log of a session.
func manyEvents(d *db, jobs int) arcp.SessionID {
	s := d.session(arcp.NewSessionID())
	var names []arcp.JobID
	var templates []*template
	for range jobs {
		id := d.submit(arcp.NewJobID(), s)
		names, templates = append(names, id), append(templates, newTemplate(id))
	}
	for range 1_000_000 / 512 {
		writes := make([]*store.Write, jobs)
		for i := range writes {
			writes[i] = store.NewWrite(&store.AppendEvents{Job: names[i], Attempt: 1, Events: templates[i].slab(512 / jobs)})
		}
		d.batch(writes...)
	}
	return s
}

func benchReplay(b *testing.B, open Open) {
	d := openEmpty(b, open)
	s := manyEvents(d, 16)
	n := 0
	var heap uint64
	for b.Loop() {
		err := d.SessionEvents(context.Background(), s, 0, func(store.Delivery) bool {
			if n++; n%900_000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = m.HeapAlloc
			}
			return true
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(heap)/1e6, "heap-MB")
}

// where are positions in a log of a million events. A read must cost the same from each.
var where = []struct {
	name  string
	after uint64
}{{"first", 0}, {"middle", 500_000}, {"last", 999_900}}

// benchReplayStart reads one event of a million.
func benchReplayStart(b *testing.B, open Open) {
	d := openEmpty(b, open)
	s := manyEvents(d, 16)
	for _, at := range where {
		b.Run(at.name, func(b *testing.B) {
			for b.Loop() {
				err := d.SessionEvents(context.Background(), s, at.after, func(store.Delivery) bool { return false })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchFeedStart reads one event of a feed of a million.
func benchFeedStart(b *testing.B, open Open) {
	d := openEmpty(b, open)
	manyEvents(d, 16)
	for _, at := range where {
		b.Run(at.name, func(b *testing.B) {
			for b.Loop() {
				err := d.Feed(context.Background(), "ann", at.after, func(store.FeedEvent) bool { return false })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchFeedPosition searches a feed of a million for the id of an event.
func benchFeedPosition(b *testing.B, open Open) {
	d := openEmpty(b, open)
	manyEvents(d, 16)
	var id arcp.MessageID
	err := d.Feed(context.Background(), "ann", 700_000, func(x store.FeedEvent) bool { id = x.Event.ID(); return false })
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if at, err := d.FeedPosition(context.Background(), "ann", id); err != nil || at != 700_001 {
			b.Fatal(at, err)
		}
	}
}

// endedEcho returns the write of an echo job without a session that ends at once.
func endedEcho(principal string) *store.Write {
	job := echo("", principal)
	submit, end := store.Find[*store.SubmitJob](job[0]), store.Find[*store.AppendEvents](job[1])
	return store.NewWrite(submit, &store.AppendEvents{Events: end.Events[1:], State: end.State})
}

// benchJobsPage reads pages of 100 of a million jobs, and the 10 live jobs among them.
func benchJobsPage(b *testing.B, open Open) {
	d := openEmpty(b, open)
	const jobs, batch = 1_000_000, 5000
	results := make([]store.Result, batch)
	var first, last *store.Job
	for n := 0; n < jobs; n += batch {
		writes := make([]*store.Write, batch)
		for i := range writes {
			writes[i] = endedEcho("ann")
			if n+i == jobs-102 {
				last = store.Find[*store.SubmitJob](writes[i]).Row
			}
		}
		if first == nil {
			first = store.Find[*store.SubmitJob](writes[0]).Row
		}
		if err := d.Commit(writes, results); err != nil {
			b.Fatal(err)
		}
		if n%(jobs/10) == 0 {
			d.do(echo("", "ann")[0])
		}
	}
	for name, j := range map[string]*store.Job{"start": first, "end": last} {
		b.Run(name, func(b *testing.B) {
			q := store.JobQuery{Principal: "ann", AfterTime: j.CreatedAt, AfterID: j.ID}
			for b.Loop() {
				if n := len(ids(d, q, 100)); n != 100 {
					b.Fatalf("%d jobs", n)
				}
			}
		})
	}
	b.Run("live", func(b *testing.B) {
		for b.Loop() {
			if n := len(ids(d, store.JobQuery{Principal: "ann", Live: true}, 100)); n != 10 {
				b.Fatalf("%d jobs", n)
			}
		}
	})
}

// benchFollowLong follows a job with a million events.
func benchFollowLong(b *testing.B, open Open) {
	d := openEmpty(b, open)
	s := manyEvents(d, 1)
	name := arcp.JobID(jobOf(d.firstEvent(s).Event))
	i := 0
	for b.Loop() {
		i++
		other := d.session(arcp.SessionID(fmt.Sprint("sess_", i)))
		d.do(store.NewWrite(&store.Follow{Session: other, Job: name, CorrelationID: "c"}))
	}
}

// firstEvent returns the first event in a session's log.
func (d *db) firstEvent(id arcp.SessionID) (first store.Delivery) {
	err := d.SessionEvents(context.Background(), id, 0, func(x store.Delivery) bool { first = x; return false })
	if err != nil {
		d.Fatal(err)
	}
	return first
}

func jobOf(e *store.Event) string {
	_, rest, _ := strings.Cut(string(e.Body), `"job_id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}
