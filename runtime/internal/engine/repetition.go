package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/eventlog"
	"github.com/arcpd/arcpd/runtime/store"
)

// requestDigest identifies a request (§5.2) by its payload without the key, and by the checkpoint
// from which its job begins.
func requestDigest(p *arcp.ToolInvokePayload, o *rowOptions) string {
	q := struct {
		arcp.ToolInvokePayload
		From     *arcp.RestoredFrom `json:"restored_from,omitzero"`
		Workflow bool               `json:"workflow,omitzero"`
	}{*p, o.RestoredFrom, o.Workflow}
	q.IdempotencyKey = ""
	raw, err := arcp.Marshal(q)
	if err == nil {
		raw, err = arcp.Canonical(raw)
	}
	if err != nil { // the payload was decoded from valid JSON
		panic("engine: digest of a request: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// repetitions answers the submits that repeat another one.
type repetitions struct {
	log   *eventlog.Log
	store store.Store
}

func newRepetitions(e *Engine) repetitions { return repetitions{log: e.cfg.Log, store: e.cfg.Store} }

// accepted returns the job.accepted of the original job as the answer to a submit.
func (rp repetitions) accepted(submit arcp.MessageID, id arcp.JobID) eventlog.DeferredAnswer {
	return func(ctx context.Context) arcp.Envelope {
		var accepted *store.Event
		err := rp.store.JobEvents(ctx, id, 0, func(event *store.Event) bool {
			accepted = event
			return false
		})
		if err != nil || accepted == nil || accepted.Type != arcp.JobAccepted {
			env := arcp.Frame(arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable, "the original job of this submit cannot be read"))
			env.CorrelationID = submit
			return env
		}
		return acceptedAnswer(submit, accepted)
	}
}

// outcomeTypes are job.accepted and the types that end a job.
var outcomeTypes = func() arcp.TypeSet {
	set := arcp.Lookup(arcp.JobAccepted).Bit
	for i := range arcp.Catalog {
		if s := &arcp.Catalog[i]; s.Type.Terminal() {
			set |= s.Bit
		}
	}
	return set
}()

// answer answers a submit with a used idempotency key (§5.2). The same request gets the original accept
// and outcome, another request a refusal.
func (rp repetitions) answer(s *Submit, original arcp.JobID, same bool) {
	if !same {
		s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeDuplicateKey,
			"the idempotency key was used with another request")))
		return
	}
	f := store.Follow{Session: s.Session, Job: original, CorrelationID: s.Envelope.ID, Types: outcomeTypes}
	if s.OneFollow {
		f.CorrelationID, f.New = "", true
	}
	rp.replay(s, &f)
}

// replay sends a session the accept and the outcome of a job again. The write of the follow decides
// whether the job has ended: then the outcome is in its history. Otherwise the outcome comes by the
// follow, or by an earlier one with f.New. An accept that is an answer precedes the history.
func (rp repetitions) replay(s *Submit, f *store.Follow) {
	if s.Session == "" {
		if s.Existing != nil {
			s.Existing(f.Job)
		}
		return
	}
	if s.AcceptedIsAnswer {
		f.Types &^= arcp.Lookup(arcp.JobAccepted).Bit
	}
	rp.log.Follow(*f, func(res *store.Result) {
		if s.AcceptedIsAnswer && res.Err == nil {
			s.Answers.AnswerAfterEvents(rp.accepted(s.Envelope.ID, f.Job))
		}
	}, func(res *store.Result) {
		if res.Err != nil {
			s.Answers.AnswerAfterEvents(refusalFrame(s, arcp.JobFailed, arcp.Errorf(arcp.CodeUnavailable,
				"the original job of this submit cannot be read")))
		}
	})
}
