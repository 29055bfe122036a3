// Package bench measures a runtime from outside, over WebSockets.
//
// # Method
//
// The runtime is a process of its own on one core; the generator runs on the other cores. Each
// row has a new runtime and, in the durable mode, an empty data directory. The generator does
// little work per frame. It writes prepared frames and changes only the digits of the id. It
// finds the type and the event number in the first bytes of a received frame, without decoding
// JSON. A row counts frames when it has received them.
//
// The clients of a run speak one dialect of the protocol. The list names the messages of the RFC
// dialect. The table dialects has the messages of the draft dialect. A row that a dialect cannot
// express says so.
//
//   - jobs, jobs1, jobs1-1024: each session has a window of demo.echo jobs in flight and submits a
//     job for each job.completed. The row counts completed jobs. Its title contains the number of
//     sessions and the size of the window.
//   - schedules: each session schedules one demo.echo after 0 seconds at a time. The row counts
//     schedules that have ended, each with its job.
//   - events: each session runs one demo.emit without pause, with messages of 64 bytes, and
//     acknowledges each 128th event. The row counts log events.
//   - streams: as events, but with one demo.stream of a text stream. The row counts chunks. Its target
//     is nine tenths of the target of events.
//   - workflows: each session runs one workflow of ten demo.echo at a time, one after the other. The row
//     counts steps.
//   - artifacts-in, artifacts-out: each session puts or fetches artifacts of 1 MiB, one at a time. An
//     artifact that was put is released. The content is in binary frames. Before, the same content is
//     exchanged with a Baseline, and the target is 70 % of its rate. The details have the rate of the
//     baseline and the ratio to it.
//   - acks: as events, but with an acknowledgement of each event.
//   - fan-out, burst: one session runs demo.emit, and the other sessions have subscribed to
//     the job before. The rate is the number of deliveries, divided by the time from the
//     first to the last delivery. Every subscriber must receive every event. One row uses
//     job.subscribe, the other subscribe with a filter of the job.
//   - fan-out, paced: as burst, but with one event a millisecond. The latency is the time from
//     the timestamp of an event to its arrival. Timestamps of the draft dialect have milliseconds,
//     so its latencies are up to 1 ms too high.
//   - stalled: as paced, but the chunks of a stream, to 16 sessions by job.subscribe. Another
//     session has subscribed, too, and reads nothing.
//   - handshakes: TCP, WebSocket and session.open until session.accepted. Then the client
//     drops the connection.
//   - handshakes-closed: as handshakes, but then the client sends session.close, waits for
//     session.closed, answers the close frame, and waits for the end of the connection.
//   - round trip: one session, one demo.echo at a time, from the write of the submit to the
//     read of job.completed.
//   - mixed: 16 sessions with one demo.echo at a time. Beside them, every 10 ms, there are
//     a handshake that is closed as above and a page of 100 jobs of session.list_jobs. Another
//     session reads one event of 4 kB every 10 ms, of a demo.emit that emits ten in that time.
//     The row counts completed jobs. Its details have the percentiles of their round trips
//     and the number of handshakes, pages and read events.
//   - idle: the growth of the runtime's resident memory, divided by the number of opened
//     sessions. The runtime collects its heap before both measurements.
//   - finished: the growth of the runtime's resident memory, divided by the number of
//     demo.echo jobs between both measurements, 5,000 for each second of the duration. As many
//     jobs before the first measurement fill caches. The value depends on their number.
//   - sustained: as jobs, for 12 times the duration of the other rows, at most a minute. The
//     details have the rates of the first and the last sixth, and the ratio of the last to the
//     first. The row measures only the durable mode.
//
// Every row ends by itself. A CPU share is the CPU time of a process, divided by the elapsed
// time. A row shows the limit of the runtime only while the share of the generator is well below
// one.
package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/auth"
)

// Server is a runtime to measure.
type Server struct {
	URL, Admin string // URL of the WebSocket; base URL of the admin endpoints
	Token      auth.Secret
	PID        int
	Stop       func() error
}

// Modes of the store.
const (
	Memory  = "memory"
	Durable = "durable"
)

// Options of a run.
type Options struct {
	Modes    []string      // Memory, Durable
	Rows     []string      // names of Rows; nil: all rows
	Long     bool          // nil Rows includes the long rows
	Dialect  string        // one of Dialects; empty: RFC
	Duration time.Duration // of each measurement
	Window   int           // jobs in flight of each session
	Idle     int           // open sessions of the row idle

	// Start starts a runtime with demo tools for one row.
	Start func(ctx context.Context, mode string) (*Server, error)

	// StartBaseline starts a Baseline for one row, without Server.Admin.
	StartBaseline func(ctx context.Context, mode string) (*Server, error)

	// OnRow receives each result.
	OnRow func(Result)
}

