package proxy

import (
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/transport"
)

// limitFaults are defects of the handling of frames that are too large or no text.
var limitFaults = []Fault{
	{Defect: "a binary frame ends the connection with code 1002", Checks: []string{"limits.binary"}, House: true, newRewriter: closeWith(transport.CloseProtocol)},
	{Defect: "text that is not UTF-8 ends the connection with code 1002", Checks: []string{"limits.not-utf8"}, House: true, newRewriter: closeWith(transport.CloseProtocol)},
	{Defect: "a frame over the limit ends the connection with code 1008", Checks: []string{"limits.frame-over"}, House: true, newRewriter: closeWith(transport.ClosePolicy)},
	{Defect: "a frame over the limit before session.open ends the connection with code 1008", Checks: []string{"limits.frame-before-open"}, House: true,
		newRewriter: closeWith(transport.ClosePolicy)},
	{Defect: "a frame just under the limit is ignored", Checks: []string{"limits.frame-under"}, House: true, Silent: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.Ping && len(f.text) > 1<<20 {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Defect: "a broken frame ends the connections of other sessions", Checks: []string{"limits.session-survives"}, House: true, newShared: closeAll(isBinary)},
}

func isBinary(f frame) bool { return f.binary }

func isNotUTF8(f frame) bool { return !f.binary && !utf8.Valid(f.text) }

// closeAll returns rewriters that close each connection after a connection has sent a selected frame.
func closeAll(selects func(f frame) bool) func() func() rewriter {
	return func() func() rewriter {
		sent := false
		return func() rewriter {
			return rewriter{
				out: func(f frame) []frame {
					sent = sent || selects(f)
					return []frame{f}
				},
				closed: func() error {
					if !sent {
						return nil
					}
					return &transport.Error{Code: transport.CloseInternal, Remote: true}
				},
			}
		}
	}
}
