// Package transporttest has the test suite of the contract of transport.Conn.
package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/transport"
)

// Dial makes a connection and returns its two ends. Goroutines and listeners that it starts
// must end with the test.
type Dial func(t *testing.T, l transport.Limits) (server, client transport.Conn)

// callTimeout bounds the calls that must return.
const callTimeout = 30 * time.Second

// Run checks the connections that dial makes.
func Run(t *testing.T, dial Dial) {
	RunIn(t, func(t *testing.T, test func(*testing.T)) { test(t) }, dial)
}

// RunIn is Run with each test called by around, such as synctest.Test.
func RunIn(t *testing.T, around func(*testing.T, func(*testing.T)), dial Dial) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			around(t, func(t *testing.T) { test.run(t, dial) })
		})
	}
}

var tests = []struct {
	name string
	run  func(*testing.T, Dial)
}{
	{"FramesArriveInOrder", framesArriveInOrder},
	{"BothDirectionsAtOnce", bothDirectionsAtOnce},
	{"FlushSends", flushSends},
	{"WriteAloneDoesNotSend", writeAloneDoesNotSend},
	{"WriteSendsWhatDoesNotFit", writeSendsWhatDoesNotFit},
	{"WrittenFrameMayBeReused", writtenFrameMayBeReused},
	{"FrameOverTheLimit", frameOverTheLimit},
	{"LimitChanges", limitChanges},
	{"NotUTF8", notUTF8},
	{"CloseSendsWhatIsBuffered", closeSendsWhatIsBuffered},
	{"CloseCodesArrive", closeCodesArrive},
	{"ReasonIsTruncated", reasonIsTruncated},
	{"CloseEndsEverything", closeEndsEverything},
	{"CloseDropsWhatWasNotRead", closeDropsWhatWasNotRead},
	{"AbortEndsEverything", abortEndsEverything},
	{"AbortIsSeenByPeer", abortIsSeenByPeer},
	{"CloseOfBothAtOnce", closeOfBothAtOnce},
	{"ManyClosers", manyClosers},
	{"PeerThatDoesNotRead", peerThatDoesNotRead},
	{"CloseDoesNotWaitForWrite", closeDoesNotWaitForWrite},
	{"AbortEndsWrite", abortEndsWrite},
	{"AbortEndsClose", abortEndsClose},
	{"CloseKeepsTheLastFrame", closeKeepsTheLastFrame},
	{"CallsRace", callsRace},
	{"LastSeenMoves", lastSeenMoves},
	{"HalfOpenPeer", halfOpenPeer},
	{"SlowPeerIsAlive", slowPeerIsAlive},
	{"InfoTellsKind", infoTellsKind},
	{"NothingIsLeftRunning", nothingIsLeftRunning},
}

// pair is a connection under test.
type pair struct {
	*testing.T
	server, client transport.Conn
}

func newPair(t *testing.T, dial Dial, l transport.Limits) pair {
	t.Helper()
	p := pair{T: t}
	p.server, p.client = dial(t, l)
	t.Cleanup(func() {
		_ = p.server.Abort()
		_ = p.client.Abort()
	})
	return p
}

// sendsCloseCodes reports whether the peer receives close codes.
func (p pair) sendsCloseCodes() bool {
	kind := p.server.Info().Kind
	return kind == "websocket" || kind == "pipe"
}

// within fails the test if f does not return.
func (p pair) within(name string, f func()) {
	p.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	p.wait(name, done)
}

func (p pair) wait(name string, done <-chan struct{}) {
	p.Helper()
	t := time.NewTimer(callTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		p.Fatalf("%s has not returned after %v", name, callTimeout)
	}
}

// send writes and flushes, in any goroutine.
func (p pair) send(c transport.Conn, frames ...string) {
	p.Helper()
	for _, f := range frames {
		if err := c.Write([]byte(f)); err != nil {
			p.Errorf("Write of %d bytes = %v", len(f), err)
			return
		}
	}
	if err := c.Flush(); err != nil {
		p.Errorf("Flush() = %v", err)
	}
}

