// A worker with two tools: text.words counts the words of a text, and text.wait
// counts to a number and can go on from where it was.
import { setTimeout as sleep } from "node:timers/promises";
import { ToolError, Worker } from "./arcp.js";

const worker = new Worker({
  url: process.env["ARCP_URL"] ?? "ws://127.0.0.1:7777/arcp",
  token: process.env["ARCP_TOKEN"] ?? "",
  name: "text worker",
  concurrency: 4,
  tools: {
    "text.words@1.0.0": {
      about: {
        description: "counts the words of a text",
        side_effect: "none",
        recovery: "rerun",
        input_schema: { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false },
      },
      async handle(call) {
        const words = String(call.args["text"]).split(/\s+/).filter((w) => w !== "");
        if (words.length === 0) throw new ToolError("INVALID_ARGUMENT", "the text has no words");
        call.progress(words.length, words.length);
        return { words: words.length };
      },
    },
    "text.wait@1.0.0": {
      about: { description: "counts to a number", side_effect: "none", recovery: "checkpoint" },
      async handle(call) {
        const to = Number(call.args["to"] ?? 10);
        const from = Number(call.restored ?? 0);
        for (let n = from + 1; n <= to; n++) {
          await sleep(Number(call.args["interval_ms"] ?? 100), undefined, { signal: call.signal });
          await call.checkpoint(n);
          call.progress(n, to);
        }
        return { counted: to, resumed_from: from, attempt: call.attempt };
      },
    },
  },
});
process.on("SIGTERM", () => worker.stop());
process.on("SIGINT", () => worker.stop());
await worker.run();
