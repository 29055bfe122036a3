import { createHash, createHmac } from "node:crypto";
import type { SecureContextOptions } from "node:tls";

import { Call, encode, type Envelope, Frame, newId, type Payload } from "./call.js";
import type { Context } from "./context.js";
import { ToolError, WorkerError } from "./errors.js";
import { type Link, LinkError, openWebSocket, StdioLink } from "./link.js";
import type { FromSchema, Json, JsonObject, Schema } from "./schema.js";

export type SideEffect = "none" | "read" | "write" | "network" | "database" | "external_system";
export type Recovery = "fail" | "rerun" | "checkpoint";

/** Receives a line for people. */
export type Logger = (level: "info" | "warn", message: string) => void;

export interface WorkerOptions {
  /** Address of the runtime; default: the variable ARCP_URL, then `ws://127.0.0.1:7777/arcp`. */
  url?: string | undefined;
  /**
   * A token of a principal with the role `worker`, or a function that returns one for each new session; default: the
   * variable ARCP_TOKEN.
   */
  token?: string | (() => string) | undefined;
  /** Name of the worker, for people. */
  name?: string;
  /** How many jobs run at once, of all tools together; default 1. */
  concurrency?: number;
  /**
   * How many milliseconds running jobs have to end when the worker is stopped; default 8000. Jobs that still run then
   * are lost: `recovery` of their tool decides whether another worker runs them.
   */
  grace?: number;
  /** `signed_jwt` if the token is a JWT. */
  scheme?: "bearer" | "signed_jwt";
  /** TLS options of a `wss` address, such as `ca`. */
  tls?: SecureContextOptions;
  /** Default: standard error. */
  log?: Logger;
}

/** The description of a tool. SPEC.md §7.1 and §7.8 describe the members. */
export interface ToolOptions<S extends Schema = Schema> {
  version?: string; // default 1.0.0
  description?: string;
  inputSchema?: S;
  outputSchema?: Schema;
  sideEffect?: SideEffect;
  recovery?: Recovery;
  idempotent?: boolean;
  retry?: JsonObject;
  approval?: string | JsonObject;
  minTrust?: string;
  timeoutMs?: number;
  startTimeoutMs?: number;
  interruptible?: boolean; // the tool calls safePoint of its context between its steps
  maxRequestBytes?: number;
  maxResponseBytes?: number;
}

/** Performs one attempt of a job. The result is a JSON value; undefined is null. */
export type Handler<A> = (ctx: Context, args: A) => unknown;

export interface RunOptions {
  /** Speak over the standard streams, for a runtime that has started the program. */
  stdio?: boolean;
}

interface Tool {
  readonly ref: string; // name@version
  readonly handler: Handler<never>;
  readonly description: Payload; // its entry in capabilities.tools
}

const DEFAULT_URL = "ws://127.0.0.1:7777/arcp";
const VERSION = "0.1.0";
const MIN_DELAY = 100; // milliseconds between connections
const MAX_DELAY = 5000;
const DEFAULT_INTERVAL = 30_000; // milliseconds between heartbeats, if the runtime announces none
const MAX_SILENT = 4; // beats without a frame: two heartbeat intervals
const STOP_TIMEOUT = 2000; // milliseconds to wait for an answer when the worker stops

/** The session cannot be resumed. A new one can be opened. */
class SessionEnded extends Error {}

/** A promise with its functions. */
class Deferred<T> {
  resolve!: (value: T) => void;
  reject!: (e: Error) => void;
  readonly promise = new Promise<T>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor() {
    this.promise.catch(() => undefined); // a rejection may have no receiver
  }
}

/** A worker of an ARCP runtime. */
export class Worker {
  readonly url: string;
  readonly name: string;
  readonly concurrency: number;
  private readonly options: WorkerOptions;
  private readonly tools = new Map<string, Tool>();
  private started = false;
  private stdio = false;

  // The session.
  private resumeToken = "";
  private lastEvent = 0;
  private interval = DEFAULT_INTERVAL;
  private agent = ""; // id of the registered agent

