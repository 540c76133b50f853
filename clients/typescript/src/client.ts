/** The client: the calls of the HTTP API for jobs, kinds and schedules. */

import { checkFields, checkFunction, checkList, checkName, checkNames, type Names } from "./check.js";
import { type Codec, jsonCodec } from "./content.js";
import { BatchError, ConnectionError, ProblemError, RequeueError } from "./errors.js";
import { duration, type Fields, time, whole, writeFields } from "./fields.js";
import { merged } from "./groups.js";
import {
  type AnyKinds,
  type Claimed,
  type ClaimOptions,
  entryToWire,
  isUnconditional,
  type KindName,
  type ListFilter,
  listToWire,
  type PutEntry,
  type PutOptions,
  putToWire,
  type Reschedule,
  rescheduleToWire,
  results,
} from "./jobs.js";
import {
  type ChangedJobs,
  type ChangeResult,
  type DeletedKind,
  type ErrorGroups,
  type JobFilter,
  type JobInfo,
  type KindCounts,
  type PutResult,
  readChangedJobs,
  readClaimedJob,
  readDeletedKind,
  readErrorGroups,
  readJobInfo,
  readKindCounts,
  readPutResult,
  readSchedule,
  readSettings,
  readSettled,
  readStats,
  readUpcoming,
  readWorkerInfo,
  type Schedule,
  type ScheduleChange,
  type Settings,
  type SettingsChange,
  type Settled,
  type Stats,
  type Upcoming,
  type WorkerInfo,
  writeClaimFields,
  writeJobFilter,
  writeSettingsChange,
} from "./models.js";
import type { Read } from "./read.js";
import { type NewSchedule, scheduleToWire } from "./schedules.js";
import { checkReceipt, type Settlement, settlementToWire, type WireLease } from "./settle.js";
import { checkDuration, type Duration, milliseconds, type Time } from "./time.js";
import { CALL_OPTIONS, type CallOptions, isPathSegment, path, type Request, Transport } from "./transport.js";

/** Options of a client. */
export interface ClientOptions {
  /** The URL of the server, with `http://` or `https://`; default: `REQUEUE_SERVER`, or `http://127.0.0.1:7654`. */
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

const CLIENT_OPTIONS = Object.keys({
  server: true,
  token: true,
  timeout: true,
  retryFor: true,
  codec: true,
} satisfies Names<ClientOptions>);

/** A kind: its counts and settings. */
export interface KindInfo extends KindCounts {
  readonly settings: Settings;
}

/** Which spans of time `upcoming` counts. */
export interface UpcomingOptions extends CallOptions {
  /** The start of the first span; default: now. */
  readonly from?: Time;
  /** The length of a span; default: 1 minute. */
  readonly span?: Duration;
  /** The number of spans, up to 1000; default: 60. */
  readonly count?: number;
}

const SPANS: Fields<Omit<UpcomingOptions, keyof CallOptions>> = { from: time, span: duration, count: whole };

type Verb = "cancel" | "run-now" | "revive";

/**
 * A client of one server. It keeps no state: create one per program, and share it.
 *
 * The type parameter maps kinds to the types of their bodies: `new Client<{ "order.remind": { to: string } }>()`.
 *
 * Every call throws a `ProblemError` if the server responds with an error, a `ConnectionError` if there is no
 * response, the reason of its signal if that is aborted, and a `TypeError` before anything is sent if it cannot be
 * meant: an id that is not a string, a duration without a unit, a field that does not exist.
 */
export class Client<Kinds extends object = AnyKinds> {
  readonly #transport: Transport;
  /** @internal */
  readonly codec: Codec;

  constructor(options: ClientOptions = {}) {
    if (typeof options === "string") {
      throw new TypeError("options is a string; to pass the URL of the server, write new Client({ server: URL })");
    }
    checkFields("options", options, CLIENT_OPTIONS);
    const env = typeof process === "undefined" ? {} : process.env;
    const server = options.server ?? (env["REQUEUE_SERVER"] || "http://127.0.0.1:7654");
    const token = (options.token ?? env["REQUEUE_TOKEN"]) || undefined;
    this.#transport = new Transport(server, token, options.timeout ?? "30s", options.retryFor ?? "10s");
    this.codec = options.codec ?? jsonCodec;
    checkFunction("options.codec.encode", this.codec.encode);
    checkFunction("options.codec.decode", this.codec.decode);
  }

