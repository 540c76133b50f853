/** Jobs: what a put takes, and what the server returns about jobs. */

import { checkName } from "./check.js";
import { bodyToWire, type Codec, fromWire } from "./content.js";
import { ProblemError } from "./errors.js";
import { duration, type Fields, flag, oneOf, text, time, whole, writeFields } from "./fields.js";
import type { Duration, Time } from "./time.js";
import { CALL_OPTIONS, type CallOptions } from "./transport.js";
import type {
  WireClaimed,
  WireFilter,
  WireJob,
  WirePut,
  WirePutDone,
  WirePutEntry,
  WireReschedule,
  WireRescheduled,
  WireResults,
  WireSuccessor,
} from "./wire.js";

/** The kinds of a program, with the types of their bodies, if it does not specify them. */
export type AnyKinds = Record<string, unknown>;

/** The name of one of the kinds. */
export type KindName<Kinds> = keyof Kinds & string;

/** Fields of a put, except for the body. */
export interface PutFields {
  /** The due time; default: now. Not together with `delay`. */
  readonly due?: Time;
  /** The time until the job is due, such as `"5m"`; default: none. */
  readonly delay?: Duration;
  /** 0 (default) to 9. Of the ready jobs of a kind, those with a higher priority are claimed first. */
  readonly priority?: number;
  /** What happens if the job is already pending; default: `replace`. `debounce` requires `maxWait`. */
  readonly mode?: "replace" | "earliest" | "keep" | "debounce";
  /** With `debounce`: puts never move the due time later than this after the first put. */
  readonly maxWait?: Duration;
  /** Fails with `exists` if the job exists in any state but done. */
  readonly ifAbsent?: boolean;
  /** Fails with `exists` if the job exists in any state. */
  readonly ifNew?: boolean;
  /** Fails with `other-generation` unless this is the newest generation of the job. */
  readonly ifGeneration?: number;
  /** Stores a body that is a string or a `Uint8Array` as it is, with this content type. */
  readonly contentType?: string;
}

/** Options of a put of one job. */
export interface PutOptions extends PutFields, CallOptions {}

/** What to change of a job. What is not set, or `undefined`, stays as it is. */
export interface Reschedule<Body = unknown> extends CallOptions {
  /** The due time. Not together with `delay`. */
  readonly due?: Time;
  /** The time until the job is due, such as `"5m"`. */
  readonly delay?: Duration;
  /** 0 to 9. */
  readonly priority?: number;
  /** The body. To make it empty, pass an empty `Uint8Array`. */
  readonly body?: Body;
  /** Stores a body that is a string or a `Uint8Array` as it is, with this content type. */
  readonly contentType?: string;
  /** Fails with `other-generation` unless this is the newest generation of the job. */
  readonly ifGeneration?: number;
}

/** A job of a batch of puts. */
export type PutEntry<Kinds> = {
  [K in KindName<Kinds>]: PutFields & {
    readonly kind: K;
    readonly id: string;
    /** The body; default: empty. */
    readonly body?: Kinds[K];
  };
}[KindName<Kinds>];

/** The result of a put. */
export interface PutResult {
  /** What the put did. */
  readonly outcome: "created" | "updated" | "coalesced" | "revived" | "kept";
  /** The generation of the put; with `kept`, that of the existing job. */
  readonly generation: number;
}

/** The state of a job. */
export type JobState = "waiting" | "ready" | "leased" | "dead" | "done";

/** What jobs a call applies to: those that match every field. */
export interface JobFilter {
  readonly state?: JobState;
  /** Matches jobs whose id starts with this text. */
  readonly prefix?: string;
  /** Matches jobs of exactly this priority. */
  readonly priority?: number;
  /** Matches jobs whose last error contains this text. Upper and lower case are equal. */
  readonly error?: string;
  /** Matches jobs whose last error belongs to this group of `errorGroups`: its text, or any error of it. */
  readonly errorGroup?: string;
  /** `true`: matches jobs whose last attempt failed because its lease expired; `false`: other jobs. */
  readonly expired?: boolean;
  /** Matches dead jobs that died before this time. */
  readonly diedBefore?: Time;
}

/** What jobs a list contains, and how. */
export interface ListFilter extends JobFilter {
  /** `id` (default); or, with a `state`, `time` for the earliest first or `newest` for the latest first. */
  readonly order?: "id" | "time" | "newest";
  /** The number of jobs that one request returns, up to 1000; default: 100. */
  readonly pageSize?: number;
}

