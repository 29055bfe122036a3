// A worker that counts, with checkpoints. It is killed in a test.
import { Worker } from "../src/index.js";

const worker = new Worker({ name: "counter" });
const inputSchema = { type: "object", properties: { to: { type: "integer" } }, required: ["to"] } as const;

worker.tool("text.count", { recovery: "checkpoint", inputSchema }, async (ctx, { to }) => {
  console.log("the tool begins"); // standard output is not that of the protocol
  const start = Number(ctx.restored ?? 0);
  for (let n = start + 1; n <= to; n++) {
    await ctx.checkpoint(n);
    await ctx.progress(n, to);
    if (n === 2 && ctx.attempt === 1 && to > 2) {
      await ctx.emit("waiting", {});
      await new Promise((_, reject) => ctx.signal.addEventListener("abort", reject)); // until the process is killed
    }
  }
  return { counted: to, start, attempt: ctx.attempt };
});

await worker.run({ stdio: process.argv.includes("--stdio") });
