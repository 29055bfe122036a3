// The worker against a runtime that the test plays.
import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { afterEach, beforeEach, test } from "node:test";

import { ToolError, Worker, WorkerError, type WorkerOptions } from "../src/index.js";
import { event, type Peer, PlayedRuntime, Queue, soon } from "./support.js";

const MAX_BUFFERED = 256;

let runtime: PlayedRuntime;
let worker: Worker;
let serving: Promise<void>;
let logs: string[];
let started: number; // calls of held
let release: ReturnType<typeof event>;

beforeEach(async () => {
  runtime = await PlayedRuntime.start();
  make();
});

function make(options: WorkerOptions = {}): void {
  logs = [];
  started = 0;
  release = event();
  worker = new Worker({ url: runtime.url, token: "secret", name: "test", concurrency: 2, log: (level, message) => logs.push(`${level}: ${message}`), ...options });
  worker.tool("held", {}, async (ctx) => {
    started++;
    await release.wait;
    return ctx.attempt;
  });
  worker.tool("echo", {}, (_, args) => args);
}

afterEach(async () => {
  release.set();
  worker.stop(0);
  runtime.close();
  await serving.catch(() => undefined);
});

function serve(): Promise<void> {
  serving = worker.serve();
  serving.catch(() => undefined);
  return serving;
}

async function open(interval = 30): Promise<Peer> {
  serve();
  const peer = await runtime.accept();
  await peer.open(interval);
  return peer;
}

/** Opens a session, and dispatches a job that waits. */
async function held(interval = 30): Promise<Peer> {
  const peer = await open(interval);
  peer.dispatch("held@1.0.0");
  const ack = await peer.receive("ack");
  assert.deepEqual([ack.correlation_id, ack.job_id], ["msg_d1", "job_1"]);
  return peer;
}

/** Cuts the connection, and resumes the session on the next. */
async function again(peer: Peer): Promise<Peer> {
  peer.ws.terminate();
  peer = await runtime.accept();
  const env = await peer.resume();
  assert.deepEqual(env.payload, { resume_token: "resume-1", last_event_seq: 2 });
  return peer;
}

const REFUSAL = { code: "FAILED_PRECONDITION", message: "no", retryable: false };
const PING = { nonce: "n", sent_at: "2030-01-01T00:00:00Z" };

test("opens a session", async () => {
  serve();
  const peer = await runtime.accept();
  const { payload } = await peer.open();
  assert.deepEqual(payload.auth, { scheme: "bearer", token: "secret" });
  assert.deepEqual(payload.capabilities, { executes: true, heartbeat: true });
  await soon(worker.ready());
});

test("sends a result", async () => {
  const peer = await open();
  peer.dispatch("echo@1.0.0", { args: { a: 1 } });
  await peer.receive("ack");
  const result = await peer.receive("tool.result");
  assert.deepEqual([result.payload, result.job_id, result.correlation_id], [{ value: { a: 1 } }, "job_1", "msg_d1"]);
});

test("runs a repeated dispatch once", async () => {
  const peer = await held();
  peer.dispatch("held@1.0.0");
  await peer.receive("ack");
  release.set();
  await peer.receive("tool.result");
  assert.equal(started, 1);
});

test("sends a result again with its id", async () => {
  let peer = await held();
  release.set();
  const first = await peer.receive("tool.result");
  peer = await again(peer);
  const second = await peer.receive("tool.result");
  assert.deepEqual([second.id, second.payload, second.correlation_id], [first.id, first.payload, "msg_d1"]);
  peer.send("ack", {}, { correlation_id: second.id });
  peer.dispatch("echo@1.0.0", { job: "job_2", id: "msg_d2" });
  await peer.receive("ack"); // and not the result once more
  assert.equal(started, 1);
});

