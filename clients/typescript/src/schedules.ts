/** Schedules: jobs that are put at the times of a cron expression, or once per period. */

import { bodyToWire, type Codec, fromWire } from "./content.js";
import { duration, type Fields, flag, nullable, oneOf, text, time, whole, writeFields } from "./fields.js";
import { dateFromWire } from "./jobs.js";
import type { Duration, Time } from "./time.js";
import type { WireSchedule, WireScheduleRequest } from "./wire.js";

/** Fields of a schedule, except for its times. */
export interface ScheduleFields<Body = unknown> {
  /** The body of the jobs. `{{scheduled_at}}` in a text becomes the time of the run. */
  readonly body?: Body;
  /** Stores a body that is a string or a `Uint8Array` as it is, with this content type. */
  readonly contentType?: string;
  /** The priority of the jobs, 0 (default) to 9. */
  readonly priority?: number;
  /** The runs are up to this much later, by the same amount for all runs of the schedule. */
  readonly jitter?: Duration;
  /** What happens with runs that were missed: one job for all of them (default), none, or one for each. */
  readonly missed?: "one" | "skip" | "all";
  /** Runs that were missed longer ago are skipped. */
  readonly catchUp?: Duration;
  /** `none` (default): a run that falls due during another one follows it, once. `allow`: they run concurrently. */
  readonly overlap?: "none" | "allow";
  readonly paused?: boolean;
  /** No run is before this time. */
  readonly startsAt?: Time;
  /** No run is after this time. */
  readonly endsAt?: Time;
}

/** A schedule to set: with a cron expression, or with a period. */
export type NewSchedule<Body = unknown> = ScheduleFields<Body> &
  (
    | {
        /** A cron expression of five fields, or six with seconds first, or `@daily` and the like. */
        readonly cron: string;
        /** A name of the IANA database, such as `Europe/Berlin`; default: `UTC`. */
        readonly timeZone?: string;
        readonly every?: never;
      }
    | {
        /** A period, from one second. */
        readonly every: Duration;
        readonly cron?: never;
        readonly timeZone?: never;
      }
  );

type Nullable<T> = { readonly [K in keyof T]?: T[K] | null };

/** Fields of a schedule to change. `null` resets a field to its default. */
export type ScheduleChange<Body = unknown> = Nullable<
  ScheduleFields<Body> & { cron: string; timeZone: string; every: Duration }
>;

/** A schedule, as the server stores it. */
export interface Schedule<Body = unknown> {
  readonly kind: string;
  readonly id: string;
  readonly cron: string | undefined;
  readonly every: Duration | undefined;
  readonly timeZone: string | undefined;
  /** The body of the jobs. Reading it throws if the codec cannot decode it. */
  readonly body: Body;
  readonly contentType: string;
  readonly priority: number;
  readonly jitter: Duration;
  readonly missed: "one" | "skip" | "all";
  readonly catchUp: Duration | undefined;
  readonly overlap: "none" | "allow";
  readonly paused: boolean;
  readonly startsAt: Date | undefined;
  readonly endsAt: Date | undefined;
  /** The next run; undefined if the schedule is paused, over, or has a problem. */
  readonly next: Date | undefined;
  /** The next five times, also if the schedule is paused. */
  readonly nextTimes: readonly Date[];
  /** Why the schedule cannot run. */
  readonly problem: string | undefined;
}

const SCHEDULE: Fields<Omit<ScheduleChange, "body" | "contentType">, WireScheduleRequest> = {
  cron: nullable(text),
  every: nullable(duration),
  timeZone: nullable(text),
  priority: nullable(whole),
  jitter: nullable(duration),
  missed: nullable(oneOf("one", "skip", "all")),
  catchUp: nullable(duration),
  overlap: nullable(oneOf("none", "allow")),
  paused: nullable(flag),
  startsAt: nullable(time),
  endsAt: nullable(time),
};

/** @internal */
export function scheduleToWire(codec: Codec, schedule: ScheduleChange): WireScheduleRequest {
  const fields = writeFields("schedule", schedule, SCHEDULE, ["body", "contentType"]);
  return { ...fields, ...bodyToWire(codec, "schedule.body", schedule.body, schedule.contentType ?? undefined) };
}

/** @internal */
export function scheduleFromWire<Body>(codec: Codec, wire: WireSchedule): Schedule<Body> {
  return {
    kind: wire.kind,
    id: wire.id,
    cron: wire.cron ?? undefined,
    every: (wire.every ?? undefined) as Duration | undefined,
    timeZone: wire.time_zone ?? undefined,
    get body() {
      return fromWire(codec, wire) as Body;
    },
    contentType: wire.content_type,
    priority: wire.priority ?? 0,
    jitter: wire.jitter as Duration,
    missed: wire.missed,
    catchUp: (wire.catch_up ?? undefined) as Duration | undefined,
    overlap: wire.overlap ?? "none",
    paused: wire.paused ?? false,
    startsAt: dateFromWire(wire.starts_at),
    endsAt: dateFromWire(wire.ends_at),
    next: dateFromWire(wire.next),
    nextTimes: (wire.next_times ?? []).map((time) => new Date(time)),
    problem: wire.problem ?? undefined,
  };
}