  /**
   * Creates a job, or replaces its body, due time and priority if it exists. `undefined` as the body means an empty
   * body. To change only some of them, use `reschedule`.
   */
  async put<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    body: Kinds[K],
    options: PutOptions = {},
  ): Promise<PutResult> {
    const request = {
      method: "PUT",
      path: itemPath(kind, "jobs", id),
      body: putToWire(this.codec, body, options),
      harmless: isUnconditional(options),
      read: readPutResult,
      options: Object.keys(options),
    } as const;
    return this.#call(request, options);
  }

  /**
   * Puts up to 1000 jobs in one request. Returns one result per job. Throws a `BatchError` with all results if a put
   * failed; with `returnProblems`, the result of a put that failed is its `ProblemError`, and nothing is thrown.
   */
  async putMany(
    jobs: readonly PutEntry<Kinds>[],
    options?: CallOptions & { readonly returnProblems?: false },
  ): Promise<PutResult[]>;
  async putMany(
    jobs: readonly PutEntry<Kinds>[],
    options: CallOptions & { readonly returnProblems: boolean },
  ): Promise<(PutResult | ProblemError)[]>;
  async putMany(
    jobs: readonly PutEntry<Kinds>[],
    options: CallOptions & { readonly returnProblems?: boolean } = {},
  ): Promise<(PutResult | ProblemError)[]> {
    const entries = checkList("jobs", jobs, "objects").map((job, n) => entryToWire(this.codec, `jobs[${n}]`, job));
    const request = {
      method: "POST",
      path: "/v1/put",
      body: { jobs: entries },
      harmless: jobs.every(isUnconditional),
      read: batch(entries.length, readPutResult),
      options: ["returnProblems"],
    } as const;
    const found = await this.#call(request, options);
    const failed = found.some((result) => result instanceof ProblemError);
    if (failed && options.returnProblems !== true) throw new BatchError(entries, found);
    return found;
  }

  /**
   * Changes the due time, the priority or the body of a job, and keeps what is not set. A pending job is `updated`.
   * If the job is leased, its successor is changed or created: `coalesced`. A dead job with a new due time is
   * `revived`. Throws `absent`, `done` or `other-generation`.
   */
  async reschedule<K extends KindName<Kinds>>(kind: K, id: string, change: Reschedule<Kinds[K]>): Promise<PutResult> {
    const set = rescheduleToWire(this.codec, change);
    const common = { harmless: change.ifGeneration === undefined, options: Object.keys(change) };
    if (isPathSegment(checkName("id", id))) {
      const request = { method: "PATCH", path: itemPath(kind, "jobs", id), body: set, read: readPutResult } as const;
      return this.#call({ ...request, ...common }, change);
    }
    const entry = { kind: checkName("kind", kind), id, what: "reschedule", set };
    const read = only<PutResult>(({ result, generation }) => ({ outcome: result, generation }));
    const request = { method: "POST", path: "/v1/change", body: { jobs: [entry] }, read } as const;
    return this.#call({ ...request, ...common }, change);
  }

  /** Returns a job. Throws `absent` if it does not exist. */
  async get<K extends KindName<Kinds>>(kind: K, id: string, options: CallOptions = {}): Promise<JobInfo<Kinds[K]>> {
    return this.#get(itemPath(kind, "jobs", id), {}, readJobInfo as Read<JobInfo<Kinds[K]>>, options);
  }

