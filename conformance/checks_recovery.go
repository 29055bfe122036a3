package conformance

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
)

func recoveryCheckpoints(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	job := c.Invoke("demo.count", map[string]any{"to": 5, "interval_ms": 1})
	c.Completed("demo.count ends well", job)
	ids := map[string]bool{}
	for i, f := range job.Events {
		if f.Type != arcp.JobCheckpoint {
			continue
		}
		want(t, "a checkpoint comes after the progress it holds", job.Event(i-1).Type, arcp.JobProgress)
		id := payload[arcp.JobCheckpointPayload](t, f).CheckpointID
		t.Want("a checkpoint has an id of its own", id != "" && !ids[id], "it is %q", id)
		ids[id] = true
	}
	want(t, "every step has a checkpoint", len(ids), 5)
}

func recoveryNegotiated(_ context.Context, t *T) {
	c := t.Open()
	job := c.Invoke("demo.count", map[string]any{"to": 5, "interval_ms": 1})
	c.Completed("demo.count ends well", job)
	want(t, "checkpoints are neither sent nor counted", len(job.Events), 8) // the validator looks for gaps
	want(t, "progress is sent", len(job.Of(arcp.JobProgress)), 5)
}

func recoveryFollowed(_ context.Context, t *T) {
	owner, with, without := t.Open(), t.Open(offer(arcp.FeatureCheckpoints)), t.Open()
	job := owner.Invoke("demo.count", map[string]any{"to": 3, "interval_ms": 1})
	for follower, expected := range map[*Conn]int{with: 9, without: 6} {
		follower.subscribe(arcp.JobSubscribePayload{JobID: job.ID, History: true})
		want(t, "a follower sees what it negotiated", len(follower.copies(job.ID)), expected)
	}
}

// ofJob puts the job into a message.
func ofJob(id arcp.JobID) func(*arcp.Envelope) {
	return func(env *arcp.Envelope) { env.JobID = id }
}

func recoveryCreate(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	submit := c.Submit("demo.count", map[string]any{"to": 100_000, "interval_ms": 5})
	job := c.AwaitStarted(submit)
	id := c.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{Label: "conformance"}, ofJob(job))
	c.Await("checkpoint.create is answered", arcp.Ack, id)
	for label := ""; label == ""; {
		f := c.Await("the checkpoint is made", arcp.JobCheckpoint, "")
		label = payload[arcp.JobCheckpointPayload](t, f).Label
		t.Want("the checkpoint is the one asked for", label == "" || label == "conformance", "its label is %q", label)
	}
	c.Cancel(job, 5000)
	c.Await("the job ends", arcp.JobCancelled, submit)
}

func recoveryCreateRefused(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	ended := c.Invoke("demo.count", map[string]any{"to": 1, "interval_ms": 1}).ID
	submit := c.Submit("demo.sleep", map[string]any{"ms": 60_000})
	sleeps := c.AwaitStarted(submit)
	for _, job := range []arcp.JobID{ended, sleeps} {
		id := c.Send(arcp.CheckpointCreate, arcp.CheckpointCreatePayload{}, ofJob(job))
		c.ExpectNack("there is nothing to make a checkpoint of", id, arcp.CodeFailedPrecondition)
	}
	c.Cancel(sleeps, 5000)
	c.Follow(submit)
}

func recoveryRestore(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	job := c.Invoke("demo.count", map[string]any{"to": 5, "interval_ms": 1})
	point := payload[arcp.JobCheckpointPayload](t, job.Of(arcp.JobCheckpoint)[2]).CheckpointID
	restored := c.Follow(c.Send(arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: point}, ofJob(job.ID)))
	t.Want("the job is a new one", restored.ID != job.ID, "it is the one that has ended")
	var result struct {
		ResumedFrom int `json:"resumed_from"`
	}
	t.Want("the job ends well", arcp.Unmarshal(c.Completed("the job ends well", restored), &result) == nil, "got %s", restored.End().Payload)
	want(t, "the job goes on from the checkpoint", result.ResumedFrom, 3)
}

func recoveryRestoreUnknown(_ context.Context, t *T) {
	c := t.Open(offer(arcp.FeatureCheckpoints))
	job := c.Invoke("demo.count", map[string]any{"to": 1, "interval_ms": 1}).ID
	id := c.Send(arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: "chk_1"}, inJob)
	c.ExpectNack("there is no such job", id, arcp.CodeJobNotFound)
	id = c.Send(arcp.CheckpointRestore, arcp.CheckpointRestorePayload{CheckpointID: "chk_nobodys"}, ofJob(job))
	c.ExpectNack("there is no such checkpoint", id, arcp.CodeNotFound)
}

func recoveryOutcome(_ context.Context, t *T) {
	owner, other := t.Open(), t.Open()
	for _, job := range []*Job{owner.Invoke("demo.echo", map[string]any{"n": 1}),
		owner.Invoke("demo.fail", map[string]any{"code": "DATA_LOSS", "message": "gone"})} {
		var row struct {
			JobID   arcp.JobID `json:"job_id"`
			Outcome arcp.Raw   `json:"outcome"`
		}
		other.call(&row, "jobs.get", map[string]any{"job_id": job.ID})
		want(t, "the job is the one asked for", row.JobID, job.ID)
		want(t, "the outcome is what its session was told", string(row.Outcome), string(job.End().Payload))
	}
}

func recoveryWait(_ context.Context, t *T) {
	owner, other := t.Open(), t.Open()
	submit, job := owner.sleeps(arcp.SubmitOptions{})
	var row struct {
		Status  arcp.JobState `json:"status"`
		Outcome arcp.Raw      `json:"outcome"`
	}
	other.call(&row, "jobs.wait", map[string]any{"job_id": job, "timeout_ms": 10})
	t.Want("nothing has come of a job that goes on", !row.Status.Terminal() && len(row.Outcome) == 0, "it is %s with %s", row.Status, row.Outcome)
	owner.Cancel(job, 5000)
	other.call(&row, "jobs.wait", map[string]any{"job_id": job})
	want(t, "the job has ended", row.Status, arcp.StateCancelled)
	want(t, "the outcome is what its session was told", string(row.Outcome), string(owner.Follow(submit).End().Payload))
}

func recoveryDelete(_ context.Context, t *T) {
	c := t.Open()
	submit, job := c.sleeps(arcp.SubmitOptions{})
	ask := map[string]any{"job_id": job}
	c.fault("a job that goes on is not deleted", "jobs.delete", ask, arcp.CodeFailedPrecondition)
	c.Cancel(job, 5000)
	c.Follow(submit).End()
	c.Completed("a job that has ended is deleted", c.Invoke("jobs.delete", ask))
	c.fault("its row is gone", "jobs.get", ask, arcp.CodeJobNotFound)
	c.fault("it is deleted once", "jobs.delete", ask, arcp.CodeJobNotFound)
}

// call runs a tool and decodes its value.
func (c *Conn) call(value any, tool string, arguments any) {
	raw := c.Completed(tool+" ends well", c.Invoke(tool, arguments))
	if err := arcp.Unmarshal(raw, value); err != nil {
		c.t.Failf("%s returns %s: %v", tool, raw, err)
	}
}
