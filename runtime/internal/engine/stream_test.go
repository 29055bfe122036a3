package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// openText opens a text stream and writes a chunk.
func openText(j tool.Job, name string) (*tool.Stream, error) {
	st, err := j.OpenStream(tool.StreamOptions{Name: name})
	if err == nil {
		_, err = st.Write([]byte("chunk of " + name))
	}
	return st, err
}

// streamLog returns the events of streams as text: the stream, the type and the number of the event.
func streamLog(frames []frame) (all []string) {
	names := make(map[arcp.StreamID]string)
	for _, f := range frames {
		var text string
		switch f.Type {
		case arcp.StreamOpen:
			p, _ := arcp.DecodePayload[arcp.StreamOpenPayload](&f.Envelope)
			names[f.StreamID] = p.Name
			text = p.Kind
		case arcp.StreamChunk:
			p, _ := arcp.DecodePayload[arcp.StreamChunkPayload](&f.Envelope)
			text = fmt.Sprintf("%d %s", p.Sequence, p.Data)
		case arcp.StreamClose:
			p, _ := arcp.DecodePayload[arcp.StreamClosePayload](&f.Envelope)
			if text = "none"; p.FinalSequence != nil {
				text = fmt.Sprint(*p.FinalSequence)
			}
		case arcp.StreamError:
			p, _ := arcp.DecodePayload[arcp.Error](&f.Envelope)
			text = string(p.Code)
		default:
			continue
		}
		all = append(all, fmt.Sprintf("%s %s %s", names[f.StreamID], f.Type, text))
	}
	return all
}

func wantStreams(t *testing.T, why string, frames []frame, want ...string) {
	t.Helper()
	if got := streamLog(frames); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %q, want %q", why, got, want)
	}
}

// The chunks of each stream are numbered from 0, and the close has the number of the last one.
func TestStreamNumbers(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			a, err := openText(j, "a")
			if err != nil {
				return nil, err
			}
			empty, err := j.OpenStream(tool.StreamOptions{Name: "empty", Kind: arcp.StreamEvents})
			if err != nil {
				return nil, err
			}
			if _, err := a.Write([]byte("more")); err != nil {
				return nil, err
			}
			for _, st := range []*tool.Stream{empty, a} {
				if err := st.Close(); err != nil {
					return nil, err
				}
			}
			_, err = a.Write([]byte("late"))
			if e, _ := arcp.AsError(err); e.Code != arcp.CodeFailedPrecondition {
				t.Errorf("a write after the close: %v", err)
			}
			return nil, nil
		})
		f.submit("t", "{}")
		frames := f.want("the streams are events of the job", "job.accepted", "job.started msg_1", "stream.open msg_1", "stream.chunk msg_1",
			"stream.open msg_1", "stream.chunk msg_1", "stream.close msg_1", "stream.close msg_1", "job.completed msg_1")
		wantStreams(t, "numbers", frames, "a stream.open text", `a stream.chunk 0 "chunk of a"`, "empty stream.open event",
			`a stream.chunk 1 "more"`, "empty stream.close none", "a stream.close 1")
	})
}

// A stream that is open when its job ends has its last event before the last event of the job.
func TestStreamEndsWithJob(t *testing.T) {
	for _, c := range []struct {
		name   string
		result error
		want   []string
	}{
		{"success", nil, []string{"stream.close msg_1", "job.completed msg_1"}},
		{"failure", arcp.Errorf(arcp.CodeNotFound, "no"), []string{"stream.error msg_1 NOT_FOUND", "job.failed msg_1 NOT_FOUND"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				var st *tool.Stream
				f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (_ arcp.Raw, err error) {
					st, err = openText(j, "a")
					if err != nil {
						return nil, err
					}
					return nil, c.result
				})
				f.submit("t", "{}")
				f.want("the stream ends first", append([]string{"job.accepted", "job.started", "stream.open", "stream.chunk"}, c.want...)...)
				if err := st.Close(); err == nil {
					t.Error("a stream is closed after its job has ended")
				}
			})
		})
	}
}

