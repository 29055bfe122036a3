package proxy

import (
	"github.com/arcpd/arcpd/arcp"
)

// streamFaults are defects of streams.
var streamFaults = []Fault{
	{Defect: "a chunk of a stream is missing and later events are renumbered to hide it", Checks: []string{"streams.life"},
		newRewriter: dropEvents(func(f frame) bool { return f.Type == arcp.StreamChunk && sequenceOf(f) == 1 })},
	{Defect: "the chunks of a stream are numbered from 1", Checks: []string{"streams.life"},
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.withPayload("sequence", sequenceOf(f)+1) })},
	{Defect: "the sequence of the chunks has a gap", Checks: []string{"streams.life"},
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame {
			n := sequenceOf(f)
			return f.withPayload("sequence", n+n/2)
		})},
	{Defect: "stream.close is never sent and later events are renumbered to hide it", Checks: []string{"streams.life"},
		newRewriter: dropEvents(isType(arcp.StreamClose))},
	{Defect: "final_sequence is the number of chunks", Checks: []string{"streams.life"},
		newRewriter: editReceived(arcp.StreamClose, func(f frame) frame {
			p, _ := arcp.DecodePayload[arcp.StreamClosePayload](&f.Envelope) // without a number it is unchanged
			if p.FinalSequence == nil {
				return f
			}
			return f.withPayload("final_sequence", *p.FinalSequence+1)
		})},
	{Defect: "a chunk follows stream.close", Checks: []string{"streams.life"},
		newRewriter: func() rewriter {
			return insertEvents(func(f frame) (frame, bool) {
				late := f.withNewID().with("type", arcp.StreamChunk)
				return late.with("payload", arcp.StreamChunkPayload{Sequence: 5, Data: arcp.Raw(`"late"`)}), f.Type == arcp.StreamClose
			})
		}},
	{Defect: "a stream is closed after the end of its job", Checks: []string{"streams.life"},
		newRewriter: swap(isType(arcp.StreamClose), isType(arcp.JobCompleted), true)},
	{Defect: "chunks name another stream", Checks: []string{"streams.life"},
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.with("stream_id", "str_other") })},
	{Defect: "binary chunks have no content_type", Checks: []string{"streams.kinds"},
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.withPayload("content_type", nil) })},
	{Defect: "thoughts have no content", Checks: []string{"streams.kinds"}, House: true,
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.withPayload("content", nil) })},
	{Defect: "the chunks of logs do not name their kind", Checks: []string{"streams.kinds"}, House: true,
		newRewriter: editReceived(arcp.StreamChunk, func(f frame) frame { return f.withPayload("kind", nil) })},
	{Defect: "a lease without thought.write covers all thoughts", Checks: []string{"streams.thoughts-leased"}, House: true,
		newRewriter: editSent(arcp.ToolInvoke, func(f frame) frame { return f.withPayload("lease_request", nil) })},
	{Defect: "streams are sent to sessions that did not negotiate them", Checks: []string{"streams.not-negotiated"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", map[string]bool{"streaming": true})
		})},
	{Defect: "the stream of a cancelled job is closed without an error", Checks: []string{"streams.job-cancelled", "streams.cancel"},
		newRewriter: editReceived(arcp.StreamError, func(f frame) frame {
			return f.with("type", arcp.StreamClose).with("payload", struct{}{})
		})},
	{Defect: "a cancelled stream ends its job", Checks: []string{"streams.cancel"}, House: true,
		newRewriter: editReceived(arcp.JobCompleted, func(f frame) frame {
			return f.with("type", arcp.JobCancelled).with("payload", arcp.JobCancelledPayload{Code: arcp.CodeCancelled})
		})},
	{Defect: "backpressure is ignored", Checks: []string{"streams.backpressure", "streams.backpressure-unknown"}, Silent: true,
		newRewriter: func() rewriter {
			return rewriter{out: func(f frame) []frame {
				if f.Type == arcp.Backpressure {
					return nil
				}
				return []frame{f}
			}}
		}},
	{Defect: "a missing chunk of a client is not noticed", Checks: []string{"streams.client-gap"}, House: true,
		newRewriter: editSent(arcp.StreamChunk, func(f frame) frame { return f.withPayload("sequence", 0) })},
	{Defect: "a chunk of a client reaches the tool twice", Checks: []string{"streams.client-repeated"}, House: true,
		newRewriter: func() rewriter {
			n := 0
			return rewriter{out: func(f frame) []frame {
				switch f.Type {
				case arcp.StreamChunk:
					f = f.withPayload("sequence", n)
					n++
				case arcp.StreamClose:
					f = f.withPayload("final_sequence", n-1)
				}
				return []frame{f}
			}}
		}},
	{Defect: "a stream to any job is accepted", Checks: []string{"streams.client-refused"}, House: true,
		newRewriter: replaceNack(arcp.CodeFailedPrecondition, arcp.Ack, arcp.AckPayload{})},
	{Defect: "a client is not told that its stream has ended with the job", Checks: []string{"streams.client-job-ends"}, House: true, Silent: true,
		newRewriter: dropReceived(arcp.StreamError)},
	{Defect: "the content of a client's chunk is cut", Checks: []string{"streams.client"}, House: true,
		newRewriter: editSent(arcp.StreamChunk, func(f frame) frame { return f.withPayload("data", "hello") })},
	{Defect: "a chunk of a client that has a sha256 is lost", Checks: []string{"streams.client-digest"},
		newRewriter: dropSentWhere(func(f frame) bool { return f.Type == arcp.StreamChunk && f.stringMember("sha256") != "" })},
	{Defect: "include_open_streams is ignored", Checks: []string{"streams.open-again"},
		newRewriter: editSent(arcp.Resume, func(f frame) frame { return f.withPayload("include_open_streams", nil) })},
}

// sequenceOf returns the sequence of a chunk.
func sequenceOf(f frame) uint64 {
	p, _ := arcp.DecodePayload[arcp.StreamChunkPayload](&f.Envelope) // an undecodable payload has none
	return p.Sequence
}
