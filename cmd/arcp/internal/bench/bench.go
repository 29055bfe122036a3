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
//   - jobs: each session has a window of demo.echo jobs in flight and submits a job for each
//     job.completed. The row counts completed jobs. Its title contains the size of the
//     window, which is one in the second row.
//   - events: each session runs one demo.emit without pause, with messages of 64 bytes, and
//     acknowledges each 128th event. The row counts log events.
//   - acks: as events, but with an acknowledgement of each event.
//   - fan-out, burst: one session runs demo.emit, and the other sessions have subscribed to
//     the job before. The rate is the number of deliveries, divided by the time from the
//     first to the last delivery. Every subscriber must receive every event. One row uses
//     job.subscribe, the other subscribe with a filter of the job.
//   - fan-out, paced: as burst, but with one event a millisecond. The latency is the time from
//     the timestamp of an event to its arrival. Timestamps of the draft dialect have milliseconds,
//     so its latencies are up to 1 ms too high.
//   - handshakes: TCP, WebSocket and session.open until session.accepted. Then the client
//     drops the connection.
//   - round trip: one session, one demo.echo at a time, from the write of the submit to the
//     read of job.completed.
//   - idle: the growth of the runtime's resident memory, divided by the number of opened
//     sessions. The runtime collects its heap before both measurements.
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
	Dialect  string        // one of Dialects; empty: RFC
	Duration time.Duration // of each measurement
	Window   int           // jobs in flight of each session
	Idle     int           // open sessions of the row idle

	// Start starts a runtime with demo tools for one row.
	Start func(ctx context.Context, mode string) (*Server, error)

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
	Absent  string             `json:"absent,omitzero"` // why the dialect does not have the row; then nothing is measured
	Error   string             `json:"error,omitzero"`
}

// row is a line of the table.
type row struct {
	name, title, unit string
	less              bool               // a lower value is better
	target            map[string]float64 // by mode; nil: no target
	measure           func(*run) (value float64, err error)
}

// windowMark is replaced by Options.Window in the title of a row.
const windowMark = "{window}"

var rows = []row{
	{"jobs", "echo jobs/s, 64 sessions, " + windowMark + " in flight each", "jobs/s", false, nil, (*run).jobs},
	{"jobs1", "echo jobs/s, 64 sessions, 1 in flight each", "jobs/s", false,
		map[string]float64{Memory: 50_000, Durable: 20_000}, (*run).oneByOne},
	{"events", "events/s, 16 sessions, ack each 128", "events/s", false, map[string]float64{Memory: 450_000, Durable: 350_000}, (*run).events},
	{"acks", "events/s, 16 sessions, ack each event", "events/s", false, map[string]float64{Memory: 360_000, Durable: 280_000}, (*run).acks},
	{"fanout", "fan-out to 50 by job.subscribe, burst", "deliveries/s", false,
		map[string]float64{Memory: 750_000, Durable: 700_000}, (*run).fanout},
	{"filtered", "fan-out to 50 by subscribe, burst", "deliveries/s", false,
		map[string]float64{Memory: 750_000, Durable: 700_000}, (*run).filtered},
	{"paced", "fan-out to 50 by job.subscribe, paced 1,000 events/s, p99", "ms", true,
		map[string]float64{Memory: 5, Durable: 20}, (*run).paced},
	{"handshakes", "handshakes/s, 32 at once", "handshakes/s", false, map[string]float64{Memory: 12_500, Durable: 8_500}, (*run).handshakes},
	{"roundtrip", "one session, job round trip, p50", "ms", true, map[string]float64{Memory: 0.085, Durable: 0.6}, (*run).roundtrip},
	{"idle", "RSS an idle session", "kB", true, map[string]float64{Memory: 14, Durable: 14}, (*run).idle},
}

// Rows lists the names of the rows.
func Rows() []string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// rowLimit bounds the time of a row beside the measurement: for the start, the warm-up and the end.
const rowLimit = time.Minute

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
			if len(o.Rows) > 0 && !slices.Contains(o.Rows, rows[i].name) {
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

// runRow measures one row with a new runtime.
func (o *Options) runRow(ctx context.Context, r *row, mode string, d *dialect) (Result, error) {
	out := Result{Row: r.name, Dialect: d.name, Mode: mode,
		Title: strings.ReplaceAll(r.title, windowMark, strconv.Itoa(o.Window)), Unit: r.unit, Target: r.target[mode],
		Details: map[string]float64{}, Absent: d.absent[r.name]}
	if out.Absent != "" {
		return out, nil
	}
	server, err := o.Start(ctx, mode)
	if err != nil {
		return out, err
	}
	rowCtx, cancel := context.WithTimeout(ctx, o.Duration+rowLimit)
	run := &run{ctx: rowCtx, server: server, dialect: d, opts: o, details: out.Details}
	out.Value, err = r.measure(run)
	cancel()
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
	ctx     context.Context
	server  *Server
	dialect *dialect
	opts    *Options
	details map[string]float64

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

// end drops all connections.
func (r *run) end() {
	for _, s := range r.sessions {
		s.abort()
	}
}

// each calls do concurrently for every session and returns the first error. An error, or the end of the
// context, drops all connections, so that every call returns.
func (r *run) each(sessions []*session, do func(i int, s *session) error) error {
	stop := context.AfterFunc(r.ctx, r.end)
	defer stop()
	return inParallel(len(sessions), len(sessions), func(i int) error {
		err := do(i, sessions[i])
		if err != nil {
			r.end()
		}
		return err
	})
}

// startCPU begins the interval of the CPU shares; stopCPU ends it.
func (r *run) startCPU() {
	r.serverCPU, r.generatorCPU = processCPU(r.server.PID), selfCPU()
}

func (r *run) stopCPU(elapsed time.Duration) {
	r.details["server_cpu"] = (processCPU(r.server.PID) - r.serverCPU) / elapsed.Seconds()
	r.details["generator_cpu"] = (selfCPU() - r.generatorCPU) / elapsed.Seconds()
}
