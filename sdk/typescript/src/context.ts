import type { Json, JsonObject } from "./schema.js";

export type Level = "trace" | "debug" | "info" | "warn" | "error" | "critical";

/**
 * The job of a tool.
 *
 * Events are sent in the order of the calls. While there is no connection, up to 256 of them wait; then the promises
 * wait. A promise of an event rejects only if the event cannot be encoded. A promise that is not awaited does not end
 * the process when it rejects.
 */
export interface Context {
  /** Identifier of the job. */
  readonly jobId: string;
  /** The tool as name@version. */
  readonly tool: string;
  /** Number of the attempt, from 1. */
  readonly attempt: number;
  /** Data of the checkpoint to continue from; undefined: there is none. */
  readonly restored: Json | undefined;
  /** Lease of the job; undefined: no permissions. */
  readonly lease: Json | undefined;
  /** When the attempt ends at the latest, as in RFC 3339, unless the connection is lost meanwhile; undefined: there is no limit. */
  readonly deadline: string | undefined;
  /** Trace of the job. */
  readonly traceId: string;
  /** Aborted when the job is cancelled, or runs elsewhere. */
  readonly signal: AbortSignal;

  /** Reports the progress of the job. */
  progress(current: number, total?: number, options?: { units?: string; message?: string }): Promise<void>;
  /** Emits a log event of the job. */
  log(message: string, level?: Level, attributes?: JsonObject): Promise<void>;
  /** Emits a measurement. A name that begins with `cost.` debits the budget of the job. */
  metric(name: string, value: number, unit?: string, dimensions?: { readonly [name: string]: string }): Promise<void>;
  /** Emits a named event of the job. */
  emit(name: string, data: Json): Promise<void>;
  /**
   * Saves data, and resolves when it is durable. A later attempt of a tool with the recovery `checkpoint` has it as
   * `restored`.
   */
  checkpoint(data: Json, label?: string): Promise<void>;
  /** Calls another tool within the lease of the job, and returns its result. Rejects with a ToolError. */
  call(tool: string, args?: JsonObject): Promise<Json>;
  /**
   * Waits while a client interrupts the job, and returns the guidance of the client, or "". Interruptible tools call
   * it between their steps. Rejects if the job is cancelled.
   */
  safePoint(): Promise<string>;
}
