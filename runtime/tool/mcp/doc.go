// Package mcp makes the tools of an MCP server tools of the runtime. The server is a program
// that speaks over its standard input and output, or one that is reached over streamable HTTP.
//
// A [Source] holds a session with its server for as long as the runtime runs. One goroutine
// connects, lists the tools, and lists them again when the server announces a change. It
// reconnects when the session ends, with a delay that doubles. Meanwhile the tools stay
// published, and their calls fail at once with UNAVAILABLE.
//
// The memory that a server can occupy is bounded: messages, lists, queues and log lines have a
// maximum size. A message that is too large fails only the call that it answers.
//
// SPEC.md §7.9 maps MCP to ARCP.
package mcp
