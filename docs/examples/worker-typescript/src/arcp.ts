// A worker's side of ARCP over one WebSocket: it opens a session, registers an
// agent, does the jobs it is given, and goes on over another connection when one is
// lost.
import { randomUUID } from "node:crypto";
import WebSocket from "ws";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Payload = { [key: string]: Json };
interface Envelope {
  id: string;
  type: string;
  session_id?: string;
  job_id?: string;
  correlation_id?: string;
  event_seq?: number;
  payload: Payload;
}

/** One attempt of a job. */
export interface Call {
  readonly jobId: string;
  readonly args: Payload;
  readonly attempt: number;
  /** What the checkpoint to go on from has kept; undefined: the start. */
  readonly restored: Json | undefined;
  /** Aborted when the job is cancelled, or the attempt is over otherwise. */
  readonly signal: AbortSignal;
  log(level: string, message: string): void;
  progress(current: number, total?: number): void;
  emit(name: string, data: Json): void;
  /** Resolves when the checkpoint is durable. */
  checkpoint(data: Json, label?: string): Promise<void>;
}

/** An error with a code of its own. */
export class ToolError extends Error {
  constructor(readonly code: string, message: string, readonly retryable = false) {
    super(message);
  }
}

export interface Options {
  url: string;
  token: string;
  name: string;
  concurrency: number;
  /** By name@version; `about` is said in capabilities.tools. */
  tools: { [ref: string]: { about?: Payload; handle(call: Call): Promise<Json> } };
}

interface Running {
  abort: AbortController;
  outcome?: { type: string; payload: Payload }; // until it is acknowledged
}

export class Worker {
  private ws: WebSocket | undefined;
  private session = "";
  private resumeToken = "";
  private lastEvent = 0;
  private beats: NodeJS.Timeout | undefined;
  private readonly running = new Map<string, Running>(); // by the id of the dispatch
  private readonly waiting = new Map<string, { frame: () => void; done(e: Envelope): void; failed(e: Error): void }>();
  private stopped = false;

  constructor(private readonly options: Options) {}

  /** Works until stop is called. */
  async run(): Promise<void> {
    for (let delay = 100; !this.stopped; delay = Math.min(delay * 2, 5000)) {
      try {
        await this.connection(() => (delay = 100));
      } catch (e) {
        console.error(`worker: ${e instanceof Error ? e.message : String(e)}`);
      }
      if (!this.stopped) await new Promise((r) => setTimeout(r, Math.random() * delay));
    }
  }

  stop(): void {
    this.stopped = true;
    for (const r of this.running.values()) r.abort.abort();
    this.ws?.close(1000);
  }