// read reads and compares frames, in any goroutine.
func (p pair) read(c transport.Conn, frames ...string) {
	p.Helper()
	for i, want := range frames {
		got, err := c.Read()
		if err != nil {
			p.Errorf("Read of frame %d = %v", i, err)
			return
		}
		if string(got) != want {
			p.Errorf("frame %d = %s, want %s", i, clip.Quote(string(got), maxQuoted), clip.Quote(want, maxQuoted))
			return
		}
	}
}

// mustRead calls read, and ends the test if it fails or does not return.
func (p pair) mustRead(c transport.Conn, frames ...string) {
	p.Helper()
	p.within("Read", func() { p.read(c, frames...) })
	if p.Failed() {
		p.FailNow()
	}
}

// maxQuoted bounds the part of a frame that an error quotes, in bytes.
const maxQuoted = 60

// pass sends frames from one end to the other.
func (p pair) pass(from, to transport.Conn, frames ...string) {
	p.Helper()
	var sending sync.WaitGroup
	sending.Go(func() { p.send(from, frames...) })
	p.mustRead(to, frames...)
	p.within("Flush", sending.Wait)
}

// wantEnd reads until the connection ends and returns its error.
func (p pair) wantEnd(c transport.Conn) *transport.Error {
	p.Helper()
	var err error
	p.within("Read", func() {
		for err == nil {
			_, err = c.Read()
		}
	})
	e, ok := errors.AsType[*transport.Error](err)
	if !ok {
		p.Fatalf("Read() = %v, want a *transport.Error", err)
	}
	if _, err := c.Read(); !errors.Is(err, e) {
		p.Errorf("Read() after the end = %v, want %v again", err, e)
	}
	return e
}

// frame returns n bytes of text.
func frame(n int) string {
	return strings.Repeat("0123456789abcdef", n/16+1)[:n]
}

func framesArriveInOrder(t *testing.T, dial Dial) {
	const limit = 1 << 20
	p := newPair(t, dial, transport.Limits{ReadLimit: limit})
	frames := []string{"{}", "1"}
	for _, n := range []int{
		2, 13, 14, 15, 16, 17, 124, 125, 126, 127, 128, 200, 4095, 4096, 4097, 1<<16 - 200, 1<<16 - 14, 1<<16 - 10,
		1<<16 - 5, 1<<16 - 4, 1<<16 - 3, 1<<16 - 2, 1<<16 - 1, 1 << 16, 1<<16 + 1, 200, 3<<16 + 5, limit - 1, limit,
	} {
		frames = append(frames, frame(n))
	}
	for i := range 3000 {
		frames = append(frames, fmt.Sprintf(`{"n":%d,"text":%q}`, i, "æøå ☃ 🙂"))
	}
	for _, c := range [][2]transport.Conn{{p.server, p.client}, {p.client, p.server}} {
		p.pass(c[0], c[1], frames...)
	}
}

func bothDirectionsAtOnce(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	var frames []string
	for i := range 5000 {
		frames = append(frames, fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, frame(i%500)))
	}
	var wg sync.WaitGroup
	for _, c := range []transport.Conn{p.server, p.client} {
		wg.Go(func() { p.send(c, frames...) })
		wg.Go(func() { p.read(c, frames...) })
	}
	p.within("the exchange", wg.Wait)
}

func flushSends(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.client) // nothing to send is fine
	for i := range 100 {
		question, answer := fmt.Sprint("question ", i), fmt.Sprint("answer ", i)
		p.send(p.client, question)
		p.mustRead(p.server, question)
		p.send(p.server, answer, answer)
		p.mustRead(p.client, answer, answer)
	}
}

func writeAloneDoesNotSend(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.server, "flushed")
	if err := p.server.Write([]byte("not flushed")); err != nil {
		t.Fatal(err)
	}
	_ = p.server.Abort()
	p.mustRead(p.client, "flushed")
	if f, err := p.client.Read(); err == nil {
		t.Errorf("Read() = %q, which was never flushed", f)
	}
}

func writeSendsWhatDoesNotFit(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	f := frame(1000)
	for range transport.BufferSize/len(f) + 1 {
		if err := p.server.Write([]byte(f)); err != nil {
			t.Fatal(err)
		}
	}
	p.mustRead(p.client, f, f)
}

