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
