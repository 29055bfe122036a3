// The worker against a process of `arcp serve`, which the variable ARCP_BIN names.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";

import { ToolError, Worker, type WorkerOptions } from "../src/index.js";
import { Client, event, needsArcp, Program, programPath, Runtime, soon, TOKEN } from "./support.js";

describe("with a runtime", needsArcp, () => {
  let runtime: Runtime;
  let client: Client;
  let cleanups: (() => unknown)[];

  beforeEach(async () => {
    cleanups = [];
    runtime = await new Runtime().start();
    client = await new Client(runtime.url).open();
  });

  afterEach(async () => {
    for (const cleanup of cleanups.reverse()) await cleanup();
    client.close();
    await runtime.close();
  });

  function make(options: WorkerOptions = {}): Worker {
    return new Worker({ url: runtime.url, token: TOKEN, log: () => {}, ...options });
  }

  async function run(worker: Worker): Promise<Promise<void>[]> {
    const serving = worker.serve();
    serving.catch(() => undefined);
    cleanups.push(async () => {
      worker.stop(0);
      await serving.catch(() => undefined);
    });
    await soon(worker.ready());
    return [serving];
  }

  function program(variables: NodeJS.ProcessEnv = { ARCP_TOKEN: TOKEN }): Program {
    const p = new Program("counter.js", { ARCP_URL: runtime.url, ...variables });
    cleanups.push(() => p.close());
    return p;
  }

  test("results, events and failures", async () => {
    const worker = make({ concurrency: 2 });
    const inputSchema = { type: "object", properties: { text: { type: "string" }, times: { type: "integer" } }, required: ["text"] } as const;
    worker.tool("text.reverse", { inputSchema, description: "Reverses a text." }, async (ctx, { text, times = 1 }) => {
      await ctx.log("begins", "info", { attempt: ctx.attempt });
      await ctx.progress(1, 2, { units: "texts" });
      await ctx.metric("texts", 1);
      await ctx.emit("half", { done: 1 });
      return [...text].reverse().join("").repeat(times);
    });
    worker.tool("text.fail", {}, () => {
      throw new ToolError("OUT_OF_RANGE", "it fails", { details: { n: 1 } });
    });
    worker.tool("text.twice", { inputSchema }, (ctx, { text }) => ctx.call("text.reverse", { text, times: 2 }));
    await run(worker);

    const job = client.submit("text.reverse", { text: "abc" });
    assert.equal(await job.value(), "cba");
    assert.deepEqual(job.events.map((e) => e.type).slice(-5), ["log", "job.progress", "metric", "event.emit", "job.completed"]);
    assert.equal(job.events.at(-4)?.payload.percent, 50);
    const failure = await client.submit("text.fail").failure();
    assert.deepEqual([failure.code, failure.message, failure.details], ["OUT_OF_RANGE", "it fails", { n: 1 }]);
    assert.equal((await client.submit("text.reverse", { text: 1 }).failure()).code, "INVALID_ARGUMENT");
    assert.equal(await client.submit("text.twice", { text: "ab" }, { lease_request: { "tool.call": ["text.reverse"] } }).value(), "baba");
  });

  test("interrupt", async () => {
    const worker = make();
    worker.tool("steps", { interruptible: true }, async (ctx) => {
      await ctx.progress(1);
      for (;;) {
        const guidance = await ctx.safePoint();
        if (guidance !== "") return guidance;
      }
    });
    await run(worker);
    const job = client.submit("steps");
    await job.reach("job.progress");
    client.interrupt(job);
    client.guide(job, await job.reach("human.input.request"), "faster");
    assert.equal(await job.value(), "faster");
  });

  test("a large result", async () => {
    const worker = make();
    worker.tool("large", {}, () => "x".repeat(2 << 20));
    worker.tool("larger", { maxResponseBytes: 4 << 20 }, () => "x".repeat(2 << 20));
    await run(worker);
    const size = (2 << 20) + 2;
    assert.equal((await client.submit("large").failure()).message, `the result has ${size} bytes; the tool's limit is ${1 << 20} (max_response_bytes)`);
    assert.equal((await client.call("larger")).length, 2 << 20);
  });

  test("cancel", async () => {
    const worker = make();
    worker.tool("waits", {}, async (ctx) => {
      await ctx.progress(1);
      await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
    });
    await run(worker);
    const job = client.submit("waits");
    await job.reach("job.progress");
    client.cancel(job);
    assert.equal((await job.reach("job.cancelled")).payload.code, "CANCELLED");
  });

  for (const when of ["while a job runs", "before its result"]) {
    test(`a runtime is killed ${when}`, async () => {
      const worker = make();
      const [release, returns] = [event(), event()];
      let effects = 0;
      worker.tool("effect", { recovery: "rerun" }, async (ctx) => {
        effects++;
        await ctx.progress(1);
        await release.wait;
        void ctx.progress(2);
        returns.set();
        return effects;
      });
      await run(worker);
      const job = client.submit("effect");
      await job.reach("job.progress");
      await runtime.kill();
      if (when === "before its result") {
        release.set();
        await soon(returns.wait); // there is no runtime to send the result to
      }
      await runtime.start();
      release.set();
      assert.equal(await job.value(), 1);
      assert.equal(effects, 1);
    });
  }

  test("a lost connection", async () => {
    const logs: string[] = [];
    const worker = make({ log: (_, message) => logs.push(message) });
    const release = event();
    worker.tool("waits", {}, async (ctx) => {
      await ctx.progress(1);
      await release.wait;
      await ctx.checkpoint({ n: 1 });
      return ctx.attempt;
    });
    await run(worker);
    const job = client.submit("waits");
    await job.reach("job.progress");
    (worker as unknown as { link: { abort(): void } }).link.abort();
    release.set();
    assert.equal(await job.value(), 1); // the same attempt
    assert.equal(logs.length, 3, logs.join("\n"));
  });

  test("a worker is killed", async () => {
    const first = program();
    await first.says("registered text.count@1.0.0");
    const job = client.submit("text.count", { to: 4 });
    await job.reach("event.emit");
    await first.close();
    await program().says("registered text.count@1.0.0");
    assert.deepEqual(await job.value(), { counted: 4, start: 2, attempt: 2 });
  });

  test("two workers share jobs", async () => {
    const both = event();
    let n = 0;
    for (const name of ["one", "two"]) {
      const worker = make({ name });
      worker.tool("shared", {}, async () => {
        if (++n === 2) both.set();
        await both.wait;
        return name;
      });
      await run(worker);
    }
    const jobs = [client.submit("shared"), client.submit("shared")];
    assert.deepEqual(new Set(await Promise.all(jobs.map((job) => job.value()))), new Set(["one", "two"]));
  });

  test("concurrency", async () => {
    const worker = make({ concurrency: 3 });
    const [full, release] = [event(), event()];
    let [now, most] = [0, 0];
    worker.tool("counts", {}, async () => {
      most = Math.max(most, ++now);
      if (now === 3) full.set();
      await release.wait;
      now--;
    });
    await run(worker);
    const jobs = Array.from({ length: 8 }, () => client.submit("counts"));
    await soon(full.wait);
    release.set();
    for (const job of jobs) await job.value();
    assert.equal(most, 3);
  });

  test("stop", async () => {
    const worker = make();
    const [begun, release] = [event(), event()];
    worker.tool("waits", {}, async () => {
      begun.set();
      await release.wait;
      return "done";
    });
    const [serving] = await run(worker);
    const job = client.submit("waits");
    await soon(begun.wait);
    worker.stop();
    release.set();
    assert.equal(await job.value(), "done");
    await soon(serving!);
    assert.deepEqual((await client.call("host.agents")).items, []);
  });

  test("a wrong token", async () => {
    const p = program({ ARCP_TOKEN: "wrong" });
    assert.match(await p.says("UNAUTHENTICATED"), /`arcp dev` prints one/);
    assert.deepEqual(await soon(p.exit), [1, null]);
  });

  test("another description", async () => {
    const [first, second] = [make(), make()];
    first.tool("same", { description: "one" }, () => 1);
    second.tool("same", { description: "two" }, () => 1);
    await run(first);
    await assert.rejects(soon(second.serve()), /FAILED_PRECONDITION: the tools are not registered/);
  });
});

