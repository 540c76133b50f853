/**
 * The worker: claims jobs, runs their handlers, and settles them.
 *
 * ```text
 *   run ──▶ claiming ── shutdown ──▶ finishing ── grace is over, or shutdown ──▶ stopping
 *                                        │ no handler runs                          │ no handler runs, or 5 s
 *                                        └──────────────▶ stopped ◀─────────────────┘
 * ```
 */

import { Changes } from "./changes.js";
import { checkFields, checkFunction, checkName, type Names, show } from "./check.js";
import type { Client } from "./client.js";
import { ProblemError, RequeueError } from "./errors.js";
import type { AnyKinds, KindName } from "./jobs.js";
import { Leases } from "./leases.js";
import type { ClaimedJob } from "./models.js";
import { type Decision, errorText, failed } from "./outcome.js";
import { sleep } from "./repeat.js";
import { type Job, RunningJob } from "./running.js";
import { settlementToWire, type WireLease } from "./settle.js";
import { type SettleEnd, Settler } from "./settler.js";
import { onSignals } from "./signals.js";
import { checkDuration, type Duration, timerMs } from "./time.js";

/**
 * Runs a job. A job whose handler returns is done, with the returned value as its result. If the handler throws,
 * the job is retried after the backoff of its kind; see also `RetryAfter`, `GiveUp` and `RequeueAfter`.
 */
export type Handler<Body> = (job: Job<Body>) => unknown;

/** Options of a handler. */
export interface HandlerOptions<Body> {
  /** How long the handler may run. Then it is stopped, and the job is retried. Default: no limit. */
  readonly timeout?: Duration;
  /** Checks the decoded body, and returns it with its type. If this throws, the job is buried. */
  readonly parse?: (body: unknown) => Body;
}

/** Options of a worker. */
export interface WorkerOptions {
  /** The name, shown with the jobs that the worker holds; default: `HOSTNAME` and the process id. */
  readonly name?: string;
  /** How many jobs run concurrently; default: 10. */
  readonly concurrency?: number;
  /** The length of a lease, which is how soon another worker takes over if this one dies; default: 30 s. */
  readonly lease?: Duration;
  /** How long a shutdown waits for running handlers before it stops them; default: 30 s. */
  readonly grace?: Duration;
  /** Called after a failed attempt was settled. `next`: whether the job is retried or dead. */
  readonly onFailure?: (job: ClaimedJob, error: unknown, next: "retry" | "dead" | "unknown") => void;
  /** Called after `onFailure` if the job is dead. */
  readonly onDead?: (job: ClaimedJob, error: unknown) => void;
  /** Called if the lease of a job is lost: another worker may run it, or has run it. */
  readonly onLost?: (job: ClaimedJob) => void;
  /** Called if a request of the worker failed. The worker repeats it. Default: `console.error`. */
  readonly onError?: (error: unknown) => void;
}

/** Options of `Worker.run`. */
export interface RunOptions {
  /** Shuts the worker down when it is aborted, as the first call of `shutdown` does. */
  readonly signal?: AbortSignal;
  /** Whether SIGTERM and SIGINT shut the worker down; default: true. */
  readonly handleSignals?: boolean;
}

const WORKER_OPTIONS = Object.keys({
  name: true,
  concurrency: true,
  lease: true,
  grace: true,
  onFailure: true,
  onDead: true,
  onLost: true,
  onError: true,
} satisfies Names<WorkerOptions>);
const CALLBACKS = ["onFailure", "onDead", "onLost", "onError"] as const;
const HANDLER_OPTIONS = Object.keys({ timeout: true, parse: true } satisfies Names<HandlerOptions<unknown>>);
const RUN_OPTIONS = Object.keys({ signal: true, handleSignals: true } satisfies Names<RunOptions>);

interface Registered {
  readonly handler: Handler<any>;
  readonly parse: ((body: unknown) => unknown) | undefined;
  readonly timeoutMs: number | undefined;
}

/** After an error, claims pause for this long. */
const PAUSE_MS = 1000;
/** How long handlers that were stopped have to return, when the worker shuts down. */
const STOP_MS = 5000;
/** How long one request waits for jobs. */
const WAIT: Duration = "30s";
/** Per slot, this many jobs may have ended without being settled. */
const MAX_UNSETTLED = 10;
/** The server returns at most this many jobs. */
const MAX_CLAIM = 1000;

/** A worker: register handlers with `on`, then call `run`. */
export class Worker<Kinds extends object = AnyKinds> {
  readonly #client: Client<Kinds>;
  readonly #options: WorkerOptions;
  readonly #name: string;
  readonly #concurrency: number;
  readonly #lease: Duration;
  readonly #graceMs: number;
  readonly #leases: Leases;
  readonly #settler: Settler;
  readonly #handlers = new Map<string, Registered>();
  readonly #running = new Set<RunningJob>();
  /** Aborted by the first call of `shutdown`: no more claims. */
  readonly #finishing = new AbortController();
  /** Aborted by the second: handlers are stopped. */
  readonly #stopping = new AbortController();
  #finished: Promise<number> | undefined;
  /** Notified when a handler or a settlement ends. */
  readonly #changes = new Changes();

