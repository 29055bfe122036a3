package job

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// grid repeats the transition table by hand: a row a state, a column an input, a dot for no
// transition.
const grid = `
          queue  start   complete  fail   cancel    give_up   hard_stop block   unblock manual  beat    silence hold    return  window timeout retry  pause  rewind restart conclude
accepted  queued running .         failed cancelled cancelled .         .       .       .       .       .       .       .       .      .       .      .      .      .      .
queued    .      running .         failed cancelled cancelled .         .       .       .       .       .       .       .       .      failed  .      .      .      .      completed
running   .      .       completed failed running   cancelled cancelled blocked .       running running failed  blocked .       .      failed  queued paused queued queued      .
blocked   .      .       completed failed blocked   cancelled cancelled blocked running blocked blocked .       .       running failed failed  queued paused queued queued      .
paused    .      .       .         failed cancelled cancelled .         .       .       .       .       .       .       .       .      .       .      .      .      queued      .
completed .      .       .         .      .         .         .         .       .       .       .       .       .       .       .      .       .      .      .      .      .
failed    .      .       .         .      .         .         .         .       .       .       .       .       .       .       .      .       .      .      .      .      .
cancelled .      .       .         .      .         .         .         .       .       .       .       .       .       .       .      .       .      .      .      .      .
`

// parseGrid returns row and column headings and the cell for a pair of them.
func parseGrid(t *testing.T, text string) (rows, columns []string, cell func(row, column string) string) {
	t.Helper()
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	columns = strings.Fields(lines[0])
	cells := make(map[[2]string]string)
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != len(columns)+1 {
			t.Fatalf("grid row %q has %d cells, want %d", f[0], len(f)-1, len(columns))
		}
		rows = append(rows, f[0])
		for i, c := range columns {
			cells[[2]string{f[0], c}] = f[i+1]
		}
	}
	return rows, columns, func(row, column string) string { return cells[[2]string{row, column}] }
}

func TestTableIsTheGrid(t *testing.T) {
	rows, columns, cell := parseGrid(t, grid)
	if len(rows) != len(arcp.JobStates) {
		t.Fatalf("the grid has %d rows, want %d", len(rows), len(arcp.JobStates))
	}
	for _, r := range Transitions {
		if !slices.Contains(columns, strings.ReplaceAll(string(r.Input), " ", "_")) {
			t.Errorf("the grid has no column for %s", r.Input)
		}
	}
	for _, from := range arcp.JobStates {
		for _, column := range columns {
			in := Input(strings.ReplaceAll(column, "_", " "))
			m := Machine{state: from}
			moved := m.move(in)
			got := "."
			if moved {
				got = string(m.state)
			}
			if want := cell(string(from), column); got != want {
				t.Errorf("%s, %s: %s, want %s", from, in, got, want)
			}
			if !moved && m.state != from {
				t.Errorf("%s, %s: an ignored input changed the state to %s", from, in, m.state)
			}
		}
	}
}

func TestTableHasNoDuplicates(t *testing.T) {
	if len(table) != len(Transitions) {
		t.Errorf("%d transitions of which %d are different", len(Transitions), len(table))
	}
}

// calls is the state after each method, for each situation of a job. A held job is blocked by
// missed heartbeats, a waiting one by a question; a stopping one was cancelled while it ran, a
// retrying one is between two attempts. A crashed one ran in an earlier process.
const calls = `
          queue     start     complete  fail      fail_cancelled cancel    block     unblock   manual    beat      advance   retry     pause     rewind    restart
accepted  queued    running   accepted  failed    cancelled      cancelled accepted  accepted  accepted  accepted  accepted  accepted  accepted  accepted  accepted
queued    queued    running   queued    failed    cancelled      cancelled queued    queued    queued    queued    queued    queued    queued    queued    queued
retrying  queued    running   queued    failed    cancelled      cancelled queued    queued    queued    queued    failed    queued    queued    queued    queued
running   running   running   completed failed    cancelled      running   blocked   running   running   running   failed    queued    paused    queued    queued
crashed   running   running   completed failed    cancelled      running   blocked   running   running   running   failed    queued    paused    queued    queued
waiting   blocked   blocked   completed failed    cancelled      blocked   blocked   running   blocked   blocked   blocked   queued    paused    queued    queued
held      blocked   blocked   completed failed    cancelled      blocked   blocked   blocked   blocked   running   failed    queued    paused    queued    queued
stopping  running   running   cancelled cancelled cancelled      running   blocked   running   running   running   cancelled cancelled cancelled running   queued
paused    paused    paused    paused    failed    cancelled      cancelled paused    paused    paused    paused    paused    paused    paused    paused    queued
completed completed completed completed completed completed      completed completed completed completed completed completed completed completed completed completed
failed    failed    failed    failed    failed    failed         failed    failed    failed    failed    failed    failed    failed    failed    failed    failed
cancelled cancelled cancelled cancelled cancelled cancelled      cancelled cancelled cancelled cancelled cancelled cancelled cancelled cancelled cancelled cancelled
`