  // The connection.
  private opening: Link | undefined;
  private link: Link | undefined; // the session is established on it
  private silent = 0; // beats since the last frame
  private control: Frame[] = []; // frames that go first
  private readyCalls: Call[] = []; // calls with frames to send
  private wake: () => void = () => undefined; // there is a frame to send
  private beats: NodeJS.Timeout | undefined;
  private retryAfter = 0; // milliseconds that the runtime asks to wait
  private said = ""; // the last reason that was logged

  // The jobs.
  private readonly calls = new Map<string, Call>(); // by dispatch
  private handlers = 0; // that run
  private readonly waiting = new Map<string, Frame>(); // requests by id
  private readonly heartbeats = new Map<string, Call>(); // by id of the heartbeat
  private readonly sessionRequests = new Map<string, Frame>(); // requests that are about no job

  // The end.
  private readonly timers = new Set<NodeJS.Timeout>();
  private readonly registered = new Deferred<void>();
  private readonly stopping = new Deferred<void>();
  private readonly fatal = new Deferred<never>();
  private isStopping = false;
  private grace = 0; // milliseconds
  private connectionLost: (() => void) | undefined; // called at the end of a connection
  private ended = false;
  private idle: (() => void) | undefined; // called when there is no call any more

  constructor(options: WorkerOptions = {}) {
    this.options = options;
    this.url = options.url ?? (process.env["ARCP_URL"] || DEFAULT_URL);
    this.name = options.name ?? "worker";
    this.concurrency = options.concurrency ?? 1;
    if (!Number.isInteger(this.concurrency) || this.concurrency < 1 || this.concurrency > 1000) {
      throw new RangeError(`concurrency is ${this.concurrency}; it must be from 1 to 1000`);
    }
  }

  /** Adds a tool. The type of its arguments follows from `inputSchema`. */
  tool<const S extends Schema>(name: string, options: ToolOptions<S>, handler: Handler<FromSchema<S>>): this {
    const ref = name.includes("@") ? name : `${name}@${options.version ?? "1.0.0"}`;
    if (this.started) throw new Error(`tool ${ref}: add tools before the worker runs`);
    if (this.tools.has(ref)) throw new Error(`tool ${ref} exists already`);
    const members: { [key: string]: unknown } = {
      description: options.description,
      input_schema: options.inputSchema,
      output_schema: options.outputSchema,
      side_effect: options.sideEffect,
      recovery: options.recovery,
      idempotent: options.idempotent,
      retry: options.retry,
      approval: options.approval,
      min_trust: options.minTrust,
      timeout_ms: options.timeoutMs,
      start_timeout_ms: options.startTimeoutMs,
      interruptible: options.interruptible,
      max_request_bytes: options.maxRequestBytes,
      max_response_bytes: options.maxResponseBytes,
    };
    const description = Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
    this.tools.set(ref, { ref, handler, description });
    return this;
  }

  /**
   * Works until the process is told to end with SIGINT or SIGTERM, or the input ends (`stdio`). A refusal that another
   * attempt would not change ends the process with a message and status 1.
   */
  async run(options: RunOptions = {}): Promise<void> {
    const onSignal = () => {
      if (this.isStopping) process.exit(130); // the second signal
      this.stop();
    };
    process.on("SIGINT", onSignal);
    process.on("SIGTERM", onSignal);
    try {
      await this.serve(options);
    } catch (e) {
      if (!(e instanceof WorkerError)) throw e;
      console.error(`arcp-worker: ${e.message}`);
      process.exit(1);
    } finally {
      process.off("SIGINT", onSignal);
      process.off("SIGTERM", onSignal);
    }
  }

