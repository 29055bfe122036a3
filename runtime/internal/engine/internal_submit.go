package engine

import "github.com/arcpd/arcpd/arcp"

// SubmitInternal submits a job of the runtime that belongs to no session. If there is a job with the
// key, existing is called with its id. refused is called if there is no job. Neither must block.
func (e *Engine) SubmitInternal(principal, name string, args arcp.Raw, key string, refused func(*arcp.Error), existing func(arcp.JobID)) {
	e.Submit(Submit{Envelope: &arcp.Envelope{ID: arcp.NewMessageID(), Priority: arcp.PriorityNormal, IdempotencyKey: key},
		Payload: &arcp.ToolInvokePayload{Tool: name, Arguments: args}, Principal: principal, Answers: refusalFunc(refused), Existing: existing})
}

// refusalFunc takes the answers to a submit of the runtime. It ignores all but a refusal.
type refusalFunc func(*arcp.Error)

func (f refusalFunc) AnswerBeforeEvents(answer any) bool { return f.AnswerAfterEvents(answer) }

func (f refusalFunc) AnswerAfterEvents(answer any) bool {
	env, ok := answer.(arcp.Envelope)
	if !ok {
		return true
	}
	if err, bad := arcp.DecodePayload[arcp.Error](&env); bad == nil && err.Code != "" {
		f(&err)
	}
	return true
}