test("holds the frames of a job until it is dispatched again", async () => {
  const gate = event();
  worker.tool("reports", {}, async (ctx) => {
    await gate.wait;
    await ctx.progress(1, 2);
    await ctx.checkpoint({ at: 1 }, "one");
  });
  let peer = await open();
  peer.dispatch("reports@1.0.0");
  await peer.receive("ack");
  peer.ws.terminate();
  peer = await runtime.accept();
  gate.set(); // what follows is sent before the session is resumed
  await peer.resume();
  peer.dispatch("reports@1.0.0");
  await peer.receive("ack");
  assert.deepEqual((await peer.receive("job.progress")).payload, { current: 1, total: 2 });
  const checkpoint = await peer.receive("job.checkpoint");
  assert.deepEqual(checkpoint.payload, { data: { at: 1 }, label: "one" });
  peer.ws.terminate();
  peer = await runtime.accept();
  await peer.resume("resume-3");
  peer.dispatch("reports@1.0.0");
  await peer.receive("ack");
  const second = await peer.receive("job.checkpoint");
  assert.equal(second.id, checkpoint.id);
  peer.send("ack", {}, { correlation_id: second.id });
  assert.deepEqual((await peer.receive("tool.result")).payload, { value: null });
});

test("continues a running call as the next attempt", async () => {
  const peer = await again(await held());
  peer.dispatch("held@1.0.0", { id: "msg_d2", attempt: 2 });
  assert.equal((await peer.receive("tool.error")).correlation_id, "msg_d1");
  assert.equal((await peer.receive("ack")).correlation_id, "msg_d2");
  release.set();
  const result = await peer.receive("tool.result");
  assert.deepEqual([result.correlation_id, result.payload.value, started], ["msg_d2", 2, 1]);
});

test("sends a result again for the next attempt", async () => {
  let peer = await held();
  release.set();
  const first = await peer.receive("tool.result");
  peer = await again(peer);
  const refused = await peer.receive("tool.result");
  assert.equal(refused.id, first.id);
  peer.send("nack", REFUSAL, { correlation_id: refused.id });
  peer.dispatch("held@1.0.0", { id: "msg_d2", attempt: 2 });
  await peer.receive("tool.error");
  await peer.receive("ack");
  const result = await peer.receive("tool.result");
  assert.deepEqual([result.correlation_id, started], ["msg_d2", 1]);
  assert.notEqual(result.id, first.id);
});

test("runs the next attempt after a failure", async () => {
  let times = 0;
  worker.tool("fails", {}, () => {
    if (++times === 1) throw new ToolError("UNAVAILABLE", "not yet", { retryable: true, details: { n: 1 } });
    return times;
  });
  const peer = await open();
  peer.dispatch("fails@1.0.0");
  await peer.receive("ack");
  assert.deepEqual((await peer.receive("tool.error")).payload, { code: "UNAVAILABLE", message: "not yet", retryable: true, details: { n: 1 } });
  peer.dispatch("fails@1.0.0", { id: "msg_d2", attempt: 2 }); // before the ack of the failure
  await peer.receive("ack");
  assert.deepEqual((await peer.receive("tool.result")).payload, { value: 2 });
});

test("cancels a job that runs elsewhere", async () => {
  const aborted = event();
  worker.tool("waits", {}, (ctx) => new Promise((_, reject) => ctx.signal.addEventListener("abort", () => {
    aborted.set();
    reject(new Error("aborted"));
  })));
  const peer = await open(0.1);
  peer.dispatch("waits@1.0.0");
  await peer.receive("ack");
  const beat = await peer.receive("job.heartbeat");
  peer.send("nack", REFUSAL, { correlation_id: beat.id });
  let ended = false;
  const pings = (async () => {
    while (!ended) { // the connection is not silent
      peer.send("session.ping", PING);
      await peer.receive("session.pong").catch(() => undefined);
    }
  })();
  await soon(aborted.wait).finally(() => (ended = true));
  await pings;
});

test("sends heartbeats", async () => {
  const peer = await held(0.1);
  const [first, second] = [await peer.receive("job.heartbeat"), await peer.receive("job.heartbeat")];
  assert.deepEqual([first.payload.sequence, second.payload.sequence, first.job_id, first.correlation_id], [1, 2, "job_1", "msg_d1"]);
});

test("leaves a silent runtime", async () => {
  const peer = await open(0.05);
  await soon(peer.closed);
  await (await runtime.accept()).resume();
});

