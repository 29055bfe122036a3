package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// TestScripts runs testdata/*.txt. A line is a time since the start and a call, or creates a
// machine; the indented lines below it are the machine's output. An empty line or a comment is
// kept. With -update the indented lines are rewritten.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s says\n%s\nbut it happens\n%s", file, want, got)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	var m *Machine
	var b strings.Builder
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		b.WriteString(line)
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "new":
			m = New(parseSpec(t, words[1:]))
			continue
		case "restore": // since the start of the script
			spec := parseSpec(t, words[2:])
			spec.StartedAt = t0
			m = Restore(spec, arcp.JobState(words[1]))
			continue
		}
		d, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		call(t, &b, m, t0.Add(d), words[1], words[2:])
		describe(&b, m)
	}
	return b.String()
}

func parseSpec(t *testing.T, words []string) (s Spec) {
	fields := map[string]*time.Duration{"max_runtime": &s.MaxRuntime, "heartbeat": &s.Heartbeat, "window": &s.SilenceWindow}
	for _, w := range words {
		if w == "block" {
			s.BlockOnSilence = true
			continue
		}
		name, value, _ := strings.Cut(w, "=")
		d, err := time.ParseDuration(value)
		if err != nil || fields[name] == nil {
			t.Fatalf("new: %q: %v", w, err)
		}
		*fields[name] = d
	}
	return s
}

func call(t *testing.T, b *strings.Builder, m *Machine, now time.Time, name string, args []string) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch name {
	case "queue":
		m.Queue(now)
	case "start":
		m.Start(now)
	case "complete":
		m.Complete(now, arcp.Raw(arg(0)))
	case "fail":
		m.Fail(now, arcp.Errorf(arcp.Code(arg(0)), "%s", arg(1)))
	case "cancel":
		d, _ := time.ParseDuration(arg(1))
		if !m.Cancel(now, arg(0), d) {
			b.WriteString("\trefused: ended already\n")
		}
	case "block":
		m.Block(now)
	case "unblock":
		m.Unblock(now)
	case "manual":
		m.SetManualHeartbeats(now)
	case "beat":
		m.Heartbeat(now)
	case "retry":
		m.Retry(now, arcp.Errorf(arcp.Code(arg(0)), "%s", arg(1)))
	case "pause":
		m.Pause(now)
	case "rewind":
		if !m.Rewind(now) {
			b.WriteString("\trefused\n")
		}
	case "restart":
		m.Restart(now)
	case "advance":
		m.Advance(now)
	default:
		t.Fatalf("no call %q", name)
	}
}

func describe(b *strings.Builder, m *Machine) {
	out := m.TakeOutput()
	if out.State != "" {
		fmt.Fprintf(b, "\tstate %s\n", out.State)
	}
	if out.Started {
		b.WriteString("\tstarted\n")
	}
	if h := out.Heartbeat; h != nil {
		fmt.Fprintf(b, "\theartbeat %d deadline_ms=%d state=%s\n", h.Sequence, h.DeadlineMS, h.State)
	}
	if out.Stop != nil {
		fmt.Fprintf(b, "\tstop %v retryable=%v\n", out.Stop, out.Stop.Retryable)
	}
	if o := out.Terminal; o != nil {
		fmt.Fprintf(b, "\tterminal %s", o.State)
		switch o.State {
		case arcp.StateCompleted:
			fmt.Fprintf(b, " value=%s", o.Value)
		case arcp.StateFailed:
			fmt.Fprintf(b, " %v retryable=%v", o.Err, o.Err.Retryable)
		case arcp.StateCancelled:
			fmt.Fprintf(b, " reason=%q code=%s", o.Reason, o.Code)
		}
		b.WriteString("\n")
	}
	if d := m.Deadline(); !d.IsZero() {
		fmt.Fprintf(b, "\tdeadline %v\n", d.Sub(t0))
	}
}
