/** A JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** A JSON object. */
export type JsonObject = { readonly [key: string]: Json };

/** A JSON Schema. */
export type Schema = boolean | { readonly [key: string]: unknown };

/**
 * The type of the values of a JSON Schema. It reads `type`, `properties`, `required`, `items`, `enum`, `const` and
 * `anyOf`; a schema with none of these is any JSON value.
 */
export type FromSchema<S> =
  S extends { readonly const: infer C } ? C
  : S extends { readonly enum: readonly (infer E)[] } ? E
  : S extends { readonly anyOf: readonly (infer A)[] } ? FromSchema<A>
  : S extends { readonly type: infer T } ? (T extends readonly (infer U)[] ? FromType<U, S> : FromType<T, S>)
  : Json;

type FromType<T, S> =
  T extends "string" ? string
  : T extends "number" | "integer" ? number
  : T extends "boolean" ? boolean
  : T extends "null" ? null
  : T extends "array" ? (S extends { readonly items: infer I } ? FromSchema<I>[] : Json[])
  : T extends "object" ? FromObject<S>
  : Json;

type FromObject<S> = S extends { readonly properties: infer P }
  ? Simplify<
      { [K in keyof P as K extends Required<S> ? K : never]: FromSchema<P[K]> } &
      { [K in keyof P as K extends Required<S> ? never : K]?: FromSchema<P[K]> }
    >
  : { [key: string]: Json };

type Required<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;

type Simplify<T> = { [K in keyof T]: T[K] };
