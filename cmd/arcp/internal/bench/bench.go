// Package bench measures a runtime from outside, over WebSockets.
//
// # Method
//
// The runtime is a process of its own, pinned to one core; the generator is pinned to the
// others. Each row gets a fresh runtime and, when durable, an empty data directory. The
// generator does little work per frame. It writes frames that were built beforehand, and
// changes only the digits of the id. It reads the type and the number from the first bytes of
// a received frame, without decoding JSON. Frames are counted when they are read, so a row
// counts received frames, not sent ones.
//
//   - jobs: each session keeps a window of demo.echo jobs in flight and submits
//     another for each job.completed. Counted are completed jobs. The row's title
//     contains the size of the window; in the second row it is one.
//   - events: each session runs one demo.emit without pause, with messages of
//     64 bytes, and acknowledges each 128th event. Counted are log events.
//   - acks: the same with an acknowledgement of each event.
//   - fan-out, burst: one session runs demo.emit, the others subscribed to that
//     job before it began. Deliveries to subscribers are divided by the time from the
//     first of them to the last. Every subscriber must get every event. One row follows
//     by job.subscribe, the other by subscribe with a filter of the job.
//   - fan-out, paced: the same at one event a millisecond. The latency is from
//     the event's timestamp to its arrival.
//   - handshakes: TCP, WebSocket and session.open until session.accepted, then
//     the connection is dropped.
//   - round trip: one session, one demo.echo at a time, from writing the submit
//     to reading job.completed.
//   - idle: the increase of the runtime's resident memory by open sessions, divided by
//     their number; the heap is collected before both measurements.
//
// All rows end by themselves. CPU is the time a process used, divided by the elapsed time. A
// row shows the runtime's limit only while the generator's share is well below one.
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
	URL, Admin string // WebSocket, and base of the admin HTTP endpoints
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
	Rows     []string      // of Rows; nil: all
	Duration time.Duration // of each measurement
	Window   int           // jobs in flight a session
	Idle     int           // sessions held

	// Start starts a runtime with demo tools for one row.
	Start func(ctx context.Context, mode string) (*Server, error)

	// OnRow is called with each result.
	OnRow func(Result)
}

// Result is one measured row.
type Result struct {
	Row     string             `json:"row"`
	Mode    string             `json:"mode"`
	Title   string             `json:"title"`
	Value   float64            `json:"value"`
	Unit    string             `json:"unit"`
	Target  float64            `json:"target"`
	Ratio   float64            `json:"ratio"` // ≥ 1: the target is reached
	Details map[string]float64 `json:"details,omitzero"`
	Error   string             `json:"error,omitzero"`
}

// row is a line of the table.
type row struct {
	name, title, unit string
	less              bool               // less is better
	target            map[string]float64 // by mode; nil: none
	measure           func(*run) (value float64, err error)
}

// windowed stands for Options.Window in the title of a row.
const windowed = "{window}"

var rows = []row{
	{"jobs", "echo jobs/s, 64 sessions, " + windowed + " in flight each", "jobs/s", false, nil, (*run).jobs},
	{"jobs1", "echo jobs/s, 64 sessions, 1 in flight each", "jobs/s", false, map[string]float64{Memory: 50_000, Durable: 20_000}, (*run).oneByOne},
	{"events", "events/s, 16 sessions, ack each 128", "events/s", false, map[string]float64{Memory: 450_000, Durable: 350_000}, (*run).events},
	{"acks", "events/s, 16 sessions, ack each event", "events/s", false, map[string]float64{Memory: 360_000, Durable: 280_000}, (*run).acks},
	{"fanout", "fan-out to 50 by job.subscribe, burst", "deliveries/s", false, map[string]float64{Memory: 750_000, Durable: 700_000}, (*run).fanout},
	{"filtered", "fan-out to 50 by subscribe, burst", "deliveries/s", false, map[string]float64{Memory: 750_000, Durable: 700_000}, (*run).filtered},
	{"paced", "fan-out to 50 by job.subscribe, paced 1,000 events/s, p99", "ms", true, map[string]float64{Memory: 5, Durable: 20}, (*run).paced},
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

// rowLimit bounds a row beside its duration: starting, warming up, ending.
const rowLimit = time.Minute

// Run measures the selected rows. A row that fails has an error in its result; Run's error
// means that no row could run.
func Run(ctx context.Context, o Options) ([]Result, error) {
	var results []Result
	for _, mode := range o.Modes {
		for i := range rows {
			if len(o.Rows) > 0 && !slices.Contains(o.Rows, rows[i].name) {
				continue
			}
			r, err := o.one(ctx, &rows[i], mode)
			if err != nil {
				return results, err
			}
			o.OnRow(r)
			results = append(results, r)
		}
	}
	return results, nil
}

// one measures one row on a fresh runtime.
func (o *Options) one(ctx context.Context, r *row, mode string) (Result, error) {
	out := Result{Row: r.name, Mode: mode, Title: strings.ReplaceAll(r.title, windowed, strconv.Itoa(o.Window)), Unit: r.unit, Target: r.target[mode], Details: map[string]float64{}}
	server, err := o.Start(ctx, mode)
	if err != nil {
		return out, err
	}
	rowCtx, cancel := context.WithTimeout(ctx, o.Duration+rowLimit)
	run := &run{ctx: rowCtx, server: server, opts: o, details: out.Details}
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
	opts    *Options
	details map[string]float64

	sessions []*session
	serverT  float64 // CPU seconds when the measurement began
	selfT    float64
}

// open opens n sessions, some at a time.
func (r *run) open(n int) error {
	fresh := make([]*session, n)
	err := inParallel(min(n, 32), n, func(i int) (err error) {
		fresh[i], err = openSession(r.ctx, r.server)
		return err
	})
	for _, s := range fresh {
		if s != nil {
			r.sessions = append(r.sessions, s)
		}
	}
	if err != nil {
		return fmt.Errorf("open %d sessions: %w", n, err)
	}
	return nil
}

// end drops the connections that are left.
func (r *run) end() {
	for _, s := range r.sessions {
		s.abort()
	}
}

// each calls do for every session at once, and returns the first failure. When
// one fails, or the context ends, all connections are dropped, so that no other
// waits forever.
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

// startCPU and stopCPU bracket the interval of the CPU shares.
func (r *run) startCPU() {
	r.serverT, r.selfT = processCPU(r.server.PID), selfCPU()
}

func (r *run) stopCPU(elapsed time.Duration) {
	r.details["server_cpu"] = (processCPU(r.server.PID) - r.serverT) / elapsed.Seconds()
	r.details["generator_cpu"] = (selfCPU() - r.selfT) / elapsed.Seconds()
}