  /** Lists the jobs of a kind that match, by default in the order of their ids. Requests pages as needed. */
  async *list<K extends KindName<Kinds>>(
    kind: K,
    filter: ListFilter = {},
    options: CallOptions = {},
  ): AsyncGenerator<JobInfo<Kinds[K]>, void, undefined> {
    const query = listToWire(filter);
    const read = page("jobs", readJobInfo as Read<JobInfo<Kinds[K]>>);
    for await (const jobs of pages((after) => this.#get(kindPath(kind, "jobs"), { ...query, after }, read, options))) {
      yield* jobs;
    }
  }

  /**
   * Returns how many jobs `list` returns with this filter. With a filter other than `state`, the server examines all
   * jobs of the kind, 10,000 in each request.
   */
  async count(kind: KindName<Kinds>, filter: JobFilter = {}, options: CallOptions = {}): Promise<number> {
    const query = writeFields("filter", filter, writeJobFilter);
    const read = part((json): number => json.matched);
    let total = 0;
    for await (const matched of pages((after) =>
      this.#get(kindPath(kind, "count"), { ...query, after }, read, options),
    )) {
      total += matched;
    }
    return total;
  }

  /**
   * Groups the dead jobs of a kind by their last error. Errors that differ only in numbers and ids are in the same
   * group. Select the jobs of a group with `errorGroup`, or with `expired` if it has no error.
   */
  async errorGroups(kind: KindName<Kinds>, options: CallOptions = {}): Promise<ErrorGroups> {
    const read = part(readErrorGroups);
    const found: ErrorGroups[] = [];
    for await (const groups of pages((after) => this.#get(kindPath(kind, "errors"), { after }, read, options))) {
      found.push(groups);
    }
    return merged(found);
  }

  /** Cancels a job: it is `removed`, or `ending` if it is leased. Throws `absent` if it does not exist. */
  async cancel(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<ChangeResult> {
    const url = itemPath(kind, "jobs", id);
    return this.#call({ method: "DELETE", path: url, harmless: false, read: changeResult }, options);
  }

  /** Cancels up to 1000 jobs. Returns one result per id, which may be a `ProblemError`. */
  async cancelMany(
    kind: KindName<Kinds>,
    ids: readonly string[],
    options: CallOptions = {},
  ): Promise<(ChangeResult | ProblemError)[]> {
    return this.#changeMany("cancel", kind, ids, options);
  }

  /** Cancels all jobs that match, however many. `{}` matches every job of the kind. */
  async cancelMatching(kind: KindName<Kinds>, filter: JobFilter, options: CallOptions = {}): Promise<ChangedJobs> {
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

  /** Makes all jobs that match due now, however many. */
  async runNowMatching(kind: KindName<Kinds>, filter: JobFilter, options: CallOptions = {}): Promise<ChangedJobs> {
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

  /** Revives all dead jobs that match, however many. */
  async reviveMatching(kind: KindName<Kinds>, filter: JobFilter, options: CallOptions = {}): Promise<ChangedJobs> {
    return this.#changeMatching("revive", kind, filter, options);
  }

  /**
   * Claims ready jobs of one or several kinds. If its outcome is unknown, the claim is not repeated: jobs may be
   * leased to this worker.
   */
  async claim<K extends KindName<Kinds>>(
    kinds: K | readonly K[],
    options: ClaimOptions = {},
  ): Promise<Claimed<Kinds[K]>> {
    const body = { kinds: kindList(kinds), ...writeFields("options", options, writeClaimFields, CALL_OPTIONS) };
    const waitMs = options.wait === undefined ? 0 : milliseconds(options.wait);
    const read: Read<Claimed<Kinds[K]>> = (json, codec) => ({
      jobs: json.jobs.map((job: any) => readClaimedJob(job, codec, undefined)),
      errors: (json.errors ?? []).map(({ kind, error }: any) => ({ kind, error: new ProblemError(error) })),
    });
    const request = { method: "POST", path: "/v1/claim", body, harmless: false, waitMs, read } as const;
    return this.#call({ ...request, options: Object.keys(writeClaimFields) }, options);
  }

  /** Waits until a claim may return a job, or until the time is over. Claims nothing. */
  async wait(
    kinds: KindName<Kinds> | readonly KindName<Kinds>[],
    wait: Duration,
    options: CallOptions = {},
  ): Promise<void> {
    const body = { kinds: kindList(kinds), wait: checkDuration("wait", wait) };
    const waitMs = milliseconds(wait);
    return this.#call(
      { method: "POST", path: "/v1/wait", body, harmless: true, waitMs, read: nothing },
      options,
    );
  }

  /** Settles a job as done. Throws `lease-lost` if the receipt no longer leases a job, as do the calls below. */
  async ack(receipt: string, options: CallOptions & { readonly result?: unknown } = {}): Promise<Settled> {
    return this.#settleOne("ack", receipt, options, ["result"]);
  }

  /** Settles a job as failed. It is due again after `delay`, or is dead if its attempts are used up. */
  async retry(
    receipt: string,
    options: CallOptions & { readonly error?: string; readonly delay?: Duration } = {},
  ): Promise<Settled> {
    return this.#settleOne("retry", receipt, options, ["error", "delay"]);
  }

  /** Settles a job as failed and dead. */
  async bury(receipt: string, options: CallOptions & { readonly error?: string } = {}): Promise<Settled> {
    return this.#settleOne("bury", receipt, options, ["error"]);
  }

  /** Settles a job as done. It runs again after the delay. */
  async requeue(receipt: string, delay: Duration, options: CallOptions = {}): Promise<Settled> {
    checkDuration("delay", delay);
    return this.#settleOne("requeue", receipt, { ...options, delay }, ["delay"]);
  }

  /** Returns a job that was not started to the queue. No attempt is counted. */
  async release(receipt: string, options: CallOptions = {}): Promise<Settled> {
    return this.#settleOne("release", receipt, options, []);
  }

  /** Extends a lease: it ends `lease` from now, if that is later than before. */
  async extend(receipt: string, options: CallOptions & { readonly lease?: Duration } = {}): Promise<Settled> {
    return this.#settleOne("extend", receipt, options, ["lease"]);
  }

  /**
   * Settles or extends up to 1000 leases in one request. Returns one result each, which may be a `ProblemError`. The
   * request is repeated if its outcome is unknown; `lease-lost` may then mean that the first one has settled the job.
   */
  async settle(settlements: readonly Settlement[], options: CallOptions = {}): Promise<(Settled | ProblemError)[]> {
    const leases = checkList("settlements", settlements, "objects").map((settlement, n) =>
      settlementToWire(this.codec, `settlements[${n}]`, settlement),
    );
    return this.settleWire(leases, options);
  }

  /** @internal The same as `settle`, with results that are already encoded. */
  async settleWire(leases: readonly WireLease[], options: CallOptions): Promise<(Settled | ProblemError)[]> {
    return this.#post("/v1/settle", { leases }, true, batch(leases.length, readSettled), options);
  }

  /** Returns the counts of all kinds. */
  async kinds(options: CallOptions = {}): Promise<KindCounts[]> {
    return this.#get("/v1/kinds", {}, items("kinds", readKindCounts), options);
  }

  /** Returns the counts and the settings of a kind. */
  async kind(kind: KindName<Kinds>, options: CallOptions = {}): Promise<KindInfo> {
    return this.#get(kindPath(kind), {}, readKindCounts as Read<KindInfo>, options);
  }

  /** Returns the settings of a kind. */
  async settings(kind: KindName<Kinds>, options: CallOptions = {}): Promise<Settings> {
    return this.#get(kindPath(kind, "settings"), {}, readSettings, options);
  }

  /** Sets all settings of a kind; a missing field gets its default. Returns all settings. */
  async setKind(kind: KindName<Kinds>, settings: SettingsChange, options: CallOptions = {}): Promise<Settings> {
    return this.#settings("PUT", kind, settings, options);
  }

  /** Changes the given settings of a kind. Returns all settings. */
  async changeKind(kind: KindName<Kinds>, change: SettingsChange, options: CallOptions = {}): Promise<Settings> {
    return this.#settings("PATCH", kind, change, options);
  }

  /** Pauses a kind: its jobs are not claimed. */
  async pause(kind: KindName<Kinds>, options: CallOptions = {}): Promise<void> {
    return this.#post(kindPath(kind, "pause"), undefined, true, nothing, options);
  }

  /** Resumes a kind. */
  async resume(kind: KindName<Kinds>, options: CallOptions = {}): Promise<void> {
    return this.#post(kindPath(kind, "resume"), undefined, true, nothing, options);
  }

  /** Removes the schedules, jobs and settings of a kind. Leased jobs are removed when their leases end. */
  async deleteKind(kind: KindName<Kinds>, options: CallOptions = {}): Promise<DeletedKind> {
    const total = { removed: 0, ending: 0 };
    const remove = (after: string | undefined) => {
      const url = kindPath(kind) + query({ after });
      return this.#call({ method: "DELETE", path: url, harmless: false, read: part(readDeletedKind) }, options);
    };
    try {
      for await (const { removed, ending } of pages(remove)) {
        total.removed += removed;
        total.ending += ending;
      }
    } catch (error) {
      throw afterSome(total.removed + total.ending, "removed", error);
    }
    return total;
  }

  /** Returns how many pending jobs become due in each of the next spans of time. */
  async upcoming(kind: KindName<Kinds>, options: UpcomingOptions = {}): Promise<Upcoming> {
    const spans = writeFields("options", options, SPANS, CALL_OPTIONS);
    const url = kindPath(kind, "upcoming") + query(spans);
    const request = { method: "GET", path: url, harmless: true, read: readUpcoming, options: Object.keys(SPANS) } as const;
    return this.#call(request, options);
  }

  /** Creates or replaces a schedule. If it has the same times as before, its next run stays. */
  async setSchedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    schedule: NewSchedule<Kinds[K]>,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    const body = scheduleToWire(this.codec, schedule);
    return this.#write("PUT", itemPath(kind, "schedules", id), body, readSchedule as Read<Schedule<Kinds[K]>>, options);
  }

  /** Changes the given fields of a schedule; `null` resets one to its default. Throws `absent`. */
  async changeSchedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    change: ScheduleChange<Kinds[K]>,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    const body = scheduleToWire(this.codec, change);
    return this.#write("PATCH", itemPath(kind, "schedules", id), body, readSchedule as Read<Schedule<Kinds[K]>>, options);
  }

  /** Returns a schedule. Throws `absent` if it does not exist. */
  async schedule<K extends KindName<Kinds>>(
    kind: K,
    id: string,
    options: CallOptions = {},
  ): Promise<Schedule<Kinds[K]>> {
    return this.#get(itemPath(kind, "schedules", id), {}, readSchedule as Read<Schedule<Kinds[K]>>, options);
  }

  /** Returns the schedules of a kind. */
  async schedules<K extends KindName<Kinds>>(kind: K, options: CallOptions = {}): Promise<Schedule<Kinds[K]>[]> {
    return this.#get(kindPath(kind, "schedules"), {}, items("schedules", readSchedule as Read<Schedule<Kinds[K]>>), options);
  }

  /** Returns the schedules of all kinds, sorted by kind and id. */
  async allSchedules(options: CallOptions = {}): Promise<Schedule<Kinds[KindName<Kinds>]>[]> {
    const read = page("schedules", readSchedule as Read<Schedule<Kinds[KindName<Kinds>]>>);
    const found: Schedule<Kinds[KindName<Kinds>]>[] = [];
    for await (const schedules of pages((after) => this.#get("/v1/schedules", { after }, read, options))) {
      found.push(...schedules);
    }
    return found;
  }

  /** Removes a schedule; its jobs stay. Throws `absent`. */
  async deleteSchedule(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<void> {
    const url = itemPath(kind, "schedules", id);
    return this.#call({ method: "DELETE", path: url, harmless: false, read: nothing }, options);
  }

  /** Starts a run of a schedule now, in addition to its times. Throws `absent`. */
  async runSchedule(kind: KindName<Kinds>, id: string, options: CallOptions = {}): Promise<PutResult> {
    return this.#post(itemPath(kind, "schedules", id, "run"), undefined, false, readPutResult, options);
  }

  /** Returns totals of all kinds, and the problems of this server. */
  async stats(options: CallOptions = {}): Promise<Stats> {
    return this.#get("/v1/stats", {}, readStats, options);
  }

  /** Returns the workers that have recently claimed jobs from this server. */
  async workers(options: CallOptions = {}): Promise<WorkerInfo[]> {
    return this.#get("/v1/workers", {}, items("workers", readWorkerInfo), options);
  }

  #settings(method: "PUT" | "PATCH", kind: string, settings: SettingsChange, options: CallOptions): Promise<Settings> {
    const url = kindPath(kind);
    return this.#write(method, url, writeFields("settings", settings, writeSettingsChange), readSettings, options);
  }

  async #settleOne<Options extends CallOptions>(
    how: Settlement["how"],
    receipt: string,
    options: Options,
    fields: readonly (keyof Options & string)[],
  ): Promise<Settled> {
    checkReceipt("receipt", receipt);
    checkFields("options", options, [...fields, ...CALL_OPTIONS]);
    const given = Object.fromEntries(fields.map((name) => [name, options[name]]));
    const leases = [settlementToWire(this.codec, "options", { ...given, receipt, how } as Settlement)];
    const request = {
      method: "POST",
      path: "/v1/settle",
      body: { leases },
      harmless: true,
      read: only(readSettled),
      options: fields,
    } as const;
    return this.#call(request, options);
  }

  async #changeOne(verb: Verb, kind: string, id: string, options: CallOptions): Promise<ChangeResult> {
    return this.#post(kindPath(kind, verb), { ids: [checkName("id", id)] }, false, only(changeResult), options);
  }

  async #changeMany(
    verb: Verb,
    kind: string,
    ids: readonly string[],
    options: CallOptions,
  ): Promise<(ChangeResult | ProblemError)[]> {
    const body = { ids: checkNames("ids", ids) };
    return this.#post(kindPath(kind, verb), body, false, batch(ids.length, changeResult), options);
  }