test("answers a ping", async () => {
  const peer = await open();
  const id = peer.send("session.ping", PING);
  const pong = await peer.receive("session.pong");
  assert.deepEqual([pong.payload.ping_nonce, pong.correlation_id], ["n", id]);
});

test("answers a challenge", async () => {
  serve();
  const peer = await runtime.accept();
  await peer.receive("session.open");
  peer.send("session.challenge", { challenge: "c1" });
  const response = createHmac("sha256", createHash("sha256").update("secret").digest()).update("c1").digest("hex");
  assert.deepEqual((await peer.receive("session.authenticate")).payload, { response });
});

test("ends with refused credentials", async () => {
  const served = serve();
  const peer = await runtime.accept();
  await peer.receive("session.open");
  peer.send("session.unauthenticated", { code: "UNAUTHENTICATED", message: "the token is wrong", retryable: false });
  await assert.rejects(soon(served), (e) => e instanceof WorkerError && e.code === "UNAUTHENTICATED" && /the token is wrong; set token/.test(e.message));
});

test("ends without the role worker", async () => {
  const served = serve();
  const peer = await runtime.accept();
  await peer.receive("session.open");
  peer.send("session.accepted", { session_id: "sess_1", resume_token: "r", capabilities: {} });
  await assert.rejects(soon(served), /PERMISSION_DENIED: .* role worker/);
});

test("ends with a refused registration", async () => {
  const served = serve();
  const peer = await runtime.accept();
  await peer.receive("session.open");
  peer.send("session.accepted", { session_id: "sess_1", resume_token: "r", capabilities: { executes: true } });
  let env = await peer.receive("tool.invoke");
  peer.send("job.failed", { code: "UNAVAILABLE", message: "full", retryable: true }, { correlation_id: env.id });
  env = await peer.receive("tool.invoke"); // it is asked again
  peer.send("job.failed", { code: "ALREADY_EXISTS", message: "held exists", retryable: false }, { correlation_id: env.id });
  await assert.rejects(soon(served), /ALREADY_EXISTS: the tools are not registered: held exists/);
});

test("logs a busy runtime once", async () => {
  serve();
  for (let n = 0; n < 2; n++) {
    const peer = await runtime.accept();
    await peer.receive("session.open");
    peer.send("session.rejected", { code: "RESOURCE_EXHAUSTED", message: "full", retryable: true });
  }
  await (await runtime.accept()).open();
  await soon(worker.ready());
  const url = runtime.url;
  assert.deepEqual(logs, [`warn: no connection to ${url}: RESOURCE_EXHAUSTED: full; the worker tries again`, `info: connected to ${url}`, "info: registered held@1.0.0, echo@1.0.0"]);
});

test("opens a new session after the end of one", async () => {
  let peer = await held();
  peer.ws.terminate();
  peer = await runtime.accept();
  await peer.receive("session.resume");
  peer.send("session.rejected", { code: "DATA_LOSS", message: "no", retryable: false });
  peer = await runtime.accept();
  await peer.open(30, "resume-9");
  peer.dispatch("held@1.0.0", { id: "msg_d2", attempt: 2 }); // the job has waited for a worker
  await peer.receive("tool.error");
  await peer.receive("ack");
  release.set();
  await peer.receive("tool.result");
  assert.equal(started, 1);
});

test("cancels a job", async () => {
  worker.tool("waits", {}, (ctx) => new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason))));
  const peer = await open();
  peer.dispatch("waits@1.0.0");
  await peer.receive("ack");
  peer.send("cancel", { target: "job", target_id: "job_1", reason: "enough" }, { correlation_id: "msg_d1" });
  assert.deepEqual((await peer.receive("tool.error")).payload, { code: "CANCELLED", message: "enough", retryable: false });
});

test("refuses what it does not execute", async () => {
  const peer = await held();
  peer.dispatch("other@1.0.0", { job: "job_2", id: "msg_d2" });
  assert.equal((await peer.receive("nack")).payload.code, "UNIMPLEMENTED");
  peer.dispatch("held@1.0.0", { job: "job_3", id: "msg_d3" });
  await peer.receive("ack");
  peer.dispatch("held@1.0.0", { job: "job_4", id: "msg_d4" });
  const { payload } = await peer.receive("nack");
  assert.deepEqual([payload.code, payload.retryable], ["RESOURCE_EXHAUSTED", true]);
});

