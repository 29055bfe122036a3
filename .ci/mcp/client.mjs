// The reference client of MCP, as mcp_interop_test.go uses it: it lists and calls the
// tools that `arcp mcp serve` offers and prints what it has seen as one JSON object.
//
//   node client.mjs stdio COMMAND ARG…
//   node client.mjs http URL TOKEN
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages are installed elsewhere, where MCP_MODULES says.
const require = createRequire(process.env.MCP_MODULES + "/");
const load = async (path) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + path)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { ElicitRequestSchema, LoggingMessageNotificationSchema } = await load("types.js");

const [kind, target, ...rest] = process.argv.slice(2);
const transport =
  kind === "stdio"
    ? new StdioClientTransport({ command: target, args: rest, env: process.env, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: "Bearer " + rest[0] } } });

const seen = { progress: [], logs: [], asked: [] };
const client = new Client({ name: "interop", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  seen.asked.push(params.message);
  return { action: "accept", content: { value: "blue" } };
});
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => seen.logs.push(params.data.message));

await client.connect(transport);
await client.setLoggingLevel("debug");
const { tools } = await client.listTools();
seen.tools = tools.map((t) => t.name);
seen.echo = await client.callTool({ name: "demo.echo", arguments: { text: "hello" } });
seen.unknown = await client.callTool({ name: "demo.progress", arguments: { steps: 1, sideways: true } });
await client.callTool({ name: "demo.emit", arguments: { count: 3, bytes: 4, interval_ms: 20 } });
seen.failed = await client.callTool({ name: "demo.fail", arguments: { code: "NOT_FOUND", message: "gone" } });
seen.answered = await client.callTool({
  name: "demo.ask",
  arguments: { prompt: "colour?", response_schema: { type: "string" }, expires_in_ms: 20000 },
});
seen.through = await client.callTool({ name: "every.get-tiny-image", arguments: {} });
const cancel = new AbortController();
const sleeping = client.callTool({ name: "demo.progress", arguments: { steps: 100000, interval_ms: 10 } }, undefined, {
  signal: cancel.signal,
  onprogress: (p) => {
    seen.progress.push(p.progress);
    if (seen.progress.length === 4) cancel.abort("enough");
  },
});
seen.cancelled = await sleeping.then(() => false, () => true);
await client.ping(); // closing would take back what is still being sent
console.log(JSON.stringify(seen));
await client.close();
