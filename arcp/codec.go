package arcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/arcpd/arcpd/internal/clip"
)

// MaxDepth bounds the nesting of objects and arrays in a frame of a client. The envelope and its
// payload are two of the levels.
const MaxDepth = 64

// Raw is one JSON value as received. The zero value is absent.
type Raw = jsontext.Value

// Number is the text of a JSON number, with all its digits. The zero value encodes as 0.
type Number string

// MarshalJSONTo writes the text of the number.
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

// These types have the members without the methods, for encoding and decoding the members.
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
	e.Code, e.Details = SpecificCode(e.Code, e.Details)
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
	p.Code, p.Details = SpecificCode(p.Code, p.Details)
	return nil
}

// MarshalJSONTo writes the payload with its canonical code. The payload has no details.
func (p JobCancelledPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainJobCancelled)(&p))
}

// MarshalJSONTo writes the payload with its canonical code. The payload has no details.
func (p SessionEvictedPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainSessionEvicted)(&p))
}

// MarshalJSONTo writes the payload with its canonical code. The payload has no details.
func (p SubscribeClosedPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainSubscribeClosed)(&p))
}

// MarshalJSONTo writes the payload with its canonical code. The payload has no details.
func (p HumanInputCancelledPayload) MarshalJSONTo(enc *jsontext.Encoder) error {
	p.Code = p.Code.Canonical()
	return json.MarshalEncode(enc, (*plainHumanInputCancelled)(&p))
}

// FloatNumber returns the shortest decimal text of f, which must be finite.
func FloatNumber(f float64) Number { return Number(strconv.FormatFloat(f, 'f', -1, 64)) }

// encodeOptions are the options of every encoding: times as AppendTime writes them, strings of Raw
// members as received, maps in the order of their keys.
var encodeOptions = json.JoinOptions(
	jsontext.PreserveRawStrings(true),
	json.Deterministic(true),
	json.WithMarshalers(json.MarshalToFunc(func(enc *jsontext.Encoder, t time.Time) error {
		var b [TimeLen]byte
		return enc.WriteValue(AppendTime(b[:0], t))
	})))

// Marshal encodes v without HTML escaping and with times as AppendTime writes them. Raw members
// must hold JSON.
func Marshal(v any) (Raw, error) { return AppendJSON(nil, v) }

// AppendJSON appends the encoding of v to dst like Marshal. After an error dst is unchanged.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case jsonAppender:
		return v.AppendJSON(dst), nil
	case Raw:
		return append(dst, v...), nil
	}
	buf := bytes.NewBuffer(dst)
	if err := json.MarshalWrite(buf, v, encodeOptions); err != nil {
		return dst, err
	}
	return buf.Bytes(), nil
}

// jsonAppender is a payload that encodes itself without reflection.
type jsonAppender interface{ AppendJSON(dst []byte) []byte }

// appendFloat appends a finite number.
func appendFloat(dst []byte, f float64) []byte { return jsontext.AppendFloat(dst, f, 64) }

// AppendString appends s as a JSON string. Invalid UTF-8 is replaced by U+FFFD.
func AppendString(dst []byte, s string) []byte {
	out := append(dst, '"')
	for rest := s; ; {
		n := plainLen(rest)
		out = append(out, rest[:n]...)
		if n == len(rest) {
			return append(out, '"')
		}
		escape := shortEscape(rest[n])
		if escape == 0 {
			return appendQuoted(dst, s)
		}
		out, rest = append(out, '\\', escape), rest[n+1:]
	}
}

// shortEscape returns the character that follows the backslash in the escape of a common character; 0: there
// is none.
func shortEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	}
	return 0
}

// appendQuoted is AppendString for any string.
func appendQuoted(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // s is not valid UTF-8
		out, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

// Unmarshal decodes strictly: exact case of names, no duplicate names, valid UTF-8. Unknown members
// are ignored.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// UnmarshalStrict is like Unmarshal and also refuses unknown members.
func UnmarshalStrict(data []byte, v any) error {
	return json.Unmarshal(data, v, json.RejectUnknownMembers(true))
}

// Canonical returns raw as compact JSON with sorted member names and unchanged numbers. It is used
// to compare and digest requests.
func Canonical(raw Raw) (Raw, error) {
	v := raw.Clone()
	err := v.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false),
		jsontext.CanonicalizeRawFloats(false), jsontext.Multiline(false),
		jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))
	return v, err
}

