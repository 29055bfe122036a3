package conn

import (
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/engine"
	"github.com/arcpd/arcpd/runtime/internal/session/machine"
)

// authorityRoutes has the handlers of answers to questions, and of messages about authority.
var authorityRoutes = map[arcp.Type]handler{
	arcp.HumanInputResponse:  onAnswer(inputAnswer),
	arcp.HumanChoiceResponse: onAnswer(choiceAnswer),
	arcp.PermissionGrant:     onAnswer(grantAnswer),
	arcp.PermissionDeny:      onAnswer(denyAnswer),
	arcp.PermissionRequest:   on(commandsOf, (*commands).elevate),
	arcp.LeaseRefresh:        on(commandsOf, (*commands).extendLease),
	arcp.LeaseRevoked:        on(commandsOf, (*commands).revokeLease),
}

// onAnswer makes the handler of a type that answers a question. answerOf converts the payload.
func onAnswer[P any](answerOf func(*P) (approval.Answer, error)) handler {
	return on(commandsOf, func(cm *commands, now time.Time, env *arcp.Envelope, p *P) error {
		answer, err := answerOf(p)
		if err != nil {
			return err
		}
		return cm.respond(now, env, answer)
	})
}

func inputAnswer(p *arcp.HumanInputResponsePayload) (approval.Answer, error) {
	if len(p.Value) == 0 {
		return approval.Answer{}, errInvalid("payload member %q is required", "value")
	}
	return approval.Answer{Value: p.Value, RespondedBy: p.RespondedBy}, nil
}

func choiceAnswer(p *arcp.HumanChoiceResponsePayload) (approval.Answer, error) {
	return approval.Answer{Resolution: p.ChoiceID, RespondedBy: p.RespondedBy}, nil
}

func grantAnswer(p *arcp.PermissionGrantPayload) (approval.Answer, error) {
	return approval.Answer{Grant: &arcp.PermissionTerm{Permission: p.Permission, Resource: p.Resource,
		Operation: p.Operation, Seconds: p.LeaseSeconds}}, nil
}

func denyAnswer(p *arcp.PermissionDenyPayload) (approval.Answer, error) {
	return approval.Answer{Resolution: approval.Deny, Reason: machine.ClipReason(p.Reason)}, nil
}

// respond passes an answer to the job that asks the question correlation_id.
func (cm *commands) respond(now time.Time, env *arcp.Envelope, answer approval.Answer) error {
	c := cm.c
	if env.CorrelationID == "" {
		return errInvalid("correlation_id must be the id of the question")
	}
	actor := c.principal.actor()
	a, ok := c.srv.opts.Questions.Find(string(env.CorrelationID))
	if !ok || a.Row.Job == "" || hiddenFrom(&a.Row, &actor) {
		c.nack(now, env.ID, arcp.Errorf(arcp.CodeNotFound,
			"no question %s is pending: it was answered, withdrawn or never asked", env.CorrelationID))
		return nil
	}
	if err := checkAnswerType(&a.Row, env.Type); err != nil {
		c.nack(now, env.ID, err)
		return nil
	}
	c.unanswered.add()
	c.srv.opts.Engine.Questions().Respond(engine.Response{Job: a.Row.Job, ID: a.Row.ID, Request: env.ID, Actor: actor, Answer: answer,
		Done: func(row approval.Row, err *arcp.Error) {
			switch {
			case err != nil:
				answerSender{c}.AnswerBeforeEvents(answerTo(env.ID, arcp.Nack, err))
			case row.Resolution == approval.Granted: // lease.granted is the answer
				c.unanswered.done()
			default:
				answerSender{c}.AnswerBeforeEvents(answerTo(env.ID, arcp.Ack, arcp.AckPayload{}))
			}
			c.tasks.runOnLoopOrPool(func() { c.srv.opts.Questions.AuditAnswer(&actor, &a.Row, &answer, err) })
		}})
	return nil
}

// hiddenFrom reports whether an actor must not learn that a question exists.
func hiddenFrom(q *approval.Row, actor *approval.Actor) bool {
	err := q.MayAnswer(actor)
	return err != nil && err.Code == arcp.CodeNotFound
}

// checkAnswerType refuses an answer of a type that does not match the kind of the question.
func checkAnswerType(q *approval.Row, got arcp.Type) *arcp.Error {
	want := arcp.HumanChoiceResponse
	switch q.Kind {
	case approval.Permission:
		want = arcp.PermissionGrant
		if got == arcp.PermissionDeny {
			want = arcp.PermissionDeny
		}
	case approval.Input:
		want = arcp.HumanInputResponse
	}
	if got != want {
		return arcp.Errorf(arcp.CodeInvalidArgument, "the question is answered with %s, not %s", want, got)
	}
	return nil
}

// extendLease handles lease.refresh. lease.extended or nack is the answer.
func (cm *commands) extendLease(now time.Time, env *arcp.Envelope, p *arcp.LeaseRefreshPayload) error {
	c := cm.c
	if !arcp.HasPrefix(string(p.LeaseID), arcp.LeasePrefix) {
		c.refuseID(now, env, "lease_id", arcp.LeasePrefix)
		return nil
	}
	c.srv.opts.Engine.PermissionLeases().Extend(cm.requester(env.ID), p, cm.leaseReply(env, p.LeaseID))
	return nil
}

// revokeLease handles lease.revoked. lease.revoked or nack is the answer.
func (cm *commands) revokeLease(now time.Time, env *arcp.Envelope, p *arcp.LeaseRevokedPayload) error {
	c := cm.c
	if !arcp.HasPrefix(string(p.LeaseID), arcp.LeasePrefix) {
		c.refuseID(now, env, "lease_id", arcp.LeasePrefix)
		return nil
	}
	p.Reason = machine.ClipReason(p.Reason)
	c.srv.opts.Engine.PermissionLeases().Revoke(cm.requester(env.ID), p, cm.leaseReply(env, p.LeaseID))
	return nil
}

// leaseReply returns the callback that completes a request about a permission lease: it answers a
// refusal, and audits the decision.
func (cm *commands) leaseReply(env *arcp.Envelope, id arcp.LeaseID) func(*arcp.Error) {
	c := cm.c
	action, request, principal := env.Type, env.ID, c.principal.identity.Principal
	return func(err *arcp.Error) {
		if err == nil {
			c.unanswered.done()
		} else {
			answerSender{c}.AnswerBeforeEvents(answerTo(request, arcp.Nack, err))
		}
		c.tasks.runOnLoopOrPool(func() { c.srv.opts.Audit.Decision(string(action), principal, c.id, string(id), err) })
	}
}
