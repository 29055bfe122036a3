// Package mcp makes the tools of an MCP server tools of the runtime. The server
// is a program that speaks over its standard input and output, or one that is
// reached over streamable HTTP.
//
// A [Source] keeps a session with its server for as long as the runtime runs: one
// goroutine connects, lists the tools, publishes them again when the server says
// that they have changed, and connects again when the session ends, with a delay
// that doubles. Meanwhile the tools stay published, and calls of them fail at once
// with UNAVAILABLE.
//
// What a server says is never trusted with memory: messages, lists, queues and log
// lines are bounded, and a message that is too large fails the call it answers and
// nothing else.
//
// SPEC.md §7.9 says what of MCP is mapped to what.
package mcp