// Result is one measured row.
type Result struct {
	Row     string             `json:"row"`
	Dialect string             `json:"dialect"`
	Mode    string             `json:"mode"`
	Title   string             `json:"title"`
	Value   float64            `json:"value"`
	Unit    string             `json:"unit"`
	Target  float64            `json:"target"`
	Ratio   float64            `json:"ratio"` // of value and target; 1 or more reaches the target
	Details map[string]float64 `json:"details,omitzero"`
	Absent  string             `json:"absent,omitzero"` // why the dialect or the mode does not have the row; then nothing is measured
	Error   string             `json:"error,omitzero"`
	Earlier *Earlier           `json:"earlier,omitzero"` // set by Compare
}

// row is a line of the table.
type row struct {
	name, title, unit string
	less              bool               // a lower value is better
	long              bool               // measured only by name or with Options.Long
	mode              string             // the only mode of the row; empty: both
	target            map[string]float64 // by mode; nil: no target
	measure           func(*run) (value float64, err error)
}

// Marks in the title of a row.
const (
	windowMark    = "{window}"    // Options.Window
	sustainedMark = "{sustained}" // the duration of the row sustained
)

var rows = []row{
	{name: "jobs", title: "echo jobs/s, 64 sessions, " + windowMark + " in flight each", unit: "jobs/s", measure: (*run).jobs},
	{name: "jobs1", title: "echo jobs/s, 64 sessions, 1 in flight each", unit: "jobs/s",
		target: targets(50_000, 20_000), measure: (*run).oneByOne},
	{name: "jobs1-1024", title: "echo jobs/s, 1,024 sessions, 1 in flight each", unit: "jobs/s", measure: (*run).oneByOneInMany},
	{name: "schedules", title: "schedules/s of one echo job, 64 sessions, 1 in flight each", unit: "schedules/s", measure: (*run).schedules},
	{name: "workflows", title: "workflow steps/s, 10 echo jobs one after the other, 16 sessions, 1 workflow each", unit: "steps/s",
		measure: (*run).workflows},
	{name: "events", title: "events/s, 16 sessions, ack each 128", unit: "events/s",
		target: targets(450_000, 350_000), measure: (*run).events},
	{name: "acks", title: "events/s, 16 sessions, ack each event", unit: "events/s",
		target: targets(360_000, 280_000), measure: (*run).acks},
	{name: "streams", title: "chunks/s of text streams, 16 sessions, ack each 128", unit: "chunks/s",
		target: targets(405_000, 315_000), measure: (*run).streams},
	{name: "fanout", title: "fan-out to 50 by job.subscribe, burst", unit: "deliveries/s",
		target: targets(750_000, 700_000), measure: (*run).fanout},
	{name: "filtered", title: "fan-out to 50 by subscribe, burst", unit: "deliveries/s",
		target: targets(750_000, 700_000), measure: (*run).filtered},
	{name: "paced", title: "fan-out to 50 by job.subscribe, paced 1,000 events/s, p99", unit: "ms", less: true,
		target: targets(5, 20), measure: (*run).paced},
	{name: "stalled", title: "stream of 1,000 chunks/s of 2 KiB to 16 sessions, beside one that reads nothing, p99", unit: "ms", less: true,
		target: targets(5, 20), measure: stalled},
	{name: "handshakes", title: "handshakes/s, 32 at once, connections dropped", unit: "handshakes/s",
		target: targets(12_500, 8_500), measure: (*run).handshakes},
	{name: "handshakes-closed", title: "handshakes/s, 32 at once, closed by session.close", unit: "handshakes/s",
		measure: (*run).closedHandshakes},
	{name: "roundtrip", title: "one session, 1 in flight, job round trip, p50", unit: "ms", less: true,
		target: targets(0.085, 0.6), measure: (*run).roundtrip},
	{name: "mixed", title: "echo jobs/s, 16 sessions, 1 in flight each, beside handshakes, a slow reader and job lists",
		unit: "jobs/s", measure: (*run).mixed},
	{name: "artifacts-in", title: "artifacts of 1 MiB put, 4 sessions, 1 in flight each", unit: "MiB/s", measure: (*run).artifactsIn},
	{name: "artifacts-out", title: "artifacts of 1 MiB fetched, 4 sessions, 1 in flight each", unit: "MiB/s", measure: (*run).artifactsOut},
	{name: "idle", title: "RSS an idle session", unit: "kB", less: true, target: targets(14, 14), measure: (*run).idle},
	{name: "finished", title: "RSS a finished job", unit: "bytes/job", less: true, measure: (*run).finished},
	{name: "sustained", title: "echo jobs/s, 64 sessions, " + windowMark + " in flight each, for " + sustainedMark, unit: "jobs/s",
		mode: Durable, long: true, measure: (*run).sustained},
}

// targets returns the target of each mode.
func targets(memory, durable float64) map[string]float64 {
	return map[string]float64{Memory: memory, Durable: durable}
}

// Rows lists the names of the rows.
func Rows() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// lookupRow returns the row with a name, or nil.
func lookupRow(name string) *row {
	for i := range rows {
		if rows[i].name == name {
			return &rows[i]
		}
	}
	return nil
}

