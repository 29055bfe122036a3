package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// requestWithKey returns a request with an idempotency key.
func (f *fixture) requestWithKey(session arcp.SessionID, key, name, args string) *request {
	f.Helper()
	q := f.request(session, name, args)
	q.env.IdempotencyKey = key
	return q
}

// A submit with the same key and request gets the original job.accepted and outcome, with its
// own correlation id. The tool runs once.
func TestIdempotency(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var runs atomic.Int32
		f.tool("t", nil, func(_ context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			runs.Add(1)
			time.Sleep(time.Second)
			return args, j.Log("info", "x", nil)
		})
		f.send(f.requestWithKey("sess_1", "k", "t", `{"a":1,"b":2}`))
		first := f.want("the first submit runs", "job.accepted msg_1", "job.started msg_1")
		f.send(f.requestWithKey("sess_1", "k", "t", `{"b":2, "a":1}`))
		again := f.want("a retry while it runs", "job.accepted msg_2")
		if again[0].JobID != first[0].JobID || again[0].ID != first[0].ID {
			t.Errorf("the retry got %s of %s, want the original accept", again[0].ID, again[0].JobID)
		}
		time.Sleep(time.Second)
		f.want("both get the end, the retry nothing else", "log msg_1", "job.completed msg_1", "job.completed msg_2")
		f.send(f.requestWithKey("sess_1", "k", "t", `{"a":1,"b":2}`))
		f.want("a retry after the end", "job.accepted msg_3", "job.completed msg_3")
		f.send(f.requestWithKey("sess_2", "k", "t", `{"a":1,"b":2}`))
		if got := lines(f.frames("sess_2")); !slices.Equal(got, []string{"job.accepted msg_4", "job.completed msg_4"}) {
			t.Errorf("another session of the principal got %v", got)
		}
		inPayload := f.request("sess_1", "t", `{"a":1,"b":2}`)
		inPayload.payload.IdempotencyKey = "k"
		f.send(inPayload)
		f.want("the key may stand in the payload", "job.accepted msg_5", "job.completed msg_5")
		if runs.Load() != 1 {
			t.Errorf("the tool ran %d times, want once", runs.Load())
		}
		f.expectNoState("retries hold nothing")
	})
}

// The same key with anything else in the request is refused, and does no harm;
// another principal's key is another key.
func TestIdempotencyConflict(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, echo)
		f.tool("u", nil, echo)
		f.send(f.requestWithKey("sess_1", "k", "t", `{"a":1.0}`))
		f.want("the first submit runs", "job.accepted", "job.started", "job.completed")
		for why, change := range map[string]func(*request){
			"another tool":      func(q *request) { q.payload.Tool = "u" },
			"tool as asked":     func(q *request) { q.payload.Tool = "t@1.0.0" },
			"another argument":  func(q *request) { q.payload.Arguments = arcp.Raw(`{"a":2}`) },
			"a number's digits": func(q *request) { q.payload.Arguments = arcp.Raw(`{"a":1}`) },
			"a limit":           func(q *request) { q.payload.MaxRuntimeSec = new(arcp.Number("5")) },
			"an option":         func(q *request) { q.payload.Direct = true },
		} {
			q := f.requestWithKey("sess_1", "k", "t", `{"a":1.0}`)
			change(q)
			f.send(q)
			frames := f.want(why, "job.failed "+string(q.env.ID)+" DUPLICATE_KEY")
			if frames[0].JobID != "" || frames[0].EventSeq != 0 {
				t.Errorf("%s: the refusal has job %q and number %d, want neither", why, frames[0].JobID, frames[0].EventSeq)
			}
		}
		q := f.requestWithKey("sess_1", "k", "u", "{}")
		q.Principal = "bob"
		f.send(q)
		f.want("another principal", "job.accepted", "job.started", "job.completed")
		f.expectNoState("")
	})
}

// A submit that is refused does not occupy its key.
func TestRefusedSubmitKeepsNoKey(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(f *fixture) {
		f.tool("t", nil, wait)
		f.submitAtOnce(func() {
			f.submit("t", "{}")
			f.send(f.requestWithKey("sess_1", "k", "t", "{}"))
		})
		f.want("the second job exceeds the limit", "job.accepted", "job.failed msg_2 RESOURCE_EXHAUSTED", "job.started")
		f.e.SessionJobs().CancelAll("sess_1", "")
		f.frames("sess_1")
		f.send(f.requestWithKey("sess_1", "k", "t", `{"other":true}`))
		f.want("the key is free", "job.accepted", "job.started")
		f.e.SessionJobs().CancelAll("sess_1", "")
	})
}

