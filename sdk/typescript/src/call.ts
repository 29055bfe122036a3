import { randomUUID } from "node:crypto";

import { ToolError } from "./errors.js";

export type Payload = { readonly [key: string]: unknown };

/** A message of the runtime. */
export interface Envelope {
  readonly id: string;
  readonly type: string;
  readonly job_id?: string;
  readonly correlation_id?: string;
  readonly trace_id?: string;
  readonly event_seq?: number;
  readonly payload: Payload;
}

const MAX_PAYLOAD = 4 << 20; // bytes; the runtime accepts no larger result
const MAX_REQUESTS = 32; // of a job under way; the runtime accepts 64

/** Frames of a job that wait for a connection. Then the methods of the context wait. */
export const MAX_BUFFERED = 256;

/** Returns the id of a new message. */
export function newId(): string {
  return `msg_${randomUUID()}`;
}

/** Returns a value as JSON. Throws a TypeError if it has none, and a RangeError if it has more than MAX_PAYLOAD bytes. */
export function encode(value: unknown): string {
  const text = JSON.stringify(value ?? null, plain);
  if (text === undefined) throw new TypeError(`a ${typeof value} has no JSON form`);
  const size = Buffer.byteLength(text);
  if (size > MAX_PAYLOAD) throw new RangeError(`it has ${size} bytes, and at most ${MAX_PAYLOAD} are allowed`);
  return text;
}

/** Refuses what JSON.stringify would change without an error. */
function plain(_key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} has no JSON form`);
  if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`a ${typeof value} has no JSON form`);
  if (typeof value === "string" && !value.isWellFormed()) throw new TypeError("a text with half a surrogate pair has no UTF-8 form");
  return value;
}

declare global {
  interface String {
    isWellFormed(): boolean; // Node 20 has it
  }
}

/** A request waits for its answer over as many connections as needed. */
export interface Answer {
  resolve(env: Envelope): void;
  reject(e: Error): void;
}

/** A message to the runtime. */
export class Frame {
  id = newId();
  answer: Answer | undefined;

  constructor(
    readonly type: string,
    readonly payload: string, // JSON
    readonly about: { readonly call?: Call; readonly jobId?: string; readonly correlationId?: string } = {},
  ) {}

  /** Returns the message as it is sent: about the dispatch that its call has then. */
  encode(): string {
    const { call, jobId, correlationId } = this.about;
    const head = JSON.stringify({
      arcp: "1.1",
      id: this.id,
      type: this.type,
      timestamp: new Date().toISOString(),
      job_id: jobId ?? call?.jobId,
      correlation_id: correlationId ?? call?.dispatch,
    });
    return `${head.slice(0, -1)},"payload":${this.payload}}`;
  }
}

/**
 * An attempt of a job in this process.
 *
 * A call is confirmed while the runtime is known to wait for it on the present connection. Only then are its frames
 * sent.
 */
export class Call {
  readonly jobId: string;
  readonly traceId: string;
  readonly restored: unknown;
  readonly abort = new AbortController();
  dispatch: string;
  payload: Payload;
  confirmed = true;
  done = false; // the handler has returned
  succeeded = false;
  cancelled = false; // the job is cancelled, or runs elsewhere
  dropped = false; // the runtime does not wait for the outcome any more
  reason = "cancelled";
  adoptions = 0; // dispatches that have continued this call
  adopted: (() => void) | undefined; // called when another dispatch continues this call
  ready = false; // it is in the list of calls with frames to send
  heartbeat = ""; // id of the latest heartbeat
  heartbeats = 0;
  interruptId = ""; // of the open interrupt
  private guidance = ""; // of the answer to the latest interrupt
  private held: (() => void)[] = []; // safe points that wait
  readonly unanswered = new Map<string, Frame>(); // requests that were sent
  buffer: Frame[] = []; // to be sent
  private overflow: { frame: Frame; resolve: () => void }[] = []; // frames that wait for room in the buffer
  private requests = 0; // under way
  private turns: (() => void)[] = []; // requests that wait

  constructor(env: Envelope) {
    this.jobId = String(env.job_id);
    this.dispatch = env.id;
    this.traceId = env.trace_id ?? "";
    this.payload = env.payload;
    this.restored = (env.payload["checkpoint"] as { data?: unknown } | undefined)?.data;
  }

  /** Adds a frame behind the earlier ones. Resolves when the buffer has room for it. */
  push(frame: Frame): Promise<void> {
    if (this.buffer.length < MAX_BUFFERED && this.overflow.length === 0) {
      this.buffer.push(frame);
      return Promise.resolve();
    }
    return new Promise((resolve) => this.overflow.push({ frame, resolve }));
  }

  /** Takes the next frame to send. */
  shift(): Frame | undefined {
    const frame = this.buffer.shift();
    const next = this.buffer.length < MAX_BUFFERED ? this.overflow.shift() : undefined;
    if (next !== undefined) {
      this.buffer.push(next.frame);
      next.resolve();
    }
    return frame;
  }

  /** Runs a request when fewer than MAX_REQUESTS are under way. */
  async limited<T>(request: () => Promise<T>): Promise<T> {
    while (this.requests >= MAX_REQUESTS) await new Promise<void>((resolve) => this.turns.push(resolve));
    this.requests++;
    try {
      return await request();
    } finally {
      this.requests--;
      this.turns.shift()?.();
    }
  }

  /** Cancels the handler. */
  cancel(reason: string): void {
    if (this.done || this.cancelled) return;
    this.cancelled = true;
    this.reason = reason;
    this.abort.abort(new ToolError("CANCELLED", reason));
    this.resume("");
  }

  /** Holds the handler at its next safe point. */
  interrupt(id: string): void {
    if (!this.done && !this.cancelled) this.interruptId = id;
  }

  /** Closes the interrupt, if there is one. */
  resume(guidance: string): void {
    if (this.interruptId === "") return;
    this.interruptId = "";
    this.guidance = guidance;
    for (const resolve of this.held.splice(0)) resolve();
  }

  /** Waits while there is an interrupt, and returns the guidance of its answer. Rejects if the job is cancelled. */
  async safePoint(): Promise<string> {
    await new Promise((resolve) => setImmediate(resolve)); // has the event loop receive messages
    while (this.interruptId !== "") await new Promise<void>((resolve) => this.held.push(resolve));
    this.abort.signal.throwIfAborted();
    const { guidance } = this;
    this.guidance = "";
    return guidance;
  }

  /** Reports whether another dispatch of the job can be answered with this attempt. */
  continues(): boolean {
    return !this.cancelled && (this.succeeded || !this.done);
  }

  /** Cancels a handler whose outcome the runtime does not wait for. */
  drop(reason: string): void {
    this.cancel(reason);
    this.dropped = true;
    const frames = [...this.unanswered.values(), ...this.buffer, ...this.overflow.map((waiting) => waiting.frame)];
    for (const waiting of this.overflow) waiting.resolve();
    this.unanswered.clear();
    this.buffer = [];
    this.overflow = [];
    for (const frame of frames) frame.answer?.reject(new ToolError("FAILED_PRECONDITION", reason));
  }
}