  constructor(client: Client<Kinds>, options: WorkerOptions = {}) {
    this.#client = client;
    if (typeof (client as Partial<Client> | undefined)?.claim !== "function") {
      throw new TypeError(`client is ${show(client)}; it must be a Client, as in new Worker(new Client())`);
    }
    checkFields("options", options, WORKER_OPTIONS);
    for (const name of CALLBACKS) if (options[name] !== undefined) checkFunction(`options.${name}`, options[name]);
    this.#options = options;
    this.#name = options.name === undefined ? defaultName() : checkName("options.name", options.name);
    this.#concurrency = options.concurrency ?? 10;
    if (!Number.isInteger(this.#concurrency) || this.#concurrency < 1) {
      throw new TypeError(`options.concurrency is ${show(this.#concurrency)}; it must be a whole number from 1`);
    }
    this.#lease = options.lease ?? "30s";
    checkDuration("options.lease", this.#lease);
    this.#graceMs = timerMs("options.grace", options.grace ?? "30s");
    const onError = (error: unknown) => this.#report(error);
    this.#leases = new Leases(client, this.#lease, onError);
    this.#settler = new Settler(client, this.#lease, onError);
  }

  /** Registers the handler of a kind. Throws if the kind has one already, or if the worker runs. */
  on<K extends KindName<Kinds>>(kind: K, handler: Handler<Kinds[K]>): this;
  on<K extends KindName<Kinds>>(kind: K, options: HandlerOptions<Kinds[K]>, handler: Handler<Kinds[K]>): this;
  on<K extends KindName<Kinds>>(
    kind: K,
    ...rest: [Handler<Kinds[K]>] | [HandlerOptions<Kinds[K]>, Handler<Kinds[K]>]
  ): this {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    checkName("kind", kind);
    checkFields("options", options, HANDLER_OPTIONS);
    if (options.parse !== undefined) checkFunction("options.parse", options.parse);
    checkFunction("handler", handler);
    if (this.#finished) throw new Error("the worker runs: register handlers before");
    if (this.#handlers.has(kind)) throw new Error(`the kind ${kind} has a handler already`);
    const timeoutMs = options.timeout === undefined ? undefined : timerMs("options.timeout", options.timeout);
    this.#handlers.set(kind, { handler, parse: options.parse, timeoutMs });
    return this;
  }

  /**
   * Runs until the worker is shut down: by `shutdown`, by SIGTERM or SIGINT, or by the signal. Returns the number
   * of jobs whose handlers were stopped for that. Throws if the server rejects the first claim.
   */
  async run(options: RunOptions = {}): Promise<number> {
    checkFields("options", options, RUN_OPTIONS);
    if (this.#finished) throw new Error("a worker runs only once");
    if (this.#handlers.size === 0) {
      throw new Error("the worker has no handlers: register one with worker.on(kind, handler)");
    }
    this.#finished = this.#run(options);
    return this.#finished;
  }

  /**
   * Shuts the worker down. The first call lets running handlers finish, for up to `grace`; the second stops them.
   * Returns what `run` returns.
   */
  shutdown(): Promise<number> {
    const stage = this.#finishing.signal.aborted ? this.#stopping : this.#finishing;
    stage.abort();
    return this.#finished ?? Promise.resolve(0);
  }

  async #run({ signal, handleSignals = true }: RunOptions): Promise<number> {
    const shutdown = () => void this.shutdown().catch(() => {});
    const stopListening = handleSignals ? onSignals(shutdown) : () => {};
    if (signal?.aborted) shutdown();
    signal?.addEventListener("abort", shutdown, { once: true });
    try {
      await this.#claimAll([...this.#handlers.keys()] as KindName<Kinds>[]);
      return await this.#finish();
    } finally {
      signal?.removeEventListener("abort", shutdown);
      stopListening();
    }
  }

  /** Claims until the worker is shut down. Throws if the first claim is rejected. */
  async #claimAll(kinds: KindName<Kinds>[]): Promise<void> {
    const { signal } = this.#finishing;
    for (let accepted = false; ;) {
      await this.#changes.until(() => this.#free() > 0, signal);
      if (signal.aborted) return;
      try {
        const found = await this.#claim(kinds, this.#free());
        accepted = true;
        if (!found) await this.#client.wait(kinds, WAIT, { signal, retryFor: "0s" });
      } catch (error) {
        if (signal.aborted) return;
        if (!accepted && error instanceof RequeueError && error.outcome === "rejected") throw error;
        this.#report(error);
        await sleep(PAUSE_MS, signal).catch(() => {});
      }
    }
  }

  /** Claims up to `max` jobs and starts them. Returns whether there were any. */
  async #claim(kinds: KindName<Kinds>[], max: number): Promise<boolean> {
    const claimedAt = performance.now();
    // Not interrupted by a shutdown: the jobs of a response that nobody reads would stay leased.
    const options = { worker: this.#name, max: Math.min(max, MAX_CLAIM), lease: this.#lease, retryFor: "0s" } as const;
    const { jobs, errors } = await this.#client.claim(kinds, options);
    for (const job of jobs) {
      if (this.#finishing.signal.aborted) this.#release(job);
      else this.#start(job, claimedAt);
    }
    const [first] = errors;
    if (first !== undefined && jobs.length === 0) throw first.error;
    for (const { error } of errors) this.#report(error);
    return jobs.length > 0;
  }

  /** How many jobs can be started. None while too many wait to be settled: the server may be overloaded. */
  #free(): number {
    if (this.#settler.pending >= this.#concurrency * MAX_UNSETTLED) return 0;
    return this.#concurrency - this.#running.size;
  }

  #start(claimed: ClaimedJob, claimedAt: number): void {
    const registered = this.#handlers.get(claimed.kind);
    const job = new RunningJob(claimed, (lost) => this.#call(this.#options.onLost, lost));
    let body: unknown;
    try {
      if (registered === undefined) throw new Error("there is no handler");
      body = registered.parse ? registered.parse(claimed.body) : claimed.body;
    } catch (error) {
      const what = registered === undefined ? "" : "the body cannot be decoded: ";
      const reason = `kind ${claimed.kind}: ${what}${errorText(error)}`;
      return this.#settle(job, { settlement: { how: "bury", error: reason }, failure: error });
    }
    this.#running.add(job);
    this.#leases.add(job, claimedAt);
    void this.#execute(job, body, registered);
  }

  async #execute(job: RunningJob, body: unknown, { handler, timeoutMs }: Registered): Promise<void> {
    const decision = await job.run(body, handler, timeoutMs);
    // If the worker has stopped meanwhile, the job keeps its lease until that expires.
    if (!this.#running.delete(job)) return;
    this.#leases.remove(job);
    if (decision !== undefined) this.#settle(job, decision);
    this.#changes.notify();
  }

  #settle(job: RunningJob, decision: Decision): void {
    const { receipt } = job.claimed;
    let lease: WireLease;
    try {
      lease = settlementToWire(this.#client.codec, "settlement", { ...decision.settlement, receipt });
    } catch (error) {
      return this.#settle(job, failed(error)); // the result has no JSON
    }
    this.#settler.add(lease, (end) => {
      this.#settled(job, decision, end, lease.result !== undefined);
      this.#changes.notify();
    });
  }

  #settled(job: RunningJob, decision: Decision, end: SettleEnd, hasResult: boolean): void {
    const { claimed } = job;
    const { onFailure, onDead, onLost } = this.#options;
    if (end instanceof ProblemError) {
      this.#report(end);
      // For example, the result is too large.
      if (hasResult) return this.#settle(job, failed(end));
      return this.#call(onLost, claimed);
    }
    if (end === "lost") {
      if (job.stopped !== "cancelled") this.#call(onLost, claimed);
      return;
    }
    if (!("failure" in decision)) return;
    if (end === "unknown") return this.#call(onFailure, claimed, decision.failure, "unknown");
    if (end.result !== "retry" && end.result !== "dead") return;
    this.#call(onFailure, claimed, decision.failure, end.result);
    if (end.result === "dead") this.#call(onDead, claimed, decision.failure);
  }

  #release({ receipt }: ClaimedJob): void {
    this.#settler.add({ receipt, how: "release" }, () => this.#changes.notify());
  }

  /** Waits for the handlers, stops those that take too long, and settles their jobs. */
  async #finish(): Promise<number> {
    const none = () => this.#running.size === 0;
    await this.#changes.until(none, this.#stopping.signal, this.#graceMs);
    let stopped = 0;
    for (const job of this.#running) {
      if (job.stopped !== undefined) continue;
      job.stop("shutdown");
      stopped += 1;
    }
    await this.#changes.until(none, undefined, STOP_MS);
    this.#running.clear();
    this.#leases.close();
    await this.#settler.idle();
    return stopped;
  }

  #report(error: unknown): void {
    this.#call(this.#options.onError ?? ((error) => console.error("requeue:", error)), error);
  }

  /** Calls a callback of the program. What it throws must not stop the worker. */
  #call<Args extends unknown[]>(callback: ((...args: Args) => void) | undefined, ...args: Args): void {
    try {
      callback?.(...args);
    } catch (error) {
      console.error("requeue: a callback of the worker failed:", error);
    }
  }
}

function defaultName(): string {
  if (typeof process === "undefined") return "worker";
  return `${process.env["HOSTNAME"] ?? "worker"}-${process.pid}`;
}
