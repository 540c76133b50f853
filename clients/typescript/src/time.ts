/** Durations and times. Both are checked before a request is sent. */

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
  checkDuration("duration", duration);
  let total = 0;
  for (const [, number, unit] of duration.matchAll(PART)) {
    total += Number(number) * (UNITS[unit ?? ""] ?? NaN);
  }
  return total;
}

/** Timers of more than 2^31 ms, which is 24.8 days, fire immediately. */
const MAX_TIMER_MS = 24 * 86_400_000;

/** @internal Returns a duration in milliseconds that a timer accepts. */
export function timerMs(duration: Duration): number {
  return Math.min(milliseconds(duration), MAX_TIMER_MS);
}

/** @internal Returns the duration, or throws a TypeError that names the field. */
export function checkDuration(field: string, duration: Duration): string {
  if (typeof duration === "string" && DURATION.test(duration)) return duration;
  const hint = typeof duration === "number" ? `: write "${duration}s" or "${duration}m"` : ', such as "5m" or "1h30m"';
  throw new TypeError(`${field} is ${show(duration)}, but must be a text of numbers with units${hint}`);
}

/** @internal Returns the time in RFC 3339, or throws a TypeError that names the field. */
export function checkTime(field: string, time: Time): string {
  if (time instanceof Date) {
    if (Number.isNaN(time.getTime())) throw new TypeError(`${field} is an invalid Date`);
    return time.toISOString();
  }
  if (typeof time === "string" && TIME.test(time)) return time;
  throw new TypeError(
    `${field} is ${show(time)}, but must be a Date, or a text in RFC 3339 with an offset, ` +
      'such as "2026-12-01T09:00:00+01:00"',
  );
}

function show(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}
