/** Durations, times and rates. All are checked before a request is sent. */

import { show } from "./check.js";

type Unit = "ms" | "s" | "m" | "h" | "d" | "w";

/**
 * A number with a unit: milliseconds, seconds, minutes, hours, days or weeks, such as `"250ms"`, `"5m"` or
 * `"1h30m"`. A plain number does not compile, and is rejected at run time.
 */
export type Duration = `${number}${Unit}` | `${number}${Unit}${number}${Unit}`;

/** A time: a `Date`, or a text in RFC 3339 with an offset, such as `"2026-12-01T09:00:00+01:00"`. */
export type Time = Date | string;

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+$/;
const PART = /(\d+(?:\.\d+)?)(ms|s|m|h|d|w)/g;

/** A time zone name in brackets may follow the offset (RFC 9557). */
const TIME = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)(?:\[[^\]]+\])?$/;

/**
 * Returns a duration in milliseconds.
 *
 * @throws TypeError if it is not a number with a unit.
 */
export function milliseconds(duration: Duration): number {
  return millisecondsOf("duration", duration);
}

/** @internal The same; `field` is the name of the duration in the error. */
export function millisecondsOf(field: string, duration: Duration): number {
  checkDuration(field, duration);
  let total = 0;
  for (const [, number, unit] of duration.matchAll(PART)) {
    total += Number(number) * (UNITS[unit ?? ""] ?? NaN);
  }
  return total;
}

/** Timers of more than 2^31 ms, which is 24.8 days, fire immediately. */
const MAX_TIMER_MS = 24 * 86_400_000;

/** @internal Returns a duration in milliseconds that a timer accepts. */
export function timerMs(field: string, duration: Duration): number {
  return Math.min(millisecondsOf(field, duration), MAX_TIMER_MS);
}

/** @internal Returns the duration, or throws a TypeError that names the field. */
export function checkDuration(field: string, duration: Duration): string {
  if (typeof duration === "string" && DURATION.test(duration)) return duration;
  const isNumber = typeof duration === "number" || /^\d+$/.test(duration);
  const hint = isNumber
    ? `write it with a unit, such as "${duration}s" or "${duration}m"`
    : 'write numbers with the units ms, s, m, h, d and w, such as "5m" or "1h30m"';
  throw new TypeError(`${field} is ${show(duration)}, which is not a duration; ${hint}`);
}

/** @internal Returns the time in RFC 3339, or throws a TypeError that names the field. */
export function checkTime(field: string, time: Time): string {
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString();
  if (typeof time === "string" && TIME.test(time)) return time;
  throw new TypeError(
    `${field} is ${show(time)}; it must be a Date, or a time in RFC 3339 with an offset, ` +
      'such as "2026-12-01T09:00:00+01:00"',
  );
}

/** Jobs per time: `"10/s"`, or with a longer time `"100/1m"` or `"5/30s"`. */
export type RateText = `${number}/${string}`;

const RATE = /^\s*(\d+)\s*\/\s*(.*?)\s*$/;
/** What the server reads as a duration, also in ISO 8601. */
const PER =
  /^(?:P[\dTWDHMS.]+|(?:\d+(?:\.\d+)?\s*(?:w|wks?|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|m(?:illi)?s(?:ec(?:ond)?s?)?|millis?)\s*)+)$/i;

/** @internal Returns a rate as the API expects it, or throws a TypeError that names the field. */
export function checkRate(field: string, text: string): { jobs: number; per: string } {
  const [, jobs, span = ""] = RATE.exec(text) ?? [];
  const per = /^[\dP]/.test(span) ? span : `1${span}`;
  if (jobs !== undefined && PER.test(per)) return { jobs: Number(jobs), per };
  throw new TypeError(
    `${field} is ${show(text)}, which is not a rate; write jobs per time, such as "10/s" or "100/1m"`,
  );
}