test("refuses results that cannot be sent", async () => {
  const circle: { self?: unknown } = {};
  circle.self = circle;
  const values = [Number.NaN, () => 1, 1n, circle, "x".repeat(5 << 20), "\ud800"];
  worker.tool("odd", { inputSchema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } }, (_, { n }) => values[n]);
  const peer = await open();
  for (const n of values.keys()) {
    peer.dispatch("odd@1.0.0", { args: { n }, job: `job_${n}`, id: `msg_d${n}` });
    await peer.receive("ack");
    const error = await peer.receive("tool.error");
    assert.match(error.payload.message, /the result of odd@1.0.0 cannot be sent/);
    peer.send("ack", {}, { correlation_id: error.id });
  }
});

test("reports an exception", async () => {
  worker.tool("throws", {}, () => {
    throw new Error("it fails");
  });
  const peer = await open();
  peer.dispatch("throws@1.0.0");
  await peer.receive("ack");
  assert.deepEqual((await peer.receive("tool.error")).payload, { code: "UNKNOWN", message: "it fails", retryable: false });
  assert.match(logs.join("\n"), /job job_1: throws@1.0.0 has failed: Error: it fails/);
});

test("goes on after events that are not awaited and cannot be sent", async () => {
  const rejections: unknown[] = [];
  const onRejection = (e: unknown) => rejections.push(e);
  process.on("unhandledRejection", onRejection);
  const bad = { a: 1n } as never;
  worker.tool("odd", {}, async (ctx) => {
    void ctx.log("x", "info", bad);
    void ctx.emit("x", bad);
    void ctx.progress(Number.NaN);
    void ctx.metric("x", Number.NaN);
    void ctx.checkpoint(bad);
    void ctx.call("other", bad);
    await new Promise((resolve) => setImmediate(resolve)); // rejections are reported before
    await assert.rejects(ctx.log("x", "info", bad), /^TypeError: log cannot be sent: /);
    await assert.rejects(ctx.checkpoint(bad), /^TypeError: job.checkpoint cannot be sent: /);
    return "done";
  });
  try {
    const peer = await open();
    peer.dispatch("odd@1.0.0");
    await peer.receive("ack");
    assert.deepEqual((await peer.receive("tool.result")).payload, { value: "done" });
  } finally {
    process.off("unhandledRejection", onRejection);
  }
  assert.deepEqual(rejections, []);
  for (const type of ["log", "event.emit", "job.progress", "metric", "job.checkpoint", "tool.invoke"]) {
    assert.match(logs.join("\n"), new RegExp(`warn: job job_1: ${type} cannot be sent: `));
  }
});

test("goes on after refused requests that are not awaited", async () => {
  const rejections: unknown[] = [];
  const onRejection = (e: unknown) => rejections.push(e);
  process.on("unhandledRejection", onRejection);
  worker.tool("requests", {}, async (ctx) => {
    void ctx.checkpoint(1);
    void ctx.call("other");
    await release.wait;
  });
  try {
    const peer = await open();
    peer.dispatch("requests@1.0.0");
    await peer.receive("ack");
    peer.send("nack", REFUSAL, { correlation_id: (await peer.receive("job.checkpoint")).id });
    peer.send("job.failed", REFUSAL, { correlation_id: (await peer.receive("tool.invoke")).id });
    await pong(peer);
    release.set();
    await peer.receive("tool.result");
  } finally {
    process.off("unhandledRejection", onRejection);
  }
  assert.deepEqual(rejections, []);
});

test("describes tools", async () => {
  const options = { timeoutMs: 2000, startTimeoutMs: 500, interruptible: true, maxResponseBytes: 4 << 20 };
  worker.tool("described", options, () => null);
  serve();
  const peer = await runtime.accept();
  const session = await peer.receive("session.open");
  const accepted = { session_id: "sess_1", resume_token: "resume-1", heartbeat_interval_sec: 30, capabilities: { executes: true } };
  peer.send("session.accepted", accepted, { correlation_id: session.id });
  const { tools } = (await peer.register()).payload.arguments.capabilities;
  assert.deepEqual(tools["described@1.0.0"], { timeout_ms: 2000, start_timeout_ms: 500, interruptible: true, max_response_bytes: 4 << 20 });
  assert.deepEqual(tools["echo@1.0.0"], {});
});

