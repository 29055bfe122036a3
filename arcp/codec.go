package arcp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arcpd/arcpd/internal/clip"
)

// MaxDepth bounds how deep objects and arrays may nest in a frame of a client. The
// envelope and its payload are two of the levels.
const MaxDepth = 64

// Raw is one JSON value kept as the bytes received. Its zero value is absent.
type Raw = jsontext.Value

// Number is a JSON number kept as its text, so that no digit is lost. The zero
// value encodes as 0.
type Number string

// MarshalJSONTo writes the number's text.
func (n Number) MarshalJSONTo(enc *jsontext.Encoder) error {
	if n == "" {
		n = "0"
	}
	return enc.WriteValue(jsontext.Value(n))
}

// UnmarshalJSONFrom reads a JSON number.
func (n *Number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if v.Kind() != '0' {
		return fmt.Errorf("a number is required, not %s", kindName(v.Kind()))
	}
	*n = Number(v)
	return nil
}

// These are encoded as they are.
type (
	plainError               Error
	plainCause               Cause
	plainCancelRefused       CancelRefusedPayload
	plainJobCancelled        JobCancelledPayload
	plainSessionEvicted      SessionEvictedPayload
	plainSubscribeClosed     SubscribeClosedPayload
	plainHumanInputCancelled HumanInputCancelledPayload
)

// MarshalJSONTo writes the error with its canonical code.
func (e Error) MarshalJSONTo(enc *jsontext.Encoder) error {
	if c := e.Code.Canonical(); c != e.Code {
		e.Details = detailsOf(e.Code, e.Details)
		e.Code = c
	}
	return json.MarshalEncode(enc, (*plainError)(&e))
}

// UnmarshalJSONFrom reads an error with its specific code.
func (e *Error) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, (*plainError)(e)); err != nil {
		return err
	}
	e.Code, e.Details = Specific(e.Code, e.Details)
	return nil
}

// MarshalJSONTo writes the cause with its canonical code.
func (c Cause) MarshalJSONTo(enc *jsontext.Encoder) error {
	c.Code = c.Code.Canonical()
	return json.MarshalEncode(enc, (*plainCause)(&c))
}

// MarshalJSONTo writes the refusal with its canonical code.
func (p CancelRefusedPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	if c := p.Code.Canonical(); c != p.Code {
		p.Details = detailsOf(p.Code, p.Details)
		p.Code = c
	}
	return json.MarshalEncode(enc, (*plainCancelRefused)(&p))
}

// UnmarshalJSONFrom reads a refusal with its specific code.
func (p *CancelRefusedPayload) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, (*plainCancelRefused)(p)); err != nil {
		return err
	}
	p.Code, p.Details = Specific(p.Code, p.Details)
	return nil
}

// MarshalJSONTo writes the payload with its canonical code; it has no details.
func (p JobCancelledPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainJobCancelled)(&p))
}

// MarshalJSONTo writes the payload with its canonical code; it has no details.
func (p SessionEvictedPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainSessionEvicted)(&p))
}

// MarshalJSONTo writes the payload with its canonical code; it has no details.
func (p SubscribeClosedPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainSubscribeClosed)(&p))
}

// MarshalJSONTo writes the payload with its canonical code; it has no details.
func (p HumanInputCancelledPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainHumanInputCancelled)(&p))
}

// FloatNumber is the shortest decimal text of f, which must be finite.
func FloatNumber(f float64) Number { return Number(strconv.FormatFloat(f, 'f', -1, 64)) }

// outward is how everything is encoded: times in UTC as AppendTime writes them,
// strings of Raw members as they were received, maps in the order of their keys.
var outward = json.JoinOptions(
	jsontext.PreserveRawStrings(true),
	json.Deterministic(true),
	json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, t time.Time) error {
		var b [TimeLen]byte
		return enc.WriteValue(AppendTime(b[:0], t))
	})))

// Marshal encodes v without HTML escaping and with times as AppendTime writes them. Members
// with omitzero are left out. Raw members must hold JSON.
func Marshal(v any) (Raw, error) { return AppendJSON(nil, v) }

// AppendJSON appends the encoding of v to dst; on an error dst is unchanged.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case jsonAppender:
		return v.AppendJSON(dst), nil
	case Raw:
		return append(dst, v...), nil
	}
	buf := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buf, v, outward); err != nil {
		return dst, err
	}
	return buf.Bytes(), nil
}

