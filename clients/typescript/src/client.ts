/** The client: one call for every endpoint of the HTTP API that producers and workers use. */

import type {
  ChangedJobs,
  ChangeOptions,
  ChangeResult,
  Claimed,
  ClaimOptions,
  Upcoming,
  UpcomingOptions,
} from "./calls.js";
import { type Codec, jsonCodec } from "./content.js";
import { ProblemError } from "./errors.js";
import {
  type AnyKinds,
  claimedFromWire,
  entryToWire,
  filterToWire,
  isUnconditional,
  jobFromWire,
  type JobFilter,
  type JobInfo,
  type KindName,
  type PutEntry,
  putFromWire,
  type PutOptions,
  type PutResult,
  putToWire,
  resultsFromWire,
} from "./jobs.js";
import {
  countsFromWire,
  type KindCounts,
  type KindInfo,
  type Settings,
  type SettingsChange,
  settingsFromWire,
  settingsToWire,
  type Stats,
  statsFromWire,
  workerFromWire,
  type WorkerInfo,
} from "./kinds.js";
import { type NewSchedule, type Schedule, type ScheduleChange, scheduleFromWire, scheduleToWire } from "./schedules.js";
import { type Settled, settledFromWire, type Settlement, settlementToWire } from "./settle.js";
import { checkDuration, checkTime, type Duration, milliseconds } from "./time.js";
import { type CallOptions, path, Transport } from "./transport.js";
import type {
  WireClaim,
  WireClaimed,
  WireClaimResponse,
  WireJob,
  WireKind,
  WireLease,
  WireSchedule,
  WireWorker,
} from "./wire.js";

/** Options of a client. */
export interface ClientOptions {
  /** The URL of the server; default: `REQUEUE_SERVER`, or `http://127.0.0.1:7654`. */
  readonly server?: string;
  /** The token to send; default: `REQUEUE_TOKEN`, or none. */
  readonly token?: string;
  /** How long one request may take; default: 30 s. The time that a claim waits is added. */
  readonly timeout?: Duration;
  /** How long requests are repeated that were not done; default: 10 s. */
  readonly retryFor?: Duration;
  /** How bodies and results are encoded; default: as JSON, and a `Uint8Array` as bytes. */
  readonly codec?: Codec;
}

type Verb = "cancel" | "run-now" | "revive";

/**
 * A client of one server. It keeps no state: create one per program, and share it.
 *
 * The type parameter maps kinds to the types of their bodies: `new Client<{ "order.remind": { to: string } }>()`.
 *
 * Every call throws a `ProblemError` if the server responds with an error, a `ConnectionError` if there is no
 * response, a `TypeError` before anything is sent if a duration or time is invalid, and the reason of its signal
 * if that is aborted.
 */
export class Client<Kinds extends object = AnyKinds> {
  readonly #transport: Transport;
  /** @internal */
  readonly codec: Codec;

  constructor(options: ClientOptions = {}) {
    const env = typeof process === "undefined" ? {} : process.env;
    const server = options.server ?? env["REQUEUE_SERVER"] ?? "http://127.0.0.1:7654";
    const token = options.token ?? (env["REQUEUE_TOKEN"] || undefined);
    this.#transport = new Transport(server, token, options.timeout ?? "30s", options.retryFor ?? "10s");
    this.codec = options.codec ?? jsonCodec;
  }