func writtenFrameMayBeReused(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	f := []byte("before")
	if err := p.client.Write(f); err != nil {
		t.Fatal(err)
	}
	copy(f, "after!")
	p.send(p.client)
	p.mustRead(p.server, "before")
	if string(f) != "after!" {
		t.Errorf("the frame became %q", f)
	}
}

func frameOverTheLimit(t *testing.T, dial Dial) {
	for _, limit := range []int{1, 125, 1000, 1 << 16, 200_000} {
		p := newPair(t, dial, transport.Limits{ReadLimit: int64(limit)})
		p.pass(p.client, p.server, frame(limit))
		go func() { // the server may end before all of it is sent
			_ = p.client.Write([]byte(frame(limit + 1)))
			_ = p.client.Flush()
		}()
		if e := p.wantEnd(p.server); e.Code != transport.CloseTooBig || e.Remote {
			t.Errorf("limit %d: Read() = %v, want %d", limit, e, transport.CloseTooBig)
		}
		p.closeArrives(transport.CloseTooBig)
	}
}

// closeArrives closes the server and checks the close that the client receives.
func (p pair) closeArrives(code transport.CloseCode) {
	p.Helper()
	var closing sync.WaitGroup
	closing.Go(func() { _ = p.server.Close(code, "the reason") })
	e := p.wantEnd(p.client)
	_ = p.client.Close(transport.CloseNormal, "")
	p.within("Close", closing.Wait)
	want := transport.Error{Code: transport.CloseNoStatus, Remote: true}
	if p.sendsCloseCodes() {
		want = transport.Error{Code: code, Reason: "the reason", Remote: true}
	}
	if e.Code != want.Code || e.Reason != want.Reason || e.Remote != want.Remote {
		p.Errorf("Read() of the peer = %v, want %v", e, &want)
	}
}

func limitChanges(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{ReadLimit: 10})
	p.pass(p.client, p.server, frame(10))
	p.server.SetReadLimit(100_000)
	p.pass(p.client, p.server, frame(100_000))
	p.server.SetReadLimit(20)
	p.send(p.client, frame(20), frame(21))
	p.mustRead(p.server, frame(20))
	if e := p.wantEnd(p.server); e.Code != transport.CloseTooBig {
		t.Errorf("Read() = %v, want %d", e, transport.CloseTooBig)
	}
}

func notUTF8(t *testing.T, dial Dial) {
	for _, bad := range []string{"\xff", "{\"a\":\"\xc3\"}", "\xed\xa0\x80", frame(70_000) + "\xf0\x9f"} {
		p := newPair(t, dial, transport.Limits{})
		var sending sync.WaitGroup
		sending.Go(func() { p.send(p.client, "☃", bad) })
		p.mustRead(p.server, "☃")
		if e := p.wantEnd(p.server); e.Code != transport.CloseNotUTF8 || e.Remote {
			t.Errorf("Read() of %s = %v, want %d", clip.Quote(bad, maxQuoted), e, transport.CloseNotUTF8)
		}
		p.within("Flush", sending.Wait)
		p.closeArrives(transport.CloseNotUTF8)
	}
}

func closeSendsWhatIsBuffered(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	for i := range 100 {
		if err := p.server.Write(fmt.Append(nil, "frame ", i)); err != nil {
			t.Fatal(err)
		}
	}
	go p.server.Close(transport.CloseGoingAway, "bye")
	for i := range 100 {
		p.mustRead(p.client, fmt.Sprint("frame ", i))
	}
	if e := p.wantEnd(p.client); !e.Remote {
		t.Errorf("Read() = %v, want a close by the peer", e)
	}
}

func closeCodesArrive(t *testing.T, dial Dial) {
	for _, code := range []transport.CloseCode{
		transport.CloseNormal, transport.CloseGoingAway, transport.CloseProtocol, transport.CloseNotText,
		transport.CloseNotUTF8, transport.ClosePolicy, transport.CloseTooBig, transport.CloseInternal,
		transport.CloseOverloaded,
	} {
		newPair(t, dial, transport.Limits{}).closeArrives(code)
		p := newPair(t, dial, transport.Limits{})
		p.server, p.client = p.client, p.server
		p.closeArrives(code)
	}
}

