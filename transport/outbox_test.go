package transport

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
)

// discardSink is a sink that takes all.
type discardSink struct{}

func (discardSink) send([]byte, time.Duration) (bool, error) { return false, nil }

// BenchmarkOutbox measures gathering a frame without system calls.
func BenchmarkOutbox(b *testing.B) {
	for _, client := range []bool{false, true} {
		b.Run(map[bool]string{false: "server", true: "client"}[client], func(b *testing.B) {
			c := &wsConn{side: map[bool]ws.State{false: ws.StateServerSide, true: ws.StateClientSide}[client]}
			c.out.init(discardSink{}, time.Minute)
			event := bytes.Repeat([]byte("0123456789"), 20)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Write(event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// record is a sink that stores the bytes it receives, and blocks while gate is held.
type record struct {
	gate sync.Mutex
	mu   sync.Mutex
	all  []byte
	err  error
}

func (r *record) send(p []byte, _ time.Duration) (bool, error) {
	r.gate.Lock()
	defer r.gate.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, p...)
	return false, r.err
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.all)
}

func newOutbox(s sink) *outbox {
	o := &outbox{}
	o.init(s, time.Minute)
	return o
}

func put(o *outbox, s string) error { return o.put(outFrame{body: []byte(s)}) }

// Control frames never land within a frame that is sent in several writes.
func TestControlFramesStayOutOfFrames(t *testing.T) {
	r := &record{}
	o := newOutbox(r)
	big := string(bytes.Repeat([]byte("."), 10*BufferSize))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if err := put(o, "<"+big+">"); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 1000 {
			if err := o.putControl([]byte("!")); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	o.join()
	inside := false
	for i, b := range r.all {
		switch b {
		case '<', '>':
			inside = b == '<'
		case '!':
			if inside {
				t.Fatalf("a control frame at %d is within a frame", i)
			}
		}
	}
	if n := bytes.Count(r.all, []byte(big)); n != 20 {
		t.Errorf("%d frames arrived, want 20", n)
	}
}

// A control frame that arrives during the last write is sent without another call.
func TestControlFrameIsNotLeftBehind(t *testing.T) {
	for range 1000 {
		r := &record{}
		o := newOutbox(r)
		var wg sync.WaitGroup
		wg.Go(func() { _ = errors.Join(put(o, "frame"), o.flush()) })
		wg.Go(func() { _ = o.putControl([]byte("control")) })
		wg.Wait()
		o.join()
		if got := r.String(); got != "framecontrol" && got != "controlframe" {
			t.Fatalf("sent %q", got)
		}
	}
}

func TestControlFramesAreBounded(t *testing.T) {
	r := &record{}
	r.gate.Lock()
	o := newOutbox(r)
	for range 1000 {
		if err := o.putControl(make([]byte, 131)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.putControl([]byte("last")); err != nil {
		t.Fatal(err)
	}
	r.gate.Unlock()
	o.join()
	if got := r.String(); len(got) > 2*maxControl || !bytes.HasSuffix([]byte(got), []byte("last")) {
		t.Errorf("sent %d bytes ending in %q", len(got), got[max(0, len(got)-4):])
	}
}

func TestNothingFollowsFarewell(t *testing.T) {
	why := errors.New("done")
	for name, farewell := range map[string]func(*outbox){
		"framefarewell": func(o *outbox) { _ = o.finish([]byte("farewell"), why) },
		"farewell":      func(o *outbox) { o.answer([]byte("farewell"), why) },
	} {
		r := &record{}
		o := newOutbox(r)
		if err := put(o, "frame"); err != nil {
			t.Fatal(err)
		}
		farewell(o)
		farewell(o)
		for _, err := range []error{put(o, "late"), o.flush(), o.putControl([]byte("late")), o.finish([]byte("late"), nil)} {
			if err != why {
				t.Errorf("after the farewell = %v, want %v", err, why)
			}
		}
		o.join()
		if got := r.String(); got != name {
			t.Errorf("sent %q, want %q", got, name)
		}
	}
}

// A peer that took bytes which had to wait is alive. A peer whose system buffers everything at
// once may not be.
func TestProgressCountsAsActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for waited, want := range map[bool]int{false: 0, true: 1} {
			var o outbox
			o.init(slowSink{waited}, time.Minute)
			signs := 0
			o.onUnblocked = func() { signs++ }
			if err := o.put(outFrame{body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			if err := o.flush(); err != nil {
				t.Fatal(err)
			}
			if signs != want {
				t.Errorf("a write that has waited for the peer: %v, was %d signs of life, want %d", waited, signs, want)
			}
		}
	})
}

// slowSink is a sink that takes its time, for the peer or not.
type slowSink struct{ waits bool }

func (s slowSink) send([]byte, time.Duration) (bool, error) {
	time.Sleep(time.Second)
	return s.waits, nil
}

// partial is a record that takes only the first bytes without waiting.
type partial struct {
	record
	room int
}

func (p *partial) trySend(b []byte) (int, error) {
	n := min(p.room, len(b))
	p.room -= n
	_, err := p.send(b[:n], 0)
	return n, err
}

// The bytes that could not be sent at once precede all later ones, and no frame is cut by a control frame.
func TestTryFlush(t *testing.T) {
	ends := map[string]func(o *outbox) error{
		"flush":    (*outbox).flush,
		"overflow": func(o *outbox) error { return put(o, string(make([]byte, 2*BufferSize))) },
		"finish":   func(o *outbox) error { return o.finish(nil, errors.New("closed")) },
		"control":  func(o *outbox) error { return o.flush() },
	}
	for name, end := range ends {
		for room := range len("frame") + 1 {
			s := &partial{room: room}
			o := newOutbox(s)
			if err := put(o, "frame"); err != nil {
				t.Fatal(err)
			}
			sent, err := o.tryFlush()
			if want := room == len("frame"); sent != want || err != nil {
				t.Fatalf("%s, room %d: sent %v, %v", name, room, sent, err)
			}
			if again, err := o.tryFlush(); again != sent || err != nil {
				t.Errorf("%s, room %d: another try: %v, %v", name, room, again, err)
			}
			want := "framenext"
			if name == "control" {
				if err := o.putControl([]byte("!")); err != nil {
					t.Fatal(err)
				}
				o.join()
				want = "frame!next"
			}
			if err := errors.Join(put(o, "next"), end(o)); err != nil {
				t.Fatal(err)
			}
			o.join()
			if got := s.String(); !strings.HasPrefix(got, want) {
				t.Errorf("%s, room %d: sent %.20q, want %q first", name, room, got, want)
			}
		}
	}
}
