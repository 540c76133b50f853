/** Jobs: how a program passes them, and how they are sent. */

import { checkName } from "./check.js";
import { bodyToWire, type Codec } from "./content.js";
import { ProblemError } from "./errors.js";
import { type Fields, oneOf, whole, writeFields } from "./fields.js";
import {
  type ClaimedJob,
  type ClaimFields,
  type JobFilter,
  type PutFields,
  type RescheduleFields,
  writeJobFilter,
  writePutFields,
  writeRescheduleFields,
} from "./models.js";
import type { Read } from "./read.js";
import { CALL_OPTIONS, type CallOptions } from "./transport.js";

/** The kinds of a program, with the types of their bodies, if it does not specify them. */
export type AnyKinds = Record<string, unknown>;

/** The name of one of the kinds. */
export type KindName<Kinds> = keyof Kinds & string;

/** Options of a put of one job. */
export interface PutOptions extends Omit<PutFields, "body">, CallOptions {}

/** What to change of a job. What is not set, or `undefined`, stays as it is. An empty `Uint8Array` is an empty body. */
export interface Reschedule<Body = unknown> extends RescheduleFields<Body>, CallOptions {}

/** A job of a batch of puts. */
export type PutEntry<Kinds> = {
  [K in KindName<Kinds>]: PutFields<Kinds[K]> & { readonly kind: K; readonly id: string };
}[KindName<Kinds>];

/** What jobs a list contains, and how. */
export interface ListFilter extends JobFilter {
  /** `id` (default); or, with a `state`, `time` for the earliest first or `newest` for the latest first. */
  readonly order?: "id" | "time" | "newest";
  /** The number of jobs that one request returns, up to 1000; default: 100. */
  readonly pageSize?: number;
}

/** Options of a claim. */
export interface ClaimOptions extends ClaimFields, CallOptions {}

/** The result of a claim. */
export interface Claimed<Body = unknown> {
  readonly jobs: readonly ClaimedJob<Body>[];
  /** Kinds that failed, for example because their node of a Redis Cluster is down. */
  readonly errors: readonly { readonly kind: string; readonly error: ProblemError }[];
}

/** @internal */
export function putToWire(codec: Codec, body: unknown, options: PutOptions): object {
  const fields = writeFields("options", options, writePutFields, ["contentType", ...CALL_OPTIONS]);
  return { ...bodyToWire(codec, "body", body, options.contentType), ...fields };
}

/** @internal */
export function entryToWire(codec: Codec, what: string, entry: PutFields & { kind: string; id: string }): WireEntry {
  const fields = writeFields(what, entry, writePutFields, ["kind", "id", "body", "contentType"]);
  const [kind, id] = [checkName(`${what}.kind`, entry.kind), checkName(`${what}.id`, entry.id)];
  return { kind, id, ...bodyToWire(codec, `${what}.body`, entry.body, entry.contentType), ...fields };
}

/** @internal A job of a batch, as it is sent. */
export interface WireEntry {
  readonly kind: string;
  readonly id: string;
}

/** @internal */
export function rescheduleToWire(codec: Codec, change: Reschedule): object {
  const fields = writeFields("change", change, writeRescheduleFields, ["body", "contentType", ...CALL_OPTIONS]);
  const body = bodyToWire(codec, "change.body", change.body, change.contentType);
  const { if_generation, ...set }: Record<string, unknown> = { ...fields, ...body };
  if (Object.keys(set).length === 0) throw new TypeError("nothing to change: set due, delay, priority or body");
  return { ...set, ...(if_generation === undefined ? {} : { if_generation }) };
}

/** @internal Whether a put can be repeated although it may have been done. */
export function isUnconditional(put: PutFields): boolean {
  return !put.ifAbsent && !put.ifNew && put.ifGeneration === undefined;
}

const LIST: Fields<ListFilter> = { ...writeJobFilter, order: oneOf("id", "time", "newest"), pageSize: whole };

/** @internal The parameters of a list. */
export function listToWire(filter: ListFilter): Record<string, unknown> {
  const { page_size, ...query } = writeFields("filter", filter, LIST);
  return page_size === undefined ? query : { ...query, limit: page_size };
}

/** @internal Reads the results of a batch of `count` entries. One that failed becomes a `ProblemError`. */
export function results<T>(json: any, codec: Codec, count: number, read: Read<T>): (T | ProblemError)[] {
  if (json.results.length !== count) throw new RangeError(`${json.results.length} results for ${count} entries`);
  return json.results.map((entry: any) =>
    "error" in entry ? new ProblemError(entry.error) : read(entry, codec, undefined),
  );
}
