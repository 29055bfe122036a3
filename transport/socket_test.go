//go:build linux

package transport

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

// slowFile is a full pipe whose reader takes a few bytes each time a writer waits, and stops
// after some times.
type slowFile struct {
	r, w      int
	takes     int // times left
	deadlines []time.Time
}

func newSlowFile(t *testing.T, takes int) *slowFile {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Close(fds[0])
		syscall.Close(fds[1])
	})
	return &slowFile{r: fds[0], w: fds[1], takes: takes}
}

func (f *slowFile) Close() error                          { return nil }
func (f *slowFile) SyscallConn() (syscall.RawConn, error) { return f, nil }
func (f *slowFile) Control(func(uintptr)) error           { return errors.ErrUnsupported }
func (f *slowFile) Read(func(uintptr) bool) error         { return errors.ErrUnsupported }
func (f *slowFile) SetReadDeadline(time.Time) error       { return nil }

func (f *slowFile) SetWriteDeadline(t time.Time) error {
	f.deadlines = append(f.deadlines, t)
	return nil
}

// Write implements syscall.RawConn.
func (f *slowFile) Write(try func(uintptr) bool) error {
	for !try(uintptr(f.w)) {
		if f.takes == 0 {
			return os.ErrDeadlineExceeded
		}
		f.takes--
		if _, err := syscall.Read(f.r, make([]byte, 4096)); err != nil {
			return err
		}
	}
	return nil
}

// Each time the peer took bytes the whole timeout begins again. Bytes that the peer takes at
// once cost no deadline.
func TestSendRenewsDeadline(t *testing.T) {
	const takes = 10
	f := newSlowFile(t, takes)
	var out polledWriter
	if err := out.init(f); err != nil {
		t.Fatal(err)
	}
	if waited, err := out.send(make([]byte, 4096), time.Hour); waited || err != nil || len(f.deadlines) != 0 {
		t.Fatalf("send() into an empty pipe = %v, %v, with deadlines %v", waited, err, f.deadlines)
	}
	begin := time.Now()
	if waited, err := out.send(make([]byte, 1<<20), time.Hour); !waited || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("send() = %v, %v, want a timeout", waited, err)
	}
	set := 0
	for i, d := range f.deadlines {
		if i%2 == 1 && !d.IsZero() {
			t.Errorf("the deadline %v stays", d)
		}
		if i%2 == 1 {
			continue
		}
		if set++; d.Before(begin.Add(time.Hour)) {
			t.Errorf("deadline %d is %v, want one after %v", i, d, begin.Add(time.Hour))
		}
		begin = d.Add(-time.Hour)
	}
	if set != takes+1 {
		t.Errorf("%d deadlines for %d times of progress and the last wait", set, takes)
	}
}

func TestReceiveHoldsNoBufferWhileWaiting(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var in polledReader
	if err := in.init(r); err != nil {
		t.Fatal(err)
	}
	ready := false
	if err := in.raw.Control(func(fd uintptr) { ready = in.tryRead(fd) }); err != nil {
		t.Fatal(err)
	}
	if ready || in.p != nil {
		t.Errorf("an empty pipe: ready = %v, holding %d bytes", ready, cap(in.p))
	}
	if _, err := w.WriteString("{}"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if p, err := in.receive(); err != nil || string(p) != "{}" {
		t.Errorf("receive() = %q, %v", p, err)
	}
	in.release()
	if in.p != nil {
		t.Error("release keeps the buffer")
	}
	if _, err := in.receive(); err != io.EOF {
		t.Errorf("receive() at the end = %v, want io.EOF", err)
	}
}
