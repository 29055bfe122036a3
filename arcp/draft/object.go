package draft

import (
	"bytes"
	"strconv"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// object appends one JSON object.
type object struct {
	dst  []byte
	some bool
}

func begin(dst []byte) object { return object{dst: append(dst, '{')} }

func (o *object) end() []byte { return append(o.dst, '}') }

func (o *object) comma() {
	if o.some {
		o.dst = append(o.dst, ',')
	}
	o.some = true
}

// name appends a name without characters that must be escaped.
func (o *object) name(name string) {
	o.comma()
	o.dst = append(append(append(o.dst, '"'), name...), '"', ':')
}

func (o *object) text(name, value string) {
	o.name(name)
	o.dst = arcp.AppendString(o.dst, value)
}

// optional leaves out an empty text.
func (o *object) optional(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// raw leaves out a missing value.
func (o *object) raw(name string, value arcp.Raw) {
	if len(value) > 0 {
		o.name(name)
		o.dst = append(o.dst, value...)
	}
}

// quoted appends a name that may need escapes.
func (o *object) quoted(name string, value arcp.Raw) {
	o.comma()
	o.dst = append(arcp.AppendString(o.dst, name), ':')
	o.dst = append(o.dst, value...)
}

func (o *object) time(name string, value time.Time) {
	o.name(name)
	o.dst = appendTime(o.dst, value)
}

func (o *object) uint(name string, value uint64) {
	o.name(name)
	o.dst = strconv.AppendUint(o.dst, value, 10)
}

func (o *object) correlation(c Correlation) {
	o.optional("request_id", string(c.RequestID))
	o.optional("reply_to", string(c.ReplyTo))
}

// oneLine replaces newlines between tokens: some transports separate frames by them. A JSON
// text has no other newlines.
func oneLine(frame []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for i := 0; ; {
			next := bytes.IndexByte(frame[i:], c)
			if next < 0 {
				break
			}
			i += next
			frame[i] = ' '
		}
	}
}

// eachMember is arcp.EachMember for an object that the runtime wrote. It checks no syntax, and returns
// false if the text ends early.
func eachMember(raw arcp.Raw, fn func(name []byte, value arcp.Raw) bool) bool {
	if bytes.IndexByte(raw, '\\') >= 0 { // then a quote ends a text
		return arcp.EachMember(raw, fn)
	}
	i := nextToken(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return false
	}
	for i++; ; {
		name, value, next := nextMember(raw, i)
		if next == 0 {
			i = nextToken(raw, i)
			return i < len(raw) && raw[i] == '}'
		}
		if !fn(name, value) {
			return false
		}
		i = next
	}
}

// nextMember returns the member that follows position i of an object without backslashes, and the
// position after it; 0: no member follows.
func nextMember(raw []byte, i int) (name []byte, value arcp.Raw, next int) {
	i = nextToken(raw, i)
	end := valueEnd(raw, i)
	start := nextToken(raw, end)
	next = valueEnd(raw, start)
	if end-i < len(`""`) || next == start {
		return nil, nil, 0
	}
	return raw[i+1 : end-1], raw[start:next], next
}

// nextToken returns the position of the next character that is no white space, comma or colon.
func nextToken(raw []byte, i int) int {
	for i < len(raw) {
		switch raw[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		default:
			return i
		}
	}
	return i
}

// valueEnd returns the end of the value that begins at i in a text without backslashes; i if the text
// ends early.
func valueEnd(raw []byte, i int) int {
	for end, depth := i, 0; end < len(raw); end++ {
		switch raw[end] {
		case '"':
			n := bytes.IndexByte(raw[end+1:], '"')
			if n < 0 {
				return i
			}
			if end += 1 + n; depth == 0 {
				return end + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // after a number or a literal
				return end
			}
			if depth--; depth == 0 {
				return end + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return end
			}
		}
	}
	return i
}
