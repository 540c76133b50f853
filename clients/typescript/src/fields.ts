/**
 * Objects that a program passes, and how they are written in a request: a table per object has its fields, each with
 * how its value is checked and converted. A field that is not in the table is an error, and `undefined` means that a
 * field is not set.
 */

import { checkObject, show, unknownField } from "./check.js";
import { checkDuration, checkTime, type Duration, type Time } from "./time.js";

/** Checks a value and returns what is sent. `field` is its name in errors. */
export type Write<V, W> = (field: string, value: V) => W;

/** `maxWait` is `max_wait` in the API. */
type Snake<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${Snake<Tail>}`
  : S;

/** How each field of `T` is written as the field of `W` with the same name. The compiler accepts only all of them. */
export type Fields<T, W> = {
  readonly [K in keyof T & string]-?: Snake<K> extends keyof W
    ? Write<Exclude<T[K], undefined>, Exclude<W[Snake<K>], undefined>>
    : never;
};

/** Returns an object as it is sent. `alsoKnown` are names of fields that it may have, and that are not written. */
export function writeFields<T extends object, W extends object>(
  what: string,
  values: T,
  fields: Fields<T, W>,
  alsoKnown: readonly string[] = [],
): Partial<W> {
  const known = () => [...Object.keys(fields), ...alsoKnown];
  checkObject(what, values, known);
  const wire: Record<string, unknown> = {};
  for (const name of Object.keys(values) as (keyof T & string)[]) {
    if (!Object.hasOwn(fields, name)) {
      if (alsoKnown.includes(name)) continue;
      throw unknownField(what, name, known());
    }
    const value: unknown = values[name];
    const write = fields[name] as Write<unknown, unknown>;
    if (value !== undefined) wire[snake(name)] = write(`${what}.${name}`, value);
  }
  return wire as Partial<W>;
}

function snake(name: string): string {
  return /[A-Z]/.test(name) ? name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : name;
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

/** One of the given texts. */
export function oneOf<const V extends string>(...values: V[]): Write<V, V> {
  return (field, value) => {
    if (values.includes(value)) return value;
    const known = values.map((value) => JSON.stringify(value)).join(", ");
    throw new TypeError(`${field} is ${show(value)}; it must be one of ${known}`);
  };
}

/** A value, or `null`. */
export function nullable<V, W>(write: Write<V, W>): Write<V | null, W | null> {
  return (field, value) => (value === null ? null : write(field, value));
}

/** An object with fields of its own. */
export function object<T extends object, W extends object>(fields: Fields<T, W>): Write<T, Partial<W>> {
  return (field, value) => writeFields(field, value, fields);
}
