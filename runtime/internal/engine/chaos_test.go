package engine

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// chaos runs many jobs with random tools on a runtime that is cancelled, stopped and crashed
// at random.
type chaos struct {
	*fixture
	seed   uint64
	rng    *rand.Rand
	frames []frame
	jobs   []arcp.JobID
	asked  map[arcp.MessageID]arcp.JobID
	points []frame                 // checkpoints
	wished map[arcp.MessageID]bool // requests about checkpoints

	mu    sync.Mutex
	calls map[arcp.JobID]int // of tools that must not be called twice
}

// randomTool is a tool with random behaviour.
func (c *chaos) randomTool(ctx context.Context, j tool.Job, args arcp.Raw) (arcp.Raw, error) {
	c.mu.Lock()
	c.calls[j.ID()]++
	c.mu.Unlock()
	h := fnv.New64a()
	h.Write(args)
	rng := rand.New(rand.NewPCG(c.seed+uint64(j.Attempt()), h.Sum64()))
	for range rng.IntN(6) {
		switch rng.IntN(8) {
		case 0:
			return nil, errUnavailable()
		case 1:
			panic("a randomTool")
		case 2:
			return args, nil
		case 3:
			if err := j.Checkpoint("", 1); err != nil {
				return nil, err
			}
		case 4:
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		default:
			j.Log("info", "x", nil)
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		}
	}
	return args, nil
}

func (c *chaos) collect() {
	c.Helper()
	for _, f := range c.fixture.frames("sess_1") {
		c.frames = append(c.frames, f)
		if f.Type == arcp.JobAccepted {
			c.jobs = append(c.jobs, f.JobID)
		}
		if f.Type == arcp.JobCheckpoint {
			c.points = append(c.points, f)
		}
	}
}

// rewind restores one of the latest checkpoints, of a job that has ended or not,
// or asks its job for another one.
func (c *chaos) rewind() {
	c.Helper()
	if len(c.points) == 0 {
		return
	}
	f := c.points[max(0, len(c.points)-1-c.rng.IntN(8))]
	if c.rng.IntN(4) == 0 {
		c.wished[c.create(f.JobID, "l")] = true
		return
	}
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&f.Envelope)
	if err != nil {
		c.Fatal(err)
	}
	c.wished[c.restore(f.JobID, p.CheckpointID)] = true
}

func (c *chaos) submitOne() {
	q := c.request("sess_1", string(tool.Recoveries[c.rng.IntN(3)]), fmt.Sprintf(`{"n":%d}`, c.n))
	if c.rng.IntN(2) == 0 {
		q.payload.Retry = arcp.Raw(`{"max_attempts":4,"initial_ms":500}`)
	}
	if c.rng.IntN(4) == 0 {
		q.payload.MaxRuntimeSec = new(arcp.Number("3"))
	}
	c.send(q)
}

// Under random submits, cancels, restores, stops and crashes every accepted job ends once, and no
// event follows its end. Every cancel and restore has one answer. A job with an accepted cancel ends
// as cancelled.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runEngine(t, func(cfg *Config) { cfg.Heartbeat = time.Second }, func(f *fixture) {
		c := &chaos{fixture: f, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), asked: make(map[arcp.MessageID]arcp.JobID),
			wished: make(map[arcp.MessageID]bool), calls: make(map[arcp.JobID]int)}
		for i, d := range tool.Recoveries {
			f.tool(string(d), func(k *tool.Capability) {
				k.Recovery, k.Limits.Concurrency, k.Limits.Timeout = d, 3+i, 5*time.Second
				if d == tool.RecoveryRerun {
					early(k)
				}
			}, c.randomTool)
		}
		f.session("sess_1")
		for range 600 {
			switch c.rng.IntN(12) {
			case 0:
				if len(c.jobs) > 0 {
					id := c.jobs[max(0, len(c.jobs)-1-c.rng.IntN(12))] // most of which run
					c.asked[c.cancel(id, time.Duration(c.rng.IntN(3000))*time.Millisecond)] = id
				}
			case 1:
				time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Millisecond)
			case 2:
				c.restartRandomly()
			case 3, 4:
				c.rewind()
			default:
				c.submitOne()
			}
			c.collect()
		}
		time.Sleep(time.Hour)
		c.collect()
		c.check()
		f.expectNoState("after all")
	})
}

// restartRandomly stops the runtime, with more or less patience, or crashes it, and starts
// it anew.
func (c *chaos) restartRandomly() {
	c.Helper()
	switch c.rng.IntN(3) {
	case 0:
		c.stop(time.Duration(c.rng.IntN(4000)) * time.Millisecond)
	case 1:
		c.st.breakWith(errCrash)
		time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
	}
	c.stop(0)
	synctest.Wait()
	c.collect()
	c.restart(c.st.Stat().LiveJobs)
}

func (c *chaos) check() {
	ended, cancelled, answered := make(map[arcp.JobID]arcp.Type), make(map[arcp.JobID]bool), make(map[arcp.MessageID]bool)
	for _, f := range c.frames {
		if id, ok := c.asked[f.CorrelationID]; ok {
			if answered[f.CorrelationID] {
				c.Errorf("%v: a second answer", f)
			}
			answered[f.CorrelationID] = true
			if f.Type == arcp.CancelAccepted {
				cancelled[id] = true
				if ended[id] != "" {
					c.Errorf("%v after the end of %s", f, id)
				}
			}
			continue
		}
		if c.wished[f.CorrelationID] && (f.JobID == "" || f.Type == arcp.JobAccepted) {
			if answered[f.CorrelationID] {
				c.Errorf("%v: a second answer", f)
			}
			answered[f.CorrelationID] = true
		}
		if f.JobID == "" {
			continue
		}
		if ended[f.JobID] != "" {
			c.Errorf("%v after the end of its job", f)
		}
		if f.Type.Terminal() {
			ended[f.JobID] = f.Type
		}
	}
	for _, id := range c.jobs {
		if ended[id] == "" {
			c.Errorf("%s has not ended", id)
		}
		row := c.row(id)
		if cancelled[id] && row.State != arcp.StateCancelled {
			c.Errorf("%s is %s; its cancel was accepted", id, row.State)
		}
		if row.Agent == "fail@1.0.0" && row.Attempt == 1 && c.calls[id] > 1 {
			c.Errorf("%s was called %d times in its one attempt", id, c.calls[id])
		}
	}
	if len(answered) != len(c.asked)+len(c.wished) {
		c.Errorf("%d of %d cancels and %d restores were answered", len(answered), len(c.asked), len(c.wished))
	}
	c.Logf("%d jobs, %d cancels, %d of them accepted, %d restores", len(c.jobs), len(c.asked), len(cancelled), len(c.wished))
}
