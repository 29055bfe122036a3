import { Worker } from "@arcpd/worker";

const worker = new Worker({ name: "texts", concurrency: 4 });
const inputSchema = { type: "object", properties: { text: { type: "string" } }, required: ["text"] } as const;

worker.tool("text.words", { description: "Counts the words of a text.", inputSchema, sideEffect: "none", recovery: "rerun" }, async (ctx, { text }) => {
  await ctx.progress(1, 1);
  return { words: text.split(/\s+/).filter((word) => word !== "").length };
});

await worker.run({ stdio: process.argv.includes("--stdio") });
