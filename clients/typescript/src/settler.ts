/**
 * Settles leases: one request at a time, which contains all jobs that ended since the last one. What was not done,
 * or may not have been done, is repeated for the length of a lease.
 */

import type { Client } from "./client.js";
import { ProblemError, RequeueError } from "./errors.js";
import { requestTimeout } from "./leases.js";
import { pauseMs, sleep } from "./repeat.js";
import type { Settled } from "./models.js";
import type { WireLease } from "./settle.js";
import { type Duration, milliseconds } from "./time.js";

/**
 * How a settlement ended:
 *
 * - `lost`: the lease was lost before, or no request succeeded in time;
 * - `unknown`: the lease is over, most likely because a request succeeded whose response was lost;
 * - a `ProblemError`: the server rejected the settlement.
 */
export type SettleEnd = Settled | "lost" | "unknown" | ProblemError;

interface Entry {
  readonly lease: WireLease;
  readonly finish: (end: SettleEnd) => void;
  /** Until when the settlement is repeated; set when it is first sent. */
  deadline: number | undefined;
  tries: number;
  /** Whether the outcome of a request is unknown. */
  unknown: boolean;
  /** Whether it is sent alone, because a batch that contained it was rejected. */
  alone: boolean;
}

/** The server accepts this many leases in one request. */
const MAX_BATCH = 1000;
/** The server accepts results of 16 MiB in one request. In JSON, a text may be several times as long. */
const MAX_RESULTS = 2 ** 21;
/** How long a settlement waits for others, so that short jobs do not take a request each. */
const GATHER_MS = 2;

export class Settler {
  readonly #client: Client<any>;
  readonly #leaseMs: number;
  readonly #timeout: Duration;
  readonly #onError: (error: unknown) => void;
  #queue: Entry[] = [];
  #sending = false;
  #pending = 0;
  #onIdle: (() => void)[] = [];

  constructor(client: Client<any>, lease: Duration, onError: (error: unknown) => void) {
    this.#client = client;
    this.#leaseMs = milliseconds(lease);
    this.#timeout = requestTimeout(lease);
    this.#onError = onError;
  }

  /** The number of settlements that have not ended. */
  get pending(): number {
    return this.#pending;
  }

  /** Sends a settlement, and repeats it as needed. Calls `finish` once, with its end. */
  add(lease: WireLease, finish: (end: SettleEnd) => void): void {
    this.#pending += 1;
    this.#queue.push({ lease, finish, deadline: undefined, tries: 0, unknown: false, alone: false });
    void this.#sendAll();
  }

  /** Resolves as soon as no settlement is pending. */
  idle(): Promise<void> {
    return new Promise((resolve) => (this.#pending === 0 ? resolve() : this.#onIdle.push(resolve)));
  }

  async #sendAll(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#queue.length > 0) {
      await sleep(GATHER_MS);
      await this.#send(this.#nextBatch());
    }
    this.#sending = false;
  }

  #nextBatch(): Entry[] {
    const alone = this.#queue.findIndex((entry) => entry.alone);
    if (alone >= 0) return this.#queue.splice(alone, 1);
    let [count, size] = [0, 0];
    while (count < this.#queue.length && count < MAX_BATCH && size < MAX_RESULTS) {
      const { result } = this.#queue[count]!.lease;
      size += (result?.body_text ?? result?.body_base64 ?? "").length;
      count += 1;
    }
    return this.#queue.splice(0, count);
  }

  async #send(batch: Entry[]): Promise<void> {
    const now = performance.now();
    for (const entry of batch) entry.deadline ??= now + this.#leaseMs;
    const leases = batch.map((entry) => entry.lease);
    try {
      const results = await this.#client.settleWire(leases, { timeout: this.#timeout, retryFor: "0s" });
      for (const [n, entry] of batch.entries()) this.#settled(entry, results[n]!);
    } catch (error) {
      if (!(error instanceof RequeueError)) throw error;
      this.#onError(error);
      for (const entry of batch) this.#failed(entry, error, batch.length > 1);
    }
  }

  #settled(entry: Entry, result: Settled | ProblemError): void {
    if (!(result instanceof ProblemError)) return this.#finish(entry, result);
    if (result.problem === "lease-lost") return this.#finish(entry, entry.unknown ? "unknown" : "lost");
    if (result.outcome !== "rejected") this.#onError(result);
    this.#failed(entry, result, false);
  }

  #failed(entry: Entry, error: RequeueError, inBatch: boolean): void {
    if (error.outcome === "rejected" && inBatch) {
      entry.alone = true;
      this.#queue.push(entry);
      return;
    }
    if (error instanceof ProblemError && error.outcome === "rejected") return this.#finish(entry, error);
    if (error.outcome === "unknown") entry.unknown = true;
    const pause = pauseMs(entry.tries, error);
    if (performance.now() + pause > entry.deadline!) return this.#finish(entry, "lost");
    entry.tries += 1;
    setTimeout(() => {
      this.#queue.push(entry);
      void this.#sendAll();
    }, pause);
  }

  #finish(entry: Entry, end: SettleEnd): void {
    this.#pending -= 1;
    entry.finish(end);
    if (this.#pending > 0) return;
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}