func TestStreamEndsWithCancel(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			if _, err := openText(j, "a"); err != nil {
				return nil, err
			}
			return wait(ctx, j, args)
		})
		f.submit("t", "{}")
		id := f.want("the stream is open", "job.accepted", "job.started", "stream.open", "stream.chunk")[0].JobID
		f.cancel(id, 0)
		f.want("the stream ends with the job", "cancel.accepted", "stream.error msg_1 CANCELLED", "job.cancelled msg_1")
	})
}

// Streams end with their attempt. The next attempt opens its own.
func TestStreamEndsWithAttempt(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) {
			c.Recovery, c.Idempotent = tool.RecoveryRerun, new(true)
			c.Retry = tool.Retry{MaxAttempts: 2}
		}, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			if _, err := openText(j, "a"); err != nil {
				return nil, err
			}
			if j.Attempt() == 1 {
				return nil, arcp.Errorf(arcp.CodeUnavailable, "again")
			}
			return nil, nil
		})
		f.submit("t", "{}")
		time.Sleep(time.Hour)
		f.want("each attempt ends its stream", "job.accepted", "job.started", "stream.open", "stream.chunk", "stream.error msg_1 UNAVAILABLE",
			"event.emit", "job.started", "stream.open", "stream.chunk", "stream.close", "job.completed")
	})
}

// After a crash the streams of the attempt end before anything else of the job.
func TestStreamEndsAfterCrash(t *testing.T) {
	for recovers, want := range map[tool.Recovery][]string{
		tool.RecoveryFail:  {"stream.error msg_1 ABORTED", "job.failed msg_1 ABORTED"},
		tool.RecoveryRerun: {"stream.error msg_1 ABORTED", "job.started msg_1"},
	} {
		t.Run(string(recovers), func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", recovery(recovers), func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
					if j.Attempt() > 1 {
						return wait(ctx, j, args)
					}
					closed, err := openText(j, "closed")
					if err != nil {
						return nil, err
					}
					time.Sleep(time.Second) // until its opening is in the log
					if err := closed.Close(); err != nil {
						return nil, err
					}
					if _, err := openText(j, "open"); err != nil {
						return nil, err
					}
					return wait(ctx, j, args)
				})
				f.submit("t", "{}")
				time.Sleep(time.Minute)
				before := f.want("one stream is open", "job.accepted", "job.started", "stream.open", "stream.chunk", "stream.close", "stream.open", "stream.chunk")
				f.restart(1)
				after := f.want("the open stream ends first", want...)
				if opened, ended := before[5].StreamID, after[0].StreamID; opened != ended {
					t.Errorf("%s ends, want the open stream %s", ended, opened)
				}
				if recovers == tool.RecoveryRerun {
					f.restart(1)
					f.want("a stream ends once", "job.started msg_1")
				}
			})
		})
	}
}

// A job has a bounded number of open streams.
func TestOpenStreamsAreBounded(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			var first *tool.Stream
			for range maxOpenStreams {
				st, err := j.OpenStream(tool.StreamOptions{})
				if err != nil {
					return nil, err
				}
				if first == nil {
					first = st
				}
			}
			_, err := j.OpenStream(tool.StreamOptions{})
			if e, _ := arcp.AsError(err); e.Code != arcp.CodeResourceExhausted {
				t.Errorf("a stream too many: %v", err)
			}
			if err := first.Close(); err != nil {
				return nil, err
			}
			_, err = j.OpenStream(tool.StreamOptions{})
			return nil, err
		})
		f.submit("t", "{}")
		frames := f.frames("sess_1")
		if last := frames[len(frames)-1]; last.Type != arcp.JobCompleted {
			t.Errorf("the job ends with %s", last)
		}
	})
}

// writer writes a chunk a second to a stream, counts the chunks, and returns the error of a write.
func (f *fixture) writer(name string, written *atomic.Int32) {
	f.tool(name, nil, func(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
		st, err := j.OpenStream(tool.StreamOptions{})
		for err == nil && written.Load() < 100 {
			if _, err = st.Write([]byte("x")); err == nil {
				written.Add(1)
				time.Sleep(time.Second)
			}
		}
		if e, _ := arcp.AsError(err); err != nil && e.Code == arcp.CodeCancelled && ctx.Err() == nil {
			return arcp.Raw(`"the stream was cancelled"`), nil
		}
		return nil, err
	})
}

