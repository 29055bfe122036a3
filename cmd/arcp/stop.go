package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// adminGrace bounds the requests of the admin listener during a stop.
const adminGrace = time.Second

// notify returns a channel with the signals that a server handles.
func notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// run serves until a reason to stop, and stops.
func (s *server) run(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-s.fileChanged:
			s.reload()
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				notifyReload(s.log)
				s.reload()
				notifySystemd(s.log, daemon.SdNotifyReady)
				continue
			}
			return s.stop(signals, signalName(sig))
		case err := <-s.failed:
			return errors.Join(err, s.stop(signals, "a listener has failed"))
		case <-s.stdioFinished:
			return s.stop(signals, "the session on standard input has ended")
		case <-ctx.Done():
			return s.stop(signals, "cancelled")
		}
	}
}

// stop drains the server. A second signal ends the drain at once: durable data is safe, and the next start ends
// interrupted jobs. For `arcp dev` this is an end like any other.
func (s *server) stop(signals <-chan os.Signal, reason string) error {
	if s.dev != nil {
		s.dev.stopping(s)
	}
	s.logStopping(reason)
	notifySystemd(s.log, daemon.SdNotifyStopping)
	done := make(chan error, 1)
	go func() { done <- s.drain() }()
	for {
		select {
		case err := <-done:
			return err
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP:
			case s.dev != nil:
				return nil
			default:
				return failf("stopped by a second %s, without waiting for jobs", signalName(sig))
			}
		}
	}
}

func signalName(sig os.Signal) string {
	if sig == os.Interrupt {
		return "SIGINT"
	}
	return "SIGTERM"
}

// drain shuts down the runtime and then closes the listeners. During the shutdown probes report it, and clients
// are refused with a reason.
func (s *server) drain() error {
	err := s.shutdown()
	if s.mainSrv != nil {
		_ = s.mainSrv.Close() // no requests are left
	}
	s.closeListeners()
	if s.adminSrv != nil {
		// A backup interrupted by the end of the store removes its files.
		ctx, cancel := context.WithTimeout(context.Background(), adminGrace)
		defer cancel()
		_ = s.adminSrv.Shutdown(ctx) // a longer request is abandoned
		_ = s.adminSrv.Close()       //
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return failf("stop the runtime: %w", err)
	}
	s.log.Info().Msg("stopped")
	return nil
}

// shutdown shuts down the runtime, and then the workers and tool sources that its jobs use.
func (s *server) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), max(s.values.Duration("drain"), time.Millisecond))
	defer cancel()
	err := s.rt.Load().Shutdown(ctx)
	s.tools.close()
	s.flushSpans()
	return errors.Join(err, s.cleanUp())
}
