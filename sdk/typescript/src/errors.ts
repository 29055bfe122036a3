import type { JsonObject } from "./schema.js";

/**
 * The failure of a tool, with a code. A tool throws it to end its job with the code. `checkpoint` and `call` of the
 * context reject with the code of the runtime's refusal.
 */
export class ToolError extends Error {
  override readonly name = "ToolError";
  readonly retryable: boolean;
  readonly details: JsonObject | undefined;

  constructor(readonly code: string, message: string, options: { retryable?: boolean; details?: JsonObject | undefined } = {}) {
    super(message);
    this.retryable = options.retryable ?? false;
    this.details = options.details;
  }

  /** Returns the payload of `tool.error`. */
  payload(): { [key: string]: unknown } {
    return { code: this.code, message: this.message, retryable: this.retryable, ...(this.details && { details: this.details }) };
  }

  /** Returns the error that a payload describes. */
  static fromPayload(payload: { readonly [key: string]: unknown }): ToolError {
    const raw = payload["details"];
    const details = typeof raw === "object" && raw !== null ? (raw as JsonObject) : undefined;
    const code = details?.["arcp_code"] ?? details?.["code"] ?? payload["code"] ?? "UNKNOWN";
    return new ToolError(String(code), String(payload["message"] ?? ""), { retryable: payload["retryable"] === true, details });
  }
}

/** The runtime refuses the worker, and another attempt would be refused too. `code` is the code of the refusal. */
export class WorkerError extends Error {
  override readonly name = "WorkerError";

  constructor(readonly code: string, message: string) {
    super(`${code}: ${message}`);
  }
}
