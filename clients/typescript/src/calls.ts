/** Options and results of the calls of a client. */

import type { ProblemError } from "./errors.js";
import type { ClaimedJob } from "./jobs.js";
import type { Duration, Time } from "./time.js";
import type { CallOptions } from "./transport.js";

/** Options of a claim. */
export interface ClaimOptions extends CallOptions {
  /** The name of the worker, shown with the jobs that it holds. */
  readonly worker?: string;
  /** The maximum number of jobs, up to 1000; default: 1. */
  readonly max?: number;
  /** The length of the leases; default: the setting of the kind. */
  readonly lease?: Duration;
  /** How long the server waits if no job is ready, up to `"1m"`; default: not at all. */
  readonly wait?: Duration;
}

/** The result of a claim. */
export interface Claimed<Body = unknown> {
  readonly jobs: readonly ClaimedJob<Body>[];
  /** Kinds that failed, for example because their node of a Redis Cluster is down. */
  readonly errors: readonly { readonly kind: string; readonly error: ProblemError }[];
}

/** What a change did to a job. */
export type ChangeResult = "removed" | "ending" | "ready" | "revived" | "other";

/** The result of changing all jobs that match a filter. */
export interface ChangedJobs {
  readonly matched: number;
  readonly changed: number;
  /** Jobs that match, but could not be changed, for example because they are leased. */
  readonly failed: number;
}

/** The result of deleting a kind. */
export interface DeletedKind {
  readonly removed: number;
  /** Leased jobs, which are removed when their leases end. */
  readonly ending: number;
}

/** The dead jobs of a kind, grouped by their last error. */
export interface ErrorGroups {
  /** The largest group first. */
  readonly groups: readonly ErrorGroup[];
  /** The number of dead jobs in further groups. */
  readonly other: number;
  /** The number of dead jobs that were examined. */
  readonly scanned: number;
}

/** The dead jobs of a kind whose last errors differ only in numbers and ids. */
export interface ErrorGroup {
  /** The text of the group, with `*` for numbers and ids; undefined if the leases of its jobs expired. */
  readonly errorGroup: string | undefined;
  readonly count: number;
  /** The job of the group that died last. */
  readonly example: { readonly id: string; readonly error: string | undefined };
  readonly firstDiedAt: Date;
  readonly lastDiedAt: Date;
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

/** How many pending jobs become due in each span of time. */
export interface Upcoming {
  readonly from: Date;
  readonly span: Duration;
  readonly counts: readonly number[];
}
