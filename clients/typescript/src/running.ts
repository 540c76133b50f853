/** A job whose handler runs: it can be stopped, times out, and has a lease that may end. */

import type { Leased } from "./leases.js";
import type { ClaimedJob } from "./models.js";
import { type Decision, decide, type Ended, JobStopped, type StopReason } from "./outcome.js";

/** A job, as its handler gets it. */
export interface Job<Body = unknown> extends ClaimedJob<Body> {
  /**
   * Aborted when the handler should stop, with a `JobStopped` as its reason: the lease is lost, the job was
   * cancelled, the handler timed out, or the worker shuts down. Pass it on, for example to `fetch`.
   */
  readonly signal: AbortSignal;
}

/** @internal */
export class RunningJob implements Leased {
  readonly claimed: ClaimedJob;
  /** Created when the handler first reads its signal. */
  #controller: AbortController | undefined;
  readonly #onLost: (job: ClaimedJob) => void;
  #stopped: StopReason | undefined;

  constructor(claimed: ClaimedJob, onLost: (job: ClaimedJob) => void) {
    this.claimed = claimed;
    this.#onLost = onLost;
  }

  get receipt(): string {
    return this.claimed.receipt;
  }

  /** Why the handler was stopped, if it was. */
  get stopped(): StopReason | undefined {
    return this.#stopped;
  }

  /** Stops the handler. Whatever the reason was before, the end of the lease decides how the job is settled. */
  stop(why: StopReason): void {
    const leaseEnded = why === "lease-lost" || why === "cancelled";
    if (this.#stopped !== undefined && !leaseEnded) return;
    this.#stopped = why;
    this.#controller?.abort(new JobStopped(why));
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#stopped !== undefined) this.#controller.abort(new JobStopped(this.#stopped));
    }
    return this.#controller.signal;
  }

  leaseEnded(why: "lease-lost" | "cancelled"): void {
    this.stop(why);
    if (why === "lease-lost") this.#onLost(this.claimed);
  }

  /** Runs the handler with the decoded body, and returns how the job is settled. Never throws. */
  async run<Body>(
    body: Body,
    handler: (job: Job<Body>) => unknown,
    timeoutMs: number | undefined,
  ): Promise<Decision | undefined> {
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => this.stop("timeout"), timeoutMs);
    let ended: Ended;
    try {
      const signal = { enumerable: true, get: () => this.signal };
      ended = {
        returned: await handler(Object.defineProperty({ ...this.claimed, body }, "signal", signal) as Job<Body>),
      };
    } catch (thrown) {
      ended = { thrown };
    }
    clearTimeout(timer);
    return decide(ended, this.#stopped);
  }
}