  /**
   * Works until `stop` is called, or the input ends (`stdio`). Rejects with a WorkerError when the runtime refuses the
   * worker. A worker serves once.
   */
  async serve(options: RunOptions = {}): Promise<void> {
    if (this.tools.size === 0) throw new Error("the worker has no tools: add one with worker.tool");
    if (this.started) throw new Error("the worker serves already");
    this.started = true;
    this.stdio = options.stdio ?? false;
    try {
      const main = this.connections();
      main.catch(() => undefined); // it may end after the worker
      await Promise.race([main, this.stopping.promise]);
      if (this.isStopping) await this.drain();
    } finally {
      this.ended = true;
      for (const call of this.calls.values()) call.drop("the worker has ended");
      for (const timer of this.timers) clearTimeout(timer);
      this.fatal.reject(new LinkError("the worker has ended"));
      this.opening?.close();
    }
  }

  /** Accepts no more jobs, and ends when the running ones have ended, after `grace` milliseconds at the latest. */
  stop(grace = this.options.grace ?? 8000): void {
    this.grace = grace;
    this.isStopping = true;
    this.stopping.resolve();
  }

  /** Resolves when the tools are registered for the first time. */
  ready(): Promise<void> {
    return this.registered.promise;
  }

  private log(level: "info" | "warn", message: string): void {
    if (this.options.log) this.options.log(level, message);
    else console.error(`arcp-worker: ${message}`);
  }

  // Connections.

