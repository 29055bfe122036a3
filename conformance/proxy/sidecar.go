package proxy

import (
	"bytes"

	"github.com/arcpd/arcpd/arcp"
)

// sidecarFaults are defects of binary frames.
var sidecarFaults = []Fault{
	{Defect: "a binary frame comes before its message", Checks: []string{"streams.sidecar", "artifacts.sidecar"},
		newRewriter: func() rewriter { return swap(announces, isBinary, false)() }},
	{Defect: "a message comes between a message and its binary frame", Checks: []string{"streams.sidecar"}, House: true,
		newRewriter: rewriteReceived(func(f frame) []frame {
			if announces(f) {
				return []frame{f, parse([]byte(`{"arcp":"1.1","id":"msg_between","type":"pong","timestamp":"2026-01-02T15:04:05Z","payload":{}}`))}
			}
			return []frame{f}
		})},
	{Defect: "the content of a binary frame changes", Checks: []string{"streams.sidecar", "artifacts.sidecar"},
		newRewriter: editBinary(func(h arcp.SidecarHeader, content []byte) (arcp.SidecarHeader, []byte) {
			return h, bytes.ToUpper(bytes.ReplaceAll(content, []byte{'.'}, []byte{','}))
		})},
	{Defect: "a binary frame is shorter than its message says", Checks: []string{"streams.sidecar", "artifacts.sidecar"},
		newRewriter: editBinary(func(h arcp.SidecarHeader, content []byte) (arcp.SidecarHeader, []byte) {
			return h, content[:max(len(content)-1, 0)]
		})},
	{Defect: "binary frames name another stream", Checks: []string{"streams.sidecar"}, House: true,
		newRewriter: editBinary(func(h arcp.SidecarHeader, content []byte) (arcp.SidecarHeader, []byte) {
			h.ID = "str_other"
			return h, content
		})},
	{Defect: "the binary frame of an artifact has a sequence", Checks: []string{"artifacts.sidecar"},
		newRewriter: editBinary(func(h arcp.SidecarHeader, content []byte) (arcp.SidecarHeader, []byte) {
			h.Sequence++
			return h, content
		})},
	{Defect: "binary frames are sent to sessions that did not list them", Checks: []string{"streams.sidecar-not-listed"},
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", map[string]any{"streaming": true, "binary_encoding": []string{"base64", arcp.EncodingSidecar}})
		})},
	{Defect: "the list binary_encoding of a client is ignored", Checks: []string{"streams.sidecar"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", map[string]any{"streaming": true})
		})},
	{Defect: "the content of a client's binary frame is lost", Checks: []string{"streams.sidecar-client", "artifacts.sidecar"},
		newRewriter: editSentBinary(func(_ arcp.SidecarHeader, content []byte) []byte { return bytes.Repeat([]byte{'x'}, len(content)) })},
	{Defect: "a binary frame of another chunk is accepted", Checks: []string{"streams.sidecar-mismatch"}, House: true,
		newRewriter: replaceNack(arcp.CodeInvalidArgument, arcp.Ack, arcp.AckPayload{})},
	{Defect: "a binary frame that does not come is not noticed", Checks: []string{"streams.sidecar-missing"}, House: true, Silent: true,
		newRewriter: dropReceived(arcp.Nack)},
}

// announces reports whether a binary frame follows a message.
func announces(f frame) bool {
	_, ok := f.Announces()
	return ok
}

// editBinary returns rewriters that edit each binary frame of the server.
func editBinary(edit func(h arcp.SidecarHeader, content []byte) (arcp.SidecarHeader, []byte)) func() rewriter {
	return rewriteReceived(func(f frame) []frame {
		if h, content, err := arcp.ParseSidecar(f.text); f.binary && err == nil {
			h, content = edit(h, content)
			f.text = append(h.Append(nil), content...)
		}
		return []frame{f}
	})
}

// editSentBinary returns rewriters that replace the content of each binary frame of the client.
func editSentBinary(edit func(h arcp.SidecarHeader, content []byte) []byte) func() rewriter {
	return func() rewriter {
		return rewriter{out: func(f frame) []frame {
			if h, content, err := arcp.ParseSidecar(f.text); f.binary && err == nil {
				f.text = append(h.Append(nil), edit(h, content)...)
			}
			return []frame{f}
		}}
	}
}