  /** Lives as long as one connection. */
  private connection(opened: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const ws = new WebSocket(this.options.url, ["arcp.v1"], { maxPayload: 16 << 20, perMessageDeflate: false });
      this.ws = ws;
      ws.on("open", () => {
        if (this.resumeToken !== "") {
          this.send("session.resume", { resume_token: this.resumeToken, last_event_seq: this.lastEvent });
        } else {
          this.send("session.open", {
            auth: { scheme: "bearer", token: this.options.token },
            client: { kind: "worker-typescript", version: "1.0.0" },
            capabilities: { executes: true },
          });
        }
      });
      ws.on("message", (data) => {
        try {
          this.receive(JSON.parse(data.toString()) as Envelope, opened);
        } catch (e) {
          ws.terminate();
          reject(e);
        }
      });
      ws.on("error", reject);
      ws.on("close", () => {
        clearInterval(this.beats);
        resolve();
      });
    });
  }

  private send(type: string, payload: Payload, about: Partial<Envelope> = {}): string {
    const id = about.id ?? `msg_${randomUUID()}`;
    if (this.ws?.readyState === WebSocket.OPEN) {
      this.ws.send(JSON.stringify({ arcp: "1.1", id, type, timestamp: new Date().toISOString(), ...about, payload }));
    }
    return id;
  }

  private receive(env: Envelope, opened: () => void): void {
    if (env.event_seq !== undefined) this.lastEvent = Math.max(this.lastEvent, env.event_seq);
    switch (env.type) {
      case "session.accepted":
        this.begin(env, Number(env.payload["heartbeat_interval_sec"] ?? 30));
        this.lastEvent = 0;
        this.register();
        return opened();
      case "session.resumed":
        this.begin(env, undefined);
        for (const w of this.waiting.values()) w.frame(); // what was asked and not answered
        return opened();
      case "session.rejected":
      case "session.unauthenticated":
        if (env.payload["retryable"] === true) { // the runtime is about to stop, or full
          this.ws?.close(1000);
          return;
        }
        if (this.resumeToken === "") throw new Error(`${env.type}: ${String(env.payload["message"])}`);
        this.resumeToken = ""; // that session has ended, and so has what it was doing
        for (const r of this.running.values()) r.abort.abort();
        this.running.clear();
        this.ws?.close(1000);
        return;
      case "session.ping":
        this.send("session.pong", { ping_nonce: env.payload["nonce"] ?? "", received_at: new Date().toISOString() }, { correlation_id: env.id });
        return;
      case "tool.invoke":
        return this.dispatch(env);
      case "cancel":
        this.running.get(env.correlation_id ?? "")?.abort.abort();
        return;
    }
    const asked = this.waiting.get(env.correlation_id ?? "");
    if (asked === undefined || env.type === "job.accepted") return;
    this.waiting.delete(env.correlation_id!);
    if (env.type === "nack" || env.type === "job.failed") {
      asked.failed(new ToolError(String(env.payload["code"]), String(env.payload["message"])));
    } else {
      asked.done(env);
    }
  }

  private beatEvery = 30;

  private begin(env: Envelope, interval: number | undefined): void {
    this.session = String(env.payload["session_id"]);
    this.resumeToken = String(env.payload["resume_token"]);
    this.beatEvery = interval ?? this.beatEvery;
    let sequence = 0;
    this.beats = setInterval(() => {
      for (const [dispatch, r] of this.running) {
        if (r.outcome === undefined) this.about(dispatch, "job.heartbeat", { sequence: ++sequence, state: "running" });
      }
    }, Math.max(this.beatEvery * 500, 100)); // twice an interval: one may be late
  }

  private jobs = new Map<string, string>(); // job of a dispatch

  private about(dispatch: string, type: string, payload: Payload, id?: string): string {
    return this.send(type, payload, { ...(id === undefined ? {} : { id }), job_id: this.jobs.get(dispatch)!, correlation_id: dispatch });
  }

  /** Asks, also over the next connection, until there is an answer. */
  private ask(say: (id: string) => void): Promise<Envelope> {
    const id = `msg_${randomUUID()}`;
    return new Promise((done, failed) => {
      this.waiting.set(id, { frame: () => say(id), done, failed });
      say(id);
    });
  }

  private register(): void {
    const { name, concurrency, tools } = this.options;
    const about = Object.fromEntries(Object.entries(tools).flatMap(([ref, t]) => (t.about === undefined ? [] : [[ref, t.about]])));
    const args = { name, kind: "worker", executes: Object.keys(tools), concurrency, capabilities: { tools: about }, pid: process.pid };
    this.ask((id) => this.send("tool.invoke", { tool: "host.register_agent", arguments: args }, { id })).then(
      () => console.error(`worker: registered ${Object.keys(tools).join(", ")}`),
      (e) => {
        console.error(`worker: not registered: ${String(e)}`);
        this.stop();
      },
    );
  }

  private dispatch(env: Envelope): void {
    const known = this.running.get(env.id);
    const tool = this.options.tools[String(env.payload["tool"])];
    const answer = { job_id: env.job_id!, correlation_id: env.id };
    if (known !== undefined) { // after a reconnect: say again what may not have been heard
      this.send("ack", {}, answer);
      if (known.outcome !== undefined) this.about(env.id, known.outcome.type, known.outcome.payload);
      return;
    }
    if (tool === undefined || this.stopped) {
      this.send("nack", { code: "UNAVAILABLE", message: "not executed here", retryable: true }, answer);
      return;
    }
    this.send("ack", {}, answer);
    this.jobs.set(env.id, env.job_id!);
    const running: Running = { abort: new AbortController() };
    this.running.set(env.id, running);
    void this.work(env, tool.handle, running);
  }

  private async work(env: Envelope, handle: (call: Call) => Promise<Json>, running: Running): Promise<void> {
    const say = (type: string, payload: Payload) => void this.about(env.id, type, payload);
    const checkpoint = env.payload["checkpoint"] as { data?: Json } | undefined;
    const call: Call = {
      jobId: env.job_id!,
      args: (env.payload["arguments"] ?? {}) as Payload,
      attempt: Number(env.payload["attempt"]),
      restored: checkpoint?.data,
      signal: running.abort.signal,
      log: (level, message) => say("log", { level, message }),
      progress: (current, total) => say("job.progress", total === undefined ? { current } : { current, total }),
      emit: (name, data) => say("event.emit", { name, data }),
      checkpoint: async (data, label = "") => {
        await this.ask((id) => this.about(env.id, "job.checkpoint", { data, label }, id));
      },
    };
    try {
      running.outcome = { type: "tool.result", payload: { value: await handle(call) } };
    } catch (e) {
      const code = running.abort.signal.aborted ? "CANCELLED" : e instanceof ToolError ? e.code : "UNKNOWN";
      const retryable = e instanceof ToolError && e.retryable;
      running.outcome = { type: "tool.error", payload: { code, message: e instanceof Error ? e.message : String(e), retryable } };
    }
    const { type, payload } = running.outcome;
    await this.ask((id) => this.about(env.id, type, payload, id)).catch(() => undefined); // refused: nobody waits for it any more
    this.running.delete(env.id);
    this.jobs.delete(env.id);
  }
}
