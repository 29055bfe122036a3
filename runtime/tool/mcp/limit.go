package mcp

import (
	"fmt"
	"regexp"

	"github.com/arcpd/arcpd/arcp"
)

// codeTooLarge is the JSON-RPC code of the answer that is put in the place of one
// that was too large. It is from the range that servers define for themselves.
const codeTooLarge = -32019

// tooLarge answers the request id in the place of the server.
func (t *connWrapper) tooLarge(id arcp.Raw) []byte {
	t.answered(string(id), nil)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"the answer has more than %d bytes"}}`,
		id, codeTooLarge, t.most)
}

// idAt finds the id of an answer of which only the beginning and the end are
// known. Servers write it before or after the result; what a result contains
// cannot look like either, because of where it would have to stand.
var (
	idAtBegin = regexp.MustCompile(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[^"\\]{1,128}")\s*[,}]`)
	idAtEnd   = regexp.MustCompile(`[}\]]\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[^"\\]{1,128}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

func idOf(begin, end []byte) (arcp.Raw, bool) {
	for _, m := range [][][]byte{idAtBegin.FindSubmatch(begin), idAtEnd.FindSubmatch(end)} {
		if m != nil {
			return arcp.Raw(m[1]), true
		}
	}
	return nil, false
}
