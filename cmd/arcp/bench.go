package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/bench"
	"github.com/arcpd/arcpd/transport"
)

// Durations of a measurement.
const (
	quickDuration = 5 * time.Second
	fullDuration  = 20 * time.Second
	maxDuration   = 2 * time.Minute
)

// benchmark has the flags of `arcp bench`.
type benchmark struct {
	data     string
	rows     []string
	dialect  string
	duration time.Duration
	full     bool
	window   int
	idle     int
	compare  string
}

func newBench(a *app) *cobra.Command {
	var b benchmark
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a runtime on this machine",
		Long: "Measures runtimes in separate processes on one core, from this process on the other\n" +
			"cores: in memory, and durable in a temporary directory. Each row is compared with its\n" +
			"target; a ratio of at least 1 reaches the target.\n\n" + wrapped("Rows: "+strings.Join(bench.Rows(), ", ")+".") + "\n" +
			wrapped("The row sustained takes 12 times the duration, at most a minute. It is measured with --full, or if --row names it."),
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVar(&b.data, "data", "", `":memory:" measures only in memory, DIR only durable in a new directory below DIR; default: both`)
	f.StringSliceVar(&b.rows, "row", nil, "only these rows")
	f.StringVar(&b.dialect, "dialect", bench.RFC, "dialect of the clients: "+strings.Join(bench.Dialects(), ", "))
	completeLists(cmd, "row", bench.Rows()...)
	completeWords(cmd, "dialect", bench.Dialects()...)
	addDuration(f, &b.duration, "duration", quickDuration, "duration of a measurement")
	f.BoolVar(&b.full, "full", false, "measure every row, with a duration of "+fullDuration.String())
	f.IntVar(&b.window, "window", 16, "concurrent jobs of each session")
	f.IntVar(&b.idle, "idle", 10_000, "number of idle sessions")
	f.StringVar(&b.compare, "compare", "", "output of an earlier run with -o json: show the ratio of each row to it, above 1 if better")
	cmd.AddCommand(newBaseline(a))
	output := addDocumentOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		if err := b.check(cmd.Flags().Changed("duration")); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		gcReserve = make([]byte, benchReserve) // a generator that collects garbage all the time measures itself
		return a.bench(ctx, b)
	})
	return cmd
}

