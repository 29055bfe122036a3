package demo

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
)

type waitArgs struct {
	MS millis `json:"ms" jsonschema:"minimum=0,maximum=3600000,description=For how long."`
}

type sleepResult struct {
	SleptMS millis `json:"slept_ms"`
}

func newSleep() (*tool.Tool, error) {
	return tool.New(interruptible("sleep", "Sleeps, and stops when it is asked to."),
		func(ctx context.Context, job tool.Job, a waitArgs) (sleepResult, error) {
			return sleepResult{a.MS}, sleep(ctx, job, a.MS.duration())
		})
}

// sleep sleeps for d, without the time of interrupts.
func sleep(ctx context.Context, job tool.Job, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	end := time.Now().Add(d)
	for {
		select {
		case <-timer.C:
			return yield(ctx, job)
		case <-job.Interrupted():
			left := time.Until(end)
			if err := yield(ctx, job); err != nil {
				return err
			}
			timer.Reset(left)
			end = time.Now().Add(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type stubbornResult struct {
	StubbornMS millis `json:"stubborn_ms"`
}

func newStubborn() (*tool.Tool, error) {
	return tool.New(failingAtRestart("stubborn", "Sleeps, and ignores being asked to stop."),
		func(_ context.Context, _ tool.Job, a waitArgs) (stubbornResult, error) {
			time.Sleep(a.MS.duration())
			return stubbornResult{a.MS}, nil
		})
}

type stallResult struct {
	StalledMS millis `json:"stalled_ms"`
}

func newStall() (*tool.Tool, error) {
	return tool.New(failingAtRestart("stall", "Sends no heartbeats while it sleeps."),
		func(ctx context.Context, job tool.Job, a waitArgs) (stallResult, error) {
			job.ManualHeartbeat()
			return stallResult{a.MS}, pause(ctx, a.MS)
		})
}