for (const end of ["continue", "cancel"]) {
  test(`interrupts a job: ${end}`, async () => {
    worker.tool("steps", { interruptible: true }, async (ctx) => {
      const before = await ctx.safePoint();
      await ctx.progress(0);
      await release.wait;
      await ctx.progress(1);
      return [before, await ctx.safePoint(), await ctx.safePoint()];
    });
    const peer = await open();
    peer.dispatch("steps@1.0.0");
    await peer.receive("ack");
    await peer.receive("job.progress"); // after the first safe point
    const interrupt = await interruptJob(peer, "msg_d1");
    release.set();
    await peer.receive("job.progress");
    await pong(peer); // and no outcome
    if (end === "cancel") {
      peer.send("cancel", { target: "job", target_id: "job_1", reason: "enough" }, { correlation_id: "msg_d1" });
      assert.deepEqual((await peer.receive("tool.error")).payload, { code: "CANCELLED", message: "enough", retryable: false });
      return;
    }
    answerInterrupt(peer, "msg_other", "wrong");
    await pong(peer);
    answerInterrupt(peer, interrupt, "faster");
    assert.deepEqual((await peer.receive("tool.result")).payload, { value: ["", "faster", ""] });
  });
}

test("continues an interrupted call as the next attempt", async () => {
  worker.tool("steps", { interruptible: true }, async (ctx) => {
    await release.wait;
    return ctx.safePoint();
  });
  const peer = await open();
  peer.dispatch("steps@1.0.0");
  await peer.receive("ack");
  await interruptJob(peer, "msg_d1");
  peer.dispatch("steps@1.0.0", { id: "msg_d2", attempt: 2 });
  await peer.receive("tool.error"); // of the first attempt
  await peer.receive("ack");
  const interrupt = await interruptJob(peer, "msg_d2");
  release.set();
  await pong(peer);
  answerInterrupt(peer, interrupt, "go");
  assert.deepEqual((await peer.receive("tool.result")).payload, { value: "go" });
});

/** Interrupts a job, and returns the id of the interrupt when the worker has it. */
async function interruptJob(peer: Peer, dispatch: string): Promise<string> {
  const id = `msg_interrupt_${dispatch}`;
  peer.send("interrupt", { target: "job", target_id: "job_1", prompt: "stop" }, { id, correlation_id: dispatch });
  await pong(peer);
  return id;
}

function answerInterrupt(peer: Peer, interrupt: string, guidance: string): void {
  const payload = { value: { action: "continue", guidance }, responded_at: "2030-01-01T00:00:00Z" };
  peer.send("human.input.response", payload, { correlation_id: interrupt });
}

/** Waits until the worker has read what it was sent. */
async function pong(peer: Peer): Promise<void> {
  peer.send("session.ping", PING);
  await peer.receive("session.pong");
}

test("holds events while there is no connection", async () => {
  let accepted = 0;
  worker.tool("chatters", {}, async (ctx) => {
    await release.wait;
    const events = [];
    for (let n = 1; n <= 2 * MAX_BUFFERED; n++) events.push(ctx.progress(n).then(() => accepted++));
    await Promise.all(events);
  });
  let peer = await open();
  peer.dispatch("chatters@1.0.0");
  await peer.receive("ack");
  peer.ws.terminate();
  peer = await runtime.accept();
  release.set();
  await peer.resume(); // the job's frames wait for its dispatch
  peer.send("session.ping", PING);
  await peer.receive("session.pong");
  assert.equal(accepted, MAX_BUFFERED);
  peer.dispatch("chatters@1.0.0");
  await peer.receive("ack");
  for (let n = 1; n <= 2 * MAX_BUFFERED; n++) assert.deepEqual((await peer.receive("job.progress")).payload, { current: n });
  await peer.receive("tool.result");
});

