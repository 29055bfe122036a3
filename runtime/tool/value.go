package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/arcpd/arcpd/arcp"
)

var errBehindValue = errors.New("more follows the value")

// decodeValue decodes a JSON value for a schema, as jsonschema.UnmarshalJSON does: numbers are json.Number,
// the last member of a name counts, and U+FFFD stands for invalid UTF-8. It does not copy raw, and examines
// long strings several times faster.
func decodeValue(raw arcp.Raw) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	v, err := nextValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errBehindValue
	}
	return v, nil
}

func nextValue(dec *jsontext.Decoder) (any, error) {
	t, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		return nextObject(dec)
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			v, err := nextValue(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.ReadToken()
		return list, err
	case '"':
		return t.String(), nil
	case '0':
		return json.Number(t.String()), nil
	case 'n':
		return nil, nil
	}
	return t.Bool(), nil
}

// nextObject decodes an object behind its brace.
func nextObject(dec *jsontext.Decoder) (any, error) {
	members := make(map[string]any)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String() // before the next token replaces it
		if members[text], err = nextValue(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.ReadToken()
	return members, err
}