func (b *benchmark) check(durationSet bool) error {
	if b.full && !durationSet {
		b.duration = fullDuration
	}
	for _, r := range b.rows {
		if err := oneOf("row", r, bench.Rows()...); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	if err := oneOf("dialect", b.dialect, bench.Dialects()...); err != nil {
		return &exitError{exitUsage, err}
	}
	switch {
	case b.duration < 100*time.Millisecond || b.duration > maxDuration:
		return usagef("--duration %s: give 100ms to %s", b.duration, maxDuration)
	case b.window < 1 || b.window > 1000:
		return usagef("--window %d: give 1 to 1000", b.window)
	case b.idle < 1 || b.idle > 50_000:
		return usagef("--idle %d: give 1 to 50000", b.idle)
	}
	return nil
}

func (b *benchmark) modes() []string {
	switch b.data {
	case "":
		return []string{bench.Memory, bench.Durable}
	case memory:
		return []string{bench.Memory}
	}
	return []string{bench.Durable}
}

// earlier returns the rows of --compare, or nil.
func (b *benchmark) earlier() ([]bench.Result, error) {
	if b.compare == "" {
		return nil, nil
	}
	text, err := os.ReadFile(b.compare)
	if err != nil {
		return nil, failf("--compare %s: %w", b.compare, cause(err))
	}
	rows, err := bench.ReadReport(text)
	if err != nil {
		return nil, failf("--compare %s: %w", b.compare, err)
	}
	return rows, nil
}

func (a *app) bench(ctx context.Context, b benchmark) error {
	if err := benchSupported(); err != nil {
		return err
	}
	earlier, err := b.earlier()
	if err != nil {
		return err
	}
	serverCPU, err := splitCores(a.stderr)
	if err != nil {
		return err
	}
	modes := b.modes()
	if b.data == "" || b.data == memory {
		b.data = os.TempDir()
	}
	if slices.Contains(modes, bench.Durable) {
		warnTmpfs(a.stderr, b.data)
	}
	results, err := bench.Run(ctx, bench.Options{
		Modes: modes, Rows: b.rows, Long: b.full, Dialect: b.dialect, Duration: b.duration, Window: b.window, Idle: b.idle,
		Start: func(ctx context.Context, mode string) (*bench.Server, error) { return b.start(ctx, mode, serverCPU) },
		StartBaseline: func(ctx context.Context, mode string) (*bench.Server, error) {
			return b.startBaseline(ctx, mode, serverCPU)
		},
		OnRow: func(r bench.Result) { fmt.Fprintf(a.stderr, "%s %s done\n", r.Mode, r.Row) },
	})
	if err != nil {
		return err
	}
	return a.printBench(b, results, earlier)
}

// start starts a runtime for one row. Stop kills it and removes its data.
func (b *benchmark) start(ctx context.Context, mode string, cpus []int) (*bench.Server, error) {
	token := auth.NewToken("bench_")
	dir, remove, err := b.tempDir()
	if err != nil {
		return nil, err
	}
	data := memory
	if mode == bench.Durable {
		data = filepath.Join(dir, "data")
	}
	config := filepath.Join(dir, "arcp.yaml")
	if err := os.WriteFile(config, bench.WorkflowConfig(), 0o600); err != nil {
		return nil, errors.Join(err, remove())
	}
	ch, err := startChild(ctx, childOptions{
		args: []string{"--config", config, "--demo", "--data", data, "--log-level", "error", "--max-jobs", "0", "--max-jobs-per-session", "0"},
		env:  []string{"ARCP_SERVER_TOKEN=bench=" + token.Reveal()},
		cpus: cpus,
	})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &bench.Server{
		URL: ch.url, Admin: ch.admin, Token: token, PID: ch.cmd.Process.Pid,
		Stop: func() error { return errors.Join(ch.kill(), remove()) },
	}, nil
}

// tempDir makes a directory for one row, and returns a function that removes it.
func (b *benchmark) tempDir() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp(b.data, "arcp-bench-")
	if err != nil {
		return "", nil, fmt.Errorf("--data %s: %w", b.data, cause(err))
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// startBaseline starts `arcp bench baseline`, as start does.
func (b *benchmark) startBaseline(ctx context.Context, mode string, cpus []int) (*bench.Server, error) {
	dir, remove, err := b.tempDir()
	if err != nil {
		return nil, err
	}
	command := []string{"bench", "baseline"}
	if mode == bench.Durable {
		command = append(command, dir)
	}
	ch, err := startChild(ctx, childOptions{command: command, cpus: cpus})
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &bench.Server{URL: ch.url, PID: ch.cmd.Process.Pid, Stop: func() error { return errors.Join(ch.kill(), remove()) }}, nil
}

// newBaseline is the command of the process with which the rows of artifacts are compared.
func newBaseline(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "baseline [DIR]", Short: "Store the frames of WebSockets in DIR or in memory", Args: cobra.MaximumNArgs(1), Hidden: true,
		RunE: action(func(cmd *cobra.Command, args []string) error {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			var b bench.Baseline
			if len(args) > 0 {
				b.Dir = args[0]
			}
			gcReserve = make([]byte, benchReserve)
			upgrader := transport.Upgrader{Limits: transport.Limits{ReadLimit: maxBaselineFrame}}
			fmt.Fprintf(a.stdout, "listening ws://%s\n", ln.Addr())
			return http.Serve(ln, upgrader.Handler(func(c transport.Conn) { _ = b.Serve(c) })) // the client sees the end of the connection
		}),
	}
}

// benchReserve is the size of the gcReserve of the generator and of the baseline, in bytes.
const benchReserve = 64 << 20

// maxBaselineFrame bounds the frames of the baseline, in bytes.
const maxBaselineFrame = 8 << 20

// printBench prints the results and, with --compare, their ratios to the earlier results.
func (a *app) printBench(b benchmark, results, earlier []bench.Result) error {
	var unmatched []string
	if earlier != nil {
		unmatched = bench.Compare(results, earlier)
	}
	if !a.json {
		if err := bench.WriteTable(a.stdout, results); err != nil {
			return err
		}
		for _, u := range unmatched {
			fmt.Fprintf(a.stdout, "%s: %s\n", b.compare, u)
		}
		return nil
	}
	return a.printJSON(struct {
		Build     buildInfo      `json:"build"`
		CPUs      int            `json:"cpus"`
		Seconds   float64        `json:"duration_seconds"`
		Measured  []bench.Result `json:"rows"`
		Compared  string         `json:"compared_with,omitzero"`
		Unmatched []string       `json:"unmatched,omitzero"`
	}{thisBuild(), runtime.NumCPU(), b.duration.Seconds(), results, b.compare, unmatched})
}