test("calls a child", async () => {
  worker.tool("asks", {}, async (ctx) => {
    try {
      return await ctx.call("other", { n: 1 });
    } catch (e) {
      return (e as ToolError).code;
    }
  });
  const peer = await open();
  const cases: [string, object, unknown][] = [
    ["job.completed", { value: 7 }, 7],
    ["job.failed", { code: "PERMISSION_DENIED", message: "no", details: { code: "LEASE_SUBSET_VIOLATION" } }, "LEASE_SUBSET_VIOLATION"],
    ["job.cancelled", { reason: "enough" }, "CANCELLED"],
  ];
  for (const [n, [type, payload, want]] of cases.entries()) {
    peer.dispatch("asks@1.0.0", { job: `job_${n}`, id: `msg_d${n}` });
    await peer.receive("ack");
    const call = await peer.receive("tool.invoke");
    assert.deepEqual([call.payload.tool, call.payload.arguments, call.job_id], ["other", { n: 1 }, `job_${n}`]);
    peer.send("job.accepted", { job_id: "job_c" }, { correlation_id: call.id });
    peer.send(type, payload, { correlation_id: call.id });
    const result = await peer.receive("tool.result");
    assert.deepEqual(result.payload.value, want);
    peer.send("ack", {}, { correlation_id: result.id });
  }
});

test("stops", async () => {
  const peer = await held();
  await soon(worker.ready());
  worker.stop();
  const unregister = await peer.receive("tool.invoke");
  assert.deepEqual(unregister.payload, { tool: "host.unregister_agent", arguments: { agent_id: "agent-1" } });
  peer.dispatch("echo@1.0.0", { job: "job_2", id: "msg_d2" });
  assert.equal((await peer.receive("nack")).payload.code, "UNAVAILABLE");
  peer.send("job.completed", { value: null }, { correlation_id: unregister.id });
  release.set();
  const result = await peer.receive("tool.result");
  peer.send("ack", {}, { correlation_id: result.id });
  const close = await peer.receive("session.close");
  assert.equal(close.payload.forget, true);
  peer.send("session.closed", {}, { correlation_id: close.id });
  await soon(serving);
});

test("stops with a job that does not end", async () => {
  make({ grace: 10 });
  const peer = await held();
  await soon(worker.ready());
  worker.stop();
  const unregister = await peer.receive("tool.invoke");
  peer.send("job.completed", { value: null }, { correlation_id: unregister.id });
  const close = await peer.receive("session.close"); // and no outcome: the job is lost
  peer.send("session.closed", {}, { correlation_id: close.id });
  await soon(serving);
});

test("leaves a peer that is no runtime", async () => {
  const lines = new Queue<string>();
  make({ log: (_, message) => lines.put(message) });
  serve();
  for (const text of ["hello", "[]", '{"type":"session.accepted","payload":{"capabilities":{"executes":true}}}']) {
    const peer = await runtime.accept();
    await peer.receive("session.open");
    peer.ws.send(text);
    await soon(peer.closed);
  }
  assert.match(await lines.next(), /is the address one of an ARCP runtime\?/);
  assert.match(await lines.next(), /resume_token is not a text/);
});

test("refuses mistakes", () => {
  serving = Promise.resolve();
  assert.throws(() => worker.tool("echo", {}, () => 1), /echo@1.0.0 exists already/);
  assert.throws(() => new Worker({ concurrency: 0 }), /from 1 to 1000/);
});

test("derives the type of the arguments", () => {
  serving = Promise.resolve();
  const inputSchema = {
    type: "object",
    properties: { text: { type: "string" }, times: { type: "integer" }, kind: { enum: ["a", "b"] }, list: { type: "array", items: { type: "boolean" } } },
    required: ["text", "kind"],
  } as const;
  worker.tool("typed", { inputSchema }, (_, args) => {
    const exact: { text: string; kind: "a" | "b"; times?: number; list?: boolean[] } = args;
    const back: typeof args = exact;
    // @ts-expect-error: it may be missing
    const times: number = args.times;
    return [back, times];
  });
});