  async #changeMatching(verb: Verb, kind: string, filter: JobFilter, options: CallOptions): Promise<ChangedJobs> {
    const all = writeFields("filter", filter, writeJobFilter);
    const total = { matched: 0, changed: 0, failed: 0 };
    const change = (after: string | undefined) =>
      this.#post(kindPath(kind, verb), { all, after }, false, part(readChangedJobs), options);
    try {
      for await (const { matched, changed, failed } of pages(change)) {
        total.matched += matched;
        total.changed += changed;
        total.failed += failed;
      }
    } catch (error) {
      throw afterSome(total.changed, "changed", error);
    }
    return total;
  }

  #call<T>(request: Omit<Request<T>, "read"> & { read: Read<T> }, options: CallOptions): Promise<T> {
    const read = (json: any) => request.read(json, this.codec, undefined);
    return this.#transport.call({ ...request, read }, options);
  }

  #get<T>(path: string, fields: object, read: Read<T>, options: CallOptions): Promise<T> {
    return this.#call({ method: "GET", path: path + query(fields), harmless: true, read }, options);
  }

  #post<T>(path: string, body: unknown, harmless: boolean, read: Read<T>, options: CallOptions): Promise<T> {
    return this.#call({ method: "POST", path, body, harmless, read }, options);
  }

  /** Settings and schedules: setting them twice has the same effect as setting them once. */
  #write<T>(
    method: "PUT" | "PATCH",
    path: string,
    body: unknown,
    read: Read<T>,
    options: CallOptions,
  ): Promise<T> {
    return this.#call({ method, path, body, harmless: true, read }, options);
  }
}

