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
	return tool.New(capability("sleep", "Sleeps, and stops when it is asked to."),
		func(ctx context.Context, _ tool.Job, a waitArgs) (sleepResult, error) {
			return sleepResult{a.MS}, pause(ctx, a.MS)
		})
}

type stubbornResult struct {
	StubbornMS millis `json:"stubborn_ms"`
}

func newStubborn() (*tool.Tool, error) {
	return tool.New(capability("stubborn", "Sleeps, and ignores being asked to stop."),
		func(_ context.Context, _ tool.Job, a waitArgs) (stubbornResult, error) {
			time.Sleep(a.MS.duration())
			return stubbornResult{a.MS}, nil
		})
}

type stallResult struct {
	StalledMS millis `json:"stalled_ms"`
}

func newStall() (*tool.Tool, error) {
	return tool.New(capability("stall", "Sends no heartbeats while it sleeps."),
		func(ctx context.Context, job tool.Job, a waitArgs) (stallResult, error) {
			job.ManualHeartbeat()
			return stallResult{a.MS}, pause(ctx, a.MS)
		})
}
