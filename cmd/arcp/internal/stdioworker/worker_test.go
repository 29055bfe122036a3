package stdioworker

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool/exec"
	"github.com/arcpd/arcpd/transport"
)

func TestMain(m *testing.M) {
	exec.Hook()
	os.Exit(m.Run())
}

// fakeServer serves sessions with a function.
type fakeServer struct {
	serve    func(ctx context.Context, c transport.Conn, w runtime.Worker) error
	stopping error
}

func (s *fakeServer) ServeWorker(ctx context.Context, c transport.Conn, w runtime.Worker) error {
	return s.serve(ctx, c, w)
}

func (s *fakeServer) Ready() error { return s.stopping }

func config(log *strings.Builder, command ...string) Config {
	return Config{Name: "kid", Command: command, Tools: []string{"kid.*"}, Log: zerolog.New(log)}
}

// A program that holds its session without a tool is ended in time.
func TestRegistrationIsBounded(t *testing.T) {
	defer func(d time.Duration) { registerTimeout = d }(registerTimeout)
	registerTimeout = 50 * time.Millisecond
	s := &fakeServer{serve: func(ctx context.Context, _ transport.Conn, _ runtime.Worker) error {
		<-ctx.Done()
		return errors.New("the connection is closed")
	}}
	_, err := Start(t.Context(), config(new(strings.Builder), "sleep", "1000"), s)
	if err == nil || !strings.HasPrefix(err.Error(), "worker kid: it has not registered a tool within 50ms") || !strings.Contains(err.Error(), "SIGTERM") {
		t.Errorf("Start = %v, want to be told why, and how the program ended", err)
	}
}

// A program whose session ends is terminated and restarted, until Close.
func TestProgramsAreRestarted(t *testing.T) {
	defer func(d time.Duration) { restartBackoff.Min = d }(restartBackoff.Min)
	restartBackoff.Min = time.Millisecond
	var log strings.Builder
	sessions := make(chan string)
	s := &fakeServer{serve: func(ctx context.Context, c transport.Conn, w runtime.Worker) error {
		w.Registered()
		w.Registered()
		frame, err := c.Read()
		if err != nil {
			return err
		}
		select {
		case sessions <- w.Name + string(frame):
			return nil // the peer has closed in order
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	w, err := Start(t.Context(), config(&log, "sh", "-c", "echo $$; exec sleep 1000"), s)
	if err != nil {
		t.Fatal(err)
	}
	first, second := <-sessions, <-sessions
	if w.Close(); first == second || !strings.HasPrefix(second, "kid") {
		t.Errorf("sessions of %s and %s, want those of two processes", first, second)
	}
	if !strings.Contains(log.String(), "it has closed its session; it was ended by SIGTERM") {
		t.Errorf("log = %s", &log)
	}
}

// After the end of the runtime nothing is started.
func TestNoProgramOutlivesTheRuntime(t *testing.T) {
	s := &fakeServer{stopping: runtime.ErrShutdown}
	s.serve = func(_ context.Context, _ transport.Conn, w runtime.Worker) error {
		w.Registered()
		return runtime.ErrShutdown
	}
	var log strings.Builder
	w, err := Start(t.Context(), config(&log, "sleep", "1000"), s)
	if err == nil {
		<-w.donec
	}
	if log.Len() > 0 {
		t.Errorf("log = %s", &log)
	}
}
