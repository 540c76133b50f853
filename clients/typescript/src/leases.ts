/**
 * Keeps the leases of running jobs: each is extended as soon as a third of it has passed, and after a failure
 * every tenth of it. All leases that are due are extended in one request.
 */

import type { Client } from "./client.js";
import { ProblemError } from "./errors.js";
import type { Settled } from "./models.js";
import { type Duration, milliseconds } from "./time.js";

/** A job whose lease is kept. */
export interface Leased {
  readonly receipt: string;
  /** Called once if the lease is lost or the job was cancelled. The lease is then no longer kept. */
  leaseEnded(why: "lease-lost" | "cancelled"): void;
}

interface Lease {
  /** When the lease ends, by the clock of this process. It began before the server granted it. */
  endsAt: number;
  /** When the lease is extended next. */
  extendAt: number;
  extending: boolean;
}

/** The server accepts this many leases in one request. */
const MAX_BATCH = 1000;

export class Leases {
  readonly #client: Client<any>;
  readonly #lease: Duration;
  readonly #leaseMs: number;
  readonly #timeout: Duration;
  readonly #onError: (error: unknown) => void;
  readonly #leases = new Map<Leased, Lease>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wakeAt = Infinity;

  constructor(client: Client<any>, lease: Duration, onError: (error: unknown) => void) {
    this.#client = client;
    this.#lease = lease;
    this.#leaseMs = milliseconds(lease);
    this.#timeout = requestTimeout(lease);
    this.#onError = onError;
  }

  /** Keeps the lease of a job. `claimedAt` is a time before the lease began, such as when the claim was sent. */
  add(job: Leased, claimedAt: number): void {
    const lease = { endsAt: claimedAt + this.#leaseMs, extendAt: claimedAt + this.#leaseMs / 3, extending: false };
    this.#leases.set(job, lease);
    this.#wakeBy(lease.extendAt);
  }

  /** Keeps the lease no longer, because the job has ended. */
  remove(job: Leased): void {
    this.#leases.delete(job);
  }

  /** Keeps no lease any longer: they expire. */
  close(): void {
    this.#leases.clear();
    clearTimeout(this.#timer);
  }

  #wakeBy(at: number): void {
    if (at >= this.#wakeAt) return;
    clearTimeout(this.#timer);
    this.#wakeAt = at;
    this.#timer = setTimeout(() => this.#wake(), Math.max(1, at - performance.now()));
  }

  #wake(): void {
    this.#wakeAt = Infinity;
    const now = performance.now();
    const due: Leased[] = [];
    let next = Infinity;
    for (const [job, lease] of this.#leases) {
      if (lease.endsAt <= now) {
        this.#end(job, "lease-lost");
        continue;
      }
      if (lease.extendAt <= now && !lease.extending && due.length < MAX_BATCH) {
        lease.extending = true;
        due.push(job);
      }
      next = Math.min(next, lease.endsAt, lease.extending ? Infinity : lease.extendAt);
    }
    if (due.length > 0) void this.#extend(due, now);
    this.#wakeBy(next);
  }

  async #extend(jobs: readonly Leased[], sentAt: number): Promise<void> {
    const leases = jobs.map(({ receipt }) => ({ how: "extend", receipt, lease: this.#lease }) as const);
    let results: (Settled | ProblemError)[] | undefined;
    try {
      results = await this.#client.settleWire(leases, { timeout: this.#timeout, retryFor: "0s" });
    } catch (error) {
      this.#onError(error);
    }
    for (const [n, job] of jobs.entries()) this.#extended(job, results?.[n], sentAt);
  }

  /** Applies the result of an extension; undefined if there is none. */
  #extended(job: Leased, result: Settled | ProblemError | undefined, sentAt: number): void {
    const lease = this.#leases.get(job);
    if (lease === undefined) return;
    lease.extending = false;
    if (result instanceof ProblemError) {
      if (result.problem === "lease-lost") return this.#end(job, "lease-lost");
      this.#onError(result);
    } else if (result?.result === "cancelled") {
      return this.#end(job, "cancelled");
    } else if (result !== undefined) {
      lease.endsAt = sentAt + this.#leaseMs;
      lease.extendAt = sentAt + this.#leaseMs / 3;
      return this.#wakeBy(lease.extendAt);
    }
    lease.extendAt = sentAt + this.#leaseMs / 10;
    this.#wakeBy(lease.extendAt);
  }

  #end(job: Leased, why: "lease-lost" | "cancelled"): void {
    this.#leases.delete(job);
    job.leaseEnded(why);
  }
}

/** How long a request about a lease may take, so that there is time to send it again: a third, but at least 1 s. */
export function requestTimeout(lease: Duration): Duration {
  return `${Math.max(1000, Math.ceil(milliseconds(lease) / 3))}ms`;
}