func reasonIsTruncated(t *testing.T, dial Dial) {
	for _, reason := range []string{strings.Repeat("x", 123), strings.Repeat("x", 124), strings.Repeat("☃", 100)} {
		p := newPair(t, dial, transport.Limits{})
		go p.server.Close(transport.ClosePolicy, reason)
		e := p.wantEnd(p.client)
		if p.sendsCloseCodes() && (len(e.Reason) < 120 || !strings.HasPrefix(reason, e.Reason)) {
			t.Errorf("the reason %q arrived as %q", reason, e.Reason)
		}
		if len(e.Reason) > 123 || !utf8.ValidString(e.Reason) {
			t.Errorf("the reason %q arrived as %q", reason, e.Reason)
		}
		_ = p.client.Abort()
	}
}

// wantClosed checks that the calls on a closed connection return ErrClosed.
func (p pair) wantClosed(c transport.Conn) {
	p.Helper()
	if _, err := c.Read(); !errors.Is(err, transport.ErrClosed) {
		p.Errorf("Read() after the end = %v, want ErrClosed", err)
	}
	if err := c.Write([]byte("{}")); !errors.Is(err, transport.ErrClosed) {
		p.Errorf("Write() after the end = %v, want ErrClosed", err)
	}
	if err := c.Flush(); !errors.Is(err, transport.ErrClosed) {
		p.Errorf("Flush() after the end = %v, want ErrClosed", err)
	}
	p.within("a second Close", func() { _ = c.Close(transport.CloseNormal, "") })
	p.within("a second Abort", func() { _ = c.Abort() })
}

func closeEndsEverything(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.client, "1")
	p.mustRead(p.server, "1")
	end := make(chan error, 1)
	go func() {
		_, err := p.server.Read()
		end <- err
	}()
	go p.client.Read()
	p.within("Close", func() { _ = p.server.Close(transport.CloseNormal, "") })
	if err := <-end; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Read() during Close = %v, want ErrClosed", err)
	}
	p.wantClosed(p.server)
}

func closeDropsWhatWasNotRead(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.client, "1", "2")
	p.mustRead(p.server, "1")
	go p.client.Read()
	p.within("Close", func() { _ = p.server.Close(transport.CloseNormal, "") })
	p.wantClosed(p.server)
}

func abortEndsEverything(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	end := make(chan error, 1)
	go func() {
		_, err := p.server.Read()
		end <- err
	}()
	p.within("Abort", func() { _ = p.server.Abort() })
	if err := <-end; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Read() during Abort = %v, want ErrClosed", err)
	}
	p.wantClosed(p.server)
}

func abortIsSeenByPeer(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.server, "last words")
	_ = p.server.Abort()
	p.mustRead(p.client, "last words")
	e := p.wantEnd(p.client)
	if p.sendsCloseCodes() && (e.Code != transport.CloseAbnormal || e.Remote) {
		t.Errorf("Read() = %v, want %d", e, transport.CloseAbnormal)
	}
}

func closeOfBothAtOnce(t *testing.T, dial Dial) {
	for range 20 {
		p := newPair(t, dial, transport.Limits{})
		p.send(p.client, "1")
		p.send(p.server, "2")
		var wg sync.WaitGroup
		wg.Go(func() { _ = p.server.Close(transport.CloseNormal, "") })
		wg.Go(func() { _ = p.client.Close(transport.CloseNormal, "") })
		p.within("Close", wg.Wait)
		p.wantClosed(p.server)
		p.wantClosed(p.client)
	}
}

func manyClosers(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	go p.client.Read()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if i%4 == 3 {
				_ = p.server.Abort()
			} else {
				_ = p.server.Close(transport.CloseNormal, "")
			}
			if _, err := p.server.Read(); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("Read() after Close = %v, want ErrClosed", err)
			}
		})
	}
	p.within("Close", wg.Wait)
	p.wantClosed(p.server)
}

// fill writes until a write fails, and returns the error.
func fill(c transport.Conn) error {
	f := []byte(frame(transport.BufferSize))
	for {
		if err := c.Write(f); err != nil {
			return err
		}
	}
}

