/**
 * Workers for an ARCP runtime: programs that register tools and execute their jobs.
 *
 * @packageDocumentation
 */
export type { Context, Level } from "./context.js";
export { ToolError, WorkerError } from "./errors.js";
export type { FromSchema, Json, JsonObject, Schema } from "./schema.js";
export { Worker } from "./worker.js";
export type { Handler, Logger, Recovery, RunOptions, SideEffect, ToolOptions, WorkerOptions } from "./worker.js";