var t0 = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// in returns a machine in a situation at t0.
func in(situation string) *Machine {
	spec := Spec{MaxRuntime: time.Minute, Heartbeat: time.Second, BlockOnSilence: situation == "held", SilenceWindow: 10 * time.Second}
	m := New(spec)
	switch situation {
	case "accepted":
		return m
	case "queued":
		m.Queue(t0)
		return m
	case "crashed":
		spec.StartedAt = t0
		return Restore(spec, arcp.StateRunning)
	}
	m.Start(t0)
	switch situation {
	case "retrying":
		m.Retry(t0, arcp.Errorf(arcp.CodeUnavailable, "later"))
	case "paused":
		m.Pause(t0)
	case "waiting":
		m.Block(t0)
	case "held":
		m.SetManualHeartbeats(t0.Add(-2 * time.Second))
		m.Advance(t0)
	case "stopping":
		m.Cancel(t0, "enough", time.Minute)
	case "completed":
		m.Complete(t0, arcp.Raw("1"))
	case "failed":
		m.Fail(t0, arcp.Errorf(arcp.CodeUnknown, "no"))
	case "cancelled":
		m.Fail(t0, arcp.Errorf(arcp.CodeCancelled, "no"))
	}
	return m
}

var methods = map[string]func(*Machine){
	"queue":          func(m *Machine) { m.Queue(t0) },
	"start":          func(m *Machine) { m.Start(t0) },
	"complete":       func(m *Machine) { m.Complete(t0, arcp.Raw("2")) },
	"fail":           func(m *Machine) { m.Fail(t0, arcp.Errorf(arcp.CodeInternal, "broken")) },
	"fail_cancelled": func(m *Machine) { m.Fail(t0, arcp.Errorf(arcp.CodeCancelled, "gave up")) },
	"cancel":         func(m *Machine) { m.Cancel(t0, "why", 0) },
	"block":          func(m *Machine) { m.Block(t0) },
	"unblock":        func(m *Machine) { m.Unblock(t0) },
	"manual":         func(m *Machine) { m.SetManualHeartbeats(t0) },
	"beat":           func(m *Machine) { m.Heartbeat(t0) },
	"retry":          func(m *Machine) { m.Retry(t0, arcp.Errorf(arcp.CodeUnavailable, "later")) },
	"pause":          func(m *Machine) { m.Pause(t0) },
	"rewind":         func(m *Machine) { m.Rewind(t0) },
	"restart":        func(m *Machine) { m.Restart(t0) },
	"advance":        func(m *Machine) { m.Advance(t0.Add(time.Hour)) },
}

func TestEveryCallInEverySituation(t *testing.T) {
	situations, columns, cell := parseGrid(t, calls)
	if len(columns) != len(methods) {
		t.Fatalf("%d columns for %d methods", len(columns), len(methods))
	}
	for _, situation := range situations {
		for _, method := range columns {
			m := in(situation)
			before := m.State()
			m.TakeOutput()
			methods[method](m)
			out := m.TakeOutput()
			name := situation + ", " + method
			if got, want := string(m.State()), cell(situation, method); got != want {
				t.Errorf("%s: state = %s, want %s", name, got, want)
			}
			if changed := m.State() != before; changed != (out.State != "") || changed && out.State != m.State() {
				t.Errorf("%s: output says %q, the state went from %s to %s", name, out.State, before, m.State())
			}
			if ended := m.State().Terminal() && !before.Terminal(); ended != (out.Terminal != nil) {
				t.Errorf("%s: terminal = %+v, want one: %v", name, out.Terminal, ended)
			}
			if !before.Terminal() && m.State().Terminal() && !m.Deadline().IsZero() {
				t.Errorf("%s: deadline after the end: %v", name, m.Deadline())
			}
			if before.Terminal() && out != (Output{}) {
				t.Errorf("%s: output after the end: %+v", name, out)
			}
		}
	}
}

func TestCancelSaysWhetherTheJobHadEnded(t *testing.T) {
	situations, _, _ := parseGrid(t, calls)
	for _, situation := range situations {
		m := in(situation)
		want := !m.State().Terminal()
		if got := m.Cancel(t0, "", 0); got != want {
			t.Errorf("cancel of a job that is %s = %v, want %v", situation, got, want)
		}
	}
}

func TestDiagram(t *testing.T) {
	const file = "testdata/diagram.mmd"
	got := Diagram()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the diagram is not %s; run the test with -update and look at the difference:\n%s", file, got)
	}
	for _, r := range Transitions {
		if r.From != r.To && !strings.Contains(got, string(r.Input)) {
			t.Errorf("the diagram does not show %s", r.Input)
		}
	}
}
