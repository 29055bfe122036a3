// A runtime that the tests play, and a real one with a client.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import WebSocket, { type AddressInfo, WebSocketServer } from "ws";

export type Env = { id: string; type: string; job_id?: string; correlation_id?: string; event_seq?: number; payload: any };

export const TOKEN = "token-0123456789abcdef";
export const ARCP = process.env["ARCP_BIN"] ?? "";
export const needsArcp = { skip: ARCP === "" && "the variable ARCP_BIN does not name the program arcp" };

const DEADLINE = 60_000; // milliseconds, ten times what a test needs

/** Waits for what is promised. */
export async function soon<T>(work: Promise<T>): Promise<T> {
  const end = new AbortController();
  try {
    return await Promise.race([
      work,
      sleep(DEADLINE, undefined, { signal: end.signal }).then(() => {
        throw new Error("what was promised has not come");
      }),
    ]);
  } finally {
    end.abort();
  }
}

/** A queue of values that are waited for. */
export class Queue<T> {
  private readonly values: T[] = [];
  private readonly waiting: ((value: T) => void)[] = [];

  put(value: T): void {
    const next = this.waiting.shift();
    if (next) next(value);
    else this.values.push(value);
  }

  next(): Promise<T> {
    if (this.values.length > 0) return Promise.resolve(this.values.shift() as T);
    return soon(new Promise((resolve) => this.waiting.push(resolve)));
  }
}

/** A promise with its function. */
export function event(): { set(): void; wait: Promise<void> } {
  let set = () => {};
  const wait = new Promise<void>((resolve) => (set = resolve));
  return { set, wait };
}

function send(ws: WebSocket, id: string, type: string, payload: unknown, about: object = {}): void {
  ws.send(JSON.stringify({ arcp: "1.1", id, type, timestamp: "2030-01-01T00:00:00Z", payload, ...about }));
}

/** A worker's connection, as a played runtime sees it. */
export class Peer {
  private readonly frames = new Queue<Env>();
  private sent = 0;
  readonly closed: Promise<unknown>;

  constructor(readonly ws: WebSocket) {
    ws.on("message", (data) => this.frames.put(JSON.parse(data.toString()) as Env));
    this.closed = once(ws, "close");
  }

  send(type: string, payload: unknown, about: { id?: string; job_id?: string; correlation_id?: string; event_seq?: number } = {}): string {
    const id = about.id ?? `msg_${++this.sent}`;
    send(this.ws, id, type, payload, about);
    return id;
  }

  /** Returns the next message, which must be of a type. Heartbeats are left out if they are not asked for. */
  async receive(type: string): Promise<Env> {
    for (;;) {
      const env = await this.frames.next();
      if (env.type === "job.heartbeat" && type !== env.type) continue;
      assert.equal(env.type, type, JSON.stringify(env));
      return env;
    }
  }

  /** Accepts a session, and the registration. */
  async open(interval = 30, token = "resume-1"): Promise<Env> {
    const env = await this.receive("session.open");
    const capabilities = { executes: true };
    this.send("session.accepted", { session_id: "sess_1", resume_token: token, heartbeat_interval_sec: interval, capabilities }, { correlation_id: env.id });
    await this.register();
    return env;
  }

  async register(): Promise<Env> {
    const env = await this.receive("tool.invoke");
    assert.equal(env.payload.tool, "host.register_agent");
    this.send("job.accepted", { job_id: "job_r" }, { correlation_id: env.id, event_seq: 1 });
    this.send("job.completed", { value: { id: "agent-1" } }, { correlation_id: env.id, event_seq: 2 });
    return env;
  }

  async resume(token = "resume-2"): Promise<Env> {
    const env = await this.receive("session.resume");
    this.send("session.resumed", { session_id: "sess_1", resume_token: token, replayed_from: 2, replayed: false });
    return env;
  }

  dispatch(tool: string, about: { args?: unknown; job?: string; id?: string; attempt?: number } = {}): void {
    const { args = {}, job = "job_1", id = "msg_d1", attempt = 1 } = about;
    this.send("tool.invoke", { tool, arguments: args, attempt }, { id, job_id: job });
  }
}

/** A server whose connections a test answers. */
export class PlayedRuntime {
  private readonly peers = new Queue<Peer>();
  private readonly server: WebSocketServer;
  url = "";

  private constructor() {
    this.server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
    this.server.on("connection", (ws) => this.peers.put(new Peer(ws)));
  }

  static async start(): Promise<PlayedRuntime> {
    const runtime = new PlayedRuntime();
    await once(runtime.server, "listening");
    runtime.url = `ws://127.0.0.1:${(runtime.server.address() as AddressInfo).port}/arcp`;
    return runtime;
  }

  accept(): Promise<Peer> {
    return this.peers.next();
  }

  close(): void {
    for (const ws of this.server.clients) ws.terminate();
    this.server.close();
  }
}

/** A process of `arcp serve`. */
export class Runtime {
  private readonly dir = mkdtempSync(join(tmpdir(), "arcp-"));
  private process: ChildProcess | undefined;
  address = "";

