/** How a handler ended, and what that means for its job. */

import type { Settlement } from "./settle.js";
import { checkDuration, type Duration } from "./time.js";

/** Thrown by a handler that failed: the next attempt is after this delay, and not after the backoff of the kind. */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  readonly delay: Duration;

  /** `error` is why the attempt failed: an error, or a text. */
  constructor(delay: Duration, error?: unknown) {
    checkDuration("delay", delay);
    super(error === undefined ? `retry after ${delay}` : errorText(error), { cause: error });
    this.delay = delay;
  }
}

/** Thrown by a handler that finds that trying again is pointless: the job is dead. */
export class GiveUp extends Error {
  override readonly name = "GiveUp";
}

/** Thrown by a handler that succeeded and wants to run again after this delay, for example to poll. */
export class RequeueAfter extends Error {
  override readonly name = "RequeueAfter";
  readonly delay: Duration;

  constructor(delay: Duration) {
    checkDuration("delay", delay);
    super(`requeue after ${delay}`);
    this.delay = delay;
  }
}

/** Why a handler is stopped. */
export type StopReason = "lease-lost" | "cancelled" | "timeout" | "shutdown";

/** The reason of `job.signal` when a handler is stopped. */
export class JobStopped extends Error {
  override readonly name = "JobStopped";
  readonly why: StopReason;

  /** @internal */
  constructor(why: StopReason) {
    super(STOPPED[why]);
    this.why = why;
  }
}

const STOPPED: Record<StopReason, string> = {
  "lease-lost": "the lease is lost",
  cancelled: "the job was cancelled",
  timeout: "the handler timed out",
  shutdown: "the worker was shut down",
};

/** @internal What a handler returned or threw. */
export type Ended = { readonly returned: unknown } | { readonly thrown: unknown };

type WithoutReceipt<T> = T extends unknown ? Omit<T, "receipt"> : never;

/** @internal A settlement, and the error of a failed attempt. */
export interface Decision {
  readonly settlement: WithoutReceipt<Exclude<Settlement, { how: "release" | "extend" }>>;
  readonly failure?: unknown;
}

/**
 * @internal Decides how a job is settled whose handler ended. `stopped` is why the handler was stopped before,
 * if it was. Returns undefined if the job is not settled, because its lease is lost.
 */
export function decide(ended: Ended, stopped: StopReason | undefined): Decision | undefined {
  if (stopped === "lease-lost") return undefined;
  if (stopped === "cancelled") return { settlement: { how: "ack" } };
  if (stopped === "timeout") return failed(new JobStopped("timeout"));
  if ("returned" in ended) return { settlement: { how: "ack", result: ended.returned } };

  const { thrown } = ended;
  if (thrown instanceof RequeueAfter) return { settlement: { how: "requeue", delay: thrown.delay } };
  if (thrown instanceof GiveUp) return { settlement: { how: "bury", error: thrown.message }, failure: thrown };
  if (thrown instanceof RetryAfter) {
    return { settlement: { how: "retry", error: thrown.message, delay: thrown.delay }, failure: thrown };
  }
  if (stopped === "shutdown") {
    return { settlement: { how: "retry", error: STOPPED.shutdown, delay: "0s" }, failure: thrown };
  }
  return failed(thrown);
}

/** @internal A failed attempt, which is repeated after the backoff of the kind. */
export function failed(error: unknown): Decision {
  return { settlement: { how: "retry", error: errorText(error) }, failure: error };
}

/** @internal Returns the type and the message of what was thrown, which may be anything. */
export function errorText(thrown: unknown): string {
  if (typeof thrown === "string") return thrown;
  try {
    if (!(thrown instanceof Error)) return `thrown: ${String(thrown)}`;
    if (thrown instanceof JobStopped) return thrown.message;
    const type = thrown.name === "Error" ? thrown.constructor.name : thrown.name;
    return thrown.message === "" ? type : `${type}: ${thrown.message}`;
  } catch {
    return "thrown: a value that has no text";
  }
}