// rowLimit bounds the time of a row beside the measurement: for the start, the warm-up and the end.
// It includes a measurement that is longer than Options.Duration.
const rowLimit = 2 * time.Minute

// Run measures the selected rows. The result of a failed row has an error. The error of Run is that a
// runtime cannot start, the end of ctx, or an unknown dialect.
func Run(ctx context.Context, o Options) ([]Result, error) {
	d, err := lookupDialect(o.Dialect)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, mode := range o.Modes {
		for i := range rows {
			if !o.selects(&rows[i]) {
				continue
			}
			r, err := o.runRow(ctx, &rows[i], mode, d)
			if err != nil {
				return results, err
			}
			o.OnRow(r)
			results = append(results, r)
		}
	}
	return results, nil
}

// selects reports whether the run includes a row.
func (o *Options) selects(r *row) bool {
	if len(o.Rows) == 0 {
		return o.Long || !r.long
	}
	return slices.Contains(o.Rows, r.name)
}

// title returns the title of a row without marks.
func (o *Options) title(r *row) string {
	return strings.NewReplacer(windowMark, strconv.Itoa(o.Window), sustainedMark, o.sustained().String()).Replace(r.title)
}

// absent returns why a dialect or a mode does not have a row, or "".
func (r *row) absent(mode string, d *dialect) string {
	if r.mode != "" && r.mode != mode {
		return "measured only in the mode " + r.mode
	}
	return d.absent[r.name]
}

// runRow measures one row with a new runtime.
func (o *Options) runRow(ctx context.Context, r *row, mode string, d *dialect) (Result, error) {
	out := Result{Row: r.name, Dialect: d.name, Mode: mode,
		Title: o.title(r), Unit: r.unit, Target: r.target[mode], Details: map[string]float64{}, Absent: r.absent(mode, d)}
	if out.Absent != "" {
		return out, nil
	}
	server, err := o.Start(ctx, mode)
	if err != nil {
		return out, err
	}
	rowCtx, cancel := context.WithTimeout(ctx, 2*o.Duration+rowLimit) // a row may measure a baseline, too
	run := &run{ctx: rowCtx, cancel: cancel, server: server, dialect: d, mode: mode, opts: o, details: out.Details, target: out.Target}
	out.Value, err = r.measure(run)
	out.Target = run.target
	run.end()
	if stopErr := server.Stop(); err == nil {
		err = stopErr
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	out.Ratio = ratio(r.less, out.Value, out.Target)
	return out, nil
}

// ratio returns the ratio of value and target, 1 or more for a reached target, or 0 without a target.
func ratio(less bool, value, target float64) float64 {
	switch {
	case less && value > 0:
		return target / value
	case !less && target > 0:
		return value / target
	}
	return 0
}

// run is the measurement of one row.
type run struct {
	ctx     context.Context // ends with the measurement
	cancel  context.CancelFunc
	server  *Server
	dialect *dialect
	mode    string
	opts    *Options
	details map[string]float64
	target  float64

	sessions     []*session
	serverCPU    float64 // CPU seconds at the start of the measurement
	generatorCPU float64
}

// open opens n sessions, up to 32 at once.
func (r *run) open(n int) error {
	opened := make([]*session, n)
	err := inParallel(min(n, 32), n, func(i int) (err error) {
		opened[i], err = openSession(r.ctx, r.server, r.dialect)
		return err
	})
	for _, s := range opened {
		if s != nil {
			r.sessions = append(r.sessions, s)
		}
	}
	if err != nil {
		return fmt.Errorf("open %d sessions: %w", n, err)
	}
	return nil
}

// end drops all connections and ends the context.
func (r *run) end() {
	r.cancel()
	for _, s := range r.sessions {
		s.abort()
	}
}

// each calls do concurrently for every session, as together does.
func (r *run) each(sessions []*session, do func(i int, s *session) error) error {
	tasks := make([]func() error, len(sessions))
	for i, s := range sessions {
		tasks[i] = func() error { return do(i, s) }
	}
	return r.together(tasks)
}

// together runs tasks concurrently and returns the first error. An error, or the end of the context, drops all
// connections, so that every task returns.
func (r *run) together(tasks []func() error) (failure error) {
	stop := context.AfterFunc(r.ctx, r.end)
	defer stop()
	var group sync.WaitGroup
	var once sync.Once
	for _, task := range tasks {
		group.Go(func() {
			if err := task(); err != nil {
				once.Do(func() {
					failure = err
					r.end()
				})
			}
		})
	}
	group.Wait()
	return failure
}

// startCPU begins the interval of the CPU shares; stopCPU ends it.
func (r *run) startCPU() {
	r.serverCPU, r.generatorCPU = processCPU(r.server.PID), selfCPU()
}

func (r *run) stopCPU(elapsed time.Duration) {
	r.details["server_cpu"] = (processCPU(r.server.PID) - r.serverCPU) / elapsed.Seconds()
	r.details["generator_cpu"] = (selfCPU() - r.generatorCPU) / elapsed.Seconds()
}
