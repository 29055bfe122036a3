package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

func about(id arcp.JobID) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.JobID = id }
}

// startCount starts a count and reads up to its first checkpoint.
func (c *Conn) startCount(to, intervalMS int) (submit arcp.MessageID, first *Frame) {
	submit = c.Submit("demo.count", map[string]any{"to": to, "interval_ms": intervalMS})
	return submit, c.Await("a count makes a checkpoint at every step", arcp.JobCheckpoint, submit)
}

func (c *Conn) restore(id arcp.JobID, checkpoint string) arcp.MessageID {
	return c.Send(arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: checkpoint}, about(id))
}

// resumedFrom wants a count to have succeeded and returns where it began.
func (c *Conn) resumedFrom(job *Job) int {
	var v struct {
		From int `json:"resumed_from"`
	}
	if err := arcp.Unmarshal(c.Completed("the count ends", job), &v); err != nil {
		c.t.Failf("the result of demo.count: %v", err)
	}
	return v.From
}

// checkpointCreate asks for a checkpoint before the job ends. How long its steps have
// to take depends on how slow the server is.
func checkpointCreate(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	for interval := 300; ; interval *= 5 {
		submit, first := c.startCount(2, interval)
		f := c.Answer("a request for a checkpoint is answered",
			c.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{Label: "conformance"}, about(first.JobID)))
		if f.Type == arcp.Nack && interval < 10_000 {
			c.outcomeOf(submit) // it was too late
			continue
		}
		want(t, "a request for a checkpoint is acknowledged", f.Type, arcp.Ack)
		for {
			f := c.Await("then it is made", arcp.JobCheckpoint, submit)
			if payload[arcp.JobCheckpointPayload](t, f).Label == "conformance" {
				break
			}
		}
		want(t, "the job goes on", c.resumedFrom(c.Follow(submit)), 0)
		return
	}
}

func checkpointCreateRefused(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	job := c.AwaitStarted(submit)
	create := func() arcp.MessageID {
		return c.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{}, about(job))
	}
	c.ExpectNack("a tool without checkpoints makes none", create(), arcp.CodeFailedPrecondition)
	c.Cancel(job, 5000)
	c.Follow(submit)
	c.ExpectNack("a job that has ended makes none", create(), arcp.CodeFailedPrecondition)
}

// checkpointRestore restores a checkpoint before the job ends. How long its steps have
// to take depends on how slow the server is.
func checkpointRestore(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	for interval := 200; ; interval *= 5 {
		submit, first := c.startCount(3, interval)
		c.Await("a count makes a checkpoint at every step", arcp.JobCheckpoint, submit)
		id := c.restore(first.JobID, payload[arcp.JobCheckpointPayload](t, first).CheckpointID)
		f := c.Answer("a restore is answered", id)
		if f.Type == arcp.JobAccepted && interval < 10_000 {
			c.outcomeOf(submit) // it was too late,
			c.outcomeOf(id)     // and this is another job
			continue
		}
		want(t, "a restore is acknowledged", f.Type, arcp.Ack)
		c.Await("another attempt begins", arcp.JobStarted, submit)
		job := c.Follow(submit)
		want(t, "it goes on from the checkpoint", c.resumedFrom(job), 1)
		want(t, "it is the same job", job.ID, first.JobID)
		c.ExpectNothing("a job ends once")
		return
	}
}

func checkpointRestoreFinished(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	submit, first := c.startCount(3, 0)
	old := c.Follow(submit)
	checkpoint := payload[arcp.JobCheckpointPayload](t, first).CheckpointID
	job := c.Follow(c.restore(old.ID, checkpoint))
	want(t, "it goes on from the checkpoint", c.resumedFrom(job), 1)
	accepted := job.Event(0)
	t.Want("it is accepted like any job", accepted.Type == arcp.JobAccepted, "got %s", accepted)
	t.Want("it is a new job", job.ID != old.ID, "got %s", job.ID)
	from := payload[arcp.JobAcceptedPayload](t, accepted).RestoredFrom
	t.Want("it says where it comes from", from != nil && *from == arcp.RestoredFrom{JobID: old.ID, CheckpointID: checkpoint},
		"got %s", accepted)
}

func checkpointRestoreUnknown(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	submit, first := c.startCount(2, 500)
	const nothing = "chk_00000000000000000000000000"
	id := c.restore(first.JobID, nothing)
	t.wantCode("an unknown checkpoint is refused", c.Await("an unknown checkpoint is refused", arcp.Nack, id), arcp.CodeNotFound)
	want(t, "the job is not touched", c.resumedFrom(c.outcomeOf(submit)), 0)
	c.ExpectNack("so it is of a finished job", c.restore(first.JobID, nothing), arcp.CodeNotFound)
}

func checkpointOtherPrincipal(_ context.Context, t *T) {
	owner, stranger := t.Open(offer(arcp.FeatureCheckpoints)), t.Open(as(t.target.OtherToken))
	submit, first := owner.startCount(2, 500)
	checkpoint := payload[arcp.JobCheckpointPayload](t, first).CheckpointID
	refused := func() {
		id := stranger.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{}, about(first.JobID))
		stranger.ExpectNack("what one may not see is not there", id, arcp.CodeJobNotFound)
		stranger.ExpectNack("what one may not see is not there", stranger.restore(first.JobID, checkpoint), arcp.CodeJobNotFound)
	}
	refused()
	want(t, "the job is not touched", owner.resumedFrom(owner.Follow(submit)), 0)
	refused() // now that it has ended, too
}
