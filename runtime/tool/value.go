package tool

import (
	"encoding/json"

	"github.com/arcpd/arcpd/arcp"
)

// decodeValue decodes a JSON value for a schema, as jsonschema.UnmarshalJSON does.
func decodeValue(raw arcp.Raw) (any, error) {
	return arcp.DecodeAny(raw, func(text string) any { return json.Number(text) })
}
