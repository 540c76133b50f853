/**
 * Objects that a program passes, and how they are written in a request: a table per object has its fields, each with
 * how its value is checked and converted. A field that is not in the table is an error, and `undefined` means that a
 * field is not set.
 */

import { checkJson, checkObject, show, unknownField } from "./check.js";
import { snake } from "./read.js";
import { checkDuration, checkRate, checkTime, type Duration, type RateText, type Time } from "./time.js";

/** Checks a value and returns what is sent. `field` is its name in errors. */
export type Write<V> = (field: string, value: V) => unknown;

/** How each field of `T` is written. The compiler accepts only all of them. */
export type Fields<T> = { readonly [K in keyof T & string]-?: Write<Exclude<T[K], undefined>> };

/** Returns an object as it is sent. `alsoKnown` are names of fields that it may have, and that are not written. */
export function writeFields<T extends object>(
  what: string,
  values: T,
  fields: Fields<T>,
  alsoKnown: readonly string[] = [],
): Record<string, unknown> {
  const known = () => [...Object.keys(fields), ...alsoKnown];
  checkObject(what, values, known);
  const wire: Record<string, unknown> = {};
  for (const name of Object.keys(values) as (keyof T & string)[]) {
    if (!Object.hasOwn(fields, name)) {
      if (alsoKnown.includes(name)) continue;
      throw unknownField(what, name, known());
    }
    const value: unknown = values[name];
    const write = fields[name] as Write<unknown>;
    if (value !== undefined) wire[snake(name)] = write(`${what}.${name}`, value);
  }
  return wire;
}

export const duration = (field: string, value: Duration): string => checkDuration(field, value);

export const time = (field: string, value: Time): string => checkTime(field, value);

export function text<V extends string>(field: string, value: V): V {
  if (typeof value === "string") return value;
  throw new TypeError(`${field} is ${show(value)}; it must be a string`);
}

/** `JSON.stringify` writes `NaN` as `null`, which may be a valid value of the field. */
export function whole(field: string, value: number): number {
  if (Number.isSafeInteger(value)) return value;
  throw new TypeError(`${field} is ${show(value)}; it must be a whole number`);
}

export function flag(field: string, value: boolean): boolean {
  if (typeof value === "boolean") return value;
  throw new TypeError(`${field} is ${show(value)}; it must be true or false`);
}

/** Any JSON. */
export function json(field: string, value: unknown): unknown {
  checkJson(field, value);
  return value;
}

/** One of the given texts. */
export function oneOf<const V extends string>(...values: V[]): (field: string, value: V) => V {
  return (field, value) => {
    if (values.includes(value)) return value;
    const known = values.map((value) => JSON.stringify(value)).join(", ");
    throw new TypeError(`${field} is ${show(value)}; it must be one of ${known}`);
  };
}

/** A value, or `null`. */
export function nullable<V>(write: Write<V>): Write<V | null> {
  return (field, value) => (value === null ? null : write(field, value));
}

/** An object with fields of its own. */
export function object<T extends object>(fields: Fields<T>): Write<T> {
  return (field, value) => writeFields(field, value, fields);
}

/** A rate as an object, or as text such as `"10/s"`. */
export function rate<T extends object>(fields: Fields<T>): Write<T | RateText> {
  return (field, value) =>
    typeof value === "string" ? checkRate(field, value) : writeFields(field, value as T, fields);
}

/** A list of texts. The error does not contain them: they may be secrets. */
export function texts(field: string, values: readonly string[]): string[] {
  if (Array.isArray(values) && values.every((value) => typeof value === "string")) return [...values];
  throw new TypeError(`${field} must be an array of strings`);
}

/** An object with any names. */
export function map<V>(write: Write<V>): Write<Readonly<Record<string, V>>> {
  return (field, values) => {
    checkObject(field, values, () => Object.keys(values));
    const entries = Object.entries(values);
    return Object.fromEntries(entries.map(([name, value]) => [name, write(`${field}[${JSON.stringify(name)}]`, value)]));
  };
}