// openedStream submits the tool and returns the id of its stream.
func (f *fixture) openedStream(name string) arcp.StreamID {
	f.Helper()
	f.submit(name, "{}")
	time.Sleep(time.Second / 2)
	return f.want("the stream is open", "job.accepted", "job.started", "stream.open", "stream.chunk")[2].StreamID
}

// A cancelled stream ends, and its job continues: only the next write of the tool fails.
func TestCancelStream(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.writer("t", new(atomic.Int32))
		id := f.openedStream("t")
		cancel := func(principal, request string) {
			from := f.requester()
			from.Request, from.Principal = arcp.MessageID(request), principal
			f.e.Streams().Cancel(from, &arcp.CancelPayload{TargetID: string(id)})
		}
		cancel("mallory", "msg_a")
		f.want("the stream of another principal does not exist", "cancel.refused msg_a not_found")
		cancel("alice", "msg_b")
		f.want("the answer precedes the end", "cancel.accepted msg_b", "stream.error msg_1 CANCELLED")
		cancel("alice", "msg_c")
		f.want("the stream has ended", "cancel.refused msg_c not_found")
		time.Sleep(time.Minute)
		f.want("the job ends as its tool decides", "job.completed msg_1")
	})
}

// The writes to a stream wait for the slowest client, until its bound or its connection ends.
func TestSlowStream(t *testing.T) {
	var written atomic.Int32
	slow := func(f *fixture, session string, id arcp.StreamID, p arcp.BackpressurePayload) {
		t.Helper()
		if err := f.e.Streams().Slow(Requester{Principal: "alice", Session: arcp.SessionID(session)}, id, &p); err != nil {
			t.Error(err)
		}
	}
	after := func(why string, d time.Duration, want int32) {
		t.Helper()
		before := written.Load()
		time.Sleep(d)
		if n := written.Load() - before; n != want {
			t.Errorf("%s: %d chunks in %v, want %d", why, n, d, want)
		}
	}
	runEngine(t, nil, func(f *fixture) {
		f.writer("t", &written)
		id := f.openedStream("t")
		after("without bounds", 4*time.Second, 4)
		slow(f, "sess_1", id, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(2 * len(`"x"`)))})
		after("two chunks fit", 10*time.Second, 2)
		slow(f, "sess_1", id, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(1 << 20))})
		after("there is room again", 3500*time.Millisecond, 4)
		slow(f, "sess_1", id, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(0))})
		slow(f, "sess_2", id, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(0))})
		after("no room", 5*time.Second, 0)
		f.e.Streams().Release("sess_1")
		after("the other client has no room", 5*time.Second, 0)
		f.e.Streams().Release("sess_2")
		after("the clients are gone", 3500*time.Millisecond, 4)
		slow(f, "sess_1", id, arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(0))})
		after("the client never has room", maxStreamWait, 0)
		after("a bound does not stop a stream for ever", 3*time.Second, 3)
		if err := f.e.Streams().Slow(Requester{Principal: "mallory"}, id, &arcp.BackpressurePayload{}); err == nil || err.Code != arcp.CodeNotFound {
			t.Errorf("a client of another principal slows the stream: %v", err)
		}
	})
}

// A cancel of the job ends the wait of a write.
func TestCancelEndsSlowWrite(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.writer("t", new(atomic.Int32))
		id := f.openedStream("t")
		st := f.e.streams.find(id)
		if err := f.e.Streams().Slow(Requester{Principal: "alice", Session: "sess_1"}, id, &arcp.BackpressurePayload{BufferRemainingBytes: new(uint64(0))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		f.cancel(st.s.row.ID, 0)
		f.want("the tool stops at once", "cancel.accepted", "stream.error msg_1 CANCELLED", "job.cancelled msg_1 CANCELLED")
		if x := &f.e.streams; len(x.byID)+len(x.slowed) != 0 {
			t.Error("an ended stream is not forgotten")
		}
	})
}
