/** Schedules: jobs that are put at the times of a cron expression, or once per period. */

import { bodyToWire, type Codec } from "./content.js";
import { writeFields } from "./fields.js";
import { type ScheduleChange, writeScheduleChange } from "./models.js";
import type { Duration } from "./time.js";

type Given<T> = { readonly [K in keyof T]: Exclude<T[K], null> };

/** Fields of a schedule, except for its times. */
export type ScheduleFields<Body = unknown> = Given<Omit<ScheduleChange<Body>, "cron" | "timeZone" | "every">>;

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

/** @internal */
export function scheduleToWire(codec: Codec, schedule: ScheduleChange): object {
  const fields = writeFields("schedule", schedule, writeScheduleChange, ["body", "contentType"]);
  return { ...fields, ...bodyToWire(codec, "schedule.body", schedule.body, schedule.contentType ?? undefined) };
}
