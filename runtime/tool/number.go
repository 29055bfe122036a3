package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/arcpd/arcpd/arcp"
)

// maxNumber bounds the digits and the exponent of numbers in a validation. The time and memory of
// an exact comparison grow with both.
const maxNumber = 1000

// checkNumbers returns the fault of a number beyond maxNumber, or nil.
func checkNumbers(doc any, at []string) *fault {
	switch doc := doc.(type) {
	case json.Number:
		if hugeNumber(string(doc)) {
			return &fault{pointer(at), "number", fmt.Sprintf("must have at most %d digits and an exponent within ±%d", maxNumber, maxNumber)}
		}
	case map[string]any:
		for name, v := range doc {
			if f := checkNumbers(v, append(at, name)); f != nil {
				return f
			}
		}
	case []any:
		for i, v := range doc {
			if f := checkNumbers(v, append(at, strconv.Itoa(i))); f != nil {
				return f
			}
		}
	}
	return nil
}

func hugeNumber(s string) bool {
	digits, exponent := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		digits, exponent = s[:i], s[i+1:]
	}
	n, err := strconv.Atoi(exponent)
	return err != nil || n > maxNumber || n < -maxNumber || len(digits) > maxNumber
}

// plainIntegers rewrites integers with a fraction or an exponent, such as 1.0 and 1e3, as plain
// digits. ok is false if args has no such integer.
func plainIntegers(args arcp.Raw) (plain arcp.Raw, ok bool) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return nil, false
	}
	doc = rewrite(doc, &ok)
	if !ok {
		return nil, false
	}
	plain, err = json.Marshal(doc)
	return plain, err == nil
}

// rewrite replaces integers with a fraction or an exponent in doc, and sets changed if it has
// replaced one.
func rewrite(doc any, changed *bool) any {
	switch doc := doc.(type) {
	case json.Number:
		if text, ok := plainInteger(string(doc)); ok {
			*changed = true
			return json.Number(text)
		}
	case map[string]any:
		for name, v := range doc {
			doc[name] = rewrite(v, changed)
		}
	case []any:
		for i, v := range doc {
			doc[i] = rewrite(v, changed)
		}
	}
	return doc
}

func plainInteger(s string) (string, bool) {
	if !strings.ContainsAny(s, ".eE") || hugeNumber(s) {
		return "", false
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || !r.IsInt() {
		return "", false
	}
	return r.Num().String(), true
}
