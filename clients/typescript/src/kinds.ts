/** Kinds: their settings and counts, and the state of the server. */

import { checkFields } from "./check.js";
import { duration, type Fields, flag, nullable, object, text, whole, writeFields } from "./fields.js";
import { dateFromWire } from "./jobs.js";
import { checkRate, type Duration, type RateText } from "./time.js";
import type { WireKind, WirePush, WireSettings, WireSettingsPatch, WireStats, WireWorker } from "./wire.js";

/** The settings of a kind. */
export interface Settings {
  /** The length of a lease if a claim does not specify one. */
  readonly lease: Duration;
  readonly backoff: Backoff;
  /** The number of failures after which a job is dead. */
  readonly maxAttempts: number;
  /** The maximum number of jobs that are leased at the same time; `null`: no limit. */
  readonly concurrency: number | null;
  /** How many jobs are claimed per time; `null`: no limit. */
  readonly rate: Rate | null;
  /** The time after which a ready job gains a level of priority; `null`: never. */
  readonly ageing: Duration | null;
  /** Whether no job of the kind is claimed. */
  readonly paused: boolean;
  /** How long dead jobs are kept, and how many. */
  readonly retention: { readonly age: Duration; readonly count: number };
  /** How long done jobs are kept, and how many; `null`: none. */
  readonly keepDone: { readonly for: Duration; readonly count: number } | null;
  /** Where the server sends the jobs by HTTP request; `null`: workers claim them. */
  readonly push: Push | null;
}

/** The delay after a failure: `base`, doubled with each failure up to `max`, minus a random part. */
export interface Backoff {
  readonly base: Duration;
  readonly max: Duration;
  /** The largest random part, 0 to 100. */
  readonly jitterPercent: number;
}

/** A rate limit: `jobs` per `per`, and up to `burst` together. */
export interface Rate {
  readonly jobs: number;
  readonly per: Duration;
  /** Default: what the rate allows in 100 ms, at least 1. */
  readonly burst?: number;
}

/** How the server sends the jobs of a kind to a URL. */
export interface Push {
  readonly url?: string;
  /** Headers of the requests. With `changeKind`, `null` removes one. */
  readonly headers?: Readonly<Record<string, string | null>>;
  readonly timeout?: Duration;
  readonly concurrency?: number;
  /** The secrets that sign the requests, `whsec_…`. */
  readonly secrets?: readonly string[];
  readonly format?: string;
}

/** Settings to set or to change. With `setKind`, a missing field gets its default. */
export interface SettingsChange {
  readonly lease?: Duration;
  readonly backoff?: Partial<Backoff>;
  readonly maxAttempts?: number;
  readonly concurrency?: number | null;
  /** Also as text, such as `"10/s"` or `"100/1m"`. */
  readonly rate?: Rate | RateText | null;
  readonly ageing?: Duration | null;
  readonly paused?: boolean;
  readonly retention?: { readonly age?: Duration; readonly count?: number };
  readonly keepDone?: { readonly for?: Duration; readonly count?: number } | null;
  readonly push?: Push | null;
}

/** The counts of a kind. */
export interface KindCounts {
  readonly kind: string;
  /** Waiting and ready jobs. */
  readonly pending: number;
  /** Ready jobs, counted up to 10,000. */
  readonly ready: number;
  /** Whether there are more ready jobs than were counted. */
  readonly readyCapped: boolean;
  readonly leased: number;
  readonly dead: number;
  readonly done: number;
  /** Since when the oldest ready job has been ready. */
  readonly oldestReady: Date | undefined;
  readonly paused: boolean;
  /** Whether the server sends the jobs to a URL. */
  readonly push: boolean;
  /** Until when the rate limit allows no claim. */
  readonly throttledUntil: Date | undefined;
  /** The latest generation. */
  readonly generation: number;
  /** The latest fencing token. */
  readonly fence: number;
}

/** A kind: its counts and settings. */
export interface KindInfo extends KindCounts {
  readonly settings: Settings;
}

/** Totals of all kinds, and the state of this server. */
export interface Stats {
  readonly version: string;
  readonly uptimeSeconds: number;
  readonly kinds: number;
  readonly pending: number;
  readonly ready: number;
  readonly leased: number;
  readonly dead: number;
  readonly done: number;
  readonly waitingClaims: number;
  /** The problems of this server, such as `disk_full`. */
  readonly problems: readonly { readonly name: string; readonly since: Date; readonly detail: string | undefined }[];
}

