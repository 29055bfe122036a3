// Package mcp publishes the tools of an MCP server as tools of the runtime. The server is a program
// that speaks MCP on its standard input and output, or an address for streamable HTTP.
//
// A [Source] holds a session with its server. One goroutine connects, lists the tools, and lists
// them again when the server announces a change. After the end of a session it reconnects with a
// delay that doubles. Meanwhile the tools remain published, and their calls fail at once with
// UNAVAILABLE.
//
// The memory of a server's data is bounded: messages, lists, queues and log lines have a maximum
// size. An answer that is too large fails only its call.
//
// SPEC.md §7.9 maps MCP to ARCP.
package mcp