// Concurrent submits with the same key create one job. Each submitter gets the job's id and
// end.
func TestIdempotencyRace(t *testing.T) {
	const racers = 32
	runEngine(t, nil, func(f *fixture) {
		var runs atomic.Int32
		f.tool("t", withoutSideEffect, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { runs.Add(1); return nil, nil })
		var requests []*request
		for i := range racers {
			requests = append(requests, f.requestWithKey(arcp.SessionID(fmt.Sprintf("sess_%d", i)), "k", "t", "{}"))
		}
		var racing sync.WaitGroup
		for _, q := range requests {
			racing.Go(func() {
				s := q.Submit
				s.Envelope, s.Payload = &q.env, &q.payload
				f.e.Submit(&s)
			})
		}
		racing.Wait()
		jobs := make(map[arcp.JobID]bool)
		for _, q := range requests {
			frames := slices.DeleteFunc(f.frames(q.Session), func(fr frame) bool { return fr.Type == arcp.JobStarted })
			want := []string{"job.accepted " + string(q.env.ID), "job.completed " + string(q.env.ID)}
			if got := lines(frames); !slices.Equal(got, want) {
				f.Fatalf("%s was sent %v, want %v", q.Session, got, want)
			}
			jobs[frames[0].JobID] = true
		}
		if runs.Load() != 1 || len(jobs) != 1 {
			t.Errorf("%d runs of %d jobs, want one of one", runs.Load(), len(jobs))
		}
		f.expectNoState("")
	})
}

// Answers to a session's submits leave in the order of the submits, also when
// one of them turns out to be a repetition, or is refused.
func TestSubmitAnswersInOrder(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, echo)
		f.tool("reads", withoutSideEffect, echo)
		f.tool("inline", func(c *tool.Capability) { c.Source = tool.SourceBuiltin }, echo)
		f.send(f.requestWithKey("sess_1", "k", "t", "{}"))
		f.frames("sess_1")

		var want []arcp.MessageID
		release := f.st.hold()
		for i := range 60 {
			q := f.request("sess_1", []string{"t", "reads", "inline", "none"}[i%4], "{}")
			switch i % 6 {
			case 1:
				q = f.requestWithKey("sess_1", "k", "t", "{}") // a repetition
			case 3:
				q = f.requestWithKey("sess_1", "k", "t", `{"x":1}`) // refused
			case 5:
				q.env.IdempotencyKey = fmt.Sprint("fresh", i)
			}
			want = append(want, f.send(q))
		}
		synctest.Wait()
		release()
		var got []arcp.MessageID
		for _, fr := range f.frames("sess_1") {
			if !slices.Contains(got, fr.CorrelationID) {
				got = append(got, fr.CorrelationID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("first answers to %v, want %v", got, want)
		}
		f.expectNoState("")
	})
}

// OnDecided is called once for each submit, with any outcome.
func TestSubmitIsDecidedOnce(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, echo)
		f.tool("inline", func(c *tool.Capability) { c.Source = tool.SourceBuiltin }, echo)
		decided := make(map[arcp.MessageID]int)
		var mu sync.Mutex
		send := func(q *request) {
			id := q.env.ID
			q.OnDecided = func() { mu.Lock(); decided[id]++; mu.Unlock() }
			f.send(q)
		}
		send(f.request("sess_1", "t", "{}"))
		send(f.request("sess_1", "none", "{}"))
		send(f.request("sess_1", "inline", "{}"))
		send(f.requestWithKey("sess_1", "k", "t", "{}"))
		send(f.requestWithKey("sess_1", "k", "t", "{}"))
		send(f.requestWithKey("sess_1", "k", "t", `{"x":1}`))
		gone := f.request("sess_1", "t", "{}")
		gone.Session = "sess_gone"
		send(gone)
		f.frames("sess_1")
		f.cfg.Log.Close()
		send(f.request("sess_1", "t", "{}"))
		send(f.requestWithKey("sess_1", "k2", "t", "{}"))
		f.frames("sess_1")
		if len(decided) != 9 {
			t.Errorf("%d submits are decided, want 9", len(decided))
		}
		for id, n := range decided {
			if n != 1 {
				t.Errorf("%s is decided %d times", id, n)
			}
		}
		f.expectNoState("")
	})
}

func TestSubmitRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { c.InputSchema = arcp.Raw(`{"type":"object","required":["n"]}`) }, echo)
		f.tool("once", func(c *tool.Capability) { c.Idempotent = new(false) }, echo)
		f.tool("trusting", func(c *tool.Capability) { c.MinTrust = "trusted" }, echo)
		for why, c := range map[string]struct {
			change func(*request)
			code   arcp.Code
		}{
			"no such tool":    {func(q *request) { q.payload.Tool = "none" }, arcp.CodeAgentNotAvailable},
			"no such version": {func(q *request) { q.payload.Tool = "t@9" }, arcp.CodeAgentVersionNotAvailable},
			"no reference":    {func(q *request) { q.payload.Tool = "T!" }, arcp.CodeInvalidArgument},
			"against schema":  {func(q *request) { q.payload.Arguments = arcp.Raw("{}") }, arcp.CodeInvalidArgument},
			"no budget":       {func(q *request) { q.payload.CostBudget = []string{"USD"} }, arcp.CodeInvalidRequest},
			"no lease":        {func(q *request) { q.payload.LeaseRequest = arcp.Raw(`{"fs.read":"/**"}`) }, arcp.CodeInvalidRequest},
			"too much": {func(q *request) {
				q.payload.LeaseRequest = arcp.Raw(`{"fs.read":["/b"]}`)
				q.Lease = leaseFrom(t, `{"fs.read":["/a/**"]}`)
			}, arcp.CodePermissionDenied},
			"not trusted":  {func(q *request) { q.payload.Tool, q.Trust = "trusting", "constrained" }, arcp.CodePermissionDenied},
			"many retries": {func(q *request) { q.payload.Retry = arcp.Raw(`{"max_attempts":11}`) }, arcp.CodeInvalidRequest},
			"retries of once": {func(q *request) { q.payload.Tool, q.payload.Retry = "once", arcp.Raw(`{"max_attempts":2}`) },
				arcp.CodeInvalidRequest},
			"lease with bound": {func(q *request) {
				q.payload.LeaseConstraints = &arcp.LeaseConstraints{ExpiresAt: time.Now().UTC()}
			}, arcp.CodeInvalidRequest},
		} {
			q := f.request("sess_1", "t", `{"n":1}`)
			q.env.TraceID = "trace_9"
			c.change(q)
			f.send(q)
			fr := f.want(why, "job.failed "+string(q.env.ID)+" "+string(c.code))[0]
			if fr.EventSeq != 0 || fr.JobID != "" || fr.TraceID != "trace_9" {
				t.Errorf("%s: number %d, job %q, trace %q; want a plain answer with the trace", why, fr.EventSeq, fr.JobID, fr.TraceID)
			}
		}
		q := f.request("sess_1", "t", `{"n":1}`)
		q.payload.LeaseRequest, q.payload.Retry = arcp.Raw("{}"), arcp.Raw("null")
		f.send(q)
		f.want("options that ask for nothing", "job.accepted", "job.started", "job.completed")
		f.expectNoState("")
	})
}

func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ trace, span, wantTrace, wantParent string }{
		{parent, "s", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"},
		{"trace_1", "s", "trace_1", "s"},
		{"00-zz-b7ad6b7169203331-01", "s", "00-zz-b7ad6b7169203331-01", "s"},
		{strings.Replace(parent, "0af", "xyz", 1), "", strings.Replace(parent, "0af", "xyz", 1), ""},
	} {
		id, span := traceOf(&arcp.Envelope{TraceID: c.trace, SpanID: c.span})
		if id != c.wantTrace || span != c.wantParent {
			t.Errorf("trace(%q, %q) = %q, %q; want %q, %q", c.trace, c.span, id, span, c.wantTrace, c.wantParent)
		}
	}
	if id, _ := traceOf(&arcp.Envelope{}); len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		t.Errorf("made trace %q, want 32 hex digits", id)
	}
}

// A direct job has one answer and nothing around it.
func TestDirect(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", nil, func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
			switch string(args) {
			case `{"wait":true}`:
				<-ctx.Done()
				return nil, context.Cause(ctx)
			case `{"fail":true}`:
				return nil, arcp.Errorf(arcp.CodeNotFound, "x")
			case `{"large":true}`:
				return arcp.Raw(`"` + strings.Repeat("x", maxPayload) + `"`), nil
			}
			return args, nil
		})
		direct := func(args string) arcp.MessageID {
			q := f.request("sess_1", "t", args)
			q.payload.Direct = true
			return f.send(q)
		}
		direct(`{"n":1}`)
		fr := f.want("the value is the only event", "tool.result msg_1")[0]
		if string(fr.Payload) != `{"value":{"n":1}}` || fr.EventSeq != 1 {
			t.Errorf("%d: %s, want the value as event 1", fr.EventSeq, fr.Payload)
		}
		direct(`{"fail":true}`)
		f.want("the error is the only event", "tool.error msg_2 NOT_FOUND")
		direct(`{"large":true}`)
		e, _ := arcp.DecodePayload[arcp.Error](&f.want("chunks would be no direct answer", "tool.error msg_3 RESOURCE_EXHAUSTED")[0].Envelope)
		if e.Retryable {
			t.Error("Retryable of a too large result = true, want false")
		}
		direct(`{"wait":true}`)
		f.want("it runs")
		f.e.SessionJobs().CancelAll("sess_1", "enough")
		f.want("cancelled", "tool.error msg_4 CANCELLED")
		f.expectNoState("")
	})
}

