package demo

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/runtime/tool"
)

// millis is a duration argument in milliseconds.
type millis int64

func (ms millis) duration() time.Duration { return time.Duration(ms) * time.Millisecond }

// pause waits for ms. It returns the cause of ctx if ctx ends first.
func pause(ctx context.Context, ms millis) error {
	if ms == 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(ms.duration())
	defer timer.Stop()
	return waitFor(ctx, timer.C)
}

func waitFor(ctx context.Context, c <-chan time.Time) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pacer spaces steps evenly. A slow caller misses steps.
type pacer struct{ ticker *time.Ticker } // nil: no delay

func newPacer(interval millis) pacer {
	if interval == 0 {
		return pacer{}
	}
	return pacer{time.NewTicker(interval.duration())}
}

// wait waits for the next step. It returns the cause of ctx if ctx has ended.
func (p pacer) wait(ctx context.Context) error {
	if p.ticker != nil {
		return waitFor(ctx, p.ticker.C)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// step is wait for an interruptible job. It saves data as a checkpoint when a client asks for one, unless data is nil.
func (p pacer) step(ctx context.Context, job tool.Job, data any) error {
	if p.ticker == nil {
		return yield(ctx, job)
	}
	var wanted <-chan struct{}
	if data != nil {
		wanted = job.CheckpointWanted()
	}
	for {
		select {
		case <-p.ticker.C:
			return yield(ctx, job)
		case <-job.Interrupted():
			if err := yield(ctx, job); err != nil {
				return err
			}
		case <-wanted:
			if err := job.Checkpoint("", data); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// yield waits while a client interrupts the job, and logs the guidance of the client. It returns the cause of ctx if
// ctx has ended.
func yield(ctx context.Context, job tool.Job) error {
	guidance, err := job.Yield(ctx)
	if err != nil || guidance == "" {
		return err
	}
	job.Logger().Info("guidance: " + guidance)
	return nil
}

func (p pacer) stop() {
	if p.ticker != nil {
		p.ticker.Stop()
	}
}
