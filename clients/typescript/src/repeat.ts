/** Repeats what failed, with increasing pauses. */

import { ConnectionError, ProblemError, RequeueError } from "./errors.js";

const FIRST_PAUSE_MS = 100;

/**
 * Calls `send` until it succeeds, is rejected, or `retryForMs` are over. If the outcome of a call is unknown, it
 * is repeated only if that is `harmless`.
 *
 * Throws the last error. If the outcome of any call is unknown, it throws that error instead of one that says
 * that nothing was done: the job that is absent now may have been rescheduled before. If the call `changes` nothing,
 * a rejection is the outcome.
 */
export async function repeat<T>(
  send: () => Promise<T>,
  harmless: boolean,
  changes: boolean,
  retryForMs: number,
  signal: AbortSignal | undefined,
): Promise<T> {
  const deadline = performance.now() + retryForMs;
  let unknown: RequeueError | undefined;
  for (let tries = 0; ; tries++) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof RequeueError)) throw error;
      if (error.outcome === "rejected") {
        if (unknown === undefined || !changes) throw error;
        throw new ConnectionError(`${unknown.message}; repeated, and then rejected: ${error.message}`, "unknown", error);
      }
      if (error.outcome === "unknown") unknown = error;
      if (unknown && !harmless) throw unknown;
      const pause = pauseMs(tries, error);
      if (performance.now() + pause > deadline) throw unknown ?? error;
      await sleep(pause, signal);
    }
  }
}

/** Returns the pause after this many repetitions: 0.1 s, doubled each time, plus or minus half of it. */
export function pauseMs(tries: number, error: unknown): number {
  const pause = FIRST_PAUSE_MS * 2 ** tries * (0.5 + Math.random());
  const retryAfter = error instanceof ProblemError ? error.retryAfterMs : undefined;
  return Math.max(pause, retryAfter ?? 0);
}

/** Resolves after a time. Rejects with the reason of the signal when that is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
