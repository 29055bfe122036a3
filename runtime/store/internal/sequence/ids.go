package sequence

import (
	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// bodyHead is the start of store.Event.Body, up to the part of the id that setIDs and setID write.
const bodyHead = `"id":"` + arcp.MessagePrefix

// setIDs sets consecutive ids of events.
func setIDs(events []*store.Event, ids *arcp.IDSource) {
	id := ids.Reserve(len(events))
	for _, e := range events {
		arcp.AppendIDBody(e.Body[:len(bodyHead)], id)
		id = arcp.NextID(id)
	}
}

// setID sets the id of an event.
func setID(e *store.Event, ids *arcp.IDSource) { ids.Append(e.Body[:len(bodyHead)]) }