  /** Creates a job, or updates it if it exists. `undefined` as the body means an empty body. */
  async put<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    body: Kinds[K],
    options: PutOptions = {},
  ): Promise<PutResult> {
    const request = {
      method: "PUT",
      path: path("v1", "kinds", kind, "jobs", id),
      body: putToWire(this.codec, body, options),
      harmless: isUnconditional(options),
      read: putFromWire,
    } as const;
    return this.#transport.call(request, options);
  }

  /** Puts up to 1000 jobs in one request. Returns one result per job, which may be a `ProblemError`. */
  async putMany(jobs: readonly PutEntry<Kinds>[], options: CallOptions = {}): Promise<(PutResult | ProblemError)[]> {
    const entries = jobs.map((job) => entryToWire(this.codec, job));
    const harmless = jobs.every(isUnconditional);
    return this.#post(
      "/v1/put",
      { jobs: entries },
      harmless,
      (json) => resultsFromWire(json, jobs.length, putFromWire),
      options,
    );
  }

  /** Returns a job. Throws `absent` if it does not exist. */
  async get<K extends KindName<Kinds>>(kind: K, id: string, options: CallOptions = {}): Promise<JobInfo<Kinds[K]>> {
    const read = (json: WireJob) => jobFromWire<Kinds[K]>(this.codec, json);
    return this.#get(path("v1", "kinds", kind, "jobs", id), {}, read, options);
  }

  /** Lists the jobs of a kind in the order of their ids, and requests pages of `pageSize` (default 100) as needed. */
  async *list<K extends KindName<Kinds>>(
    kind: K,
    filter: JobFilter & { readonly pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<JobInfo<Kinds[K]>, void, undefined> {
    const query = { ...filterToWire(filter), limit: filter.pageSize };
    let after: string | null | undefined;
    do {
      const read = (json: { jobs: WireJob[]; cursor?: string | null }) => json;
      const page = await this.#get(path("v1", "kinds", kind, "jobs"), { ...query, after }, read, options);
      for (const job of page.jobs) yield jobFromWire(this.codec, job);
      after = page.cursor;
    } while (typeof after === "string");
  }

  /** Cancels a job: it is `removed`, or `ending` if it is leased. Throws `absent` if it does not exist. */
  async cancel(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<ChangeResult> {
    return this.#changeOne("cancel", kind, id, options);
  }

  /** Cancels up to 1000 jobs. Returns one result per id, which may be a `ProblemError`. */
  async cancelMany(
    kind: KindName<Kinds>,
    ids: readonly string[],
    options: CallOptions = {},
  ): Promise<(ChangeResult | ProblemError)[]> {
    return this.#changeMany("cancel", kind, ids, options);
  }

  /** Cancels all jobs that match, up to 10,000. `{}` matches every job of the kind. */
  async cancelMatching(kind: KindName<Kinds>, filter: JobFilter, options: ChangeOptions = {}): Promise<ChangedJobs> {
    return this.#changeMatching("cancel", kind, filter, options);
  }

  /** Makes a pending job due now, and revives a dead one. Throws `absent`, `leased` or `done`. */
  async runNow(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<ChangeResult> {
    return this.#changeOne("run-now", kind, id, options);
  }

  /** Makes up to 1000 jobs due now. Returns one result per id, which may be a `ProblemError`. */
  async runNowMany(
    kind: KindName<Kinds>,
    ids: readonly string[],
    options: CallOptions = {},
  ): Promise<(ChangeResult | ProblemError)[]> {
    return this.#changeMany("run-now", kind, ids, options);
  }

  /** Makes all jobs that match due now, up to 10,000. */
  async runNowMatching(kind: KindName<Kinds>, filter: JobFilter, options: ChangeOptions = {}): Promise<ChangedJobs> {
    return this.#changeMatching("run-now", kind, filter, options);
  }

  /** Revives a dead job: it is due now, and its attempts are reset. Throws `absent` or `not-dead`. */
  async revive(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<ChangeResult> {
    return this.#changeOne("revive", kind, id, options);
  }

  /** Revives up to 1000 jobs. Returns one result per id, which may be a `ProblemError`. */
  async reviveMany(
    kind: KindName<Kinds>,
    ids: readonly string[],
    options: CallOptions = {},
  ): Promise<(ChangeResult | ProblemError)[]> {
    return this.#changeMany("revive", kind, ids, options);
  }

  /** Revives all dead jobs that match, up to 10,000. */
  async reviveMatching(kind: KindName<Kinds>, filter: JobFilter, options: ChangeOptions = {}): Promise<ChangedJobs> {
    return this.#changeMatching("revive", kind, filter, options);
  }

  /** Claims ready jobs. If its outcome is unknown, the claim is not repeated: jobs may be leased to this worker. */
  async claim<K extends KindName<Kinds>>(kinds: readonly K[], options: ClaimOptions = {}): Promise<Claimed<Kinds[K]>> {
    const body: WireClaim = { kinds: [...kinds] };
    if (options.worker !== undefined) body.worker = options.worker;
    if (options.max !== undefined) body.max = options.max;
    if (options.lease !== undefined) body.lease = checkDuration("lease", options.lease);
    if (options.wait !== undefined) body.wait = checkDuration("wait", options.wait);
    const waitMs = options.wait === undefined ? 0 : milliseconds(options.wait);
    const read = (json: WireClaimResponse) => ({
      jobs: json.jobs.map((job: WireClaimed) => claimedFromWire<Kinds[K]>(this.codec, job)),
      errors: (json.errors ?? []).map(({ kind, error }) => ({ kind, error: new ProblemError(error) })),
    });
    return this.#transport.call({ method: "POST", path: "/v1/claim", body, harmless: false, waitMs, read }, options);
  }

  /** Waits until a claim may return a job, or until the time is over. Claims nothing. */
  async wait(kinds: readonly KindName<Kinds>[], wait: Duration, options: CallOptions = {}): Promise<void> {
    const body = { kinds, wait: checkDuration("wait", wait) };
    const waitMs = milliseconds(wait);
    return this.#transport.call(
      { method: "POST", path: "/v1/wait", body, harmless: true, waitMs, read: nothing },
      options,
    );
  }

  /** Settles a job as done. Throws `lease-lost` if the receipt no longer leases a job, as do the calls below. */
  async ack(receipt: string, options: CallOptions & { readonly result?: unknown } = {}): Promise<Settled> {
    return this.#settleOne({ how: "ack", receipt, result: options.result }, options);
  }

  /** Settles a job as failed. It is due again after `delay`, or is dead if its attempts are used up. */
  async retry(
    receipt: string,
    options: CallOptions & { readonly error?: string; readonly delay?: Duration } = {},
  ): Promise<Settled> {
    const { error, delay } = options;
    return this.#settleOne({ how: "retry", receipt, ...given({ error, delay }) }, options);
  }

  /** Settles a job as failed and dead. */
  async bury(receipt: string, options: CallOptions & { readonly error?: string } = {}): Promise<Settled> {
    const { error } = options;
    return this.#settleOne({ how: "bury", receipt, ...given({ error }) }, options);
  }

  /** Settles a job as done. It runs again after the delay. */
  async requeue(receipt: string, delay: Duration, options: CallOptions = {}): Promise<Settled> {
    return this.#settleOne({ how: "requeue", receipt, delay }, options);
  }

  /** Returns a job that was not started to the queue. No attempt is counted. */
  async release(receipt: string, options: CallOptions = {}): Promise<Settled> {
    return this.#settleOne({ how: "release", receipt }, options);
  }

  /** Extends a lease: it ends `lease` from now, if that is later than before. */
  async extend(receipt: string, options: CallOptions & { readonly lease?: Duration } = {}): Promise<Settled> {
    const { lease } = options;
    return this.#settleOne({ how: "extend", receipt, ...given({ lease }) }, options);
  }

  /** Settles or extends up to 1000 leases in one request. Returns one result each, which may be a `ProblemError`. */
  async settle(settlements: readonly Settlement[], options: CallOptions = {}): Promise<(Settled | ProblemError)[]> {
    const leases = settlements.map((settlement) => settlementToWire(this.codec, settlement));
    return this.settleWire(leases, options);
  }

  /** @internal The same as `settle`, with results that are already encoded. */
  async settleWire(leases: readonly WireLease[], options: CallOptions): Promise<(Settled | ProblemError)[]> {
    return this.#post(
      "/v1/settle",
      { leases },
      true,
      (json) => resultsFromWire(json, leases.length, settledFromWire),
      options,
    );
  }

  /** Returns the counts of all kinds. */
  async kinds(options: CallOptions = {}): Promise<KindCounts[]> {
    return this.#get("/v1/kinds", {}, (json: { kinds: WireKind[] }) => json.kinds.map(countsFromWire), options);
  }

  /** Returns the counts and the settings of a kind. */
  async kind(kind: KindName<Kinds>, options: CallOptions = {}): Promise<KindInfo> {
    const read = (json: WireKind) => ({ ...countsFromWire(json), settings: settingsFromWire(json.settings!) });
    return this.#get(path("v1", "kinds", kind), {}, read, options);
  }

  /** Returns the settings of a kind. */
  async settings(kind: KindName<Kinds>, options: CallOptions = {}): Promise<Settings> {
    return this.#get(path("v1", "kinds", kind, "settings"), {}, settingsFromWire, options);
  }

  /** Sets all settings of a kind; a missing field gets its default. Returns all settings. */
  async setKind(kind: KindName<Kinds>, settings: SettingsChange, options: CallOptions = {}): Promise<Settings> {
    return this.#write("PUT", path("v1", "kinds", kind), settingsToWire(settings), settingsFromWire, options);
  }

  /** Changes the given settings of a kind. Returns all settings. */
  async changeKind(kind: KindName<Kinds>, change: SettingsChange, options: CallOptions = {}): Promise<Settings> {
    return this.#write("PATCH", path("v1", "kinds", kind), settingsToWire(change), settingsFromWire, options);
  }

  /** Pauses a kind: its jobs are not claimed. */
  async pause(kind: KindName<Kinds>, options: CallOptions = {}): Promise<void> {
    return this.#post(path("v1", "kinds", kind, "pause"), undefined, true, nothing, options);
  }

  /** Resumes a kind. */
  async resume(kind: KindName<Kinds>, options: CallOptions = {}): Promise<void> {
    return this.#post(path("v1", "kinds", kind, "resume"), undefined, true, nothing, options);
  }

  /** Removes the schedules, jobs and settings of a kind. Leased jobs are removed when their leases end. */
  async deleteKind(kind: KindName<Kinds>, options: CallOptions = {}): Promise<{ removed: number; ending: number }> {
    const total = { removed: 0, ending: 0 };
    let after: string | null | undefined;
    do {
      const read = (json: { removed: number; ending: number; cursor?: string | null }) => json;
      const url = path("v1", "kinds", kind) + query({ after });
      const part = await this.#transport.call({ method: "DELETE", path: url, harmless: false, read }, options);
      total.removed += part.removed;
      total.ending += part.ending;
      after = part.cursor;
    } while (typeof after === "string");
    return total;
  }

  /** Returns how many pending jobs become due in each of the next spans of time. */
  async upcoming(kind: KindName<Kinds>, options: UpcomingOptions = {}): Promise<Upcoming> {
    const spans = {
      from: options.from && checkTime("from", options.from),
      span: options.span && checkDuration("span", options.span),
      count: options.count,
    };
    const read = (json: { from: string; span: string; counts: number[] }) => ({
      from: new Date(json.from),
      span: json.span as Duration,
      counts: json.counts,
    });
    return this.#get(path("v1", "kinds", kind, "upcoming"), spans, read, options);
  }

  /** Creates or replaces a schedule. If it has the same times as before, its next run stays. */
  async setSchedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    schedule: NewSchedule<Kinds[K]>,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    const body = scheduleToWire(this.codec, schedule);
    return this.#write("PUT", path("v1", "kinds", kind, "schedules", id), body, this.#schedule<K>, options);
  }

  /** Changes the given fields of a schedule; `null` resets one to its default. Throws `absent`. */
  async changeSchedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    change: ScheduleChange<Kinds[K]>,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    const body = scheduleToWire(this.codec, change);
    return this.#write("PATCH", path("v1", "kinds", kind, "schedules", id), body, this.#schedule<K>, options);
  }

  /** Returns a schedule. Throws `absent` if it does not exist. */
  async schedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    return this.#get(path("v1", "kinds", kind, "schedules", id), {}, this.#schedule<K>, options);
  }

  /** Returns the schedules of a kind. */
  async schedules<K extends KindName<Kinds>>(kind: K, options: CallOptions = {}): Promise<Schedule<Kinds[K]>[]> {
    const read = (json: { schedules: WireSchedule[] }) => json.schedules.map(this.#schedule<K>);
    return this.#get(path("v1", "kinds", kind, "schedules"), {}, read, options);
  }

  /** Removes a schedule; its jobs stay. Throws `absent`. */
  async deleteSchedule(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<void> {
    const url = path("v1", "kinds", kind, "schedules", id);
    return this.#transport.call({ method: "DELETE", path: url, harmless: false, read: nothing }, options);
  }

  /** Starts a run of a schedule now, in addition to its times. Throws `absent`. */
  async runSchedule(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<PutResult> {
    return this.#post(path("v1", "kinds", kind, "schedules", id, "run"), undefined, false, putFromWire, options);
  }

  /** Returns totals of all kinds, and the problems of this server. */
  async stats(options: CallOptions = {}): Promise<Stats> {
    return this.#get("/v1/stats", {}, statsFromWire, options);
  }

  /** Returns the workers that have recently claimed jobs from this server. */
  async workers(options: CallOptions = {}): Promise<WorkerInfo[]> {
    return this.#get("/v1/workers", {}, (json: { workers: WireWorker[] }) => json.workers.map(workerFromWire), options);
  }

  readonly #schedule = <K extends KindName<Kinds>>(json: WireSchedule) => scheduleFromWire<Kinds[K]>(this.codec, json);

  #settleOne(settlement: Settlement, options: CallOptions): Promise<Settled> {
    const leases = [settlementToWire(this.codec, settlement)];
    return this.#post(
      "/v1/settle",
      { leases },
      true,
      (json) => only(resultsFromWire(json, 1, settledFromWire)),
      options,
    );
  }

  #changeOne(verb: Verb, kind: string, id: string, options: CallOptions): Promise<ChangeResult> {
    const read = (json: any) => only(resultsFromWire(json, 1, changeResult));
    return this.#post(path("v1", "kinds", kind, verb), { ids: [id] }, false, read, options);
  }

  #changeMany(
    verb: Verb,
    kind: string,
    ids: readonly string[],
    options: CallOptions,
  ): Promise<(ChangeResult | ProblemError)[]> {
    const read = (json: any) => resultsFromWire(json, ids.length, changeResult);
    return this.#post(path("v1", "kinds", kind, verb), { ids }, false, read, options);
  }

  #changeMatching(verb: Verb, kind: string, filter: JobFilter, options: ChangeOptions): Promise<ChangedJobs> {
    const { limit, after } = options;
    const body = { all: filterToWire(filter), ...given({ limit, after }) };
    const read = ({ matched, changed, failed, cursor }: ChangedJobs) => ({
      matched,
      changed,
      failed,
      cursor: cursor ?? null,
    });
    return this.#post(path("v1", "kinds", kind, verb), body, false, read, options);
  }

  #get<T>(path: string, fields: Query, read: (json: any) => T, options: CallOptions): Promise<T> {
    return this.#transport.call({ method: "GET", path: path + query(fields), harmless: true, read }, options);
  }

  #post<T>(path: string, body: unknown, harmless: boolean, read: (json: any) => T, options: CallOptions): Promise<T> {
    return this.#transport.call({ method: "POST", path, body, harmless, read }, options);
  }

  /** Settings and schedules: setting them twice has the same effect as setting them once. */
  #write<T>(
    method: "PUT" | "PATCH",
    path: string,
    body: unknown,
    read: (json: any) => T,
    options: CallOptions,
  ): Promise<T> {
    return this.#transport.call({ method, path, body, harmless: true, read }, options);
  }
}

type Query = Record<string, string | number | null | undefined>;

function query(fields: Query): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return given.length === 0 ? "" : `?${parameters}`;
}

function nothing(): void {}

/** Leaves out fields that are undefined. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

function changeResult({ result }: { result: ChangeResult }): ChangeResult {
  return result;
}

function only<T>(results: (T | ProblemError)[]): T {
  const [result] = results as [T | ProblemError];
  if (result instanceof ProblemError) throw result;
  return result;
}
