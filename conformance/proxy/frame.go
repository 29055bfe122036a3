package proxy

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// frame is the text of a frame with its envelope. The envelope is zero if the text cannot be
// decoded or is not UTF-8, and of a binary frame; such a frame passes unchanged.
type frame struct {
	arcp.Envelope
	text   []byte
	binary bool
}

func parse(text []byte) frame {
	f := frame{text: bytes.Clone(text)}
	var err error
	if f.Envelope, err = arcp.Decode(f.text); err != nil {
		f.Envelope, _ = arcp.DecodeDraftFromRuntime(f.text) // an undecodable frame has the zero envelope
	}
	return f
}

// event reports whether f is a numbered event.
func (f frame) event() bool { return f.EventSeq > 0 }

// with returns a copy with the envelope member name set to value; a nil value removes the member.
func (f frame) with(name string, value any) frame {
	var members map[string]json.RawMessage
	if json.Unmarshal(f.text, &members) != nil {
		return f
	}
	set(members, name, value)
	return parse(encode(members))
}

// withPayload returns a copy with the payload member name set to value; a nil value removes the
// member.
func (f frame) withPayload(name string, value any) frame {
	var members map[string]json.RawMessage
	if json.Unmarshal(f.Payload, &members) != nil {
		return f
	}
	set(members, name, value)
	return f.with("payload", json.RawMessage(encode(members)))
}

func (f frame) withNewID() frame { return f.with("id", arcp.NewMessageID()) }

func set(members map[string]json.RawMessage, name string, value any) {
	if value == nil {
		delete(members, name)
		return
	}
	members[name] = encode(value)
}

// null is the JSON null. Unlike nil it makes the member present.
var null = json.RawMessage("null")

// encode returns v as JSON without HTML escapes.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("proxy: " + err.Error()) // every caller passes a value that JSON can express
	}
	return bytes.TrimSpace(b.Bytes())
}

func (f frame) replace(old, text string) frame {
	return parse(bytes.ReplaceAll(f.text, []byte(old), []byte(text)))
}

// roundNumbers encodes the payload again with numbers rounded to floating point.
func (f frame) roundNumbers() frame {
	var payload any
	if json.Unmarshal(f.Payload, &payload) != nil {
		return f
	}
	return f.with("payload", payload)
}

// delayed returns a copy with d added to the time in the payload member name.
func (f frame) delayed(name string, d time.Duration) frame {
	at, err := time.Parse(time.RFC3339, f.stringMember(name))
	if err != nil {
		return f
	}
	return f.withPayload(name, at.Add(d))
}

// objectMember returns the payload member name; nil if the member is not an object.
func (f frame) objectMember(name string) map[string]json.RawMessage {
	var p map[string]json.RawMessage
	var o map[string]json.RawMessage
	if json.Unmarshal(f.Payload, &p) != nil || json.Unmarshal(p[name], &o) != nil {
		return nil
	}
	return o
}

// editObject edits the object in the payload member name, if present.
func (f frame) editObject(name string, edit func(o map[string]json.RawMessage)) frame {
	o := f.objectMember(name)
	if o == nil {
		return f
	}
	edit(o)
	return f.withPayload(name, o)
}

func (f frame) code() arcp.Code {
	p, _ := arcp.DecodePayload[arcp.ErrorPayload](&f.Envelope) // an undecodable payload has no code
	return p.Code
}

// numberMember returns the payload member name; 0 if the member is not a number.
func (f frame) numberMember(name string) uint64 {
	var members map[string]arcp.Raw
	var n uint64
	if arcp.Unmarshal(f.Payload, &members) != nil || arcp.Unmarshal(members[name], &n) != nil {
		return 0
	}
	return n
}

// stringMember returns the payload member name; "" if the member is not a string.
func (f frame) stringMember(name string) string {
	var members map[string]arcp.Raw
	var s string
	if arcp.Unmarshal(f.Payload, &members) != nil || arcp.Unmarshal(members[name], &s) != nil {
		return ""
	}
	return s
}

// editArguments edits the arguments of f if f calls the tool.
func (f frame) editArguments(tool string, edit func(args map[string]json.RawMessage)) frame {
	if f.stringMember("tool") != tool {
		return f
	}
	return f.editObject("arguments", edit)
}

// wrapped returns a copy of the subscribe.event f that contains the envelope inner.
func (f frame) wrapped(inner []byte) frame {
	return f.withNewID().withPayload("event", arcp.Raw(inner))
}

// forwarded returns the envelope inside a subscribe.event; the zero frame for any other frame.
func (f frame) forwarded() frame {
	if f.Type != arcp.SubscribeEvent {
		return frame{}
	}
	p, err := arcp.DecodePayload[arcp.SubscribeEventPayload](&f.Envelope)
	if err != nil {
		return frame{}
	}
	return parse(p.Event)
}