/** A job that was claimed. */
export interface ClaimedJob<Body = unknown> {
  readonly kind: string;
  readonly id: string;
  /** The body. Reading it throws if the codec cannot decode it. */
  readonly body: Body;
  readonly contentType: string;
  /** Proves the lease: the calls that settle the job require it. */
  readonly receipt: string;
  /** 1, plus one for each failure. */
  readonly attempt: number;
  /** The generation of the put. */
  readonly generation: number;
  /** A fencing token, which rises with every lease of the kind; at most `Number.MAX_SAFE_INTEGER`. */
  readonly fence: number;
  readonly due: Date;
  readonly priority: number;
  readonly leaseEndsAt: Date;
  readonly createdAt: Date;
  /** `kind/id/generation`, which is the same for every attempt at one put. */
  readonly idempotencyKey: string;
}

/** A job, as the server stores it. */
export interface JobInfo<Body = unknown> {
  readonly kind: string;
  readonly id: string;
  readonly state: JobState;
  /** The body. Reading it throws if the codec cannot decode it. A done job has none. */
  readonly body: Body;
  readonly contentType: string;
  readonly due: Date;
  readonly priority: number;
  readonly generation: number;
  /** The number of failed attempts since the attempts were last reset. */
  readonly attempts: number;
  /** The last five failed attempts, oldest first. `error` is undefined if the lease expired. */
  readonly failures: readonly Failure[];
  /** How often the job has died. */
  readonly deaths: number;
  /** When the job died, if it is dead. */
  readonly diedAt: Date | undefined;
  /** The lease, if the job is leased. */
  readonly lease: LeaseInfo | undefined;
  /** The successor, if the job is leased and was put again. */
  readonly next: Successor<Body> | undefined;
  /** How the job was done, if it is done. */
  readonly done: DoneInfo | undefined;
  readonly createdAt: Date;
  readonly updatedAt: Date;
}

/** A failed attempt. */
export interface Failure {
  readonly worker: string;
  readonly startedAt: Date;
  readonly endedAt: Date;
  readonly error: string | undefined;
}

/** The lease of a job. */
export interface LeaseInfo {
  readonly worker: string;
  readonly claimedAt: Date;
  readonly endsAt: Date;
  /** Whether the job was cancelled. It is removed when the lease ends. */
  readonly cancelled: boolean;
}

/** The job that runs after the leased one. */
export interface Successor<Body = unknown> {
  readonly body: Body;
  readonly contentType: string;
  readonly due: Date;
  readonly priority: number;
  readonly generation: number;
}

/** How a job was done. */
export interface DoneInfo {
  readonly worker: string;
  readonly startedAt: Date;
  readonly doneAt: Date;
  /** The result of the ack, if it had one. */
  readonly result: unknown;
}

const PUT: Fields<Omit<PutFields, "contentType">, WirePut> = {
  due: time,
  delay: duration,
  priority: whole,
  mode: oneOf("replace", "earliest", "keep", "debounce"),
  maxWait: duration,
  ifAbsent: flag,
  ifNew: flag,
  ifGeneration: whole,
};

/** @internal */
export function putToWire(codec: Codec, body: unknown, options: PutOptions): WirePut {
  const fields = writeFields("options", options, PUT, ["contentType", ...CALL_OPTIONS]);
  return { ...bodyToWire(codec, "body", body, options.contentType), ...fields };
}

/** @internal */
export function entryToWire(
  codec: Codec,
  what: string,
  entry: PutFields & { kind: string; id: string; body?: unknown },
): WirePutEntry {
  const fields = writeFields(what, entry, PUT, ["kind", "id", "body", "contentType"]);
  const [kind, id] = [checkName(`${what}.kind`, entry.kind), checkName(`${what}.id`, entry.id)];
  return { kind, id, ...bodyToWire(codec, `${what}.body`, entry.body, entry.contentType), ...fields };
}

const RESCHEDULE: Fields<Omit<Reschedule, "body" | "contentType" | keyof CallOptions>, WireReschedule> = {
  due: time,
  delay: duration,
  priority: whole,
  ifGeneration: whole,
};

/** @internal */
export function rescheduleToWire(codec: Codec, change: Reschedule): WireReschedule {
  const fields = writeFields("change", change, RESCHEDULE, ["body", "contentType", ...CALL_OPTIONS]);
  const { if_generation, ...set } = { ...fields, ...bodyToWire(codec, "change.body", change.body, change.contentType) };
  if (Object.keys(set).length === 0) throw new TypeError("nothing to change: set due, delay, priority or body");
  return { ...set, ...(if_generation === undefined ? {} : { if_generation }) };
}