// jsonAppender is a payload that encodes itself, without reflection: the types
// a tool may emit hundreds of thousands of a second.
type jsonAppender interface{ AppendJSON(dst []byte) []byte }

// appendFloat appends a finite number.
func appendFloat(dst []byte, f float64) []byte { return jsontext.AppendFloat(dst, f, 64) }

// AppendString appends s as a JSON string; invalid UTF-8 is replaced.
func AppendString(dst []byte, s string) []byte {
	if plainLen(s) == len(s) {
		dst = append(dst, '"')
		return append(append(dst, s...), '"')
	}
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // only for invalid UTF-8
		out, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

// Unmarshal decodes strictly: exact case, no duplicate names, valid UTF-8;
// unknown members are ignored.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// UnmarshalStrict is Unmarshal that refuses members unknown to v.
func UnmarshalStrict(data []byte, v any) error {
	return json.Unmarshal(data, v, json.RejectUnknownMembers(true))
}

// Canonical returns raw as compact JSON with sorted member names and exact
// numbers, for comparing and digesting requests.
func Canonical(raw Raw) (Raw, error) {
	v := raw.Clone()
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.Multiline(false),
		jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))
	return v, err
}

// appendUnquoted appends the text of a JSON string that has been read before.
func appendUnquoted(dst []byte, quoted Raw) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(dst, quoted[1:len(quoted)-1]...)
	}
	dst, _ = jsontext.AppendUnquote(dst, quoted) // cannot fail: it was read
	return dst
}

func syntaxText(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

// peekID finds the id of a frame that may be broken elsewhere.
func peekID(frame []byte) MessageID {
	dec := jsontext.NewDecoder(bytes.NewReader(frame), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return ""
	}
	for {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return ""
		}
		if name.String() != "id" {
			if dec.SkipValue() != nil {
				return ""
			}
			continue
		}
		id, err := dec.ReadToken()
		if err != nil || id.Kind() != '"' || !ValidID(id.String()) {
			return ""
		}
		return MessageID(id.String())
	}
}

// DecodePayload decodes an envelope's payload as T. The error is an
// *EncodingError that names the member at fault.
func DecodePayload[T any](env *Envelope) (T, error) {
	var p T
	if q, ok := any(&p).(quickReader); ok {
		if q.readQuickly(env.Payload) {
			return p, nil
		}
		p = *new(T)
	}
	err := json.Unmarshal(env.Payload, &p)
	if err == nil {
		return p, nil
	}
	return p, &EncodingError{ReasonPayload, clip.Ellipsis("payload"+payloadText(err), maxMessage), env.ID}
}

// unmarshalMember is Unmarshal with an error in the terms of JSON.
func unmarshalMember(data Raw, v any) error {
	err := Unmarshal(data, v)
	if path, cause, ok := blame(err); ok {
		return errors.New(strings.TrimPrefix(path+": "+cause, ": "))
	}
	return err
}

// payloadText returns the reason of a decoding error, and the member it is about.
func payloadText(err error) string {
	path, cause, ok := blame(err)
	switch {
	case !ok:
		return ": " + syntaxText(err)
	case path == "":
		return ": " + cause
	}
	return fmt.Sprintf(" member %q: %s", path, cause)
}

// blame says which member an error is about, and why, in the terms of JSON; ok
// is false for an error of syntax.
func blame(err error) (path, cause string, ok bool) {
	sem, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return "", "", false
	}
	path = strings.TrimPrefix(string(sem.JSONPointer), "/")
	want := wanted(sem.GoType)
	switch {
	case want != "" && sem.Err != nil && (sem.JSONKind == '0' || sem.GoType == timeType):
		return path, want + " is required", true
	case sem.Err == nil && want != "":
		return path, want + " is required, not " + kindName(sem.JSONKind), true
	case sem.Err == nil:
		return path, kindName(sem.JSONKind) + " is not allowed here", true
	}
	if inner, cause, ok := blame(sem.Err); ok {
		return strings.Trim(path+"/"+inner, "/"), cause, true
	}
	return path, sem.Err.Error(), true
}

var timeType = reflect.TypeFor[time.Time]()

// wanted returns the JSON name of a Go type.
func wanted(t reflect.Type) string {
	switch t {
	case nil:
		return ""
	case timeType:
		return "a time as in " + timestampHelp
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Float64:
		return "a number"
	case reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return wanted(t.Elem())
	}
	return ""
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "this value"
}