  /** Serves one connection after another. */
  private async connections(): Promise<void> {
    for (let delay = MIN_DELAY; !this.ended; delay = Math.min(2 * delay, MAX_DELAY)) {
      let reason = "";
      try {
        this.opening = this.stdio ? new StdioLink() : await openWebSocket(this.url, this.options.tls ?? {});
        await this.serveLink(this.opening);
      } catch (e) {
        if (e instanceof LinkError) reason = e.message;
        else if (!(e instanceof SessionEnded)) throw e;
      } finally {
        if (this.disconnected()) delay = MIN_DELAY;
        this.opening?.close();
        this.opening = undefined;
      }
      if (this.stdio || this.ended) return;
      if (reason !== "" && reason !== this.said) {
        this.log("warn", `no connection to ${this.url}: ${reason}; the worker tries again`);
        this.said = reason;
      }
      await this.sleep(Math.max(this.retryAfter, delay * (0.5 + Math.random() / 2)));
      this.retryAfter = 0;
    }
  }

  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.later(ms, resolve));
  }

  /** Calls a function after a time, unless the worker ends before. */
  private later(ms: number, f: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      f();
    }, ms);
    this.timers.add(timer);
    return timer;
  }

  /** Serves a connection until it ends. The rejection has the reason. */
  private async serveLink(link: Link): Promise<void> {
    const lost = new Deferred<never>();
    this.silent = 0;
    link.receive(
      (text) => {
        if (this.opening !== link) return;
        this.silent = 0;
        try {
          this.receive(link, parse(text));
        } catch (e) {
          lost.reject(e instanceof TypeError ? new LinkError(`the runtime has sent a message that is not valid: ${e.message}`) : (e as Error));
        }
      },
      (reason) => lost.reject(new LinkError(reason)),
    );
    this.beats = this.later(DEFAULT_INTERVAL, () => lost.reject(new LinkError("the runtime has not answered")));
    this.onSilence = () => lost.reject(new LinkError("the runtime has sent nothing for two heartbeat intervals"));
    const sending = this.sendAll(link).catch((e: Error) => lost.reject(e));
    try {
      await Promise.race([lost.promise, this.fatal.promise]);
    } finally {
      this.opening = undefined;
      this.wake();
      link.close();
      await Promise.race([sending, lost.promise.catch(() => undefined)]);
    }
  }

  private onSilence: () => void = () => undefined;

  private async sendAll(link: Link): Promise<void> {
    await link.send(this.openingFrame().encode());
    while (this.opening === link) {
      const frame = this.nextFrame();
      if (frame !== undefined) await link.send(frame.encode());
      else await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  private credential(): string {
    const { token } = this.options;
    return (typeof token === "function" ? token() : token) || process.env["ARCP_TOKEN"] || "";
  }

  /** Returns the first message of a connection. */
  private openingFrame(): Frame {
    if (this.resumeToken !== "") {
      return new Frame("session.resume", encode({ resume_token: this.resumeToken, last_event_seq: this.lastEvent }));
    }
    const auth = this.stdio ? { scheme: "none" } : { scheme: this.options.scheme ?? "bearer", token: this.credential() };
    const client = { kind: "arcp-worker-typescript", version: VERSION };
    return new Frame("session.open", encode({ auth, client, capabilities: { executes: true, heartbeat: true } }));
  }

  /** Takes the next frame to send: of the session, then of the calls in turn. */
  private nextFrame(): Frame | undefined {
    const first = this.control.shift();
    if (first !== undefined) return first;
    while (this.link !== undefined) {
      const call = this.readyCalls.shift();
      if (call === undefined) return undefined;
      call.ready = false;
      const frame = call.confirmed ? call.shift() : undefined;
      if (frame === undefined) continue;
      if (frame.answer !== undefined) call.unanswered.set(frame.id, frame);
      this.schedule(call);
      return frame;
    }
    return undefined;
  }

  /** Has the frames of a call sent. */
  private schedule(call: Call): void {
    if (call.buffer.length === 0 || !call.confirmed || call.ready || this.link === undefined) return;
    call.ready = true;
    this.readyCalls.push(call);
    this.wake();
  }

  /** Sends a frame before those of the calls. Without a session it is lost. */
  private put(frame: Frame): void {
    if (this.link === undefined && frame.type !== "session.authenticate") return;
    this.control.push(frame);
    this.wake();
  }

  /** Continues on a connection. */
  private established(link: Link): void {
    if (this.said !== "") this.log("info", `connected to ${this.url}`);
    this.said = "";
    this.link = link;
    for (const call of this.calls.values()) {
      if (call.done) this.confirm(call); // its outcome has no answer yet
    }
    this.dropUnconfirmed([...this.calls.values()]);
    clearTimeout(this.beats);
    this.beats = setInterval(() => this.beat(), Math.max(this.interval / 2, 10)); // twice an interval: one may be late
    this.timers.add(this.beats);
    this.wake();
  }

  /** Forgets the connection. Returns whether the session was established on it. */
  private disconnected(): boolean {
    const established = this.link !== undefined;
    this.link = undefined;
    this.connectionLost?.();
    if (this.beats !== undefined) this.timers.delete(this.beats);
    clearTimeout(this.beats);
    this.control = [];
    this.readyCalls = [];
    this.heartbeats.clear();
    for (const call of this.calls.values()) call.confirmed = call.ready = false;
    return established;
  }

  /**
   * Drops the calls that the runtime does not dispatch again within two heartbeat intervals: their jobs have ended, or
   * run elsewhere.
   */
  private dropUnconfirmed(calls: readonly Call[]): void {
    const link = this.link;
    if (calls.length === 0) return;
    this.later(2 * this.interval, () => {
      for (const call of calls) {
        if (this.link === link && !call.confirmed && this.calls.get(call.dispatch) === call) this.drop(call, "the job has ended or runs elsewhere");
      }
    });
  }

  /** Sends the heartbeats of jobs, and watches those of the runtime. */
  private beat(): void {
    // Beats are counted, not time: a process that was stopped has not seen what was sent meanwhile.
    if (++this.silent > MAX_SILENT) return this.onSilence();
    for (const call of this.calls.values()) {
      if (!call.confirmed || call.done) continue;
      const beat = new Frame("job.heartbeat", encode({ sequence: ++call.heartbeats, state: "running" }), { call });
      this.heartbeats.delete(call.heartbeat);
      this.heartbeats.set(beat.id, call);
      call.heartbeat = beat.id;
      this.put(beat);
    }
  }

  // Messages of the runtime.

  private receive(link: Link, env: Envelope): void {
    this.lastEvent = Math.max(this.lastEvent, env.event_seq ?? 0);
    const { payload } = env;
    switch (env.type) {
      case "session.accepted":
        return this.accepted(link, payload);
      case "session.resumed":
        this.resumeToken = text(payload, "resume_token");
        this.established(link);
        for (const frame of this.sessionRequests.values()) this.put(frame);
        return;
      case "session.rejected":
      case "session.unauthenticated":
        return this.refused(payload);
      case "session.challenge": {
        const key = createHash("sha256").update(this.credential()).digest();
        const response = createHmac("sha256", key).update(text(payload, "challenge")).digest("hex");
        return this.put(new Frame("session.authenticate", encode({ response })));
      }
      case "session.evicted":
        throw new LinkError(`the session was evicted: ${String(payload["code"])}: ${String(payload["reason"])}`);
      case "session.ping":
        return this.put(
          new Frame("session.pong", encode({ ping_nonce: payload["nonce"], received_at: new Date().toISOString() }), { correlationId: env.id }),
        );
      case "tool.invoke":
        return this.dispatch(env);
      case "cancel":
        return this.calls.get(env.correlation_id ?? "")?.cancel(String(payload["reason"] ?? "cancelled"));
      case "interrupt":
        return this.calls.get(env.correlation_id ?? "")?.interrupt(env.id);
      case "human.input.response":
        return this.resume(env);
      case "job.accepted":
        return;
      default:
        return this.answered(env);
    }
  }

  /** Resumes the call whose interrupt the message answers. */
  private resume(env: Envelope): void {
    const value = env.payload["value"] as { guidance?: unknown } | null | undefined;
    for (const call of this.calls.values()) {
      if (call.interruptId !== "" && call.interruptId === env.correlation_id) call.resume(String(value?.guidance ?? ""));
    }
  }

  /** Begins a new session. */
  private accepted(link: Link, payload: Payload): void {
    const capabilities = payload["capabilities"] as Payload | undefined;
    if (capabilities?.["executes"] !== true) {
      throw new WorkerError("PERMISSION_DENIED", "the principal of the token needs the role worker");
    }
    this.resumeToken = text(payload, "resume_token");
    this.lastEvent = 0;
    this.interval = Number(payload["heartbeat_interval_sec"] ?? 0) * 1000 || DEFAULT_INTERVAL;
    for (const [id, frame] of this.sessionRequests) { // of the session before
      this.waiting.delete(id);
      frame.answer?.reject(new SessionEnded());
    }
    this.sessionRequests.clear();
    this.established(link);
    this.register().catch((e: Error) => {
      if (!(e instanceof SessionEnded)) this.fatal.reject(e);
    });
  }

  /** Handles the refusal of a session. */
  private refused(payload: Payload): void {
    const error = ToolError.fromPayload(payload);
    if (error.retryable) {
      this.retryAfter = Number(error.details?.["retry_after_seconds"] ?? 0) * 1000;
      throw new LinkError(`${error.code}: ${error.message}`);
    }
    if (this.resumeToken !== "") {
      this.resumeToken = "";
      throw new SessionEnded();
    }
    const hint = "; set token, or the variable ARCP_TOKEN, to a token of the runtime: `arcp dev` prints one";
    throw new WorkerError(error.code, error.message + (error.code === "UNAUTHENTICATED" ? hint : ""));
  }

  /** Registers the tools in a new session. */
  private async register(): Promise<void> {
    const tools = Object.fromEntries([...this.tools.values()].map((tool) => [tool.ref, tool.description]));
    const args = {
      name: this.name, kind: "worker", executes: [...this.tools.keys()], concurrency: this.concurrency, pid: process.pid, capabilities: { tools },
    };
    for (let delay = MIN_DELAY; ; delay = Math.min(2 * delay, MAX_DELAY)) {
      try {
        const { value } = await this.askSession("tool.invoke", { tool: "host.register_agent", arguments: args });
        this.agent = String((value as Payload)["id"]);
        break;
      } catch (e) {
        if (!(e instanceof ToolError)) throw e;
        if (!e.retryable) throw new WorkerError(e.code, `the tools are not registered: ${e.message}`);
        this.log("warn", `the tools are not registered: ${e.code}: ${e.message}; the worker tries again`);
      }
      await this.sleep(delay * (0.5 + Math.random() / 2));
    }
    this.log("info", `registered ${[...this.tools.keys()].join(", ")}`);
    this.registered.resolve();
  }

  /** Sends a request that is about no job, and returns the payload of the answer. */
  private async askSession(type: string, payload: Payload): Promise<Payload> {
    const frame = new Frame(type, encode(payload));
    this.sessionRequests.set(frame.id, frame);
    const answer = this.answer(frame);
    this.put(frame);
    try {
      return await answer;
    } finally {
      this.sessionRequests.delete(frame.id);
    }
  }

  /** Waits for the answer to a request. A refusal is a ToolError. */
  private async answer(frame: Frame): Promise<Payload> {
    const answer = new Deferred<Envelope>();
    frame.answer = answer;
    this.waiting.set(frame.id, frame);
    try {
      const env = await answer.promise;
      if (["nack", "job.failed", "job.cancelled"].includes(env.type)) {
        throw ToolError.fromPayload({ code: "CANCELLED", message: "cancelled", ...env.payload });
      }
      return env.payload;
    } finally {
      this.waiting.delete(frame.id);
      frame.about.call?.unanswered.delete(frame.id);
    }
  }

  /** Handles a message that may be an answer. */
  private answered(env: Envelope): void {
    const id = env.correlation_id ?? "";
    const request = this.waiting.get(id);
    if (request !== undefined) {
      request.about.call?.unanswered.delete(id);
      return request.answer?.resolve(env);
    }
    const call = env.type === "nack" ? this.heartbeats.get(id) : undefined;
    if (call?.confirmed) { // the attempt does not belong to this session any more
      call.confirmed = false;
      this.dropUnconfirmed([call]);
    }
  }

  // Jobs.

  /** Accepts or refuses a job. */
  private dispatch(env: Envelope): void {
    const known = this.calls.get(env.id);
    if (known !== undefined) {
      this.acknowledge(env);
      return this.confirm(known);
    }
    const tool = this.tools.get(String(env.payload["tool"]));
    if (tool === undefined) {
      return this.refuse(env, new ToolError("UNIMPLEMENTED", `the worker does not execute ${String(env.payload["tool"])}`));
    }
    for (const call of [...this.calls.values()]) {
      if (call.jobId !== env.job_id) continue;
      if (call.continues()) return this.adopt(call, env);
      this.drop(call, "the job was assigned again");
    }
    if (this.isStopping) return this.refuse(env, new ToolError("UNAVAILABLE", "the worker is stopping", { retryable: true }));
    if (this.handlers >= this.concurrency) {
      return this.refuse(env, new ToolError("RESOURCE_EXHAUSTED", "the worker is busy", { retryable: true }));
    }
    this.acknowledge(env);
    const call = new Call(env);
    this.calls.set(env.id, call);
    this.handlers++;
    void this.execute(call, tool);
  }

  private acknowledge(env: Envelope): void {
    this.put(new Frame("ack", "{}", { correlationId: env.id, jobId: String(env.job_id) }));
  }

  private refuse(env: Envelope, error: ToolError): void {
    this.put(new Frame("nack", encode(error.payload()), { correlationId: env.id, jobId: String(env.job_id) }));
  }

  /**
   * Continues a call as the next attempt of its job: the runtime has lost the attempt before, but this process has
   * not. Its requests are sent again, with new ids.
   */
  private adopt(call: Call, env: Envelope): void {
    const ended = new ToolError("ABORTED", "continued as the next attempt");
    this.put(new Frame("tool.error", encode(ended.payload()), { correlationId: call.dispatch, jobId: call.jobId }));
    this.acknowledge(env);
    this.calls.delete(call.dispatch);
    call.dispatch = env.id;
    call.payload = env.payload;
    this.calls.set(call.dispatch, call);
    const frames = [...call.unanswered.values()];
    call.unanswered.clear();
    for (const frame of frames) {
      this.waiting.delete(frame.id);
      frame.id = newId();
      this.waiting.set(frame.id, frame);
      call.unanswered.set(frame.id, frame);
    }
    call.resume(""); // the runtime interrupts the new attempt itself
    call.confirmed = false;
    this.confirm(call);
    call.adoptions++;
    call.adopted?.();
  }

  /** Sends the frames of a call, those without an answer first. */
  private confirm(call: Call): void {
    if (call.confirmed) return;
    call.confirmed = true;
    call.buffer.unshift(...call.unanswered.values());
    call.unanswered.clear();
    this.schedule(call);
  }

  /** Ends a call whose outcome the runtime does not wait for. */
  private drop(call: Call, reason: string): void {
    this.log("warn", `job ${call.jobId}: ${reason}`);
    call.drop(reason);
    this.forget(call);
  }

  private forget(call: Call): void {
    if (this.calls.get(call.dispatch) === call) this.calls.delete(call.dispatch);
    if (this.calls.size === 0) this.idle?.();
  }

  /** Executes a call and sends its outcome until it is acknowledged. */
  private async execute(call: Call, tool: Tool): Promise<void> {
    const [type, payload] = await this.outcome(call, tool);
    this.handlers--;
    call.done = true;
    call.succeeded = type === "tool.result";
    if (call.dropped) { // the runtime counts the job until there is an outcome
      this.put(new Frame(type, payload, { jobId: call.jobId, correlationId: call.dispatch }));
      return;
    }
    await this.finish(call, type, payload);
    this.forget(call);
  }

  /**
   * Sends the outcome of a call. A result that is refused is sent again if the job is dispatched to this process
   * again.
   */
  private async finish(call: Call, type: string, payload: string): Promise<void> {
    for (;;) {
      const { adoptions } = call;
      try {
        await this.submit(call, type, payload);
        return;
      } catch (e) {
        if (call.dropped) return;
        this.log("warn", `job ${call.jobId}: the outcome was refused: ${(e as Error).message}`);
        if (!call.continues() || this.isStopping) return;
      }
      if (call.adoptions !== adoptions) continue;
      const adopted = await new Promise<boolean>((resolve) => {
        call.adopted = () => resolve(true);
        this.later(2 * this.interval, () => resolve(false));
      });
      call.adopted = undefined;
      if (!adopted) return;
    }
  }

  /** Calls the handler, and returns the type and the payload of the last message about a call. */
  private async outcome(call: Call, tool: Tool): Promise<[string, string]> {
    let error: ToolError;
    try {
      const result = await (tool.handler as Handler<unknown>)(this.context(call), call.payload["arguments"] ?? {});
      try {
        return ["tool.result", `{"value":${encode(result)}}`];
      } catch (e) {
        error = new ToolError("INTERNAL", `the result of ${tool.ref} cannot be sent: ${(e as Error).message}`);
      }
    } catch (e) {
      if (call.cancelled) error = new ToolError("CANCELLED", call.reason);
      else if (e instanceof ToolError) error = e;
      else {
        this.log("warn", `job ${call.jobId}: ${tool.ref} has failed: ${e instanceof Error ? (e.stack ?? e.message) : String(e)}`);
        error = new ToolError("UNKNOWN", e instanceof Error ? e.message || e.name : String(e));
      }
    }
    try {
      return ["tool.error", encode(error.payload())];
    } catch (e) {
      return ["tool.error", encode(new ToolError("INTERNAL", `the error of ${tool.ref} cannot be sent: ${(e as Error).message}`).payload())];
    }
  }

  // Messages about jobs.

  private context(call: Call): Context {
    const member = (name: string) => call.payload[name];
    return {
      jobId: call.jobId,
      get tool() { return String(member("tool")); },
      get attempt() { return Number(member("attempt") ?? 1); },
      restored: call.restored as Json | undefined,
      get lease() { return member("lease") as Json | undefined; },
      get deadline() { return member("deadline") as string | undefined; },
      traceId: call.traceId,
      signal: call.abort.signal,
      progress: (current, total, options) => handled(this.event(call, "job.progress", { current, total, ...options })),
      log: (message, level = "info", attributes) => handled(this.event(call, "log", { level, message, attributes })),
      metric: (name, value, unit = "1", dims) => handled(this.event(call, "metric", { name, value, unit, dims })),
      emit: (name, data) => handled(this.event(call, "event.emit", { name, data })),
      checkpoint: (data, label) => handled(this.request(call, "job.checkpoint", { data, label }).then(() => undefined)),
      call: (tool, args = {}) => {
        // The key makes a repeated call one child.
        const answer = this.request(call, "tool.invoke", { tool, arguments: args, idempotency_key: newId() });
        return handled(answer.then((payload) => (payload["value"] ?? null) as Json));
      },
      safePoint: () => handled(call.safePoint()),
    };
  }

  /** Sends an event of a job. */
  private async event(call: Call, type: string, payload: Payload): Promise<void> {
    const frame = new Frame(type, this.encodeMessage(call, type, payload), { call });
    if (call.dropped || call.done) return;
    const added = call.push(frame);
    this.schedule(call);
    await added;
  }

  /** Sends a request about a job, and returns the payload of the answer. */
  private async request(call: Call, type: string, payload: Payload): Promise<Payload> {
    const encoded = this.encodeMessage(call, type, payload);
    return call.limited(() => {
      if (call.done) throw new ToolError("FAILED_PRECONDITION", "the job has ended");
      return this.submit(call, type, encoded);
    });
  }

  /** Returns a payload as JSON. A failure is also logged, because a tool need not await the promises of its context. */
  private encodeMessage(call: Call, type: string, payload: Payload): string {
    try {
      return encode(payload);
    } catch (e) {
      const error = new TypeError(`${type} cannot be sent: ${(e as Error).message}`);
      this.log("warn", `job ${call.jobId}: ${error.message}`);
      throw error;
    }
  }

  private submit(call: Call, type: string, payload: string): Promise<Payload> {
    if (call.dropped) return Promise.reject(new ToolError("FAILED_PRECONDITION", call.reason));
    const frame = new Frame(type, payload, { call });
    const answer = this.answer(frame);
    void call.push(frame);
    this.schedule(call);
    return answer;
  }

  // The end.

  /** Unregisters the tools, waits for the running jobs, and ends the session. */
  private async drain(): Promise<void> {
    if (this.link !== undefined && this.agent !== "") {
      await this.trySession("tool.invoke", { tool: "host.unregister_agent", arguments: { agent_id: this.agent } });
    }
    if (this.calls.size > 0) {
      await new Promise<void>((resolve) => {
        this.idle = resolve;
        this.later(this.grace, resolve);
      });
    }
    if (this.calls.size > 0) this.log("warn", `${this.calls.size} jobs have not ended within ${this.grace} ms; they are lost`);
    if (this.link !== undefined) await this.trySession("session.close", { reason: "the worker stops", forget: true });
  }

  private async trySession(type: string, payload: Payload): Promise<void> {
    const lost = new Promise<void>((resolve) => (this.connectionLost = resolve));
    await Promise.race([this.askSession(type, payload).catch(() => undefined), lost, this.sleep(STOP_TIMEOUT)]);
  }
}

/** Returns the envelope of a frame. */
function parse(text: string): Envelope {
  let env: Partial<Envelope> | null = null;
  try {
    env = JSON.parse(text) as Partial<Envelope>;
  } catch {
    // reported below
  }
  if (typeof env?.type !== "string" || typeof env.payload !== "object" || env.payload === null) {
    throw new LinkError("the peer does not send ARCP messages: is the address one of an ARCP runtime?");
  }
  return env as Envelope;
}

/** Returns a text of a payload. */
function text(payload: Payload, name: string): string {
  const value = payload[name];
  if (typeof value !== "string") throw new TypeError(`${name} is not a text`);
  return value;
}

/** Returns a promise whose rejection does not end the process if the tool does not await it. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}