  constructor(private readonly options: string[] = []) {}

  get url(): string {
    return `ws://${this.address}/arcp`;
  }

  /** Chooses an address. */
  async prepare(): Promise<this> {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    this.address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    await new Promise((resolve) => server.close(resolve));
    return this;
  }

  async start(): Promise<this> {
    if (this.address === "") await this.prepare();
    const args = ["serve", "--listen", this.address, "--admin", "", "--data", this.dir, "--heartbeat", "1s", "--log-level", "error",
      "--token", `alice=${TOKEN}`, ...this.options];
    this.process = spawn(ARCP, args, { stdio: ["ignore", "pipe", "inherit"] });
    const [data] = (await soon(once(this.process.stdout!, "data"))) as [Buffer];
    assert.match(data.toString(), /^listening /);
    return this;
  }

  async kill(): Promise<void> {
    if (this.process === undefined || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A job that a client has submitted. */
export class Job {
  id = "";
  readonly events: Env[] = [];
  readonly queue = new Queue<Env>();

  /** Returns the next event of a type. */
  async reach(type: string): Promise<Env> {
    for (;;) {
      const env = await this.queue.next();
      this.events.push(env);
      if (env.type === type) return env;
      assert.ok(!["job.completed", "job.failed", "job.cancelled"].includes(env.type), `the job has ended with ${JSON.stringify(env)}`);
    }
  }

  async value(): Promise<any> {
    return (await this.reach("job.completed")).payload.value;
  }

  async failure(): Promise<any> {
    return (await this.reach("job.failed")).payload;
  }
}

/** A client that submits jobs. It resumes its session after a lost connection. */
export class Client {
  private ws: WebSocket | undefined;
  private readonly jobs = new Map<string, Job>();
  private sent = 0;
  private resume = "";
  private seq = 0;
  private closed = false;
  private readonly up = event();

  constructor(private readonly url: string) {}

  async open(): Promise<this> {
    this.connect();
    await soon(this.up.wait);
    return this;
  }

  close(): void {
    this.closed = true;
    this.ws?.terminate();
  }

  private connect(): void {
    const ws = (this.ws = new WebSocket(this.url, ["arcp.v1"]));
    ws.on("error", () => {});
    ws.on("close", () => {
      if (!this.closed) setTimeout(() => this.connect(), 50); // before the next attempt
    });
    ws.on("open", () => {
      if (this.resume) this.send("session.resume", { resume_token: this.resume, last_event_seq: this.seq });
      else this.send("session.open", { auth: { scheme: "bearer", token: TOKEN }, client: { kind: "test", version: "1" }, capabilities: { human_input: true, interrupt: true } });
    });
    ws.on("message", (data) => {
      const env = JSON.parse(data.toString()) as Env;
      this.seq = Math.max(this.seq, env.event_seq ?? 0);
      if (env.type === "session.accepted" || env.type === "session.resumed") {
        this.resume = env.payload.resume_token;
        this.up.set();
      }
      const job = this.jobs.get(env.correlation_id ?? "");
      if (job) {
        job.id ||= env.job_id ?? "";
        job.queue.put(env);
      }
    });
  }

  private send(type: string, payload: unknown, about: object = {}): string {
    const id = `msg_test_${++this.sent}`;
    send(this.ws!, id, type, payload, about);
    return id;
  }

  submit(tool: string, args: unknown = {}, more: object = {}): Job {
    const job = new Job();
    this.jobs.set(this.send("tool.invoke", { tool, arguments: args, ...more }), job);
    return job;
  }

  call(tool: string, args: unknown = {}): Promise<any> {
    return this.submit(tool, args).value();
  }

  cancel(job: Job): void {
    this.send("cancel", { target: "job", target_id: job.id, reason: "enough", deadline_ms: 60000 });
  }

  interrupt(job: Job): void {
    this.send("interrupt", { target: "job", target_id: job.id, prompt: "stop" });
  }

  /** Answers the question of an interrupted job. */
  guide(job: Job, request: Env, guidance: string): void {
    const payload = { value: { action: "continue", guidance }, responded_at: "2030-01-01T00:00:00Z" };
    this.send("human.input.response", payload, { correlation_id: request.id, job_id: job.id });
  }
}

/** The path of a program in this directory. */
export function programPath(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

/** A process of a worker in this directory. */
export class Program {
  readonly process: ChildProcess;
  readonly exit: Promise<unknown[]>;
  private readonly lines = new Queue<string>();

  constructor(name: string, variables: NodeJS.ProcessEnv) {
    this.process = spawn(process.execPath, [programPath(name)], { env: { ...process.env, ...variables }, stdio: ["ignore", "inherit", "pipe"] });
    this.exit = once(this.process, "exit");
    createInterface(this.process.stderr!).on("line", (line) => this.lines.put(line));
  }

  /** Returns the next line of standard error with a text. */
  async says(text: string): Promise<string> {
    for (;;) {
      const line = await this.lines.next();
      if (line.includes(text)) return line;
    }
  }

  async close(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill("SIGKILL");
    await this.exit;
  }
}