describe("processes", needsArcp, () => {
  test("a runtime that starts later", async () => {
    const runtime = await new Runtime().prepare();
    const program = new Program("counter.js", { ARCP_URL: runtime.url, ARCP_TOKEN: TOKEN });
    try {
      assert.match(await program.says(`no connection to ${runtime.url}`), /tries again/);
      await runtime.start();
      await program.says("connected to");
      await program.says("registered");
      const client = await new Client(runtime.url).open();
      assert.equal((await client.call("text.count", { to: 1 })).counted, 1);
      client.close();
      program.process.kill("SIGTERM");
      assert.deepEqual(await soon(program.exit), [0, null]);
    } finally {
      await program.close();
      await runtime.close();
    }
  });

  test("a worker that the runtime starts", async () => {
    const dir = mkdtempSync(join(tmpdir(), "arcp-"));
    const config = join(dir, "arcp.yaml");
    const command = [process.execPath, programPath("counter.js"), "--stdio"];
    writeFileSync(config, JSON.stringify({ tools: [{ worker: { name: "counter", command }, allow: ["text.*"] }] }));
    const runtime = await new Runtime(["--config", config]).start();
    const client = await new Client(runtime.url).open();
    try {
      assert.deepEqual(await client.call("text.count", { to: 2 }), { counted: 2, start: 0, attempt: 1 });
      const job = client.submit("text.count", { to: 3 });
      await job.reach("event.emit");
      client.cancel(job);
      await job.reach("job.cancelled");
    } finally {
      client.close();
      await runtime.close();
      rmSync(dir, { recursive: true, force: true });
    }
  });
});