// appendUnquoted appends the text of a valid JSON string.
func appendUnquoted(dst []byte, quoted Raw) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return append(dst, quoted[1:len(quoted)-1]...)
	}
	dst, _ = jsontext.AppendUnquote(dst, quoted) // cannot fail: quoted is valid
	return dst
}

func syntaxText(err error) string { return strings.TrimPrefix(err.Error(), "jsontext: ") }

// peekID returns the id of a frame that may be malformed elsewhere, or "".
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

// DecodePayload decodes the payload of an envelope as T. The error is an *EncodingError that names
// the invalid member.
func DecodePayload[T any](env *Envelope) (T, error) {
	var p T
	err := decodePayload(env, &p)
	return p, err
}

func decodePayload[T any](env *Envelope, p *T) error {
	if env.Sidecar != nil {
		if q, ok := any(p).(sidecarPayload); ok {
			defer func() { *q.sidecarContent() = env.Sidecar }()
		}
	}
	if q, ok := any(p).(fastDecoder); ok {
		if q.decodeFast(env.Payload) {
			return nil
		}
		*p = *new(T)
	}
	if err := json.Unmarshal(env.Payload, p); err != nil {
		return &EncodingError{ReasonPayload, clip.Ellipsis("payload"+payloadText(err), maxMessage), env.ID}
	}
	return nil
}

// unmarshalMember is Unmarshal with an error that uses the terms of JSON.
func unmarshalMember(data Raw, v any) error {
	err := Unmarshal(data, v)
	if path, cause, ok := invalidMember(err); ok {
		return errors.New(strings.TrimPrefix(path+": "+cause, ": "))
	}
	return err
}

// payloadText returns the reason of a decoding error and the member.
func payloadText(err error) string {
	path, cause, ok := invalidMember(err)
	switch {
	case !ok:
		return ": " + syntaxText(err)
	case path == "":
		return ": " + cause
	}
	return fmt.Sprintf(" member %q: %s", path, cause)
}

// invalidMember returns the member that a decoding error is about, and the reason in the terms of
// JSON. ok is false for a syntax error.
func invalidMember(err error) (path, cause string, ok bool) {
	sem, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return "", "", false
	}
	path = strings.TrimPrefix(string(sem.JSONPointer), "/")
	want := jsonTypeName(sem.GoType)
	switch {
	case want != "" && sem.Err != nil && (sem.JSONKind == '0' || sem.GoType == timeType):
		return path, want + " is required", true
	case sem.Err == nil && want != "":
		return path, want + " is required, not " + kindName(sem.JSONKind), true
	case sem.Err == nil:
		return path, kindName(sem.JSONKind) + " is not allowed here", true
	}
	if inner, cause, ok := invalidMember(sem.Err); ok {
		return strings.Trim(path+"/"+inner, "/"), cause, true
	}
	return path, sem.Err.Error(), true
}

var timeType = reflect.TypeFor[time.Time]()

// jsonTypeName returns the JSON name of a Go type, or "".
func jsonTypeName(t reflect.Type) string {
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
		return jsonTypeName(t.Elem())
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

var errBehindValue = errors.New("more follows the value")

// DecodeAny decodes a JSON value as encoding/json does: the last member of a name counts, and U+FFFD stands
// for invalid UTF-8. number returns the value for the text of a number. DecodeAny does not copy raw, and
// examines long strings several times faster.
func DecodeAny(raw Raw, number func(text string) any) (any, error) {
	d := anyDecoder{number: number}
	d.Decoder = jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errBehindValue
	}
	return v, nil
}

type anyDecoder struct {
	*jsontext.Decoder
	number func(text string) any
}

func (d anyDecoder) value() (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		return d.object()
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := d.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	case '"':
		return t.String(), nil
	case '0':
		return d.number(t.String()), nil
	case 'n':
		return nil, nil
	}
	return t.Bool(), nil
}

// object decodes an object behind its brace.
func (d anyDecoder) object() (any, error) {
	members := make(map[string]any)
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String() // before the next token replaces it
		if members[text], err = d.value(); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return members, err
}
