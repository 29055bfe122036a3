package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// createCheckpoint asks for a checkpoint for sess_1.
func (f *fixture) createCheckpoint(id arcp.JobID, label string) arcp.MessageID {
	f.Helper()
	f.n++
	from := f.requester()
	f.e.CreateCheckpoint(from, id, &arcp.CheckpointCreatePayload{Label: label})
	return from.Request
}

// checkpointOnRequest is a tool that saves a checkpoint when a client requests one, and ends after an hour.
func checkpointOnRequest(ctx context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
	end := time.After(time.Hour)
	for n := 1; ; n++ {
		select {
		case <-j.CheckpointWanted():
			if err := j.Checkpoint("its own", n); err != nil {
				return nil, err
			}
		case <-end:
			return arcp.Raw("1"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func checkpointLabel(t *testing.T, f frame) string {
	t.Helper()
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&f.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	return p.Label
}

// A tool that looks makes the checkpoint at once.
func TestCheckpointOnDemand(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, checkpointOnRequest)
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		f.createCheckpoint(id, "before")
		fr := f.want("the answer, then the checkpoint as any event", "ack msg_2", "job.checkpoint msg_1")[1]
		if got := checkpointLabel(t, fr); got != "before" {
			t.Errorf("label %q, want that of the request", got)
		}
		f.createCheckpoint(id, "")
		if got := checkpointLabel(t, f.want("the request without a label makes a checkpoint", "ack msg_3", "job.checkpoint msg_1")[1]); got != "its own" {
			t.Errorf("label %q, want the tool's", got)
		}
		time.Sleep(time.Hour)
		f.want("one checkpoint a request", "job.completed")
	})
}

// Commands that arrive between job.accepted and the first turn of the supervisor are applied
// when the job runs.
func TestCommandsBeforeTheFirstTurn(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { checkpoints(c); oneAtATime(c); c.Interruptible = true }, checkpointOnRequest)
		f.submitAtOnce(func() {
			f.submit("t", "{}")
			f.submit("t", "{}")
		})
		id := jobOf(f.want("the second job waits for the slot", "job.accepted msg_1", "job.accepted msg_2", "job.started msg_1"), "msg_2")
		time.Sleep(waitGrace) // the event that says why it waits is written
		synctest.Wait()
		next := f.e.run(id)
		next.mu.Lock() // as if they came when it has its slot and no supervisor yet
		next.commands.list = append(next.commands.list,
			&createCheckpoint{Requester{Request: "msg_c", Principal: "alice", Answers: f.session("sess_1")}, id, "first"},
			&interruptJob{Requester{Request: "msg_i", Principal: "alice", Session: "sess_1", Answers: f.session("sess_1")}, id, "stop"})
		next.mu.Unlock()
		time.Sleep(time.Hour)
		frames := f.want("both are met; a cursor gives answers first", "ack msg_c", "ack msg_i", "job.completed msg_1",
			"job.started msg_2", "job.checkpoint msg_2")
		if got := checkpointLabel(t, frames[4]); got != "first" {
			t.Errorf("label %q, want that of the request", got)
		}
	})
}

// Each of several requests gets its own checkpoint, in their order. Their number is bounded.
func TestCheckpointsOnDemand(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			time.Sleep(time.Second)
			var err error
			for n := range maxCheckpointRequests + 1 {
				err = errors.Join(err, j.Checkpoint("its own", n))
			}
			return nil, err
		})
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		for n := range maxCheckpointRequests {
			m := f.createCheckpoint(id, fmt.Sprint(n))
			f.want("each request is accepted", "ack "+string(m))
		}
		f.createCheckpoint(id, "more")
		f.want("too many requests wait", "nack msg_12 RESOURCE_EXHAUSTED")
		time.Sleep(time.Second)
		frames := f.frames("sess_1")
		for n := range maxCheckpointRequests {
			if got := checkpointLabel(t, frames[n]); got != fmt.Sprint(n) {
				t.Errorf("checkpoint %d is labelled %q", n, got)
			}
		}
		if got := checkpointLabel(t, frames[maxCheckpointRequests]); got != "its own" {
			t.Errorf("a checkpoint that nobody asked for is labelled %q", got)
		}
	})
}

// An expired checkpoint request is dropped, and the tool is not notified of it any more.
func TestCheckpointOnDemandExpires(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		var asked bool
		f.tool("t", checkpoints, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			j.CheckpointWanted()
			time.Sleep(checkpointRequestExpires + time.Second)
			err := j.Checkpoint("its own", 1)
			select {
			case <-j.CheckpointWanted():
				asked = true
			default:
			}
			return nil, err
		})
		f.submit("t", "{}")
		id := f.want("the job runs", "job.accepted", "job.started")[0].JobID
		f.createCheckpoint(id, "before")
		time.Sleep(time.Minute)
		if got := checkpointLabel(t, f.want("the tool makes its own checkpoint", "ack", "job.checkpoint", "job.completed")[1]); got != "its own" || asked {
			t.Errorf("label %q, asked %t; want the tool's, and not asked any more", got, asked)
		}
	})
}

func TestCheckpointOnDemandIsRefused(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("t", func(c *tool.Capability) { checkpoints(c); oneAtATime(c) },
			func(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
				<-ctx.Done()
				time.Sleep(time.Second) // it takes a moment
				return nil, nil
			})
		f.tool("other", recovery(tool.RecoveryRerun), wait)
		f.submit("t", "{}")
		f.submit("t", "{}")
		f.submit("other", "{}")
		frames := f.frames("sess_1")
		running, queued := jobOf(frames, "msg_1"), jobOf(frames, "msg_2")
		f.createCheckpoint(queued, "")
		f.want("queued", "nack msg_4 FAILED_PRECONDITION")
		f.createCheckpoint(jobOf(frames, "msg_3"), "")
		f.want("of a tool that begins at the start", "nack msg_5 FAILED_PRECONDITION")
		f.createCheckpoint("job_none", "")
		f.want("unknown", "nack msg_6 JOB_NOT_FOUND")
		f.e.CreateCheckpoint(Requester{Request: "msg_x", Principal: "mallory", Answers: f.session("sess_1")}, running,
			new(arcp.CheckpointCreatePayload))
		f.want("a job of another principal", "nack msg_x JOB_NOT_FOUND")
		f.cancel(running, 0)
		f.createCheckpoint(running, "")
		if got := lines(f.frames("sess_1")); len(got) != 2 || !slices.Contains(got, "nack msg_8 FAILED_PRECONDITION") {
			t.Errorf("while it is cancelled: %v", got)
		}
		time.Sleep(2 * time.Second)
		f.want("the cancelled job frees the slot", "job.cancelled msg_1", "job.started msg_2")
		f.createCheckpoint(running, "")
		f.want("ended", "nack msg_9 FAILED_PRECONDITION")
		f.e.CreateCheckpoint(Requester{Request: "msg_y", Principal: "mallory", Answers: f.session("sess_1")}, running,
			new(arcp.CheckpointCreatePayload))
		f.want("an ended job of another principal", "nack msg_y JOB_NOT_FOUND")
		f.stop(0)
		f.createCheckpoint(queued, "")
		f.want("after a stop", "nack msg_10")
	})
}
