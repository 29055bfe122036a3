package runtime_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// dialCheckpoints opens a session that is told of checkpoints.
func (b *fixture) dialCheckpoints(name string) (*peer, string) {
	b.Helper()
	p := b.connect(nil)
	p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"%s-%s"},"client":{"kind":"test","version":"1"},
		"capabilities":{"checkpoints":true}}`, name, token))
	return p, resumeToken(b, p.expect("session.accepted"))
}

// about sends a frame about a job and returns its id.
func (p *peer) about(job arcp.JobID, typ, payload string) string {
	p.Helper()
	p.n++
	id := fmt.Sprintf("msg_%d", p.n)
	frame := fmt.Sprintf(`{"arcp":"1.1","id":%q,"type":%q,"job_id":%q,"timestamp":"2030-01-02T15:04:05Z","payload":%s}`, id, typ, job, payload)
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatalf("send %s: %v", typ, err)
	}
	return id
}

// counted reads up to the end of a count and returns where it began.
func (p *peer) counted() (from int) {
	p.Helper()
	env := p.until("job.completed")
	var result struct {
		Value struct {
			From int `json:"resumed_from"`
		} `json:"value"`
	}
	if err := arcp.Unmarshal(env.Payload, &result); err != nil {
		p.Fatal(err)
	}
	return result.Value.From
}

func checkpoint(t *testing.T, env arcp.Envelope) arcp.JobCheckpointPayload {
	t.Helper()
	p, err := arcp.DecodePayload[arcp.JobCheckpointPayload](&env)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A client has a checkpoint made while its job waits, goes back to it while the
// job runs, across a shutdown, and when the job has ended.
func TestCheckpoints(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialCheckpoints("alice")
		p.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":3,"interval_ms":9000}}`)
		job := p.expect("job.accepted", "job.started", "job.progress", "job.checkpoint").JobID
		asked := time.Now()
		request := p.about(job, "checkpoint.create", `{"label":"mine"}`)
		if env := p.expect("ack"); string(env.CorrelationID) != request || env.EventSeq != 0 {
			t.Errorf("answered with %+v", env)
		}
		mine := checkpoint(t, p.expect("job.checkpoint"))
		if mine.Label != "mine" || time.Since(asked) != 0 {
			t.Errorf("a checkpoint labelled %q after %v; want mine, at once", mine.Label, time.Since(asked))
		}
		p.expect("job.progress", "job.checkpoint")
		p.about(job, "checkpoint.restore", fmt.Sprintf(`{"checkpoint_id":%q}`, mine.CheckpointID))
		last := p.expect("ack", "job.started").EventSeq
		b.shutdown(0)
		b.boot(nil)
		p = b.resume(token, last)
		p.expect("session.resumed")
		if from := p.counted(); from != 1 {
			t.Errorf("it went on from %d, want 1", from)
		}

		request = p.about(job, "checkpoint.restore", fmt.Sprintf(`{"checkpoint_id":%q}`, mine.CheckpointID))
		env := p.expect("job.accepted")
		a, err := arcp.DecodePayload[arcp.JobAcceptedPayload](&env)
		if err != nil || a.RestoredFrom == nil || *a.RestoredFrom != (arcp.RestoredFrom{JobID: job, CheckpointID: mine.CheckpointID}) ||
			string(env.CorrelationID) != request || env.JobID == job {
			t.Errorf("%s %s, %v: want a new job restored from %s", env.Type, env.Payload, err, mine.CheckpointID)
		}
		if from := p.counted(); from != 1 {
			t.Errorf("the new job went on from %d, want 1", from)
		}
	})
}

// A restore whose answer was lost with the connection is sent again, and makes
// one job.
func TestRestoreIsSentAgain(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, token := b.dialCheckpoints("alice")
		p.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":2,"interval_ms":0}}`)
		env := p.until("job.checkpoint")
		restore := fmt.Sprintf(`{"checkpoint_id":%q}`, checkpoint(t, env).CheckpointID)
		last := p.until("job.completed").EventSeq
		p.about(env.JobID, "checkpoint.restore", restore)
		synctest.Wait()
		_ = p.conn.Abort()
		n := p.n
		p = b.resume(token, last)
		p.expect("session.resumed")
		first := p.until("job.completed").JobID
		p.n = n - 1 // the same id
		p.about(env.JobID, "checkpoint.restore", restore)
		if again := p.until("job.completed").JobID; again != first || again == env.JobID {
			t.Errorf("%s, then %s: want one new job", first, again)
		}
	})
}

// A connection handles frames while the row of an ended job is being read. The answers that need
// the row keep their order.
func TestRequestsAboutEndedJobsDoNotBlockTheConnection(t *testing.T) {
	for _, c := range []struct {
		typ, payload string
		answer       arcp.Type
	}{
		{"cancel", `{"target":"job","target_id":%q}`, arcp.CancelRefused},
		{"interrupt", `{"target":"job","target_id":%q,"prompt":"go on?"}`, arcp.Nack},
		{"checkpoint.create", `{"label":"for %s"}`, arcp.Nack},
		{"checkpoint.restore", `{"checkpoint_id":"none of %s"}`, arcp.Nack},
	} {
		inBubble(t, nil, func(b *fixture) {
			p := b.connect(nil)
			p.send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"},
				"capabilities":{"checkpoints":true,"human_input":true}}`, token))
			p.expect("session.accepted")
			p.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":1,"interval_ms":0}}`)
			job := p.until("job.completed").JobID
			block := make(chan struct{})
			b.st.set(func() { b.st.block = block })
			payload := fmt.Sprintf(c.payload, job)
			first := p.about(job, c.typ, payload)
			second := p.about(job, c.typ, payload)
			ping := p.send("ping", `{"nonce":"n"}`)
			if env := p.expect("pong"); string(env.CorrelationID) != ping {
				t.Errorf("%s: the pong answers %s, want %s", c.typ, env.CorrelationID, ping)
			}
			b.st.set(func() { b.st.block = nil })
			close(block)
			for _, want := range []string{first, second} {
				if env := p.expect(c.answer); string(env.CorrelationID) != want {
					t.Errorf("%s: %s answers %s, want %s", c.typ, env.Type, env.CorrelationID, want)
				}
			}
		})
	}
}

// An invisible checkpoint does not exist, and an impossible request is refused.
func TestCheckpointsAreRefused(t *testing.T) {
	inBubble(t, nil, func(b *fixture) {
		p, _ := b.dialCheckpoints("alice")
		p.send("tool.invoke", `{"tool":"demo.sleep","arguments":{"ms":600000}}`)
		job := p.expect("job.accepted", "job.started").JobID
		stranger, _ := b.dialCheckpoints("bob")
		for _, c := range []struct {
			p            *peer
			typ, payload string
			want         arcp.Code
		}{
			{p, "checkpoint.create", `{}`, arcp.CodeFailedPrecondition},
			{p, "checkpoint.restore", `{"checkpoint_id":"chk_1"}`, arcp.CodeFailedPrecondition},
			{p, "checkpoint.restore", `{}`, arcp.CodeInvalidRequest},
			{stranger, "checkpoint.create", `{}`, arcp.CodeJobNotFound},
			{stranger, "checkpoint.restore", `{"checkpoint_id":"chk_1"}`, arcp.CodeJobNotFound},
		} {
			id := c.p.about(job, c.typ, c.payload)
			env := c.p.expect("nack")
			if e := refusal(t, env); e.Code != c.want || string(env.CorrelationID) != id {
				t.Errorf("%s %s is refused with %+v, want %s", c.typ, c.payload, e, c.want)
			}
		}
	})
}