function query(fields: object): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return given.length === 0 ? "" : `?${parameters}`;
}

function kindPath(kind: string, ...below: string[]): string {
  return path("v1", "kinds", checkName("kind", kind), ...below);
}

function itemPath(kind: string, collection: "jobs" | "schedules", id: string, ...below: string[]): string {
  return kindPath(kind, collection, checkName("id", id), ...below);
}

function kindList(kinds: string | readonly string[]): string[] {
  return checkNames("kinds", typeof kinds === "string" ? [kinds] : kinds);
}

/** One of several responses: its content, and what the next request must send as `after`, unless it is the last. */
type Part<T> = readonly [content: T, cursor: string | undefined];

function part<T>(read: Read<T>): Read<Part<T>> {
  return (json, codec) => [read(json, codec, undefined), json.cursor ?? undefined];
}

/** The list in the field `name`. */
function items<T>(name: string, read: Read<T>): Read<T[]> {
  return (json, codec) => json[name].map((item: any) => read(item, codec, json));
}

function page<T>(name: string, read: Read<T>): Read<Part<T[]>> {
  return part(items(name, read));
}

async function* pages<T>(send: (after: string | undefined) => Promise<Part<T>>): AsyncGenerator<T, void, void> {
  let after: string | undefined;
  do {
    const [content, cursor] = await send(after);
    yield content;
    after = cursor;
  } while (after !== undefined);
}

/** The error of a call whose first requests changed some jobs: it is not true any more that nothing was done. */
function afterSome(count: number, done: string, error: unknown): unknown {
  if (count === 0 || !(error instanceof RequeueError) || error.outcome !== "not-done") return error;
  return new ConnectionError(`${count} jobs were ${done}, others were not: ${error.message}`, "unknown", error);
}

function nothing(): void {}

const changeResult: Read<ChangeResult> = ({ result }) => result;

/** The results of a batch. */
function batch<T>(count: number, read: Read<T>): Read<(T | ProblemError)[]> {
  return (json, codec) => results(json, codec, count, read);
}

/** The result of a batch of one, which is thrown if it is a problem. */
function only<T>(read: Read<T>): Read<T> {
  return (json, codec) => {
    const [result] = results(json, codec, 1, read) as [T | ProblemError];
    if (result instanceof ProblemError) throw result;
    return result;
  };
}