func peerThatDoesNotRead(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{WriteTimeout: 100 * time.Millisecond})
	var err error
	p.within("Write", func() { err = fill(p.server) })
	e, ok := errors.AsType[*transport.Error](err)
	if !ok || e.Code != transport.CloseAbnormal || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write() = %v, want %d with a timeout", err, transport.CloseAbnormal)
	}
	if again := p.server.Write([]byte("{}")); !errors.Is(again, err) {
		t.Errorf("Write() after a failed one = %v, want %v", again, err)
	}
	p.within("Close", func() { _ = p.server.Close(transport.CloseNormal, "") })
}

// blockedWrite starts writing and waits until no write returns for 20 ms. The channel receives the
// error of the writes.
func (p pair) blockedWrite() <-chan error {
	var wrote atomic.Int64
	failed := make(chan error, 1)
	go func() {
		for f := []byte(frame(transport.BufferSize)); ; wrote.Add(1) {
			if err := p.server.Write(f); err != nil {
				failed <- err
				return
			}
		}
	}()
	for before := int64(-1); before != wrote.Load(); time.Sleep(20 * time.Millisecond) {
		before = wrote.Load()
	}
	return failed
}

func (p pair) wantWriteClosed(wrote <-chan error) {
	p.Helper()
	if err := <-wrote; !errors.Is(err, transport.ErrClosed) {
		p.Errorf("Write() = %v, want ErrClosed", err)
	}
	p.wantClosed(p.server)
}

func closeDoesNotWaitForWrite(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{WriteTimeout: 100 * callTimeout})
	wrote := p.blockedWrite()
	p.within("Close", func() { _ = p.server.Close(transport.CloseNormal, "") })
	p.wantWriteClosed(wrote)
}

func abortEndsWrite(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{WriteTimeout: 100 * callTimeout})
	wrote := p.blockedWrite()
	p.within("Abort", func() { _ = p.server.Abort() })
	p.wantWriteClosed(wrote)
}

func abortEndsClose(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.server.Close(transport.CloseNormal, "") })
	wg.Go(func() { _ = p.server.Abort() })
	p.within("Close", wg.Wait)
	p.wantClosed(p.server)
}

func closeKeepsTheLastFrame(t *testing.T, dial Dial) {
	other := newPair(t, dial, transport.Limits{})
	for _, size := range []int{200, transport.BufferSize, 3 * transport.BufferSize} {
		p := newPair(t, dial, transport.Limits{})
		var sending sync.WaitGroup
		sending.Go(func() { p.send(p.client, frame(size)) })
		var lent []byte
		p.within("Read", func() { lent, _ = p.server.Read() })
		p.within("Flush", sending.Wait)
		_ = p.server.Abort()
		f := strings.Repeat("x", size)
		other.pass(other.client, other.server, f, f, f, f)
		if string(lent) != frame(size) {
			t.Errorf("a frame of %d bytes changed before the next Read", size)
		}
	}
}

func callsRace(t *testing.T, dial Dial) {
	for i := range 30 {
		p := newPair(t, dial, transport.Limits{})
		var wg sync.WaitGroup
		for _, c := range []transport.Conn{p.server, p.client} {
			wg.Go(func() { writeAll(c) })
			wg.Go(func() { pingAll(c) })
		}
		begun := make(chan struct{})
		wg.Go(func() { readAll(p.server, 1+i, begun) })
		wg.Go(func() { readAll(p.client, 0, nil) })
		wg.Go(func() {
			<-begun
			_ = p.server.Close(transport.CloseGoingAway, "")
		})
		if i%3 == 0 {
			wg.Go(func() {
				<-begun
				_ = p.client.Abort()
			})
		}
		p.within("the end", wg.Wait)
	}
}

// readAll reads to the end and then closes. It closes begun after n frames.
func readAll(c transport.Conn, n int, begun chan<- struct{}) {
	defer c.Close(transport.CloseNormal, "")
	for i := 1; ; i++ {
		if i == n {
			close(begun)
		}
		if f, err := c.Read(); err != nil || !bytes.HasPrefix(f, []byte("01")) {
			return
		}
	}
}

