package engine

import "github.com/arcpd/arcpd/arcp"

// SubmitInternal submits a job on behalf of the runtime, without a session. existing is called with the
// id of an earlier job with the same key. refused is called if there is no job. Neither must block.
func (e *Engine) SubmitInternal(principal, name string, args arcp.Raw, key string, refused func(*arcp.Error), existing func(arcp.JobID)) {
	e.Submit(&Submit{Envelope: &arcp.Envelope{ID: arcp.NewMessageID(), Priority: arcp.PriorityNormal, IdempotencyKey: key},
		Payload: &arcp.ToolInvokePayload{Tool: name, Arguments: args}, Principal: principal, Answers: refusalFunc(refused), Existing: existing})
}

// refusalFunc receives the refusal of a submit. It ignores the other answers.
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
