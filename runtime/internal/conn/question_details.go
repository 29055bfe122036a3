package conn

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/store"
)

// withoutDetails returns an event of a job of owner as a subscription of the client shows it. A question of
// another principal that the client may not answer has no details, which can be the arguments of a call.
func (p *principal) withoutDetails(owner string, e *store.Event) *store.Event {
	if e.Type != arcp.HumanChoiceRequest || owner == p.identity.Principal {
		return e
	}
	viewer := p.actor()
	gate := approval.Row{Kind: approval.Gate, Principal: owner} // only approvals have details
	if gate.MayAnswer(&viewer) == nil {
		return e
	}
	var question arcp.HumanChoiceRequestPayload
	if err := arcp.Unmarshal(e.Payload(), &question); err == nil && len(question.Details) == 0 {
		return e
	}
	question.Details = nil
	raw, err := arcp.Marshal(question)
	if err != nil { // strings and a time
		panic("conn: question without details: " + err.Error())
	}
	return replacePayload(e, raw)
}