// writeAll writes until the connection ends.
func writeAll(c transport.Conn) {
	sizes := []int{4, 200, 2, 70_000, 130, 4000, 200}
	for i := 0; c.Write([]byte(frame(sizes[i%len(sizes)]))) == nil; i++ {
		if i%3 == 0 && c.Flush() != nil {
			return
		}
	}
}

func pingAll(c transport.Conn) {
	for range 1000 {
		if c.Ping() != nil {
			return
		}
		_, _ = c.Info(), c.LastSeen()
	}
}

func lastSeenMoves(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	first := p.server.LastSeen()
	if first.IsZero() {
		t.Error("LastSeen() is zero at first")
	}
	time.Sleep(time.Nanosecond)
	before := time.Now()
	p.send(p.client, "1")
	p.mustRead(p.server, "1")
	if last := p.server.LastSeen(); last.Before(before) {
		t.Errorf("LastSeen() = %v, after a frame was sent at %v", last, before)
	}
}

// halfOpenPeer checks a peer that vanished without closing. Writing does not advance LastSeen, and
// neither Close nor Read waits for the peer.
func halfOpenPeer(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	p.send(p.client, "1")
	p.mustRead(p.server, "1")
	last := p.server.LastSeen()
	read := make(chan error, 1)
	go func() {
		_, err := p.server.Read()
		read <- err
	}()
	p.within("Write", func() {
		for range 10 {
			p.send(p.server, frame(100))
			if err := p.server.Ping(); err != nil {
				p.Errorf("Ping() = %v", err)
			}
		}
	})
	time.Sleep(20 * time.Millisecond)
	if now := p.server.LastSeen(); !now.Equal(last) {
		t.Errorf("LastSeen() = %v, but nothing was heard after %v", now, last)
	}
	if len(read) > 0 {
		t.Errorf("Read() = %v, though nothing was sent", <-read)
		return
	}
	p.within("Close", func() { _ = p.server.Close(transport.ClosePolicy, "heartbeat lost") })
	if err := <-read; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Read() = %v, want ErrClosed", err)
	}
	p.wantClosed(p.server)
}

// slowPeerIsAlive checks that a peer that sends nothing advances LastSeen as long as it reads.
func slowPeerIsAlive(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{WriteTimeout: 100 * callTimeout})
	wrote := p.blockedWrite()
	last := p.server.LastSeen()
	p.within("Read", func() {
		for !p.server.LastSeen().After(last) {
			if _, err := p.client.Read(); err != nil {
				p.Errorf("Read() = %v", err)
				return
			}
			time.Sleep(30 * time.Millisecond) // the peer is slow: the next write waits
		}
	})
	p.within("Abort", func() { _ = p.server.Abort() })
	if err := <-wrote; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Write() = %v, want ErrClosed", err)
	}
}

func infoTellsKind(t *testing.T, dial Dial) {
	p := newPair(t, dial, transport.Limits{})
	for _, c := range []transport.Conn{p.server, p.client} {
		info := c.Info()
		switch info.Kind {
		case "websocket":
			if info.Local || info.PeerUID != -1 || info.RemoteAddr == "" || !info.Pings {
				t.Errorf("Info() = %+v, want the members of a %s", info, info.Kind)
			}
		case "stdio", "unix", "pipe":
			if !info.Local || info.PeerUID < 0 || os.Getuid() >= 0 && info.PeerUID != os.Getuid() || info.RemoteAddr != "" || info.Pings {
				t.Errorf("Info() = %+v, want the members of a %s", info, info.Kind)
			}
		default:
			t.Errorf("Info() = %+v, want a known kind", info)
		}
		if err := c.Ping(); err != nil {
			t.Errorf("Ping() = %v", err)
		}
	}
}

func nothingIsLeftRunning(t *testing.T, dial Dial) {
	before := runtime.NumGoroutine()
	for i := range 10 {
		p := newPair(t, dial, transport.Limits{})
		p.send(p.client, "1")
		p.mustRead(p.server, "1")
		_ = p.server.Ping()
		if i%2 == 0 {
			_ = p.server.Abort()
		} else {
			go p.server.Close(transport.CloseNormal, "")
		}
		_ = p.client.Close(transport.CloseNormal, "")
		_ = p.server.Close(transport.CloseNormal, "")
	}
	for until := time.Now().Add(callTimeout); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, now %d:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}