// A built-in tool that changes nothing runs at once, free of limits, and its job is accepted and
// ended in one commit.
func TestBuiltin(t *testing.T) {
	runEngine(t, func(c *Config) { c.MaxJobs = 1 }, func(f *fixture) {
		f.tool("t", nil, wait)
		f.tool("inline", builtin(tool.SideEffectRead),
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				caller := j.Host().(Caller)
				if d, ok := ctx.Deadline(); ctx.Err() != nil || ok && time.Until(d) < time.Hour {
					t.Errorf("context of a built-in tool without a limit: deadline %v, error %v; want no error and an hour", d, ctx.Err())
				}
				if j.Log("info", "x", nil) == nil {
					t.Error("Log of an inline call = nil, want an error")
				}
				return arcp.Raw(fmt.Sprintf(`[%q,%q,%s]`, caller.Principal(), caller.Session(), args)), nil
			})
		f.submit("t", "{}")
		f.want("the other job runs", "job.accepted", "job.started")
		f.submit("inline", `{"n":1}`)
		frames := f.want("without job.started", "job.accepted msg_2", "job.completed msg_2")
		if got := string(frames[1].Payload); got != `{"value":["alice","sess_1",{"n":1}]}` {
			t.Errorf("payload %s", got)
		}
		if row := f.row(frames[0].JobID); row.State != arcp.StateCompleted {
			t.Errorf("row %s, want completed", row.State)
		}
		f.e.SessionJobs().CancelAll("sess_1", "")
		f.frames("sess_1")
		f.expectNoState("")
	})
}

// A result over 512 KiB is sent in chunks, split between characters, whose concatenation is
// the result.
func TestChunks(t *testing.T) {
	for ch, sizes := range map[string][]int{
		"€": {maxPayload, maxPayload + 1, 2*maxPayload + 3}, "x": {2 * maxPayload}, "é": {maxPayload + 2}, "🂡": {maxPayload + 3},
		`\"`: {maxPayload + 1},
	} {
		for _, size := range sizes {
			value := `"` + strings.Repeat(ch, (size-2)/len(ch)) + strings.Repeat("y", (size-2)%len(ch)) + `"`
			runEngine(t, nil, func(f *fixture) {
				f.tool("t", nil, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw(value), nil })
				f.submit("t", "{}")
				checkChunks(f.T, value, f.frames("sess_1")[2:])
			})
		}
	}
}

func checkChunks(t *testing.T, value string, frames []frame) {
	t.Helper()
	last := frames[len(frames)-1]
	done, err := arcp.DecodePayload[arcp.JobCompletedPayload](&last.Envelope)
	if err != nil || last.Type != arcp.JobCompleted {
		t.Fatalf("the last frame is %v, %v; want job.completed", last, err)
	}
	if len(value) <= maxPayload {
		if len(frames) != 1 || string(done.Value) != value {
			t.Errorf("%d bytes in %d frames, want them in one", len(value), len(frames))
		}
		return
	}
	var all strings.Builder
	for n, f := range frames[:len(frames)-1] {
		p, err := arcp.DecodePayload[arcp.JobResultChunkPayload](&f.Envelope)
		switch {
		case err != nil || f.Type != arcp.JobResultChunk:
			t.Fatalf("%v, %v; want a chunk", f, err)
		case p.ChunkSeq != uint64(n) || p.ResultID != done.ResultID || p.Encoding != "utf8" || p.More != (n < len(frames)-2):
			t.Errorf("chunk %d of %d: %d of %s, more %t", n, len(frames)-1, p.ChunkSeq, p.ResultID, p.More)
		case len(p.Data) > maxPayload || len(p.Data) == 0 || !utf8.ValidString(p.Data):
			t.Errorf("chunk %d has %d bytes, valid %t", n, len(p.Data), utf8.ValidString(p.Data))
		}
		all.WriteString(p.Data)
	}
	if all.String() != value {
		t.Errorf("the chunks have %d bytes together, want the %d bytes of the value", all.Len(), len(value))
	}
	if done.Value != nil || done.ResultSize == nil || *done.ResultSize != uint64(len(value)) {
		t.Errorf("completed with a value of %d bytes and size %v", len(done.Value), done.ResultSize)
	}
}

func TestResultTooLarge(t *testing.T) {
	s := &supervisor{run: &run{}}
	s.outcome = tooLarge(arcp.CodeInternal, maxResult+1, maxResult)
	if s.outcome.State != arcp.StateFailed || s.outcome.Err.Retryable {
		t.Errorf("outcome %+v, want a failure that is not retryable", s.outcome)
	}
}
