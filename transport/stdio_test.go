//go:build linux

package transport_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/arcpd/arcpd/transport"
	"github.com/arcpd/arcpd/transport/transporttest"
)

// dialStdio connects two processes' standard files by pipes made by mk.
func dialStdio(t *testing.T, l transport.Limits, mk func(*testing.T) (io.ReadCloser, io.WriteCloser)) (a, b transport.Conn) {
	t.Helper()
	inA, outB := mk(t)
	inB, outA := mk(t)
	return transport.Stdio(inA, outA, l), transport.Stdio(inB, outB, l)
}

// polledPipe has deadlines.
func polledPipe(t *testing.T) (io.ReadCloser, io.WriteCloser) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// blockingPipe has no deadlines. Its calls block, as reads of os.Stdin and writes of os.Stdout
// usually do.
func blockingPipe(t *testing.T) (io.ReadCloser, io.WriteCloser) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
}

func TestStdioIsAConn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	for name, mk := range map[string]func(*testing.T) (io.ReadCloser, io.WriteCloser){
		"polled": polledPipe, "blocking": blockingPipe,
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T, l transport.Limits) (a, b transport.Conn) {
				return dialStdio(t, l, mk)
			})
		})
	}
}

func stdioOver(t *testing.T, input string, l transport.Limits) transport.Conn {
	t.Helper()
	c := transport.Stdio(io.NopCloser(strings.NewReader(input)), nopWriteCloser{io.Discard}, l)
	t.Cleanup(func() { c.Abort() })
	return c
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

func TestReadReturnsEachLine(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	c := stdioOver(t, "{}\n\n\r\n[1]\r\n \n"+long+"\n1\r\n"+long+"\r\n", transport.Limits{})
	wantRead(t, c, "{}", "[1]", " ", long, "1", long)
	_, err := c.Read()
	e, ok := errors.AsType[*transport.Error](err)
	if !ok || e.Code != transport.CloseNoStatus || !e.Remote || !errors.Is(err, io.EOF) {
		t.Errorf("Read() at the end = %v, want %d by the peer", err, transport.CloseNoStatus)
	}
}

func TestInvalidLinesHaveACloseCode(t *testing.T) {
	for input, want := range map[string]transport.CloseCode{
		"0123456789\r\n01234567890\n":                  transport.CloseTooBig,
		"0123456789\r\n" + strings.Repeat("x", 99_999): transport.CloseTooBig,
		"0123456789\n\xff\n":                           transport.CloseNotUTF8,
		"0123456789\n0123":                             transport.CloseAbnormal,
	} {
		c := stdioOver(t, input, transport.Limits{ReadLimit: 10})
		wantRead(t, c, "0123456789")
		wantCode(t, c, want)
	}
}

// A frame that is not a single line is refused before any byte is written. The connection
// stays usable.
func TestFrameOfSeveralLinesIsRefused(t *testing.T) {
	r, w := polledPipe(t)
	c := transport.Stdio(io.NopCloser(strings.NewReader("")), w, transport.Limits{})
	for _, f := range []string{"1", "", "two\nlines", "\n", "2", "\n" + strings.Repeat("x", 100_000)} {
		if err, bad := c.Write([]byte(f)), f == "" || strings.Contains(f, "\n"); (err != nil) != bad {
			t.Errorf("Write(%.20q) = %v", f, err)
		}
	}
	if err := c.Close(transport.CloseNormal, "not sent"); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if got, err := io.ReadAll(r); string(got) != "1\n2\n" {
		t.Errorf("written: %q, %v", got, err)
	}
}

// Files without a reader or writer do not delay the end, even if the operating system's calls
// on them do not return.
func TestBlockedStdioDoesNotDelayClose(t *testing.T) {
	in, other := blockingPipe(t)
	another, out := blockingPipe(t)
	defer other.Close()
	defer another.Close()
	c := transport.Stdio(in, out, transport.Limits{WriteTimeout: 50 * time.Millisecond})
	read, wrote := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Read()
		read <- err
	}()
	go func() {
		var err error
		for err == nil {
			err = c.Write([]byte(strings.Repeat("x", transport.BufferSize)))
		}
		wrote <- err
	}()
	if err := <-wrote; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write() = %v, want a timeout", err)
	}
	c.Close(transport.CloseNormal, "")
	if err := <-read; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Read() = %v, want ErrClosed", err)
	}
}

// files are the other end of standard files.
type files struct {
	io.ReadCloser
	out io.WriteCloser
}

func (f files) Write(p []byte) (int, error) { return f.out.Write(p) }
func (f files) CloseWrite() error           { return f.out.Close() }

// Close closes the reading end first: the other order looks like CloseWrite for a moment.
func (f files) Close() error {
	err := f.ReadCloser.Close()
	_ = f.out.Close() // CloseWrite may have done it
	return err
}

func TestStdioHalfCloses(t *testing.T) {
	for name, mk := range map[string]func(*testing.T) (io.ReadCloser, io.WriteCloser){
		"polled": polledPipe, "blocking": blockingPipe,
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.RunHalf(t, func(t *testing.T) (transport.Conn, transporttest.Peer) {
				in, peerOut := mk(t)
				peerIn, out := mk(t)
				return transport.Stdio(in, out, transport.Limits{}), files{peerIn, peerOut}
			})
		})
	}
}