/** A worker that has recently claimed jobs from this server. */
export interface WorkerInfo {
  readonly name: string;
  readonly kinds: readonly string[];
  readonly firstSeen: Date;
  readonly lastSeen: Date;
  /** Claims that are waiting. */
  readonly waiting: number;
  readonly claimed: number;
  readonly acked: number;
  readonly failed: number;
  /** Jobs that the worker holds. */
  readonly held: number;
}

type ValueOf<K extends keyof SettingsChange> = NonNullable<SettingsChange[K]>;
type WireOf<K extends keyof WireSettingsPatch> = NonNullable<WireSettingsPatch[K]>;

const BACKOFF: Fields<Backoff, WireOf<"backoff">> = { base: duration, max: duration, jitterPercent: whole };
const RATE: Fields<Rate, WireOf<"rate">> = { jobs: whole, per: duration, burst: whole };
const RETENTION: Fields<ValueOf<"retention">, WireOf<"retention">> = { age: duration, count: whole };
const KEEP_DONE: Fields<ValueOf<"keepDone">, WireOf<"keep_done">> = { for: duration, count: whole };
const PUSH: Fields<Push, WirePush> = {
  url: text,
  headers: (field, headers) => {
    checkFields(field, headers, Object.keys(headers));
    for (const [name, value] of Object.entries(headers)) nullable(text)(`${field}[${JSON.stringify(name)}]`, value);
    return { ...headers };
  },
  timeout: nullable(duration),
  concurrency: nullable(whole),
  secrets: (field, secrets) => {
    const isList = Array.isArray(secrets) && secrets.every((secret) => typeof secret === "string");
    // The error does not contain them.
    if (!isList) throw new TypeError(`${field} must be an array of strings`);
    return [...secrets];
  },
  format: nullable(text),
};

const SETTINGS: Fields<SettingsChange, WireSettingsPatch> = {
  lease: duration,
  backoff: object<Partial<Backoff>, WireOf<"backoff">>(BACKOFF),
  maxAttempts: whole,
  concurrency: nullable(whole),
  rate: nullable(rateToWire),
  ageing: nullable(duration),
  paused: flag,
  retention: object(RETENTION),
  keepDone: nullable(object(KEEP_DONE)),
  push: nullable(object(PUSH)),
};

function rateToWire(field: string, rate: Rate | RateText): WireOf<"rate"> {
  if (typeof rate === "string") return checkRate(field, rate);
  return writeFields(field, rate, RATE) as WireOf<"rate">;
}

/** @internal */
export function settingsToWire(settings: SettingsChange): WireSettingsPatch {
  return writeFields("settings", settings, SETTINGS);
}

/** @internal */
export function settingsFromWire(wire: WireSettings): Settings {
  return {
    lease: wire.lease as Duration,
    backoff: {
      base: wire.backoff.base as Duration,
      max: wire.backoff.max as Duration,
      jitterPercent: wire.backoff.jitter_percent,
    },
    maxAttempts: wire.max_attempts,
    concurrency: wire.concurrency ?? null,
    rate: wire.rate ? rateFromWire(wire.rate) : null,
    ageing: (wire.ageing ?? null) as Duration | null,
    paused: wire.paused,
    retention: wire.retention as Settings["retention"],
    keepDone: (wire.keep_done ?? null) as Settings["keepDone"],
    push: (wire.push ?? null) as Push | null,
  };
}

function rateFromWire({ jobs, per, burst }: NonNullable<WireSettings["rate"]>): Rate {
  return { jobs, per: per as Duration, ...(typeof burst === "number" ? { burst } : {}) };
}

/** @internal */
export function countsFromWire(wire: WireKind): KindCounts {
  return {
    kind: wire.kind,
    pending: wire.pending,
    ready: wire.ready,
    readyCapped: wire.ready_capped,
    leased: wire.leased,
    dead: wire.dead,
    done: wire.done ?? 0,
    oldestReady: dateFromWire(wire.oldest_ready),
    paused: wire.paused,
    push: wire.push ?? false,
    throttledUntil: dateFromWire(wire.throttled_until),
    generation: wire.generation,
    fence: wire.fence,
  };
}

/** @internal */
export function statsFromWire(wire: WireStats): Stats {
  const { uptime_seconds, waiting_claims, problems, ...counts } = wire;
  return {
    ...counts,
    uptimeSeconds: uptime_seconds,
    waitingClaims: waiting_claims,
    problems: (problems ?? []).map(({ name, since, detail }) => ({
      name,
      since: new Date(since),
      detail: detail ?? undefined,
    })),
  };
}

/** @internal */
export function workerFromWire(wire: WireWorker): WorkerInfo {
  const { first_seen, last_seen, ...rest } = wire;
  return { ...rest, firstSeen: new Date(first_seen), lastSeen: new Date(last_seen) };
}