/** @internal The result of a reschedule among changes of several jobs. */
export function rescheduledFromWire({ result, generation }: WireRescheduled): PutResult {
  return { outcome: result, generation };
}

/** @internal Whether a put can be repeated although it may have been done. */
export function isUnconditional(put: PutFields): boolean {
  return !put.ifAbsent && !put.ifNew && put.ifGeneration === undefined;
}

/** @internal */
export function putFromWire({ outcome, generation }: WirePutDone): PutResult {
  return { outcome, generation };
}

const FILTER: Fields<JobFilter, WireFilter> = {
  state: oneOf("waiting", "ready", "leased", "dead", "done"),
  prefix: text,
  priority: whole,
  error: text,
  errorGroup: text,
  expired: flag,
  diedBefore: time,
};

const LIST: Fields<ListFilter, WireFilter & { order: string; page_size: number }> = {
  ...FILTER,
  order: oneOf("id", "time", "newest"),
  pageSize: whole,
};

/** @internal */
export function filterToWire(filter: JobFilter): WireFilter {
  return writeFields("filter", filter, FILTER);
}

/** @internal The parameters of a list. */
export function listToWire(filter: ListFilter): WireFilter & { order?: string; limit?: number } {
  const { page_size, ...query } = writeFields("filter", filter, LIST);
  return page_size === undefined ? query : { ...query, limit: page_size };
}

/** @internal */
export function claimedFromWire<Body>(codec: Codec, wire: WireClaimed): ClaimedJob<Body> {
  return {
    kind: wire.kind,
    id: wire.id,
    get body() {
      return fromWire(codec, wire) as Body;
    },
    contentType: wire.content_type,
    receipt: wire.receipt,
    attempt: wire.attempt,
    generation: wire.generation,
    fence: wire.fence ?? 0,
    due: new Date(wire.due),
    priority: wire.priority ?? 0,
    leaseEndsAt: new Date(wire.lease_ends_at),
    createdAt: new Date(wire.created_at),
    idempotencyKey: `${wire.kind}/${wire.id}/${wire.generation}`,
  };
}

/** @internal */
export function jobFromWire<Body>(codec: Codec, wire: WireJob): JobInfo<Body> {
  const { lease, done } = wire;
  return {
    kind: wire.kind,
    id: wire.id,
    state: wire.state,
    get body() {
      return fromWire(codec, wire) as Body;
    },
    contentType: wire.content_type,
    due: new Date(wire.due),
    priority: wire.priority ?? 0,
    generation: wire.generation,
    attempts: wire.attempts,
    failures: (wire.failures ?? []).map((failure) => ({
      worker: failure.worker,
      startedAt: new Date(failure.started_at),
      endedAt: new Date(failure.ended_at),
      error: failure.error ?? undefined,
    })),
    deaths: wire.deaths ?? 0,
    diedAt: dateFromWire(wire.died_at),
    lease: lease
      ? {
          worker: lease.worker,
          claimedAt: new Date(lease.claimed_at),
          endsAt: new Date(lease.ends_at),
          cancelled: lease.cancelled ?? false,
        }
      : undefined,
    next: wire.next ? successorFromWire(codec, wire.next) : undefined,
    done: done
      ? {
          worker: done.worker,
          startedAt: new Date(done.started_at),
          doneAt: new Date(done.done_at),
          get result() {
            return done.result ? fromWire(codec, done.result) : undefined;
          },
        }
      : undefined,
    createdAt: new Date(wire.created_at),
    updatedAt: new Date(wire.updated_at),
  };
}

function successorFromWire<Body>(codec: Codec, wire: WireSuccessor): Successor<Body> {
  return {
    get body() {
      return fromWire(codec, wire) as Body;
    },
    contentType: wire.content_type,
    due: new Date(wire.due),
    priority: wire.priority ?? 0,
    generation: wire.generation,
  };
}

/** @internal */
export function dateFromWire(time: string | null | undefined): Date | undefined {
  return typeof time === "string" ? new Date(time) : undefined;
}

/** @internal Converts the results of a batch of `count` entries. One that failed becomes a `ProblemError`. */
export function resultsFromWire<W extends object, T>(
  wire: WireResults<W>,
  count: number,
  read: (done: W) => T,
): (T | ProblemError)[] {
  if (wire.results.length !== count) throw new RangeError(`${wire.results.length} results for ${count} entries`);
  return wire.results.map((entry) => ("error" in entry ? new ProblemError(entry.error) : read(entry)));
}
